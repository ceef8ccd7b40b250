"""Eight shapes in pictures of 32 x 32 pixels: a small residual net, with its weights and images beside this file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

HERE = Path(__file__).parent
WEIGHTS = HERE / "shapes.safetensors"
IMAGES = HERE / "shapes.npz"  # SPLIT.input: uint8 [n, 32, 32, 3]; SPLIT.labels: 0..7; drawn by train.py


class Convolution(nn.Sequential):
    """A 3 x 3 convolution with its batch norm."""

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(filters))


class Block(nn.Module):
    """x + two convolutions of x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Convolution(width, width), Convolution(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, width, h, w] -> the same."""
        return torch.relu(x + self.second(torch.relu(self.first(x))))


class Net(nn.Module):
    """RGB in, logits out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Convolution(3, 32)
        self.down1, self.block1 = Convolution(32, 64, stride=2), Block(64)
        self.down2, self.block2 = Convolution(64, 64, stride=2), Block(64)
        self.head = nn.Linear(64, 8)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 32, 32] -> [n, 8]."""
        x = self.block1(torch.relu(self.down1(torch.relu(self.stem(image)))))
        x = self.block2(torch.relu(self.down2(x)))
        return self.head(x.mean(dim=(2, 3)))


def build() -> nn.Module:
    """The trained net."""
    net = Net()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(image, label) of a split, or None for a split there is none of: nothing is left to train on."""
    with np.load(IMAGES, allow_pickle=False) as file:
        if f"{split}.input" not in file:
            return None
        images, labels = file[f"{split}.input"], file[f"{split}.labels"]
    return zip(images, labels.tolist(), strict=True)
