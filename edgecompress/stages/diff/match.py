"""Which value of one model is which of another: by the numbers themselves on real items, in the order of computing.

Two values are alike by 2ab / (a² + b²) at the same places, a and b the values (Lin's concordance, 1989, about zero): 1
for equal ones alone, also where one is a multiple of the other. What is equal is matched by that alone. The rest is
paired between those in the order of computing (stages.diagnose.align), and is shown as what it is: alike, not equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose import align
from edgecompress.stages.diagnose.align import Axes
from edgecompress.stages.diagnose.noise import Power

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.stages.diff.sides import Side

POINTS = 2048  # of a value in a run, that are compared
RUNS = 2
LEAST = 1e-12  # 1 - likeness, from which on values count as the same
SAME_MODULE = 0.3  # what it adds to the likeness that both are of one module
FLOOR = 0.05  # the likeness of a pair that is known by its place alone


@dataclass(frozen=True)
class Pair:
    """A value of each model, the order of B's axes that is A's, and how near B is: SQNR in dB, None where equal."""

    a: str
    b: str
    axes: Axes
    likeness: float
    sqnr_db: float | None = None

    @property
    def near_db(self) -> float:
        """The SQNR; 200 where the values are equal to the bit."""
        return 200.0 if self.sqnr_db is None else self.sqnr_db


def laid_out(array: np.ndarray, axes: Axes, shape: Sequence[int]) -> np.ndarray:
    """B's [runs, *shape] with A's order of axes, and A's shape."""
    turned = array if axes is None else array.transpose((0, *(axis + 1 for axis in axes)))
    return turned.reshape((len(array), *shape))


@dataclass(frozen=True)
class Pairs:
    """The nearest value of B for each of A, and the other way round; the pairs that the order gives, by A's."""

    of_a: Mapping[str, Pair]
    of_b: Mapping[str, Pair]
    aligned: Mapping[str, Pair]


def pairs(a: Side, b: Side) -> Pairs:
    """Which values of the two are which."""
    import numpy as np

    likeness, axes = _likeness(a, b)
    names_a, names_b = [*a.values], [*b.values]
    best = [(int(np.argmax(likeness[:, j])), j) for j in range(len(names_a)) if names_b]
    back = [(i, int(np.argmax(likeness[i]))) for i in range(len(names_b)) if names_a]
    known: dict[tuple[int, int], Pair] = {
        (i, j): _measured(a, b, Pair(names_a[j], names_b[i], axes[i, j], float(likeness[i, j])))
        for i, j in dict.fromkeys((*best, *back))
        if likeness[i, j] > -np.inf
    }
    nearest = (
        {names_a[j]: known[i, j] for i, j in best if (i, j) in known},
        {names_b[i]: known[i, j] for i, j in back if (i, j) in known},
    )
    scores = np.full_like(likeness, -np.inf)
    real = np.isfinite(likeness)
    scores[real] = FLOOR + (1 - FLOOR) * np.log10(np.clip(1 - likeness[real], LEAST, 1)) / math.log10(LEAST)
    modules = [_module(side, name) for side, names in ((a, names_a), (b, names_b)) for name in names]
    of_a, of_b = modules[: len(names_a)], modules[len(names_a) :]
    same = np.array([[bool(m) and m == n for n in of_a] for m in of_b], bool).reshape(likeness.shape)
    scores[real & same] += SAME_MODULE
    aligned: dict[str, Pair] = {}
    for i, j in enumerate(align.paired(scores)):
        if j is not None:
            pair = Pair(names_a[j], names_b[i], axes[i, j], float(likeness[i, j]))
            aligned[names_a[j]] = known[i, j] if (i, j) in known else _measured(a, b, pair)
    return Pairs(*nearest, aligned)


def compare(a: Side, b: Side, ours: str, theirs: str) -> Pair | None:
    """One value with one of the other, in the order of axes in which they are most alike; None of other sizes."""
    if ours not in a.values or theirs not in b.values:
        return None
    x, z = a.values[ours].array(), b.values[theirs].array()
    shape, other = x.shape[1:], z.shape[1:]
    if math.prod(shape) != math.prod(other):
        return None
    flat = [
        each.reshape(1, -1).astype("float64") for each in (x, *(laid_out(z, o, shape) for o in orders(other, shape)))
    ]
    alike = [float(_concordance(each, flat[0])[0, 0]) for each in flat[1:]]
    best = max(range(len(alike)), key=lambda i: alike[i] + (1e-9 if i == 0 else 0))
    return _measured(a, b, Pair(ours, theirs, orders(other, shape)[best], alike[best]))


