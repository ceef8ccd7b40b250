"""The first operator whose output differs while all that it reads is still equal."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core.watched_graph import WatchedOperator
from edgecompress.stages.diff import match
from edgecompress.stages.diff.match import Pair, Pairs
from edgecompress.stages.diff.sides import Side
from edgecompress.stages.diff.words import WEIGHTED, family

HALF_WEIGHTS = "float16 weights"  # of nets that hold nothing else in 16 bits, and compute in float32


@dataclass(frozen=True)
class Level:
    """What equal means for a precision, in dB of SQNR.

    The limit of two nets is `below` the nearest tenth of their values that are not exact, between `equal` and `most`;
    inside it is `stricter` by so much, for noise gets lost on the way to the outputs. An operator departs that makes a
    `jump` from what it reads; what is exact counts as `cap`.
    """

    equal: float
    most: float
    below: float
    stricter: float
    jump: float
    cap: float


LEVELS = {
    "float32": Level(equal=80.0, most=104.0, below=25.0, stricter=10.0, jump=15.0, cap=115.0),
    HALF_WEIGHTS: Level(equal=52.0, most=60.0, below=16.0, stricter=8.0, jump=12.0, cap=75.0),
    "float16": Level(equal=38.0, most=48.0, below=16.0, stricter=8.0, jump=12.0, cap=60.0),
    "int8": Level(equal=24.0, most=24.0, below=0.0, stricter=0.0, jump=10.0, cap=36.0),
}
EXACT_DB = 200.0  # what stands for values that are equal to the bit; the same below zero for what is nothing alike
STEP_DB = 2.0  # that a later value must be nearer, to be the one that departs
NEAR_DB = 60.0  # nearer than this is not nearer: what departs
UNLIKE_DB = 6.0  # below which type, module and place say more than the values
INSERTED_DB = 6.0  # that an operator which only one of the two has must be ahead
MOVED, MISSING = 200.0, 100.0  # scores of evidence that no nearness outweighs
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


def limit(near: Collection[float], level: Level) -> float:
    """The SQNR in dB from which on two values are equal: far below what most values of these two have."""
    ranked = sorted(db for db in near if db < EXACT_DB)
    usual = ranked[9 * len(ranked) // 10] if ranked else level.cap
    return max(level.equal, min(level.most, usual - level.below))


def equal_values(side: Side, near: Mapping[str, float], level: Level, least: float) -> set[str]:
    """The values that have an equal in the other model, and those without a jump from what they are computed from.

    near: the SQNR of each value to the nearest of the other model, in dB; `least`: see `limit`.
    """
    equal: set[str] = set()
    known: dict[str, float] = {}
    for key in side.values:
        before = min([level.cap, *(known.get(k, level.cap) for k in side.before(key))])
        here = min(near.get(key, -EXACT_DB), level.cap)
        fed = all(k in equal or k not in side.values for k in side.before(key))
        drifted = fed and before - here < level.jump and here > least / 2
        if here >= least or drifted:
            equal.add(key)
            known[key] = here
    return equal


def origins(side: Side, equal: set[str], ends: Iterable[str]) -> list[str]:
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


# --------------------------------------------------------------------------- the first one, and its counterpart


def first(
    a: Side, b: Side, ends: Sequence[tuple[str, str]], pairs: Pairs, equal: tuple[set[str], set[str]], level: Level
) -> Departure | None:
    """The first departure behind which outputs differ; `ends`: the values of A and B that those are.

    The value of A and that of B are those of the first few behind the origins that are most likely one: what is one
    operator here may be several there, and one of the two may have an operator more.
    """
    starts = [
        origins(side, same, names) for side, same, names in zip((a, b), equal, zip(*ends, strict=True), strict=True)
    ]
    chains = [region(side, s[0], same) if s else [] for side, s, same in zip((a, b), starts, equal, strict=True)]
    scored = [*_counterparts(a, b, chains[0], chains[1], pairs)]
    for mine in (1, 0):
        scored += _inserted((a, b), mine, (chains[mine], chains[1 - mine]), pairs, level)
    if not scored:
        return None
    _, pair = max(scored, key=lambda each: each[0])
    # of a value that is equal itself, beside which the other model has one more operator: the one that makes it
    segments = [
        [side.makers[key]] if key in same else side.between(key, same)
        for side, key, same in zip((a, b), (pair.a, pair.b), equal, strict=True)
    ]
    reads = [key for op in segments[0] for key in op.reads if key in equal[0] or key not in a.makers]
    inputs_db = min([level.cap, *(pairs.of_a[k].near_db for k in reads if k in pairs.of_a)])
    return Departure(pair, segments[0], segments[1], inputs_db, tuple(dict.fromkeys(reads)))


def _counterparts(
    a: Side, b: Side, ours: Sequence[str], theirs: Sequence[str], pairs: Pairs
) -> Iterator[tuple[float, Pair]]:
    """Each of A's first values with each of B's, scored by how near they are and how early."""
    for p, key in enumerate(ours):
        for q, other in enumerate(theirs):
            if (pair := match.compare(a, b, key, other)) is None:
                continue
            near = max(0.0, min(pair.near_db, NEAR_DB))
            one, two = a.makers[key], b.makers[other]
            alike = 3.0 * (family(one.type) == family(two.type)) + 2.0 * (one.module == two.module != "")
            alike += 2.0 * (key in pairs.aligned and pairs.aligned[key].b == other)
            yield near + (alike if near < UNLIKE_DB else 0.0) - STEP_DB * (p + q), pair


def _inserted(
    sides: tuple[Side, Side], mine: int, chains: tuple[Sequence[str], Sequence[str]], pairs: Pairs, level: Level
) -> Iterator[tuple[float, Pair]]:
    """An operator that one has and the other has not: what it makes beside what it reads.

    `mine`: which of the sides has it; `chains`: its first values behind the origin, and those of the other.
    """
    side, (own, other) = sides[mine], chains
    if not own or family(side.makers[own[0]].type) in WEIGHTED:
        return

    def compared(key: str, there: str) -> Pair | None:
        return match.compare(*sides, *((there, key) if mine else (key, there)))

    kind, *following = (family(side.makers[key].type) for key in own[:2])
    missing = False
    if following and other and kind not in following:
        # its next one is of the kind that the other begins with, and nothing behind that is nearer to it: then it is
        # no operator that is spelled out by several here
        behind = [pair.near_db if (pair := compared(key, other[0])) else -EXACT_DB for key in own]
        same = following[0] == family(sides[1 - mine].makers[other[0]].type)
        missing = same and behind[1] >= max(behind) - STEP_DB
    for read in side.before(own[0]):
        known = (pairs.of_b if mine else pairs.of_a).get(read)
        if known is None or (pair := compared(own[0], known.a if mine else known.b)) is None:
            continue
        if kind == "move" and match.is_reordered(*sides, pair, level.equal):
            yield MOVED, pair
        else:
            yield MISSING if missing else max(0.0, min(pair.near_db, NEAR_DB)) - INSERTED_DB, pair
