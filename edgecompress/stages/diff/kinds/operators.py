"""Kinds that the operators decide: what they are, their attributes and their constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgecompress.stages.diff.kinds import constants
from edgecompress.stages.diff.kinds.evidence import Evidence, Kind, number, numbers, plain, same_pads, types, words
from edgecompress.stages.diff.words import WEIGHTED, family

if TYPE_CHECKING:
    from edgecompress.core.watched_graph import WatchedOperator


def normalized(seen: Evidence) -> Kind | None:
    """A layer norm and its like: its weights, else its epsilon."""
    first, second = seen.only("norm")
    if first is None and second is None:
        return None
    if changed := constants.changed(seen):
        return changed
    told = [number(op, "eps") for op in (first, second)]
    if None not in told and told[0] == told[1]:
        return None
    shown = ["in its graph" if v is None else f"{v:.3g}" for v in told]
    return Kind("epsilon", f"A {shown[0]}, B {shown[1]}; weights and inputs are equal", first, second)


def activated(seen: Evidence) -> Kind | None:
    """An activation alone, or one of another type behind equal weights."""
    first, second = seen.only("activation")
    families_a = [family(op.type) for op in seen.departure.segment_a if family(op.type) not in ("move", "rounding")]
    if families_a[:1] == ["activation"] or (families_a and {*families_a} <= {"activation", "arithmetic"} and first):
        steps = [op for op in seen.departure.segment_b if family(op.type) not in ("move", "rounding")]
        there = plain(second) if second and len(steps) == 1 else types(steps) or "none"
        return Kind("activation", f"from equal inputs; A: {plain(first)}; B: {there}", first, second)
    return None


def twice(seen: Evidence) -> Kind | None:
    """Operators on the net's input that the other has not."""
    if any(key in seen.a.makers for key in seen.departure.reads_a):
        return None
    lacks, more = (
        [family(op.type) for op in _leading(segment)]
        for segment in (seen.departure.segment_a, seen.departure.segment_b)
    )
    counts = [len([f for f in each if f in ("arithmetic", "batch norm")]) for each in (lacks, more)]
    if counts[0] == counts[1]:
        return None
    more_b = counts[1] > counts[0]
    extra = _leading(seen.departure.segment_b if more_b else seen.departure.segment_a)
    says = f"{'B' if more_b else 'A'} changes its input first ({types(extra)}), the other does not"
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
    either = first or second
    if either is None:
        return None
    if changed := constants.changed(seen):
        return changed
    held, other = (constants.arrays(side, segment) for side, segment in constants.sides(seen))
    tolerance = constants.SAME[seen.precision]
    if not all(any(constants.is_same(o, w, tolerance) for _, o in held) for _, w in other if w.squeeze().ndim > 1):
        return None
    squares = [a for _, a in held if a.ndim == 2 and a.shape[0] == a.shape[1] and a.shape[0] > 1]
    act = seen.only("activation")
    names = [op.type.lower() if op else "" for op in act]
    if family(either.type) == "convolution":
        if act[0] is not None and act[1] is not None and names[0].strip("_") != names[1].strip("_") and not held:
            return Kind("activation", f"A: {plain(act[0])}; B: {plain(act[1])}", *act)
        spread = [numbers(op, "dilation") for op in (first, second)]
        if all(spread) and spread[0] != spread[1]:
            return Kind(
                "dilation",
                f"weights and inputs are equal; A: {sorted(spread[0])}; B: {sorted(spread[1])}",
                first,
                second,
            )
        pads = [words(op, ("pad", "stride", "dilation")) for op in (first, second)]
        if not same_pads(first, second):
            return Kind("padding", f"weights and inputs are equal; A: {pads[0]}; B: {pads[1]}", first, second)
        squares = [a for _, a in held if a.squeeze().ndim == 2 and len({*a.squeeze().shape}) == 1]
    if squares and held and other:
        return Kind("weight", "B's weight is A's transposed", first, second)
    return None


def by_family(seen: Evidence) -> Kind | None:
    """What is left where the operator itself is about places: another padding or order."""
    word = family(seen.departure.segment_a[0].type) if seen.departure.segment_a else ""
    pools = [op.type.lower() for op in seen.only("pool") if op]
    if word in ("pool", "pad") and len({"max" in kind for kind in pools}) < 2:  # a maximum is no average
        return Kind("padding", f"A: {plain(seen.departure.a)}; B: {plain(seen.departure.b)}")
    if word == "move":
        return Kind("layout", f"A: {plain(seen.departure.segment_a[0])}; B: {plain(seen.departure.b)}")
    return None
