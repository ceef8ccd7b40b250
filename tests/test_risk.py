"""Items that a noisy copy of a classifier may lose: against published numbers, and against trying it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.data import flip_risk


def test_equal_means_have_skellams_own_numbers() -> None:
    # P(K = 0) = exp(-2 m) I0(2 m): I0(2) = 2.2795853 (Abramowitz and Stegun, table 9.8), and K is symmetric
    zero = math.exp(-2) * 2.2795853
    assert flip_risk.chance(1, 1, 0) == pytest.approx((1 + zero) / 2, abs=1e-7)
    assert flip_risk.chance(1, 1, -1) == pytest.approx((1 - zero) / 2, abs=1e-7)


def test_without_gains_it_is_poissons() -> None:
    assert flip_risk.chance(2, 0, 1) == pytest.approx(3 * math.exp(-2))
    assert flip_risk.chance(0, 0, 0) == 1


@given(st.floats(0, 30), st.floats(0, 30), st.integers(0, 20))
def test_a_larger_budget_is_kept_more_often_and_more_losses_break_it(lost: float, gained: float, most: int) -> None:
    now = flip_risk.chance(lost, gained, most)
    assert 0 <= now <= 1
    assert flip_risk.chance(lost, gained, most + 1) >= now - 1e-9
    assert flip_risk.chance(lost + 1, gained, most) <= now + 1e-9


def test_margins_foretell_what_noise_does() -> None:
    drawn = np.random.default_rng(0)
    labels = drawn.integers(0, 10, 4000)
    before = drawn.normal(0, 1, (4000, 10))
    before[np.arange(4000), labels] += 3
    after = before + drawn.normal(0, 0.15, before.shape)
    right, still = (a.argmax(1) == labels for a in (before, after))
    found = flip_risk.flips(before, after, labels)
    assert found is not None
    assert found["lost"] == pytest.approx((right & ~still).mean(), rel=0.2)
    assert found["gained"] == pytest.approx((~right & still).mean(), rel=0.4)


def test_the_noise_is_that_of_the_half_with_the_smaller_margins() -> None:
    """Far items change by any amount and stay: only how the near ones change tells what flips."""
    near, far = np.full(50, 1.0), np.full(50, 100.0)
    before = np.stack([np.concatenate([near, far]), np.zeros(100)], axis=1)
    after, signs = before.copy(), np.where(np.arange(100) % 2, 1.0, -1.0)
    after[:, 0] += signs * np.concatenate([np.full(50, 0.5), np.full(50, 50.0)])
    found = flip_risk.flips(before, after, np.zeros(100, int))
    assert found is not None
    assert found["lost"] == pytest.approx(0.5 * 0.5 * math.erfc(2 / math.sqrt(2)), rel=1e-6)  # Phi(-1 / 0.5) of half


def test_a_copy_without_noise_loses_nothing() -> None:
    logits = np.eye(4)
    assert flip_risk.flips(logits, logits.copy(), np.arange(4)) == {"lost": 0.0, "gained": 0.0}


def test_answers_that_are_no_classes_have_no_flips() -> None:
    assert flip_risk.flips(np.zeros((3, 1)), np.zeros((3, 1)), np.arange(3)) is None
    assert flip_risk.flips(np.zeros((3, 2)), np.full((3, 2), np.nan), np.zeros(3, int)) is None


def test_what_is_foretold_stays_where_counting_does_not_contradict_it() -> None:
    assert flip_risk.settled(0.0172, 0, 136) == 0.0172
    # Wilson's interval of 15 of 148, from R. G. Newcombe: Statistics in Medicine 17 (1998), 857-872, table I
    assert flip_risk.settled(0.0, 15, 148) == pytest.approx(0.0624, abs=1e-4)
    assert flip_risk.settled(1.0, 15, 148) == pytest.approx(0.1605, abs=1e-4)
