"""Zeros in weights: the table of what is all zero, and the arithmetic of making more of them or fewer bits.

The columns are Distiller's (`weights_sparsity_summary`), in percent, so that its published tables can be compared with
ours. A weight is [filters, channels, *kernel] of a convolution, or [rows, columns] as torch stores a Linear's. `rows`
and `cols` are all-zero rows and columns of the latter as stored: outputs and inputs that could be cut out. That is what
Distiller's published tables show; its last version swaps the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import numpy as np

SHARES = ("cols_pct", "rows_pct", "channels_pct", "kernels_pct", "filters_pct", "fine_pct")
STRUCTURES = ("element", "filter", "channel")
MATRIX = 2  # axes

# --------------------------------------------------------------------------- the table


class Shares(TypedDict):
    """Percent that is zero; None where a weight has no such parts."""

    cols_pct: float | None
    rows_pct: float | None
    channels_pct: float | None
    kernels_pct: float | None
    filters_pct: float | None
    fine_pct: float


class WeightSparsity(Shares):
    """One weight."""

    name: str
    shape: list[int]
    dense: int
    sparse: int
    std: float | None
    mean: float
    abs_mean: float


class SparsityTotals(TypedDict):
    """All weights."""

    dense: int
    sparse: int
    fine_pct: float | None


def row(name: str, weight: np.ndarray) -> WeightSparsity:
    """One weight of two or more axes; a share is None where the weight has no such parts."""
    import numpy as np

    kept = int(np.count_nonzero(weight))
    deviation = float(np.std(weight, ddof=1, dtype=np.float64)) if weight.size > 1 else None
    mean, size = (float(np.mean(part, dtype=np.float64)) for part in (weight, np.abs(weight)))
    # percent of the columns, rows, input channels, kernels (of a matrix: rows), filters and elements that are zero
    zero = weight == 0
    first, second = _all_but(zero, 0), _all_but(zero, 1)
    matrix = weight.ndim == MATRIX
    kernels = first if matrix else zero.reshape(weight.shape[0] * weight.shape[1], -1).all(axis=1)
    return {
        "name": name,
        "shape": list(weight.shape),
        "dense": int(weight.size),
        "sparse": kept,
        "cols_pct": _percent(second) if matrix else None,
        "rows_pct": _percent(first) if matrix else None,
        "channels_pct": None if matrix else _percent(second),
        "kernels_pct": _percent(kernels),
        "filters_pct": None if matrix else _percent(first),
        "fine_pct": _percent(zero.reshape(-1)),
        "std": deviation,
        "mean": mean,
        "abs_mean": size,
    }


def _all_but(zero: np.ndarray, axis: int) -> np.ndarray:
    """Whether all of each part along an axis is zero."""
    import numpy as np

    return np.asarray(np.moveaxis(zero, axis, 0).reshape(zero.shape[axis], -1).all(axis=1))


def _percent(flags: np.ndarray) -> float:
    return 100 * float(flags.mean())


def total(rows: Sequence[WeightSparsity]) -> SparsityTotals:
    """The last row: elements, those that are not zero, and the share that is. A weight of two names counts twice."""
    dense, sparse = sum(row["dense"] for row in rows), sum(row["sparse"] for row in rows)
    return {"dense": dense, "sparse": sparse, "fine_pct": 100 * (1 - sparse / dense) if dense else None}


# --------------------------------------------------------------------------- pruning and quantizing one weight


def pruned(weight: np.ndarray, ratio: float, structure: str) -> np.ndarray:
    """The weight with the smallest share of its parts set to zero: floor(ratio x parts) of them, of equals the first.

    The size of a part is the mean of its magnitudes. structure: "element", "filter" (axis 0) or "channel" (axis 1).
    """
    import numpy as np

    axis = STRUCTURES.index(structure) - 1
    moved = weight.reshape(-1, 1) if axis < 0 else np.moveaxis(weight, axis, 0)
    sizes = np.abs(moved.reshape(len(moved), -1)).mean(axis=1, dtype=np.float64)
    sparse = moved.copy()
    sparse[np.argsort(sizes, kind="stable")[: math.floor(ratio * len(moved))]] = 0
    return sparse.reshape(weight.shape) if axis < 0 else np.moveaxis(sparse, 0, axis)


def quantized(weight: np.ndarray, bits: int) -> np.ndarray:
    """The weight as symmetric integers of so many bits would hold it, a scale for each part of axis 0.

    The integers are -(2^(bits-1) - 1) to 2^(bits-1) - 1, halves rounded to even: the grid of every int8 runtime here.
    """
    import numpy as np

    most = 2 ** (bits - 1) - 1
    parts = weight.reshape(len(weight), -1).astype(np.float64)
    scale = np.abs(parts).max(axis=1, keepdims=True, initial=0.0) / most
    steps = np.divide(parts, scale, out=np.zeros_like(parts), where=scale > 0)
    return (np.round(steps) * scale).astype(weight.dtype).reshape(weight.shape)  # type: ignore[no-any-return]
