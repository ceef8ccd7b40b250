"""What kind of fault an operator has, where its values and constants decide it: a word, the evidence, what to do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose.noise import Power
from edgecompress.stages.diff.match import laid_out
from edgecompress.stages.diff.words import WEIGHTED, family

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.watched_graph import WatchedOperator
    from edgecompress.stages.diff.departure import Departure
    from edgecompress.stages.diff.sides import Side

FP16_MOST = 65504.0
GAIN_DB = {"float32": 20.0, "float16": 12.0, "int8": 8.0}  # of SQNR, from which on a change explains a difference
LEAST_FIT = 8  # values of a channel that a line is fitted through
FEW_CHANNELS = 0.25
IMAGES = 5  # axes of values [runs, batch, channels, height, width]
CUT_NOISE = 0.6  # of the noise of a quantized value, from which on it comes from what is cut off
SORTED_DB = {"float32": 70.0, "float16": 40.0, "int8": 24.0}  # of the same numbers in another order
FIT_DB = {"float32": 20.0, "float16": 16.0, "int8": 13.0}  # of what varies, that lines explain: 99, 97 and 95 %
SAME = {"float32": 1e-3, "float16": 5e-3, "int8": 3e-2}  # relative, of constants that are one
ONE = {"float32": 1e-3, "float16": 1e-2, "int8": 5e-2}  # how near to 1 a factor is no factor
DO = {
    "fp16 overflow": "keep this operator in float32, or scale its inputs down",
    "not finite": "look at the weights of that operator in B's file, and at what it divides by",
    "layout": "check the order of axes there: NCHW or NHWC, the reshape before a product, transposes",
    "resize mode": "give both the same mode, coordinates (align_corners, half_pixel) and rounding",
    "saturated range": "calibrate with data that has the full range, or remove the clip",
    "padding": "give both the same padding: TensorFlow's SAME pads the end, PyTorch's padding both ends alike",
    "dilation": "give both the same dilation",
    "epsilon": "give both the same epsilon: Keras' default is 1e-3, PyTorch's 1e-5",
    "batch norm": "load the running mean and variance, export in eval mode, and give both the same epsilon",
    "bias": "load the bias, or check the option that drops it",
    "channel scale": "check the weights of that channel, and its scale where it is quantized",
    "quantization scale": "check scale and zero point there; quantize it again",
    "scale": "check the factor there",
    "activation": "give both the same activation and form (GELU exact or tanh, the slope, the limit of ReLU6)",
    "weight": "load the same weights into both, and check the names in the state dict",
    "normalization": "normalize once: in the data or in the model",
    "swapped outputs": "give the outputs names, or read them in the other order",
    "operator": "compare the two operators in the converter's log",
}


@dataclass(frozen=True)
class Kind:
    """A word of DO, the evidence, and the operators that it is about where they are others than the departure's."""

    kind: str
    says: str
    a: WatchedOperator | None = None
    b: WatchedOperator | None = None


class Evidence:
    """The two values of a departure, [runs, *shape] in A's layout, and what their operators hold."""

    def __init__(self, a: Side, b: Side, departure: Departure, precision: str) -> None:
        import numpy as np

        self.a, self.b, self.departure, self.precision = a, b, departure, precision
        self.x = np.asarray(a.values[departure.pair.a].array(), np.float64)
        theirs = b.values[departure.pair.b]
        self.z = np.asarray(laid_out(theirs.array(), departure.pair.axes, self.x.shape[1:]), np.float64)
        self.dtype = theirs.dtype
        self.noise = self.db(self.x, self.z)

    def db(self, x: np.ndarray, z: np.ndarray) -> float:
        """SQNR of z; 200 where it is equal."""
        power = Power()
        power.add(x, z)
        return 200.0 if power.sqnr_db is None else power.sqnr_db

    def explains(self, x: np.ndarray, z: np.ndarray) -> bool:
        """Whether z is as near to x as no other hypothesis makes it."""
        return self.db(x, z) >= self.noise + GAIN_DB[self.precision]

    def only(self, *families: str) -> tuple[WatchedOperator | None, WatchedOperator | None]:
        """The operator of some families in each segment, if there is one."""
        sides = (self.departure.segment_a, self.departure.segment_b)
        first, second = (next((op for op in side if family(op.type) in families), None) for side in sides)
        return first, second


