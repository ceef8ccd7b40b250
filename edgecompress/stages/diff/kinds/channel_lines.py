"""Kinds that a line through each channel decides: another bias, scale, batch norm or epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.stages.diff.kinds.evidence import GAIN_DB, Evidence, Kind, number
from edgecompress.stages.diff.words import family

if TYPE_CHECKING:
    import numpy as np


LEAST_FIT = 8  # values of a channel that a line is fitted through
FEW_CHANNELS = 0.25
IMAGES = 5  # axes of values [runs, batch, channels, height, width]
FIT_DB = {"float32": 20.0, "float16": 16.0, "int8": 13.0}  # of what varies, that lines explain: 99, 97 and 95 %
ONE = {"float32": 1e-3, "float16": 1e-2, "int8": 5e-2}  # how near to 1 a factor is no factor


@dataclass(frozen=True)
class Lines:
    """B = factor * A + offset in each channel of an axis."""

    axis: int
    factors: np.ndarray
    offsets: np.ndarray
    explains: bool


def lines(seen: Evidence) -> Lines | None:
    """The axis along which lines explain B best; what an activation has cut off is left out."""
    import numpy as np

    x, z = seen.x, seen.z
    open_ = np.isfinite(x) & np.isfinite(z)
    for each in (x, z):
        fine = each[np.isfinite(each)]
        for end in (fine.min(), fine.max()):
            at = each == end
            open_ &= ~at if at.mean() > 0.02 else True
    best: Lines | None = None
    found = -math.inf
    # of images the channels are behind the batch, or last; the others are places
    for axis in range(1, x.ndim) if x.ndim < IMAGES else (2, x.ndim - 1):
        if x.shape[axis] < 2 or x.size / x.shape[axis] < LEAST_FIT:
            continue
        ours, theirs, held = (np.moveaxis(each, axis, 0).reshape(x.shape[axis], -1) for each in (x, z, open_))
        count = held.sum(1)
        if (count < LEAST_FIT).mean() > 0.5:
            continue
        n = np.maximum(count, 1)
        mx, mz = (ours * held).sum(1) / n, (theirs * held).sum(1) / n
        dx, dz = (ours - mx[:, None]) * held, (theirs - mz[:, None]) * held
        power = (dx * dx).sum(1)
        a = np.where(power > 0, (dx * dz).sum(1) / np.where(power > 0, power, 1), 1.0)
        b = mz - a * mx
        fitted = (a[:, None] * ours + b[:, None]) * held
        few = np.where(count < LEAST_FIT, False, True)
        after = seen.db(theirs[few] * held[few], fitted[few])
        rest = (((dz - a[:, None] * dx) * held)[few] ** 2).sum()
        told = float(rest) <= float((dz[few] ** 2).sum()) * 10 ** (-FIT_DB[seen.precision] / 10)
        before = seen.db(ours[few] * held[few], theirs[few] * held[few])
        if after - before > found:
            found = after - before
            best = Lines(axis, np.where(few, a, 1.0), np.where(few, b, 0.0), told and found >= GAIN_DB[seen.precision])
    return best


def affine(seen: Evidence) -> Kind | None:
    """Another bias, batch norm, scale or epsilon: a line in each channel."""
    import numpy as np

    line = lines(seen)
    if line is None or not line.explains:
        return None
    size = float(np.sqrt(np.nanmean(seen.x**2))) or 1.0
    one = np.abs(line.factors - 1) < ONE[seen.precision]
    none = np.abs(line.offsets) < ONE[seen.precision] * size
    wrong = ~(one & none)
    families = seen.families
    norm = seen.only("batch norm")
    count, share = int(wrong.sum()), float(wrong.mean())
    if not count:
        return None
    which = ", ".join(map(str, np.flatnonzero(wrong)[:3])) + (" ..." if count > 3 else "")
    where = f"channel{'s' if count > 1 else ''} {which}"
    middle = float(np.median(line.factors[wrong]))
    if one.all() and any(
        family(op.type) in ("rsqrt", "sqrt", "pow", "power", "realdiv", "div")
        for side, key in ((seen.a, seen.departure.pair.a), (seen.b, seen.departure.pair.b))
        for op in side.readers.get(key, ())[:1]
        if family(op.type) != "arithmetic" or np.std(line.offsets) < 1e-3 * abs(float(line.offsets[0]))
    ):
        return Kind("epsilon", f"B's variance is {line.offsets[0]:+.3g} from A's in every channel")
    if one.all():
        return Kind("bias", f"B differs by a constant in {count} of {len(one)} channels: {_few(line.offsets[wrong])}")
    if share <= FEW_CHANNELS and count <= max(2, 0.1 * len(one)):
        word = "quantization scale" if seen.b.quantized else "channel scale"
        return Kind(word, f"{where} of {len(one)}: B is {middle:.4g} times A, the others are equal")
    if len(one) > 1 and np.std(line.factors) < ONE[seen.precision] * abs(middle) and none.all():
        if "norm" in families:
            return None
        word = "quantization scale" if seen.b.quantized or "rounding" in families else "scale"
        return Kind(word, f"B is {middle:.4g} times A everywhere")
    if "norm" in families:
        return None
    if seen.b.quantized and not seen.a.quantized:
        return Kind("quantization scale", f"B is {_few(line.factors)} times A, by channel")
    if norm[0] or norm[1] or families & {"convolution"}:
        if epsilon := _epsilon(seen, line):
            return epsilon
        return Kind("batch norm", f"each channel has another factor ({_few(line.factors)}) and offset", *norm)
    return None


def _few(values: np.ndarray, limit: int = 3) -> str:
    return ", ".join(f"{v:.4g}" for v in values[:limit]) + (" ..." if len(values) > limit else "")


def _epsilon(seen: Evidence, line: Lines) -> Kind | None:
    """Factors that one other epsilon makes of A's variances: sqrt((v + e) / (v + e'))."""
    import numpy as np

    norms = seen.only("batch norm")
    told = [number(op, "eps") for op in norms]
    if None not in told and told[0] != told[1]:
        return Kind("epsilon", f"A {told[0]:.3g}, B {told[1]:.3g}", *norms)
    for op, side, own, sign in ((norms[0], seen.a, told[0], 1), (norms[1], seen.b, told[1], -1)):
        if op is None:
            continue
        for name in reversed(op.constants):  # the variance stands last
            variance = side.constant(name)
            if variance is None or variance.size != len(line.factors) or (variance < 0).any():
                continue
            v, mine = variance.reshape(-1).astype(np.float64), own or 1e-5
            factors = line.factors**sign
            clear = np.abs(factors - 1) > 1e-5
            other = (v[clear] + mine) / factors[clear] ** 2 - v[clear]
            steady = clear.sum() >= 2 and (other > -1e-9).all() and np.std(other) <= 0.2 * abs(float(np.mean(other)))
            if steady and not 0.8 < float(np.median(other)) / mine < 1.25:
                there = float(np.median(other))
                first, second = (mine, there) if sign > 0 else (there, mine)
                says = f"A {first:.3g}, B {second:.3g}, by the factors of {len(factors)} channels"
                return Kind("epsilon", says, *norms)
    return None
