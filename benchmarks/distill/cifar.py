"""CIFAR-10 with train images kept back, a trained teacher, and a student: ResNet-8 of half its width."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "resnet20"))
import net as resnet

Pictures = Iterator[tuple[np.ndarray, int]]

SELECTED = 1_000  # of the 16,000 further train images, to look at epochs with: the rest is kept back


def resnet20() -> nn.Module:
    """The teacher, trained."""
    return resnet.build()


def student() -> nn.Module:
    """Untrained, one block in each layer, 8, 16 and 32 channels wide."""
    net = resnet.ResNet(1)
    net.conv1, net.bn1 = nn.Conv2d(3, 8, 3, 1, 1, bias=False), nn.BatchNorm2d(8)
    net.layer1 = nn.Sequential(resnet.Block(8, 8, 1))
    net.layer2 = nn.Sequential(resnet.Block(8, 16, 2))
    net.layer3 = nn.Sequential(resnet.Block(16, 32, 2))
    net.linear = nn.Linear(32, 10)
    return net


def data(split: str) -> Pictures | None:
    """(uint8 [32, 32, 3], class); "kept": train images that the teacher has seen, and no student has."""
    parts = {
        "train": lambda: _of("calibrate"),
        "calibrate": lambda: _of("calibrate"),
        "select": lambda: islice(_of("select"), SELECTED),
        "test": lambda: _of("test"),
        "kept": lambda: islice(_of("select"), SELECTED, None),
    }
    return parts[split]() if split in parts else None


def _of(split: str) -> Pictures:
    """A split of the example's."""
    found = resnet.data(split)
    assert found is not None
    return found
