"""The short form of a matrix of cases holds every pair of values."""

from __future__ import annotations

from itertools import combinations, product

import prove
import pytest
from hypothesis import given
from hypothesis import strategies as st

CASES = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=40, unique=True)


def pairs(cases: list[tuple[int, ...]]) -> set[object]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}


@given(CASES)
def test_every_pair_that_occurs_is_kept_and_the_order_too(cases: list[tuple[int, ...]]) -> None:
    chosen = prove.pairwise(cases, lambda case: case, whole=False)
    assert pairs(chosen) == pairs(cases)
    assert chosen == [case for case in cases if case in chosen]
    assert prove.pairwise(cases, lambda case: case, whole=True) == cases


@given(CASES)
def test_what_is_always_in_is_in_and_counts(cases: list[tuple[int, ...]]) -> None:
    chosen = prove.pairwise(cases, lambda case: case, always=lambda case: case[0] == 1, whole=False)
    assert {case for case in cases if case[0] == 1} <= set(chosen)
    assert pairs(chosen) == pairs(cases)


def test_a_full_matrix_shrinks_to_its_two_longest_axes() -> None:
    cases = list(product(range(8), range(2), range(7)))
    assert len(prove.pairwise(cases, lambda case: case, whole=False)) == 8 * 7


@pytest.mark.parametrize(("count", "chosen"), [(1, [0]), (2, [0, 9]), (4, [0, 3, 6, 9]), (10, list(range(10)))])
def test_some_are_spread_evenly(count: int, chosen: list[int]) -> None:
    assert prove.some(list(range(10)), count, whole=False) == chosen
