"""What differs between the constants of two operators, in every order of axes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose import advice
from edgecompress.stages.diff.kinds.evidence import LETTERS, Evidence, Kind

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.watched_graph import WatchedOperator
    from edgecompress.stages.diff.sides import Side

SAME = {"float32": 1e-3, "float16": 5e-3, "int8": 3e-2}  # relative, of constants that are one


def changed(seen: Evidence) -> Kind | None:
    """What differs between the constants of the two: those of one size are compared in every order of axes."""
    ours, theirs = (arrays(side, segment) for side, segment in sides(seen))
    tolerance, short = SAME[seen.precision], partial(advice.short, limit=LETTERS)
    matrices = any(array.squeeze().ndim > 1 for _, array in (*ours, *theirs))
    alike = [(name, w, [o for _, o in ours if o.size == w.size]) for name, w in theirs]
    unlike = [(name, w, same) for name, w, same in alike if same and not any(is_same(o, w, tolerance) for o in same)]
    for name, array, same in sorted(unlike, key=lambda each: -each[1].size):
        if any(is_proportional(o, array, tolerance) for o in same):  # a batch norm is folded in
            continue
        is_bias = array.squeeze().ndim <= 1 and matrices and all(a.squeeze().ndim <= 1 for _, a, _ in unlike)
        word, own = "bias" if is_bias else "weight", {n for n, _ in ours}
        donor = next((n for n in _every(seen.a) if _is_constant(seen.a, n, array, tolerance, own)), "")
        if donor:
            return Kind(word, f"B's '{short(name)}' is A's '{short(donor)}', of another operator")
        return Kind(word, f"B's '{short(name)}' {[*array.shape]} is not A's")
    sizes = {w.size for _, w in theirs}
    lost = [name for name, o in ours if o.squeeze().ndim == 1 and o.size not in sizes]
    if lost and len(ours) > len(theirs) and any(w.squeeze().ndim > 1 for _, w in theirs):
        return Kind("bias", f"A's '{short(lost[0])}' has no counterpart in B")
    return None


def sides(seen: Evidence) -> tuple[tuple[Side, Sequence[WatchedOperator]], ...]:
    return ((seen.a, seen.departure.segment_a), (seen.b, seen.departure.segment_b))


def arrays(side: Side, segment: Sequence[WatchedOperator]) -> list[tuple[str, np.ndarray]]:
    """The constants of a segment with more than one number."""
    found = {}
    for op in segment:
        for name in op.constants:
            array = side.constant(name)
            if array is not None and array.size > 1 and array.dtype.kind in "fiu" and array.dtype.itemsize < 8:
                found[name] = array.astype("float32")
    return [*found.items()]


def _every(side: Side) -> Iterator[str]:
    yield from dict.fromkeys(name for op in side.operators for name in op.constants)


def _is_constant(side: Side, name: str, array: np.ndarray, tolerance: float, known: set[str]) -> bool:
    other = side.constant(name) if name not in known else None
    return (
        other is not None
        and other.size == array.size > 1
        and other.dtype.kind == "f"
        and is_same(other.astype("float32"), array, tolerance)
    )


def is_same(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
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


def is_proportional(a: np.ndarray, b: np.ndarray, tolerance: float) -> bool:
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
