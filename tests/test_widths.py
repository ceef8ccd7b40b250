"""How wide each group of channels becomes: pure arithmetic."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from edgecompress.techniques._pruning import widths

Ladder = Mapping[int, tuple[float, float]]  # width -> (saving, harm)

channels = st.integers(1, 64)
blocks = st.integers(1, 20)
scores = st.lists(st.floats(0, 10), min_size=1, max_size=40)
harms = st.lists(st.floats(0, 10), min_size=2, max_size=6)


def ladder(harms: list[float]) -> dict[int, tuple[float, float]]:
    """A group of as many channels as there are steps, each of which saves 1."""
    full = len(harms) - 1
    return {full - i: (float(i), harm) for i, harm in enumerate(harms)}


ladders = st.dictionaries(st.sampled_from("abcd"), harms.map(sorted).map(ladder), min_size=1)

# --------------------------------------------------------------------------- which widths


@given(channels, blocks, st.booleans())
def test_widths_are_the_full_one_and_multiples_of_the_block(channels: int, block: int, droppable: bool) -> None:
    found = widths.choices(channels, block, droppable)
    assert found[0] == channels and (0 in found) is droppable
    assert all(a > b for a, b in pairwise(found))
    assert set(found) - {channels, 0} == {w for w in range(1, channels) if w % block == 0}


@given(channels, blocks, st.booleans(), st.integers(1, 8))
def test_what_is_tried_is_spread_and_has_both_ends(channels: int, block: int, droppable: bool, limit: int) -> None:
    every = widths.choices(channels, block, droppable)
    tried = widths.samples(every, limit)
    assert {every[0], every[-1]} <= set(tried) <= set(every)
    assert len(set(tried)) == len(tried) <= limit + 2
    some = [w for w in every[1:] if w]
    assert not some or some[-1] in tried


def test_three_of_eight_widths_are_evenly_spread() -> None:
    assert widths.samples(widths.choices(64, 8, True), 3) == (64, 48, 32, 8, 0)
    assert widths.samples(widths.choices(64, 16, False), 3) == (64, 48, 32, 16)


@given(st.dictionaries(st.integers(0, 50), st.floats(-5, 5), min_size=2), st.data())
def test_a_value_between_two_widths_lies_on_their_line(points: dict[int, float], data: st.DataObject) -> None:
    width = data.draw(st.integers(min(points), max(points)))
    found = widths.between(points, width)
    low, high = max(w for w in points if w <= width), min(w for w in points if w >= width)
    share = (width - low) / (high - low) if high > low else 0.0
    assert found == pytest.approx(points[low] * (1 - share) + points[high] * share, abs=1e-9)


def test_there_is_no_value_beyond_the_widths_that_were_measured() -> None:
    with pytest.raises(ValueError, match="no value for width 8"):
        widths.between({16: 0.1, 32: 0.0}, 8)


# --------------------------------------------------------------------------- steps


def test_a_hull_leaves_out_what_another_width_beats() -> None:
    points = {4: (0.0, 0.0), 3: (1.0, 3.0), 2: (2.0, 2.0), 1: (3.0, 5.0)}  # 3 harms more than 2 and saves less
    assert widths.hull(points) == [4, 2, 1]
    assert [(s.width, s.price) for s in widths.by_harm("g", (4, 3, 2, 1), points)] == [(2, 1.0), (1, 3.0)]


def test_widths_between_two_that_were_tried_are_steps_of_one_price() -> None:
    points = {8: (0.0, 0.0), 4: (4.0, 2.0), 0: (8.0, 10.0)}
    found = widths.by_harm("g", (8, 6, 4, 2, 0), points)
    assert [(s.width, s.price) for s in found] == [(6, 0.5), (4, 0.5), (0, 2.0)]


@given(harms)
def test_every_point_lies_on_or_above_its_hull(harms: list[float]) -> None:
    points = ladder(harms)
    corners = widths.hull(points)
    assert corners[0] == max(points) and corners[-1] == 0
    slopes = [widths._slope(points, a, b) for a, b in pairwise(corners)]
    assert all(a <= b + 1e-9 for a, b in pairwise(slopes))
    line = {points[w][0]: points[w][1] for w in corners}
    for saving, harm in points.values():
        assert harm >= widths.between(line, saving) - 1e-9  # type: ignore[arg-type]


@given(harms)
def test_the_steps_of_a_group_get_dearer_and_narrower(harms: list[float]) -> None:
    found = widths.by_harm("g", range(len(harms) - 1, -1, -1), ladder(harms))
    assert all(a.price <= b.price + 1e-9 and a.width > b.width for a, b in pairwise(found))


def test_what_saves_nothing_is_no_step() -> None:
    assert widths.by_harm("g", (2, 1), {2: (0.0, 0.0), 1: (-0.1, 0.0)}) == []


@given(scores, st.integers(1, 4))
def test_steps_by_score_get_dearer(scores: list[float], per_unit: int) -> None:
    every = widths.choices(len(scores) * per_unit, per_unit, True)
    found = widths.by_score("g", every, scores)
    assert [s.width for s in found] == list(every[1:])
    assert [s.price for s in found] == sorted(scores)


def test_a_block_of_channels_has_their_mean_score() -> None:
    found = widths.by_score("g", (4, 2, 0), [0.4, 0.1, 0.3, 0.2])
    assert [(s.width, s.price) for s in found] == [(2, pytest.approx(0.15)), (0, pytest.approx(0.35))]


def test_ranks_are_those_among_all_groups() -> None:
    assert widths.ranks({"a": [1.0, 9.0], "b": [2.0, 9.0]}) == {"a": [0.0, 0.5], "b": [0.25, 0.5]}


# --------------------------------------------------------------------------- the choice


def additive(groups: Mapping[str, Ladder], found: Mapping[str, int], which: int) -> float:
    return sum(groups[name][width][which] for name, width in found.items())


def chosen(groups: Mapping[str, Ladder], budget: float) -> dict[str, int]:
    every = {name: sorted(points, reverse=True) for name, points in groups.items()}
    steps = [step for name in every for step in widths.by_harm(name, every[name], groups[name])]
    return widths.allocate(every, steps, lambda found: -additive(groups, found, 0), budget)


@given(ladders, st.floats(0, 1))
def test_widths_meet_the_budget_and_none_can_be_wider(groups: Mapping[str, Ladder], share: float) -> None:
    budget = -share * sum(max(s for s, _ in points.values()) for points in groups.values())
    found = chosen(groups, budget)
    cost = -additive(groups, found, 0)
    assert cost <= budget + 1e-9
    for name, width in found.items():
        if width < max(groups[name]):
            wider = {**found, name: width + 1}
            assert -additive(groups, wider, 0) > budget


@given(ladders, st.data())
def test_at_a_budget_that_steps_just_meet_no_other_widths_harm_less(
    groups: Mapping[str, Ladder], data: st.DataObject
) -> None:
    every = {name: sorted(points, reverse=True) for name, points in groups.items()}
    steps = [step for name in every for step in widths.by_harm(name, every[name], groups[name])]
    order = sorted(steps, key=lambda step: (step.price, step.group, -step.width))
    taken = widths.after(every, order[: data.draw(st.integers(0, len(order)))])
    budget = -additive(groups, taken, 0)
    rivals = (dict(zip(every, each, strict=True)) for each in itertools.product(*every.values()))
    least = min(additive(groups, rival, 1) for rival in rivals if -additive(groups, rival, 0) <= budget)
    assert additive(groups, chosen(groups, budget), 1) <= additive(groups, taken, 1) + 1e-9
    assert additive(groups, taken, 1) == pytest.approx(least, abs=1e-6)


@given(ladders, st.floats(0, 1), st.floats(0, 1))
def test_more_budget_takes_fewer_steps(groups: Mapping[str, Ladder], one: float, other: float) -> None:
    whole = sum(max(s for s, _ in points.values()) for points in groups.values())
    every = {name: sorted(points, reverse=True) for name, points in groups.items()}
    steps = [step for name in every for step in widths.by_harm(name, every[name], groups[name])]
    order = sorted(steps, key=lambda step: (step.price, step.group, -step.width))
    less, more = (
        widths._fewest(every, order, lambda found: -additive(groups, found, 0), -share * whole)
        for share in (max(one, other), min(one, other))
    )
    assert more <= less


def test_what_no_widths_reach_is_told_with_the_least_they_do() -> None:
    every = {"a": (4, 2), "b": (3,)}
    with pytest.raises(widths.OutOfReach, match="narrowest widths reach 5") as error:
        widths.allocate(every, widths.by_share("a", every["a"]), lambda found: sum(found.values()), 4)
    assert error.value.least == 5


@given(st.lists(channels, min_size=1, max_size=5), st.floats(0.3, 0.9))
def test_the_same_share_stays_everywhere(sizes: list[int], share: float) -> None:
    assume(sum(sizes) > 8)
    every = {str(i): widths.choices(size, 1, False) for i, size in enumerate(sizes)}
    steps = [step for name in every for step in widths.by_share(name, every[name])]
    try:
        found = widths.allocate(every, steps, lambda w: sum(w.values()) / sum(sizes), share)
    except widths.OutOfReach as error:
        assert error.least > share
        return
    for name, width in found.items():
        assert abs(width - share * every[name][0]) <= 1 + len(sizes)
