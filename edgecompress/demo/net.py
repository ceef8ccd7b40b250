"""The embedded demo: a residual net for handwritten digits, 8 x 8 pixels, ten classes. Its author's side."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

HERE = Path(__file__).parent
WEIGHTS = HERE / "digits.safetensors"
IMAGES = HERE / "digits.npz"  # SPLIT.input: uint8 [n, 8, 8], 0..16; SPLIT.labels: 0..9; split once by train.py


def data(split: str) -> Iterator[tuple[object, int]] | None:
    """(image, label) of a split, or None for a split there is none of. "train" is for train.py alone."""
    import numpy as np

    with np.load(IMAGES, allow_pickle=False) as file:
        if f"{split}.input" not in file:
            return None
        images, labels = file[f"{split}.input"], file[f"{split}.labels"]
    return zip(images, labels.tolist(), strict=True)


def build() -> torch.nn.Module:
    """The trained net: float32 [n, 1, 8, 8], (x / 16 - 0.3) / 0.37 -> logits [n, 10]."""
    from safetensors.torch import load_file

    net = untrained()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def untrained() -> torch.nn.Module:
    """The same net with fresh weights."""
    from edgecompress.demo.residual import Net

    return Net(width=64, blocks=3, classes=10)
