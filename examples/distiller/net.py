"""Distiller's own dense resnet20_cifar with its weights, and CIFAR-10."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from torch import nn

from edgecompress.schedules import nets

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

DEV, MORE = "data/cifar10_dev.npz", "data/cifar10_train_more.npz"
SPLITS = {
    "calibrate": [(DEV, "train")],
    "select": [(MORE, "train")],
    "test": [(DEV, "test")],
    "train": [(DEV, "train"), (MORE, "train")],
}


def build() -> nn.Module:
    """As it was published: 92.54 % on the 10,000 test images."""
    net = nets.resnet20_cifar()
    weights = load_file(shared_data.find("models/distiller_resnet20_cifar.safetensors"))
    net.load_state_dict(weights, strict=False)  # what is missing counts the batches of batch norms
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [32, 32, 3], class): all but test are train images, which the net has seen."""
    if split not in SPLITS:
        return None
    return (item for name, part in SPLITS[split] for item in _items(name, part))


def _items(name: str, part: str) -> Iterator[tuple[np.ndarray, int]]:
    with np.load(shared_data.find(name), allow_pickle=False) as file:
        images, labels = file[f"{part}_x"], file[f"{part}_y"]
    yield from zip(images, labels.tolist(), strict=True)
