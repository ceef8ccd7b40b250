"""Calibration items for techniques: which ones, and as inputs of the model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Request
from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np

SPLIT = "calibrate"


def check_samples(samples: int | None) -> None:
    """Raises ValueError where the option `samples` is no number of items; None is all."""
    if samples is not None and samples < 1:
        raise ValueError("samples must be at least 1")


def spread(request: Request, limit: int | None, batch: int | None = None) -> list[list[int]]:
    """The items to calibrate with, at most `limit`, evenly spread over the split (it may be sorted by class).

    In batches of `batch`, else as large as the model's, the last one filled up with its last item. Raises InputError
    when there is none.
    """
    total = tensors.count(request.inputs["samples"], SPLIT)
    if total == 0:
        raise InputError(f"no calibration data: the split '{SPLIT}' is empty; add items to it")
    used = min(total, limit or total)
    chosen = [round(i * (total - 1) / max(used - 1, 1)) for i in range(used)]
    own = request.model.batch
    size = batch or (own if isinstance(own, int) else 1)
    last = chosen[-1:] * (-used % size)
    return [(chosen + last)[begin : begin + size] for begin in range(0, used, size)]


def used(batches: Iterable[Iterable[int]]) -> int:
    """How many items are in the batches of `spread`, those that fill one up left out."""
    return len({item for batch in batches for item in batch})


def inputs_of(request: Request, items: list[int]) -> dict[str, np.ndarray]:
    """The model's inputs for those items, by name."""
    model, samples = request.model, request.inputs["samples"]
    names = tensors.check_inputs(model, samples)
    # opened anew each time: a map that stays open keeps what it read in memory
    return tensors.taken(model, {name: tensors.load(samples, SPLIT, stored)[items] for name, stored in names.items()})
