"""Ranges of activations from histograms: percentiles, the least divergence, the least squared error. Pure functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from edgecompress.core.json import Json

BINS = 2048  # of a histogram of activations
LEVELS = 128  # that the entropy search quantizes a histogram to, as TensorRT does
STEP = 0.97  # from one candidate of the search for the least squared error to the next
LEAST = 1 / 64  # of an extreme: the smallest candidate
SWEEPS = 4  # over both ends, at most; two do nearly always

Calibrator = Literal["minmax", "percentile", "entropy", "mse"]
CALIBRATORS: tuple[Calibrator, ...] = get_args(Calibrator)
Range = tuple[float, float]  # lowest, highest


def check_percentile(percentile: float) -> None:
    """Raises ValueError where the option `percentile` leaves no range."""
    if not 50 < percentile <= 100:
        raise ValueError("percentile must be above 50 and at most 100")


def histogram(values: np.ndarray, extremes: Range) -> np.ndarray:
    """Counts of `values` in BINS equal bins from -reach to reach, reach being the larger extreme."""
    import numpy as np

    reach = _reach(extremes)
    counts, _ = np.histogram(values, BINS, range=(-reach, reach))
    return counts


def calibrated(calibrator: Calibrator, counts: np.ndarray, extremes: Range, percentile: float) -> Range:
    """The range that `calibrator` takes out of a histogram as `histogram` makes it; "minmax" is the extremes."""
    if calibrator == "percentile":
        return percentile_range(counts, extremes, percentile)
    if calibrator == "entropy":
        return entropy_range(counts, extremes)
    return mse_range(counts, extremes) if calibrator == "mse" else extremes


def rungs(used: Json, offered: Sequence[str]) -> list[tuple[str, dict[str, Json]]]:
    """What a technique with an option `calibrator` can still try: each of `offered` but the one in use, in order."""
    return [(name, {"calibrator": name}) for name in offered if name != used]


def _reach(extremes: Range) -> float:
    return max(map(abs, extremes)) or 1.0


# --------------------------------------------------------------------------- a share of the values


def percentile_range(counts: np.ndarray, extremes: Range, percentile: float) -> Range:
    """The range that holds `percentile` % of the values, as many cut off on either side."""
    import numpy as np

    reach = _reach(extremes)
    edges = np.linspace(-reach, reach, len(counts) + 1)
    share = np.cumsum(counts) / counts.sum()
    outside = (100 - percentile) / 200
    low = edges[np.searchsorted(share, outside, side="right")]
    high = edges[min(int(np.searchsorted(share, 1 - outside)) + 1, len(counts))]
    return max(float(low), extremes[0]), min(float(high), extremes[1])


# --------------------------------------------------------------------------- the least divergence


def entropy_range(counts: np.ndarray, extremes: Range) -> Range:
    """The symmetric range, within the extremes, whose quantized magnitudes diverge least from the real ones.

    After Migacz, "8-bit inference with TensorRT" (GTC 2017), with the two habits of NVIDIA's pytorch-quantization:
    magnitudes, and a first bin that counts as much as the second (else the zeros of a ReLU outweigh all the rest).
    """
    reach = _reach(extremes)
    half = len(counts) // 2
    sizes = counts[half:] + counts[:half][::-1]
    sizes[0] = sizes[1]
    cuts = range(LEVELS, half + 1, LEVELS // 16)
    best = max(cuts, key=lambda i: (-divergence(sizes, i), i))
    limit = reach * best / half
    return max(-limit, extremes[0]), min(limit, extremes[1])


def divergence(sizes: np.ndarray, cut: int) -> float:
    """KL(p || q): p is the histogram clipped to its first `cut` bins, q the same bins in LEVELS equal levels."""
    import numpy as np

    inside = sizes[:cut].astype(np.float64)
    level = np.arange(cut) * LEVELS // cut
    filled = np.bincount(level, inside > 0, LEVELS)
    q = np.where(inside > 0, (np.bincount(level, inside, LEVELS) / np.maximum(filled, 1))[level], 0.0)
    p = inside.copy()
    p[-1] += sizes[cut:].sum()
    if p.sum() == 0 or q.sum() == 0:
        return 0.0 if p.sum() == 0 else float("inf")
    some = p > 0
    p, q = p[some] / p.sum(), np.maximum(q[some] / q.sum(), 1e-12)
    return float((p * np.log(p / q)).sum())


# --------------------------------------------------------------------------- the least squared error


def mse_range(counts: np.ndarray, extremes: Range, levels: int = 256) -> Range:
    """The range, within the extremes, whose `levels` equal levels leave the least mean squared error of the values.

    What is minimised is the objective of ACIQ (Banner et al. 2019, arXiv:1810.05723, eq. 2) and of OCTAV (Sakr et al.
    2022, arXiv:2206.06501, eq. 3), what is cut off plus what is rounded, on the histogram itself instead of a fitted
    distribution or the Δ²/12 of uniform noise, as NVIDIA's pytorch-quantization does (`amax` by "mse") - but with
    either end moved on its own: first both in proportion, then one after the other while that still gains.
    """
    import numpy as np

    whole = min(extremes[0], 0.0), max(extremes[1], 0.0)  # a quantizer's range holds zero
    shares = STEP ** np.arange(np.log(LEAST) / np.log(STEP) + 1)
    low, high = _least(counts, extremes, shares * whole[0], shares * whole[1], levels)
    for _ in range(SWEEPS):
        before = low, high
        low, high = _least(counts, extremes, np.append(shares * whole[0], low), high, levels)
        low, high = _least(counts, extremes, low, np.append(shares * whole[1], high), levels)
        if (low, high) == before:
            break
    return max(low, extremes[0]), min(high, extremes[1])


def _least(
    counts: np.ndarray, extremes: Range, lows: np.ndarray | float, highs: np.ndarray | float, levels: int
) -> Range:
    """The pair of ends with the least error, the widest of equal ones."""
    import numpy as np

    lows, highs = np.broadcast_arrays(np.asarray(lows, np.float64), np.asarray(highs, np.float64))
    errors = squared_error(counts, extremes, (lows, highs), levels)
    best = int(np.lexsort((lows - highs, errors))[0])
    return float(lows[best]), float(highs[best])


def squared_error(counts: np.ndarray, extremes: Range, ends: tuple[np.ndarray, np.ndarray], levels: int) -> np.ndarray:
    """The sum of squared errors of a histogram's values after quantization to each of the ranges `ends`.

    counts: [bins], from -reach to reach; ends: lows and highs, [n], low <= 0 <= high; returns [n].
    The values of a bin lie spread over it: their error is integrated, not that of its centre, else a range whose step
    is a bin's width has none. With the level k Δ nearest to x, r = x - k Δ, the integral from 0 to x is k Δ³/12 + r³/3;
    behind the last level k stays, and r³/3 is what is cut off.
    """
    import numpy as np

    reach = _reach(extremes)
    edges = np.linspace(-reach, reach, len(counts) + 1)
    low, high = (np.asarray(end, np.float64)[..., None] for end in ends)
    step = np.maximum((high - low) / (levels - 1), np.finfo(np.float64).tiny)
    first = np.round(low / step)  # zero is a level
    level = np.clip(np.round(edges / step), first, first + levels - 1)
    rest = edges - level * step
    integral = level * (step**3 / 12) + rest * rest * rest / 3
    return np.asarray(np.diff(integral) @ counts / (edges[1] - edges[0]))
