"""Factories of nets that learn from others: of the zoo's pictures [n, 3, 16, 16], and of the demo's digits."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgecompress.demo.residual import Net


class Pictures(nn.Module):
    """image [n, 3, 16, 16] -> logits [n, classes]."""

    def __init__(self, width: int, classes: int = 10) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, width, 3, 2, 1), nn.Conv2d(width, 2 * width, 3, 2, 1)
        self.head = nn.Linear(2 * width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(image)))).mean(dim=(2, 3)))


class Scaled(Pictures):
    """With a parameter of its own that nothing draws anew."""

    def __init__(self) -> None:
        super().__init__(4)
        self.scale = nn.Parameter(torch.ones(1))


class Renamed(Pictures):
    """It calls its input otherwise."""

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return super().forward(picture)


def small() -> nn.Module:
    return Pictures(4)


def wide() -> nn.Module:
    """Wider than its teacher."""
    return Pictures(32)


def seeded() -> nn.Module:
    """The same weights at each call."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Pictures(4)


def of_twelve() -> nn.Module:
    """Two classes too many."""
    return Pictures(4, 12)


def scaled() -> nn.Module:
    return Scaled()


def renamed() -> nn.Module:
    return Renamed(4)


def digits() -> nn.Module:
    """A small net for the digits."""
    return Net(width=16, blocks=1, classes=10)


def steps() -> Any:
    """x [n, 8, 16] -> logits [n, 10], with a GRU in the place of an LSTM."""

    class Steps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.GRU(16, 8, batch_first=True), nn.Linear(8, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    return Steps()
