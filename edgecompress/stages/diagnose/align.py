"""Which layer output of an artifact is which value of its source: by the name that both give it, else by values.

Both are in the order of computing. By values it is the match of Needleman and Wunsch (1970,
doi:10.1016/0022-2836(70)90057-4) with gaps that cost nothing: of all ways to pair outputs with values that keep both
orders, the one with the largest sum of scores. Where branches are computed in another order, what is surely out of
place is moved, and all are paired again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING

from edgecompress.stages.diagnose.noise import finite

if TYPE_CHECKING:
    import numpy as np

POINTS = 4096  # of each value that are compared
NHWC = (0, 3, 1, 2)  # the axes of such a tensor in the order NCHW
PLACE = 0.1  # the score of a pair that is alike in nothing but its number of elements
NEAREST = 1e-6  # 1 - cosine, from which on two values count as the same
SAME_MODULE = 0.5  # what it adds to a score that both are known to be of one module
SAME_NAME = 9.0  # and that both have one name: more than what crosses the pair can score
SURE, BETTER = 0.9, 0.1  # other axes, or another place, are believed where the cosine is so large, and so much larger

Axes = tuple[int, ...] | None  # the order in which an output's axes are the source's; None: as they are


@dataclass(frozen=True)
class Value:
    """Something to match: the values of a few runs, [runs, *shape]; its layout, torch module and name, where known."""

    values: np.ndarray
    layout: str = ""
    module: str = ""
    name: str = ""


@dataclass(frozen=True)
class Match:
    """A layer output that is the source's value `source`, once its axes are in the order `axes`."""

    source: int
    axes: Axes
    cosine: float


def align(outputs: Sequence[Value], sources: Sequence[Value]) -> list[Match | None]:
    """The match of each layer output, None where it has none; candidates hold equally many elements.

    A pair scores PLACE to 1, by the logarithm of 1 - the cosine of what both hold at up to POINTS places: an output
    full of errors is still matched by its place between others, and a likeness never outweighs the value itself.
    A name that one output and one value have alone makes them a pair, whatever they hold: what is before an activation
    may be more like what is behind it than its own value is.
    """
    import numpy as np

    # of the outputs with a name that one of them and one of the sources has: the source of that name, as large
    ours, theirs = ([value.name for value in side] for side in (outputs, sources))
    both = {name for name in ours if name and ours.count(name) == theirs.count(name) == 1}
    pairs = {ours.index(name): theirs.index(name) for name in both}
    named = {i: j for i, j in pairs.items() if outputs[i].values.size == sources[j].values.size}
    taken = set(named.values())
    scores = np.full((len(outputs), len(sources)), -np.inf)
    matches: dict[tuple[int, int], Match] = {}
    for j, source in enumerate(sources):
        for i, output in enumerate(outputs):
            if named.get(i, j) == j and (i in named or j not in taken) and output.values.size == source.values.size:
                match = matches[i, j] = _match(output, source, j)
                known = bool(output.module) and output.module == source.module
                scores[i, j] = nearness(match.cosine) + (SAME_MODULE if known else 0) + (SAME_NAME if i in named else 0)
    found = paired(scores)
    order = _source_order([named.get(i, j) for i, j in enumerate(found)], matches)
    where = dict(zip(order, paired(scores[order]), strict=True))
    return [None if (at := where[i]) is None else matches[i, at] for i in range(len(outputs))]


def _source_order(found: Sequence[int | None], matches: Mapping[tuple[int, int], Match]) -> list[int]:
    """The outputs in the source's order: branches may be computed in another.

    An output is taken out of its place where it is surely the answer of another value than the one that it found there.
    """
    best: dict[int, Match] = {}
    for (i, _), match in matches.items():
        best[i] = max(best.get(i, match), match, key=lambda each: each.cosine)
    places, place = list[int](), 0
    for i, j in enumerate(found):
        now = 0.0 if j is None else matches[i, j].cosine
        moved = i in best and best[i].cosine >= max(SURE, now + BETTER)
        place = best[i].source if moved else place if j is None else j
        places.append(place)
    return sorted(range(len(found)), key=places.__getitem__)


def paired(scores: np.ndarray) -> list[int | None]:
    """For each row its column, or None: both rise together, and the sum of scores is the largest there is.

    scores: [rows, columns]; -inf: no pair. Among equals the last column is taken.
    """
    import numpy as np

    rows, columns = scores.shape
    best = np.zeros((rows + 1, columns + 1))
    for i in range(rows):
        best[i + 1, 1:] = np.maximum(best[i, 1:], best[i, :-1] + scores[i])
        best[i + 1] = np.maximum.accumulate(best[i + 1])
    pairs: list[int | None] = [None] * rows
    i, j = rows, columns
    while i and j:
        if best[i, j] == best[i - 1, j - 1] + scores[i - 1, j - 1]:
            i, j = i - 1, j - 1
            pairs[i] = j
        elif best[i, j] == best[i, j - 1]:
            j -= 1
        else:
            i -= 1
    return pairs


def nearness(cosine: float) -> float:
    """PLACE where two values have nothing in common, 1 where they are the same, in between by the decimals."""
    far = min(1.0, max(NEAREST, 1 - cosine))
    return PLACE + (1 - PLACE) * math.log10(far) / math.log10(NEAREST)


def _match(output: Value, source: Value, index: int) -> Match:
    """The pair with the axes under which it is most alike; other axes than the layout's only where that is sure."""
    places = points(source.values[0].size)
    reference = _taken(source.values, None, source.values.shape[1:], places)
    orders = _orders(output, source.values.shape[1:])
    cosines = [cosine(reference, _taken(output.values, axes, source.values.shape[1:], places)) for axes in orders]
    best = max(range(len(orders)), key=cosines.__getitem__)
    if cosines[best] < SURE or cosines[best] < cosines[0] + BETTER:
        best = 0
    return Match(index, orders[best], cosines[best])


def _orders(output: Value, shape: tuple[int, ...]) -> list[Axes]:
    """The layout's own order of axes first, then every one that gives the source's shape."""
    own = output.values.shape[1:]
    first: Axes = NHWC if output.layout == "NHWC" and len(own) == 4 else None
    return [first, *(axes for axes in orders(own, shape) if axes != first)]


def reordered(run: np.ndarray, axes: Axes, shape: tuple[int, ...]) -> np.ndarray:
    """One run of a layer output as the source has it, of `shape`."""
    return (run if axes is None else run.transpose(axes)).reshape(shape)


def _taken(values: np.ndarray, axes: Axes, shape: tuple[int, ...], places: np.ndarray) -> np.ndarray:
    import numpy as np

    return np.stack([reordered(run, axes, shape).reshape(-1)[places] for run in values])


def points(size: int, most: int = POINTS) -> np.ndarray:
    """Up to `most` places in a tensor, the same ones each time."""
    import numpy as np

    return np.arange(size) if size <= most else np.random.default_rng(0).integers(0, size, most)


def orders(own: tuple[int, ...], shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every order of up to four axes that gives `shape`."""
    if len(own) != len(shape) or len(own) > 4:
        return []
    return [axes for axes in permutations(range(len(own))) if tuple(own[a] for a in axes) == shape]


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """Of the angle between what is finite in both; 0 where that is nothing."""
    import numpy as np

    x, y = finite(a, b)
    length = float(np.sqrt((x * x).sum()) * np.sqrt((y * y).sum()))
    return float((x * y).sum()) / length if length else 0.0
