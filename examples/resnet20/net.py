"""ResNet-20 and -32 for CIFAR-10 (He et al. 2015, arXiv:1512.03385, section 4.2), with shortcuts without parameters."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

DEV, MORE = "data/cifar10_dev.npz", "data/cifar10_train_more.npz"
SPLITS = {
    "calibrate": [(DEV, "train")],
    "select": [(MORE, "train")],
    "test": [(DEV, "test")],
    "train": [(DEV, "train"), (MORE, "train")],
}
HELD_OUT = 250  # test images that choose in `held_out`, the first ones


class Block(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut that takes every second pixel and pads channels on both sides."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.stride, self.more = stride, (outputs - inputs) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]."""
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.stride > 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more, self.more))
        return F.relu(x + y)


class ResNet(nn.Module):
    """Three layers of 3 (ResNet-20) or 5 (ResNet-32) blocks, of `width` channels, twice and four times as many."""

    def __init__(self, blocks: int, width: int = 16) -> None:
        super().__init__()

        def layer(inputs: int, outputs: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                Block(inputs, outputs, stride), *(Block(outputs, outputs, 1) for _ in range(blocks - 1))
            )

        self.conv1 = nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = layer(width, width, 1)
        self.layer2, self.layer3 = layer(width, 2 * width, 2), layer(2 * width, 4 * width, 2)
        self.linear = nn.Linear(4 * width, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 32, 32] -> logits [n, 10]."""
        x = F.relu(self.bn1(self.conv1(image)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean(dim=(2, 3)))


def build() -> nn.Module:
    """The trained ResNet-20."""
    return _trained(ResNet(3), "models/resnet20_cifar10.safetensors")


def build32() -> nn.Module:
    """The trained ResNet-32."""
    return _trained(ResNet(5), "models/resnet32_cifar10.safetensors")


def half() -> nn.Module:
    """ResNet-20 of half the width, untrained: a student."""
    torch.manual_seed(0)
    return ResNet(3, width=8)


def _trained(net: nn.Module, weights: str) -> nn.Module:
    net.load_state_dict(load_file(shared_data.find(weights)))
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [32, 32, 3], class): all but test are train images, which the nets have seen."""
    if split not in SPLITS:
        return None
    return (item for name, part in SPLITS[split] for item in _items(name, part))


def held_out(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """The same, but the first 250 test images choose: a net that is trained on loses images that it had learned."""
    if split not in ("select", "test"):
        return data(split)
    chosen = slice(HELD_OUT) if split == "select" else slice(HELD_OUT, None)
    return iter([*_items(DEV, "test")][chosen])


def _items(name: str, part: str) -> Iterator[tuple[np.ndarray, int]]:
    with np.load(shared_data.find(name), allow_pickle=False) as file:
        images, labels = file[f"{part}_x"], file[f"{part}_y"]
    yield from zip(images, labels.tolist(), strict=True)
