"""The time left of a run: never 0 while something runs, corrected by what was observed, and without jumps."""

from __future__ import annotations

import itertools
import random

import pytest

from edgecompress.pipeline import time_left
from edgecompress.pipeline.time_left import Forecast, TimeLeft


class Clock:
    """A clock that the test turns."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    turned = Clock()
    monkeypatch.setattr(time_left, "time", turned)
    return turned


def test_a_stage_that_takes_longer_than_expected_keeps_a_tenth_of_its_seconds_left(clock: Clock) -> None:
    left = TimeLeft(stage_s=20.0, least_s=2.0, rest_s=7.0, since=0.0)
    shown = []
    for clock.now in (0.0, 10.0, 17.9, 50.0, 5000.0):
        shown.append(left.seconds())
    assert shown == pytest.approx([27.0, 17.0, 9.1, 9.0, 9.0])


def test_it_is_the_larger_of_expected_less_elapsed_and_a_tenth_plus_the_rest(clock: Clock) -> None:
    assert Forecast().left(rest_s=30.0, stage_s=10.0).seconds() == pytest.approx(40.0)
    assert Forecast().left(rest_s=30.0, stage_s=10.0, elapsed_s=4.0).seconds() == pytest.approx(36.0)
    assert Forecast().left(rest_s=30.0, stage_s=10.0, elapsed_s=40.0).seconds() == pytest.approx(31.0)


def test_what_stages_took_scales_what_others_are_expected_to_take() -> None:
    forecast = Forecast()
    assert forecast.scale == 1.0
    forecast.ran(expected_s=270.0, took_s=570.0)
    assert forecast.scale == pytest.approx(2.0)  # (570 + 30) / (270 + 30)
    assert forecast.left(rest_s=100.0).seconds() == pytest.approx(200.0, abs=0.1)


def test_a_first_short_stage_scales_little() -> None:
    forecast = Forecast()
    forecast.ran(expected_s=1.0, took_s=4.0)
    assert 1.0 < forecast.scale < 1.1


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
def test_a_stage_that_tells_its_progress_is_believed_the_more_the_further_it_is(fraction: float) -> None:
    expected_s, takes_s = 10.0, 40.0
    left_s = Forecast().left(0.0, expected_s, fraction * takes_s, fraction).seconds()
    before_s, true_s = (1 - fraction) * expected_s, (1 - fraction) * takes_s
    assert abs(left_s - true_s) <= (1 - fraction) * abs(before_s - true_s) + 0.01


def test_from_one_event_to_the_next_it_grows_by_a_fifth_at_most_and_comes_to_the_truth(clock: Clock) -> None:
    forecast = Forecast()
    shown = [forecast.left(rest_s=50.0).seconds()]
    for _ in range(10):
        shown.append(forecast.left(rest_s=200.0).seconds())
    assert all(after <= 1.2 * before + 1e-9 for before, after in itertools.pairwise(shown))
    assert shown[1] == pytest.approx(60.0) and shown[-1] == pytest.approx(200.0)


def test_after_nothing_was_left_what_comes_is_shown_whole(clock: Clock) -> None:
    forecast = Forecast()
    assert forecast.left(rest_s=0.0).seconds() == 0.0
    assert forecast.left(rest_s=300.0).seconds() == pytest.approx(300.0)


@pytest.mark.parametrize("seed", range(20))
def test_a_run_of_stages_never_shows_0_before_its_end_and_never_jumps(seed: int, clock: Clock) -> None:
    """Stages take between a third and three times what they were expected to, as on a machine of another speed."""
    seeded = random.Random(seed)
    speed = seeded.uniform(0.5, 2.0)
    stages = [(s, speed * s * seeded.uniform(0.7, 1.5)) for s in (seeded.uniform(1, 60) for _ in range(12))]
    forecast, shown = Forecast(), []
    for number, (expected_s, takes_s) in enumerate(stages):
        rest_s = sum(e for e, _ in stages[number + 1 :])
        left = forecast.left(rest_s, expected_s)
        for step in range(10):
            shown.append(left.seconds())
            clock.now += takes_s / 10
            if number % 2:
                left = forecast.left(rest_s, expected_s, takes_s * (step + 1) / 10, (step + 1) / 10)
                shown.append(left.seconds())
        forecast.ran(expected_s, takes_s)
    assert min(shown) > 0
    assert all(after <= 1.2 * max(before, 5.0) + 1e-9 for before, after in itertools.pairwise(shown))
    halfway = shown[len(shown) // 2]
    assert 0.4 < halfway / sum(t for _, t in stages[6:]) < 2.5