def kind(a: Side, b: Side, departure: Departure, precision: str) -> Kind:
    """The kind of fault of a departure; "" where nothing decides it."""
    seen = Evidence(a, b, departure, precision)
    return next(filter(None, (test(seen) for test in TESTS)), Kind("", ""))


# --------------------------------------------------------------------------- by the values


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
            return Kind(
                "fp16 overflow", f"{maker.type} '{_short(maker.name)}' in B is not finite, or beyond float16's 65504"
            )
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
    modes = [_words(op, ("mode", "coordinate", "align", "half_pixel", "nearest")) for op in (first, second)]
    return Kind("resize mode", f"A: {modes[0]}; B: {modes[1]}", first, second)


def _words(op: WatchedOperator | None, keys: Sequence[str]) -> str:
    if op is None:
        return "no such operator"
    told = [f"{k}={v}" for k, v in op.attributes.items() if any(key in k.lower() for key in keys)]
    return f"{op.type}{' ' if told else ''}{', '.join(told)}"


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
        if "rounding" not in _families(seen) and abs(low) < 1e-2 and (abs(high - 6) < 1e-2 or (first and second)):
            limits = f"0 and {high:.0f}" if abs(high - 6) < 1e-2 else "0"
            return Kind("activation", f"{name} is cut off at {limits}, the other is not", first, second)
        says = f"{name} is cut off at {low:.4g} and {high:.4g}: {share:.2%} of the other's values lie beyond"
        return Kind("saturated range", says)
    return None


def _families(seen: Evidence) -> set[str]:
    return {family(op.type) for op in (*seen.departure.segment_a, *seen.departure.segment_b)}


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
    if inside.all() or inside.mean() < 0.2 or _same_pads(*seen.only("convolution")):
        return None
    if float((seen.x[inside] ** 2).mean()) < 0.05 * float((seen.x[~inside] ** 2).mean()):
        return None  # nothing is there that could differ
    if float(error[inside].mean()) > float(error[~inside].mean()) * 10 ** (-GAIN_DB[seen.precision] / 10):
        return None
    first, second = seen.only("convolution", "pool", "pad")
    pads = [_words(op, ("pad", "ceil", "count_include")) for op in (first, second)]
    return Kind("padding", f"only the edges differ; A: {pads[0]}; B: {pads[1]}", first, second)


# --------------------------------------------------------------------------- a line through each channel


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
    families = _families(seen)
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
    told = [_number(op, "eps") for op in norms]
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


# --------------------------------------------------------------------------- by what the operators are and hold


def _number(op: WatchedOperator | None, word: str) -> float | None:
    """The attribute whose name has a word in it, where it is a number."""
    found = (v for k, v in op.attributes.items() if word in k.lower()) if op else iter(())
    return next((float(v) for v in found if isinstance(v, (int, float))), None)


def normalized(seen: Evidence) -> Kind | None:
    """A layer norm and its like: its weights, else its epsilon."""
    first, second = seen.only("norm")
    if first is None and second is None:
        return None
    if changed := _constants(seen):
        return changed
    told = [
        next((v for k, v in op.attributes.items() if "eps" in k.lower()), None) if op else None
        for op in (first, second)
    ]
    if None not in told and told[0] == told[1]:
        return None
    words = [f"{v:.3g}" if isinstance(v, (int, float)) else "in its graph" for v in told]
    return Kind("epsilon", f"A {words[0]}, B {words[1]}; weights and inputs are equal", first, second)


def activated(seen: Evidence) -> Kind | None:
    """An activation alone, or one of another type behind equal weights."""
    first, second = seen.only("activation")
    families_a = [family(op.type) for op in seen.departure.segment_a if family(op.type) not in ("move", "rounding")]
    if families_a[:1] == ["activation"] or (families_a and {*families_a} <= {"activation", "arithmetic"} and first):
        steps = [op for op in seen.departure.segment_b if family(op.type) not in ("move", "rounding")]
        there = _plain(second) if second and len(steps) == 1 else _types(steps) or "none"
        return Kind("activation", f"from equal inputs; A: {_plain(first)}; B: {there}", first, second)
    return None


def _plain(op: WatchedOperator | None) -> str:
    told = ", ".join(f"{k}={v}" for k, v in op.attributes.items() if k not in ("domain", "inplace")) if op else ""
    return f"{op.type}{f' ({told})' if told else ''}" if op else "none"


def _types(segment: Sequence[WatchedOperator]) -> str:
    return ", ".join(dict.fromkeys(op.type for op in segment))


