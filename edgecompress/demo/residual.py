"""A residual net at constant resolution (He et al. 2015, arXiv:1512.03385), in plain torch."""

from __future__ import annotations

import torch
from torch import nn


class ResidualBlock(nn.Module):  # type: ignore[misc]
    """x + two 3 x 3 convolutions of x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, width, h, w] -> the same."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(x + self.bn2(self.conv2(y)))


class Net(nn.Module):  # type: ignore[misc]
    """One grey channel in, logits out."""

    def __init__(self, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(width)
        self.blocks = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks)))
        self.head = nn.Linear(width, classes)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 1, h, w] -> [n, classes]."""
        x = self.blocks(torch.relu(self.bn(self.stem(image))))
        return self.head(x.mean(dim=(2, 3)))
