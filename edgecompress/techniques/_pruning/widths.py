"""How wide each group of channels becomes: which widths there are, what a step costs and harms, which are taken.

A multiple-choice knapsack: one width of each group, the least harm within a budget. The greedy on the lower convex
hull of (saving, harm) is Sinha & Zoltners, "The multiple-choice knapsack problem", Operations Research 27 (1979).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Widths = Mapping[str, int]  # group -> channels kept
Cost = Callable[[Widths], float]
Points = Mapping[int, tuple[float, float]]  # width -> what it saves, what it harms


@dataclass(frozen=True)
class Narrowing:
    """One group made narrower, from its width before in the order to `width`; the cheapest are taken first."""

    price: float
    group: str
    width: int


class OutOfReach(ValueError):
    """No widths meet the budget; `least` is the lowest cost that any reach."""

    def __init__(self, least: float) -> None:
        super().__init__(f"the narrowest widths reach {least:.4g}")
        self.least = least


# --------------------------------------------------------------------------- which widths


def choices(channels: int, block: int, droppable: bool) -> tuple[int, ...]:
    """From `channels` down: the full width, the multiples of `block` below it, and 0 where all may go."""
    multiples = range((channels - 1) // block * block, 0, -block)
    return (channels, *multiples, *([0] if droppable else []))


def samples(widths: Sequence[int], limit: int) -> tuple[int, ...]:
    """The widths to try out: the full one, 0 where it is one, and at most `limit` of the others, evenly spread.

    The narrowest is always among them.
    """
    full, *narrower = widths
    some = [w for w in narrower if w]
    count = min(limit, len(some))
    return (full, *(some[(i + 1) * len(some) // count - 1] for i in range(count)), *narrower[len(some) :])


def between(points: Mapping[int, float], width: int) -> float:
    """The value at a width, on the line between its neighbours; raises ValueError outside of the points."""
    if width in points:
        return points[width]
    below, above = ([w for w in points if (w < width) is side] for side in (True, False))
    if not below or not above:
        raise ValueError(f"no value for width {width}, only for {sorted(points)}")
    low, high = max(below), min(above)
    return points[low] + (points[high] - points[low]) * (width - low) / (high - low)


# --------------------------------------------------------------------------- steps and their prices


def hull(points: Points) -> list[int]:
    """The widths on the lower convex hull of (saving, harm), from the one that saves least on."""
    order = sorted(points, key=lambda w: (*points[w], -w))
    corners: list[int] = []
    for width in order:
        if corners and points[corners[-1]][0] == points[width][0]:
            continue  # as much saved, more harm
        while len(corners) > 1 and _slope(points, corners[-2], width) <= _slope(points, corners[-2], corners[-1]):
            corners.pop()
        corners.append(width)
    return corners


def _slope(points: Points, a: int, b: int) -> float:
    return (points[b][1] - points[a][1]) / (points[b][0] - points[a][0])


def by_harm(group: str, widths: Sequence[int], points: Points) -> list[Narrowing]:
    """The steps of a group along its hull, each at its harm per unit saved; `points` has the full width, saving 0.

    Between two neighbouring points of the hull every width is a step; what saves nothing is none.
    """
    full = widths[0]
    saving = {w: p for w, p in points.items() if w == full or p[0] > points[full][0]}
    corners, steps = hull(saving), []
    for a, b in pairwise(corners):
        gap = b == 0 or any(b < w < a for w in points)
        between = [b] if gap else [w for w in widths if b <= w < a]
        steps += [Narrowing(_slope(saving, a, b), group, w) for w in between]
    return steps


def by_score(group: str, widths: Sequence[int], scores: Sequence[float]) -> list[Narrowing]:
    """The steps of a group, each at the mean score of what goes with it; one score for each unit of channels."""
    per_unit = widths[0] // len(scores)
    order, steps = sorted(scores), []
    for a, b in pairwise(widths):
        gone = order[len(scores) - a // per_unit : len(scores) - b // per_unit]
        steps.append(Narrowing(sum(gone) / len(gone), group, b))
    return steps


def by_share(group: str, widths: Sequence[int]) -> list[Narrowing]:
    """The steps of a group, each at the share of its channels that are gone then."""
    return [Narrowing(1 - w / widths[0], group, w) for w in widths[1:]]


def ranks(pools: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """The scores of several groups as their ranks among all of them, 0..1: ties share a rank."""
    every = sorted(s for pool in pools.values() for s in pool)
    place: dict[float, float] = {}
    for i, score in enumerate(every):
        place.setdefault(score, i / len(every))
    return {name: [place[s] for s in pool] for name, pool in pools.items()}


# --------------------------------------------------------------------------- which are taken


def allocate(
    widths: Mapping[str, Sequence[int]], steps: Iterable[Narrowing], cost: Cost, budget: float
) -> dict[str, int]:
    """The width of each group: the fewest of the cheapest steps that meet the budget, then what fits back into it.

    Raises OutOfReach when all steps together do not meet it.
    """
    order = sorted(steps, key=lambda step: (step.price, step.group, -step.width))
    taken = order[: _fewest(widths, order, cost, budget)]
    chosen = after(widths, taken)
    for group in dict.fromkeys(step.group for step in reversed(taken)):
        for width in reversed(widths[group][: widths[group].index(chosen[group])]):
            if cost({**chosen, group: width}) > budget:
                break
            chosen[group] = width
    return chosen


def after(widths: Mapping[str, Sequence[int]], steps: Iterable[Narrowing]) -> dict[str, int]:
    """The widths once those steps are taken, from the full ones on."""
    chosen = {group: each[0] for group, each in widths.items()}
    for step in steps:
        chosen[step.group] = min(chosen[step.group], step.width)
    return chosen


def _fewest(widths: Mapping[str, Sequence[int]], order: Sequence[Narrowing], cost: Cost, budget: float) -> int:
    """How many of the steps meet the budget: each costs less than the one before."""
    least = cost(after(widths, order))
    if not least <= budget:
        raise OutOfReach(least)
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if cost(after(widths, order[:middle])) <= budget else (middle + 1, high)
    return high