def twice(seen: Evidence) -> Kind | None:
    """Operators on the net's input that the other has not."""
    if any(key in seen.a.makers for key in seen.departure.reads_a):
        return None
    lacks, more = (
        [family(op.type) for op in _leading(segment)]
        for segment in (seen.departure.segment_a, seen.departure.segment_b)
    )
    plain = [len([f for f in each if f in ("arithmetic", "batch norm")]) for each in (lacks, more)]
    if plain[0] == plain[1]:
        return None
    more_b = plain[1] > plain[0]
    extra = _leading(seen.departure.segment_b if more_b else seen.departure.segment_a)
    says = f"{'B' if more_b else 'A'} changes its input first ({_types(extra)}), the other does not"
    return Kind("normalization", says, *((None, extra[0]) if more_b else (extra[0], None)))


def _leading(segment: Sequence[WatchedOperator]) -> list[WatchedOperator]:
    """The operators before the first with weights."""
    for place, op in enumerate(segment):
        if family(op.type) in WEIGHTED:
            return [*segment[:place]]
    return [*segment]


def weighted(seen: Evidence) -> Kind | None:
    """The constants of the operators: others, those of another layer, transposed; equal ones leave the padding."""
    first, second = seen.only(*WEIGHTED)
    if first is None and second is None:
        return None
    if changed := _constants(seen):
        return changed
    held, other = (_arrays(side, segment) for side, segment in _sides(seen))
    tolerance = SAME[seen.precision]
    if not all(any(_same(o, w, tolerance) for _, o in held) for _, w in other if w.squeeze().ndim > 1):
        return None
    squares = [a for _, a in held if a.ndim == 2 and a.shape[0] == a.shape[1] and a.shape[0] > 1]
    act = seen.only("activation")
    names = [op.type.lower() if op else "" for op in act]
    if family(_type(first, second)) == "convolution":
        if act[0] is not None and act[1] is not None and names[0].strip("_") != names[1].strip("_") and not held:
            return Kind("activation", f"A: {_plain(act[0])}; B: {_plain(act[1])}", *act)
        spread = [_numbers(op, "dilation") for op in (first, second)]
        if all(spread) and spread[0] != spread[1]:
            return Kind("dilation", f"weights and inputs are equal; A: {spread[0]}; B: {spread[1]}", first, second)
        pads = [_words(op, ("pad", "stride", "dilation")) for op in (first, second)]
        if not _same_pads(first, second):
            return Kind("padding", f"weights and inputs are equal; A: {pads[0]}; B: {pads[1]}", first, second)
        squares = [a for _, a in held if a.squeeze().ndim == 2 and len({*a.squeeze().shape}) == 1]
    if squares and held and other:
        return Kind("weight", "B's weight is A's transposed", first, second)
    return None


def _numbers(op: WatchedOperator | None, word: str) -> list[int]:
    """The sizes above 1 in the attributes with a word in their names, each once."""
    every = [v for k, v in op.attributes.items() if word in k.lower()] if op else []
    return sorted({int(n) for v in every for n in (v if isinstance(v, list) else [v]) if isinstance(n, int)} - {0})


def _type(first: WatchedOperator | None, second: WatchedOperator | None) -> str:
    return first.type if first else second.type if second else ""


def _sides(seen: Evidence) -> tuple[tuple[Side, Sequence[WatchedOperator]], ...]:
    return ((seen.a, seen.departure.segment_a), (seen.b, seen.departure.segment_b))


def _arrays(side: Side, segment: Sequence[WatchedOperator]) -> list[tuple[str, np.ndarray]]:
    """The constants of a segment with more than one number."""
    found = {}
    for op in segment:
        for name in op.constants:
            array = side.constant(name)
            if array is not None and array.size > 1 and array.dtype.kind in "fiu" and array.dtype.itemsize < 8:
                found[name] = array.astype("float32")
    return [*found.items()]


