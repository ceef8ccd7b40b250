"""Nets that Distiller's schedules name, under its names of layers and tensors: factories of a source."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

CLASSES = 10


class Block(nn.Module):  # type: ignore[misc]
    """Two convolutions and a shortcut, which is a 1x1 convolution where the size changes."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(filters)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(filters)
        self.relu2 = nn.ReLU()
        self.downsample = nn.Sequential()
        if channels != filters:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.BatchNorm2d(filters)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Images to images."""
        out = self.relu1(self.bn1(self.conv1(x)))
        return self.relu2(self.bn2(self.conv2(out)) + self.downsample(x))


class ResNet(nn.Module):  # type: ignore[misc]
    """Of small images (He et al. 2015, arXiv:1512.03385, section 4.2): three stages of as many blocks."""

    def __init__(self, blocks: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64, CLASSES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, 32, 32] to logits [n, 10]."""
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def _stage(channels: int, filters: int, blocks: int) -> nn.Sequential:
    first = Block(channels, filters, 1 if channels == filters else 2)
    return nn.Sequential(first, *(Block(filters, filters, 1) for _ in range(blocks - 1)))


def resnet20_cifar() -> nn.Module:
    """Of images [n, 3, 32, 32]: 40,813,184 MACs."""
    return ResNet(3)


def resnet56_cifar() -> nn.Module:
    """Of images [n, 3, 32, 32]: 125,747,840 MACs."""
    return ResNet(9)


def simplenet_cifar() -> nn.Module:
    """Of images [n, 3, 32, 32]."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 6, 5),
            relu_conv1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 16, 5),
            relu_conv2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(16 * 5 * 5, 120),
            relu_fc1=nn.ReLU(),
            fc2=nn.Linear(120, 84),
            relu_fc2=nn.ReLU(),
            fc3=nn.Linear(84, CLASSES),
        )
    )


def simplenet_mnist() -> nn.Module:
    """Of images [n, 1, 28, 28]."""
    return nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(1, 20, 5),
            relu1=nn.ReLU(),
            pool1=nn.MaxPool2d(2),
            conv2=nn.Conv2d(20, 50, 5),
            relu2=nn.ReLU(),
            pool2=nn.MaxPool2d(2),
            flatten=nn.Flatten(),
            fc1=nn.Linear(4 * 4 * 50, 500),
            relu3=nn.ReLU(),
            fc2=nn.Linear(500, CLASSES),
        )
    )