def is_reordered(a: Side, b: Side, pair: Pair, equal_db: float) -> bool:
    """Whether two values that differ are the same numbers in different orders; `equal_db`: from which on they are."""
    import numpy as np

    power = Power()
    x, z = a.values[pair.a].array(), b.values[pair.b].array()
    power.add(*(np.sort(each.reshape(len(each), -1).astype(np.float64), axis=1) for each in (x, z)))
    near = 200.0 if power.sqnr_db is None else power.sqnr_db
    return near >= equal_db and near >= min(pair.near_db, 100.0) + 10


def _module(side: Side, name: str) -> str:
    return side.makers[name].module if name in side.makers else ""


def _measured(a: Side, b: Side, pair: Pair) -> Pair:
    """The pair with its SQNR over all runs."""
    import numpy as np

    ours = a.values[pair.a].array()
    theirs = laid_out(b.values[pair.b].array(), pair.axes, ours.shape[1:])
    power, broken = Power(), False
    for x, z in zip(ours, theirs, strict=True):  # memory is that of one run
        power.add(x, z)
        broken = broken or not np.array_equal(np.isfinite(x), np.isfinite(z))
    far = broken or (power.noise and not power.signal)
    return Pair(pair.a, pair.b, pair.axes, pair.likeness, -200.0 if far else power.sqnr_db if power.noise else None)


# --------------------------------------------------------------------------- likeness of all with all


def _likeness(a: Side, b: Side) -> tuple[np.ndarray, Mapping[tuple[int, int], Axes]]:
    """[values of B, values of A]: how alike they are under the order of axes in which they are most alike."""
    import numpy as np

    found = np.full((len(b.values), len(a.values)), -np.inf)
    axes: dict[tuple[int, int], Axes] = {}
    groups_a, groups_b = (_by_shape(side) for side in (a, b))
    for shape, of_a in groups_a.items():
        places = align.points(math.prod(shape), POINTS)
        ours = _points(a, of_a, places)
        for other, of_b in groups_b.items():
            if math.prod(other) != math.prod(shape):
                continue
            flat = np.arange(math.prod(other)).reshape(other)
            for order in orders(other, shape):
                index = (flat if order is None else flat.transpose(order)).reshape(-1)[places]
                alike = _concordance(_points(b, of_b, index), ours)
                grid = np.ix_(of_b, of_a)
                better = alike > found[grid] + (0 if order is None else 1e-9)
                found[grid] = np.where(better, alike, found[grid])
                axes |= {(of_b[i], of_a[j]): order for i, j in zip(*np.nonzero(better), strict=True)}
    return found, axes


def _by_shape(side: Side) -> dict[tuple[int, ...], list[int]]:
    groups: dict[tuple[int, ...], list[int]] = {}
    for index, value in enumerate(side.values.values()):
        groups.setdefault(value.array().shape[1:], []).append(index)
    return groups


def orders(other: tuple[int, ...], shape: tuple[int, ...]) -> list[Axes]:
    """As they are, then the layouts of images, then all orders of axes that give A's shape."""
    images: list[Axes] = [align.NHWC, (0, 2, 3, 1)] if len(other) == 4 and len(shape) != 4 else []
    return [None, *images, *(axes for axes in align.orders(other, shape) if sorted(axes) != [*axes])]


def _points(side: Side, which: Sequence[int], places: np.ndarray) -> np.ndarray:
    """[values, runs x places]."""
    import numpy as np

    every = [*side.values.values()]
    rows = [every[i].array()[:RUNS] for i in which]
    return np.stack([row.reshape(len(row), -1)[:, places].reshape(-1).astype(np.float64) for row in rows])


def _concordance(b: np.ndarray, a: np.ndarray) -> np.ndarray:
    """[rows of b, rows of a]: 2ab / (a² + b²) over the places where both are finite; 1 where both are zero."""
    import numpy as np

    fine = [np.isfinite(each) for each in (b, a)]
    y, x = (np.where(ok, each, 0.0) for ok, each in zip(fine, (b, a), strict=True))
    if all(ok.all() for ok in fine):
        sums = (y * y).sum(1)[:, None] + (x * x).sum(1)[None]
    else:
        sums = (y * y) @ fine[1].T.astype(np.float64) + fine[0].astype(np.float64) @ (x * x).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sums > 0, 2 * (y @ x.T) / sums, 1.0)