def _constants(seen: Evidence) -> Kind | None:
    """What differs between the constants of the two: those of one size are compared in every order of axes."""
    ours, theirs = (_arrays(side, segment) for side, segment in _sides(seen))
    tolerance = SAME[seen.precision]
    unlike = [
        (n, w)
        for n, w in theirs
        if any(o.size == w.size for _, o in ours) and not any(_same(o, w, tolerance) for _, o in ours)
    ]
    for name, array in sorted(unlike, key=lambda pair: -pair[1].size):
        if next((True for _, o in ours if o.size == array.size and _proportional(o, array, tolerance)), False):
            continue
        word = (
            "bias" if array.squeeze().ndim <= 1 and any(a.squeeze().ndim > 1 for _, a in (*ours, *theirs)) else "weight"
        )
        if word == "bias" and any(a.squeeze().ndim > 1 for _, a in unlike):
            word = "weight"
        if donor := next(
            (n for n in _all_constants(seen.a) if _is(seen.a, n, array, tolerance, {n for n, _ in ours})), ""
        ):
            return Kind(word, f"B's '{_short(name)}' is A's '{_short(donor)}', of another operator")
        return Kind(word, f"B's '{_short(name)}' {[*array.shape]} is not A's")
    lost = [
        n
        for n, w in ours
        if w.squeeze().ndim == 1 and len(ours) > len(theirs) and not any(o.size == w.size for _, o in theirs)
    ]
    if lost and len(theirs) and any(w.squeeze().ndim > 1 for _, w in theirs):
        return Kind("bias", f"A's '{_short(lost[0])}' has no counterpart in B")
    return None


def _short(name: str) -> str:
    return name if len(name) <= 40 else f"{name[:18]}…{name[-20:]}"


def _all_constants(side: Side) -> Iterator[str]:
    yield from dict.fromkeys(name for op in side.operators for name in op.constants)


def _is(side: Side, name: str, array: np.ndarray, tolerance: float, known: set[str]) -> bool:
    other = side.constant(name) if name not in known else None
    return (
        other is not None
        and other.size == array.size > 1
        and other.dtype.kind == "f"
        and _same(other.astype("float32"), array, tolerance)
    )


def _same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether b is a in some order of axes."""
    import numpy as np

    if a.size != b.size:
        return False
    size = float(np.sqrt((a.astype(np.float64) ** 2).sum()))
    return any(float(np.sqrt(((other - b.reshape(-1)) ** 2).sum())) <= tolerance * size for other in _orders(a))


def _orders(a: np.ndarray) -> Iterator[np.ndarray]:
    squeezed = a.squeeze()
    if squeezed.ndim > 4:
        yield a.reshape(-1)
        return
    for p in permutations(range(squeezed.ndim)):
        yield squeezed.transpose(p).reshape(-1)


def _proportional(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
    """Whether b is a in some order of axes, each slice along one axis times a factor: a batch norm folded in."""
    import numpy as np

    squeezed, flat = a.squeeze(), b.squeeze()
    if squeezed.ndim < 2 or squeezed.ndim != flat.ndim or squeezed.ndim > 4:
        return False
    for p in permutations(range(squeezed.ndim)):
        x = squeezed.transpose(p)
        if x.shape != flat.shape:
            continue
        for axis in range(x.ndim):
            m, n = (np.moveaxis(each, axis, 0).reshape(x.shape[axis], -1) for each in (x, flat))
            power = (m * m).sum(1)
            factors = (m * n).sum(1) / np.where(power > 0, power, 1)
            rest = n - factors[:, None] * m
            if float((rest * rest).sum()) <= tolerance**2 * float((n * n).sum()):
                return True
    return False


def by_family(seen: Evidence) -> Kind | None:
    """What is left where the operator itself is about places: another padding or order."""
    word = family(seen.departure.segment_a[0].type) if seen.departure.segment_a else ""
    pools = [op.type.lower() for op in seen.only("pool") if op]
    if word in ("pool", "pad") and len({"max" in kind for kind in pools}) < 2:  # a maximum is no average
        return Kind("padding", f"A: {_plain(seen.departure.a)}; B: {_plain(seen.departure.b)}")
    if word == "move":
        return Kind("layout", f"A: {_plain(seen.departure.segment_a[0])}; B: {_plain(seen.departure.b)}")
    return None


def _same_pads(first: WatchedOperator | None, second: WatchedOperator | None) -> bool:
    """Whether both tell their paddings as numbers, and these are the same."""
    told = []
    for op in (first, second):
        every = [v for k, v in op.attributes.items() if "pad" in k.lower()] if op else []
        numbers = {n for v in every for n in (v if isinstance(v, list) else [v]) if isinstance(n, int)}
        told.append(numbers if all(not isinstance(v, str) for v in every) else set[int]())
    return bool(told[0]) and told[0] == told[1]


TESTS = (overflow, resized, layout, twice, saturated, affine, borders, normalized, activated, weighted, by_family)
