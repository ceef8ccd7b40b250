"""A net of depthwise convolutions for the demo's digits, and the same function with one channel blown up 100 times.

What is blown up in one layer is taken back by the next, so in float nothing changes. In int8 one scale serves all
channels of an activation: the others are left with two or three levels.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from edgecompress.demo import net as demo

WEIGHTS = Path(__file__).parent / "depthwise.safetensors"
WIDTH, BLOCKS = 128, 4
BLOWN, CHANNEL, FACTOR = 0, 25, 100.0  # block, channel of its depthwise convolution, by how much


class Block(nn.Module):
    """A depthwise 3 x 3 and a pointwise convolution, each with BatchNorm and ReLU."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 3, stride, 1, groups=width, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pointwise = nn.Conv2d(width, width, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, width, h, w] -> [n, width, h / stride, w / stride]."""
        x = torch.relu(self.bn1(self.depthwise(x)))
        return torch.relu(self.bn2(self.pointwise(x)))


class Net(nn.Module):
    """A convolution, BLOCKS blocks, the mean over the picture, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, WIDTH, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(WIDTH)
        self.blocks = nn.Sequential(*(Block(WIDTH, 2 if i == 2 else 1) for i in range(BLOCKS)))
        self.last = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 1, 8, 8], as the demo's source declares it -> logits [n, 10]."""
        x = self.blocks(torch.relu(self.bn(self.first(x))))
        logits: torch.Tensor = self.last(x.mean(dim=(2, 3)))
        return logits


def data(split: str) -> Iterator[tuple[Any, int]] | None:
    """The demo's digits, with what it trains on."""
    return demo.data(split)


def sound() -> nn.Module:
    """The trained net."""
    net = Net()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def build() -> nn.Module:
    """The trained net with one channel blown up: the same answers in float."""
    net = sound()
    block = net.get_submodule(f"blocks.{BLOWN}")
    with torch.no_grad():
        block.get_parameter("bn1.weight")[CHANNEL] *= FACTOR
        block.get_parameter("bn1.bias")[CHANNEL] *= FACTOR
        block.get_parameter("pointwise.weight")[:, CHANNEL] /= FACTOR
    return net
