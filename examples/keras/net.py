"""Handwritten digits in Keras: the data that `digits.keras` is deployed with. `train.py` makes the file."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from edgecompress.demo import net as digits


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [8, 8], 0..9): the demo's images and splits."""
    return digits.data(split)
