"""The integer program: what it chooses is what trying every choice finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.core.model import Request
from edgecompress.stages.integer_program import frontier, least, run

LAYERS, CHOICES = 12, 3


def instance(seed: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Losses over eight decades, costs, and a bound between the cheapest and the dearest choice."""
    rng = np.random.default_rng(seed)
    losses, costs = 10.0 ** rng.uniform(-8, 0, (LAYERS, CHOICES)), rng.uniform(0, 1, (LAYERS, CHOICES))
    return losses, costs, rng.uniform(costs.min(1).sum(), costs.max(1).sum())


def every(table: np.ndarray) -> np.ndarray:
    """The sum of each of the 3^12 choices."""
    sums = np.zeros(1)
    for row in table:
        sums = (sums[:, None] + row).ravel()
    return sums


def total(table: np.ndarray, choice: list[int]) -> float:
    return float(table[np.arange(len(table)), choice].sum())


@pytest.mark.parametrize("seed", range(25))
def test_it_finds_what_trying_every_choice_finds(seed: int) -> None:
    losses, costs, most = instance(seed)
    choice = least(losses.tolist(), costs.tolist(), most)
    assert choice is not None and total(costs, choice) <= most * (1 + 1e-9)
    assert total(losses, choice) == pytest.approx(every(losses)[every(costs) <= most].min(), rel=1e-6, abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=3), min_size=1, max_size=6
    ),
    st.integers(0, 120),
)
def test_whole_numbers_stay_below_the_bound_and_lose_the_least(rows: list[list[tuple[int, int]]], most: int) -> None:
    losses, costs = ([[pair[side] for pair in row] for row in rows] for side in (0, 1))
    known = [(0, 0)]
    for row in rows:
        known = [(loss + a, cost + b) for loss, cost in known for a, b in row]
    within = [loss for loss, cost in known if cost <= most]
    choice = least(losses, costs, most)
    assert (choice is None) == (not within)
    if choice is not None:
        assert sum(row[k] for row, k in zip(costs, choice, strict=True)) <= most
        assert sum(row[k] for row, k in zip(losses, choice, strict=True)) == min(within)


def test_the_cheapest_choices_come_first_and_none_twice() -> None:
    losses = [[8.0, 0.0], [4.0, 0.0], [2.0, 0.0], [0.1, 0.0]]
    costs = [[0.0, 3.0], [0.0, 1.0], [0.0, 1.0], [0.0, 99.0]]
    assert frontier(losses, costs, 5.0, [0.5, 0.75, 0.8]) == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]]
    assert frontier(losses, costs, 2.0, [0.5]) == [[0, 1, 0, 0], [0, 1, 1, 0]]
    assert frontier(losses, [[cost + 1 for cost in row] for row in costs], 3.0, [0.5]) == []


def test_the_stage_tells_the_choices(tmp_path: Path) -> None:
    asked = {"losses": [[1.0, 0.0]], "costs": [[0, 1]], "most": 1, "shares": [0.5]}
    assert run(Request({}, tmp_path, asked)).facts["choices"] == [[1]]
