"""The first operator whose output differs while all that it reads is still equal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core.watched_graph import WatchedOperator
from edgecompress.stages.diff.match import Pair
from edgecompress.stages.diff.sides import Side
from edgecompress.stages.diff.words import WEIGHTED, family

HALF_WEIGHTS = "float16 weights"  # of nets that hold nothing else in 16 bits, and compute in float32
EQUAL_DB = {
    "float32": 80.0,
    "float16": 38.0,
    HALF_WEIGHTS: 52.0,
    "int8": 24.0,
}  # nearer than this, values count as equal
JUMP_DB = {
    "float32": 15.0,
    "float16": 12.0,
    HALF_WEIGHTS: 12.0,
    "int8": 10.0,
}  # from what an operator reads to what it makes
CAP_DB = {"float32": 115.0, "float16": 60.0, HALF_WEIGHTS: 75.0, "int8": 36.0}  # what an exact input counts as
BELOW_DB = {
    "float32": 25.0,
    "float16": 16.0,
    HALF_WEIGHTS: 16.0,
    "int8": 300.0,
}  # the nearest tenth of the values that are not exact
MOST_DB = {"float32": 104.0, "float16": 48.0, HALF_WEIGHTS: 60.0, "int8": 24.0}  # and at most so near is asked for
STRICTER_DB = {
    "float32": 10.0,
    "float16": 8.0,
    HALF_WEIGHTS: 8.0,
    "int8": 0.0,
}  # inside than at the outputs: noise gets lost on the way
EXACT_DB = 200.0
FEW = 6  # values of a departing region that may be the counterpart of one of the other's


@dataclass(frozen=True)
class Departure:
    """Where B departs from A: the pair of values, the operators of each from what is equal to them, how equal that is.

    `a` and `b` are the operators that make the pair, chosen of the segments.
    """

    pair: Pair
    segment_a: Sequence[WatchedOperator]
    segment_b: Sequence[WatchedOperator]
    inputs_db: float  # the least SQNR of what is read
    reads_a: Sequence[str]

    @property
    def a(self) -> WatchedOperator:
        """The operator of A that is most likely meant: the one with weights, else the last."""
        return _main(self.segment_a)

    @property
    def b(self) -> WatchedOperator:
        """The one of B."""
        return _main(self.segment_b)


def _main(segment: Sequence[WatchedOperator]) -> WatchedOperator:
    return next((op for op in segment if family(op.type) in WEIGHTED), segment[-1])


def limit(near: Collection[float], precision: str) -> float:
    """The SQNR in dB from which on two values are equal: far below what most values of these two have."""
    ranked = sorted(db for db in near if db < EXACT_DB)
    usual = ranked[9 * len(ranked) // 10] if ranked else CAP_DB[precision]
    return max(EQUAL_DB[precision], min(MOST_DB[precision], usual - BELOW_DB[precision]))


def equal_values(side: Side, near: Mapping[str, float], precision: str, least: float) -> set[str]:
    """The values that have an equal in the other model, and those without a jump from what they are computed from.

    near: the SQNR of each value to the nearest of the other model, in dB; `least`: see `limit`.
    """
    equal: set[str] = set()
    level: dict[str, float] = {}
    for key in side.values:
        read = [level.get(k, CAP_DB[precision]) for k in side.before(key)]
        before = min([CAP_DB[precision], *read])
        here = min(near.get(key, -200.0), CAP_DB[precision])
        slow = all(k in equal or k not in side.values for k in side.before(key))
        drifted = slow and before - here < JUMP_DB[precision] and here > least / 2
        if here >= least or drifted:
            equal.add(key)
            level[key] = here
    return equal


def origins(side: Side, equal: set[str], ends: Sequence[str]) -> list[str]:
    """The values that are not equal, of which outputs that differ are computed, while all that they read is."""
    found, seen, todo = set[str](), set[str](), [key for key in ends if key not in equal]
    while todo:
        key = todo.pop()
        if key in seen or key not in side.makers:
            continue
        seen.add(key)
        unlike = [k for k in side.before(key) if k in side.values and k not in equal]
        todo += unlike
        if not unlike:
            found.add(key)
    order = {key: place for place, key in enumerate(side.values)}
    return sorted(found, key=lambda key: order.get(key, len(order)))


def region(side: Side, start: str, equal: set[str]) -> list[str]:
    """The first values behind an origin that are not equal, itself the first, in the order of computing.

    What reads another value beside them, and beside what the origin reads, is left out: a sum with an equal one is
    nearer than the fault itself.
    """
    found, front, read = [start], {start}, {*side.before(start)}
    keys = [*side.values]
    for key in keys[keys.index(start) + 1 :] if start in side.values else ():
        if len(found) >= FEW:
            break
        if key not in equal and front & {*side.before(key)} and front | read >= {*side.before(key)}:
            found.append(key)
            front.add(key)
    # a product whose bias is added by an operator of its own ends behind that
    return [key for key in found if not _is_unfinished(side, key, found)] or found


def _is_unfinished(side: Side, key: str, found: Sequence[str]) -> bool:
    readers = side.readers.get(key, [])
    alone = family(side.makers[key].type) in WEIGHTED and len(readers) == 1 and len(readers[0].reads) == 1
    return alone and readers[0].type.lower() in ("add", "biasadd", "addv2") and readers[0].writes[0] in found
