"""Kinds that the values alone decide."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose import advice
from edgecompress.stages.diff.kinds.evidence import GAIN_DB, LETTERS, Evidence, Kind, same_pads, words
from edgecompress.stages.diff.words import family

if TYPE_CHECKING:
    pass

FP16_MOST = 65504.0
CUT_NOISE = 0.6  # of the noise of a quantized value, from which on it comes from what is cut off
SORTED_DB = {"float32": 70.0, "float16": 40.0, "int8": 24.0}  # of the same numbers in another order


def overflow(seen: Evidence) -> Kind | None:
    """Values of half precision beyond what it holds."""
    import numpy as np

    bad = ~np.isfinite(seen.z) & np.isfinite(seen.x)
    held = np.isfinite(seen.z) & (np.abs(seen.z) >= FP16_MOST)
    inner = [
        v for op in seen.departure.segment_b for v in op.writes if v in seen.b.values and v != seen.departure.pair.b
    ]
    for value in inner:
        held_there = seen.b.values[value].array()
        if not np.isfinite(held_there).all() or float(np.abs(held_there).max()) >= FP16_MOST:
            maker = seen.b.makers[value]
            name = advice.short(maker.name, LETTERS)
            return Kind("fp16 overflow", f"{maker.type} '{name}' in B is not finite, or beyond float16's 65504")
    if not bad.any() and not (seen.dtype == "float16" and held.any()):
        return None
    most = float(np.abs(seen.x[np.isfinite(seen.x)]).max())
    if seen.b.half or most > FP16_MOST:
        count = int(bad.sum() + held.sum())
        return Kind("fp16 overflow", f"{count} values are not finite or at float16's limit; A's reach {most:.3g}")
    return Kind("not finite", f"{int(bad.sum())} values are not finite; A's reach {most:.3g}, which float32 holds")


def layout(seen: Evidence) -> Kind | None:
    """The same numbers in another order."""
    import numpy as np

    x, z = (np.sort(each.reshape(len(each), -1), axis=1) for each in (seen.x, seen.z))
    if x.shape[1] < 2 or seen.db(x, z) < max(SORTED_DB[seen.precision], seen.noise + GAIN_DB[seen.precision]):
        return None
    shape = seen.x.shape[1:]
    turned = [p for p in permutations(range(len(shape))) if len(shape) <= 4 and sorted(p) != [*p]]
    for p in turned:
        other = seen.x.transpose((0, *(i + 1 for i in p))).reshape(seen.x.shape)
        if seen.explains(other, seen.z):
            return Kind("layout", f"B holds A's numbers with the axes in the order {[*p]}")
    return Kind("layout", "B holds the same numbers in another order")


def resized(seen: Evidence) -> Kind | None:
    """An operator that resizes."""
    first, second = seen.only("resize")
    heads = [side[0] for side in (seen.departure.segment_a, seen.departure.segment_b) if side]
    if not any(family(op.type) == "resize" for op in heads):
        return None
    modes = [words(op, ("mode", "coordinate", "align", "half_pixel", "nearest")) for op in (first, second)]
    return Kind("resize mode", f"A: {modes[0]}; B: {modes[1]}", first, second)


def saturated(seen: Evidence) -> Kind | None:
    """One is the other, cut off at its extremes."""
    import numpy as np

    for name, whole, cut in (("B", seen.x, seen.z), ("A", seen.z, seen.x)):
        low, high = float(np.nanmin(cut)), float(np.nanmax(cut))
        beyond = (whole > high) | (whole < low)
        share = float(beyond.mean())
        error = np.nan_to_num((whole - cut) ** 2)
        loud = seen.precision == "int8" and float(error[beyond].sum()) > CUT_NOISE * float(error.sum())
        if not 0 < share < 0.6 or not (loud or seen.explains(np.clip(whole, low, high), cut)):
            continue
        first, second = seen.only("activation")
        if "rounding" not in seen.families and abs(low) < 1e-2 and (abs(high - 6) < 1e-2 or (first and second)):
            limits = f"0 and {high:.0f}" if abs(high - 6) < 1e-2 else "0"
            return Kind("activation", f"{name} is cut off at {limits}, the other is not", first, second)
        says = f"{name} is cut off at {low:.4g} and {high:.4g}: {share:.2%} of the other's values lie beyond"
        return Kind("saturated range", says)
    return None


def borders(seen: Evidence) -> Kind | None:
    """Equal inside, different at the edges of images or sequences."""
    import numpy as np

    error = np.nan_to_num((seen.z - seen.x) ** 2)
    total, inside = float(error.sum()), np.ones(seen.x.shape, bool)
    axes = [axis for axis in range(2, seen.x.ndim) if seen.x.shape[axis] >= 4]
    if seen.x.ndim < 4 or not axes or not total:
        return None
    for axis in axes:
        width = max(1, seen.x.shape[axis] // 4)
        profile = error.sum(axis=tuple(i for i in range(error.ndim) if i != axis))
        edge = profile[:width].sum() + profile[-width:].sum()
        if edge < 0.95 * profile.sum():
            continue
        index = [slice(None)] * seen.x.ndim
        for cut in (slice(0, width), slice(-width, None)):
            index[axis] = cut
            inside[tuple(index)] = False
    if inside.all() or inside.mean() < 0.2 or same_pads(*seen.only("convolution")):
        return None
    if float((seen.x[inside] ** 2).mean()) < 0.05 * float((seen.x[~inside] ** 2).mean()):
        return None  # nothing is there that could differ
    if float(error[inside].mean()) > float(error[~inside].mean()) * 10 ** (-GAIN_DB[seen.precision] / 10):
        return None
    first, second = seen.only("convolution", "pool", "pad")
    pads = [words(op, ("pad", "ceil", "count_include")) for op in (first, second)]
    return Kind("padding", f"only the edges differ; A: {pads[0]}; B: {pads[1]}", first, second)
