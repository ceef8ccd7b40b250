"""The trials that no other beats, which of them are raced in the end, and whether a trial gained anything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgecompress.core.stats import CHANGE

Point = Sequence[float]  # as little as possible of each
Row = dict[str, Any]  # of a trial: "values" by objective, "inside"
GRAIN = 1e-3  # of a value near zero: what differs by less is the same
FINALISTS = 5
RACED = ("latency", "instructions", "energy")  # what the race goes by, or what goes with it


def beats(a: Point, b: Point) -> bool:
    """Whether `a` is as good as `b` in everything and better in one."""
    return all(x <= y for x, y in zip(a, b, strict=True)) and any(x < y for x, y in zip(a, b, strict=True))


def point(row: Row, objectives: Sequence[str]) -> Point:
    """The values of a trial."""
    return [row["values"][name] for name in objectives]


def front(rows: Sequence[Row], objectives: Sequence[str]) -> list[Row]:
    """The trials inside the limits that no other beats, by the first objective; of equal ones the first."""
    inside = [(point(row, objectives), row) for row in rows if row["inside"]]
    best = [pair for pair in inside if not any(beats(other, pair[0]) for other, _ in inside)]
    firsts = [row for i, (at, row) in enumerate(best) if at not in [earlier for earlier, _ in best[:i]]]
    return sorted(firsts, key=lambda row: list(point(row, objectives)))


def finalists(rows: Sequence[Row], objectives: Sequence[str]) -> list[Row]:
    """Those that are raced: the best of each objective, the rest of the front, then others by the first objective.

    A trial was measured once: one of these may well be the fastest. Where the first objective is nothing that a race
    goes by, the best trial alone.
    """
    best = front(rows, objectives)
    if not best or objectives[0] not in RACED:
        return best[:1]
    extremes = [min(best, key=lambda row: row["values"][name]) for name in objectives]
    others = sorted((row for row in rows if row["inside"]), key=lambda row: row["values"][objectives[0]])
    chosen = list({row["number"]: row for row in (*extremes, *best, *others)}.values())[:FINALISTS]
    return sorted(chosen, key=lambda row: row["values"][objectives[0]])


def gains(new: Point, earlier: Sequence[Point]) -> bool:
    """Whether a trial is better than each earlier one in something, by more than a measurement may be off."""
    return not any(all(x <= y + max(CHANGE * abs(y), GRAIN) for x, y in zip(a, new, strict=True)) for a in earlier)


def since_gain(rows: Sequence[Row], objectives: Sequence[str]) -> int:
    """How many trials have ended since one gained something."""
    points, last = list[Point](), 0
    for place, row in enumerate(rows, 1):
        if row["inside"]:
            at = point(row, objectives)
            last = place if gains(at, points) else last
            points.append(at)
    return len(rows) - last
