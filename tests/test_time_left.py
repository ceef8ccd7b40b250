"""The time left of a run: never 0 while something runs, corrected by what was observed, and without jumps."""

from __future__ import annotations

import itertools
import math
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
    left = TimeLeft(stage_s=20.0, whole_s=20.0, rest_s=7.0, since=0.0)
    shown = []
    for clock.now in (0.0, 10.0, 17.9, 20.0, 50.0, 5000.0):
        shown.append(left.seconds())
    assert shown == pytest.approx([27.0, 17.0, 9.1, 9.0, 12.0, 507.0])


def test_after_the_last_stage_nothing_is_left() -> None:
    forecast = Forecast()
    forecast.left(rest_s=0.0, stage_s=9.0)
    assert [forecast.left(rest_s=0.0).seconds() for _ in range(3)] == [0.0, 0.0, 0.0]


def test_where_no_stage_is_running_nothing_grows(clock: Clock) -> None:
    left = Forecast().left(rest_s=3.0)
    clock.now = 1000.0
    assert left.seconds() == pytest.approx(3.0)


@pytest.mark.parametrize("tells", [False, True], ids=["silent", "tells its progress"])
def test_a_stage_far_over_its_estimate_is_told_so_and_grows_slowly(tells: bool, clock: Clock) -> None:
    """2 s were expected, and it takes 200: `about 1.0 s left` all along would be no answer."""
    forecast, shown = Forecast(), []
    left = forecast.left(0.0, 2.0)
    for _ in range(199):
        clock.now += 1.0
        if tells:
            left = forecast.left(0.0, 2.0, clock.now)
        shown.append(left.seconds())
    assert shown[99] == pytest.approx(10.0) and shown[-1] == pytest.approx(19.9)
    assert all(after <= max(5.0, 1.2 * before) + 1e-9 for before, after in itertools.pairwise(shown))


@pytest.mark.parametrize("seed", range(20))
def test_between_two_seconds_it_never_grows_by_more_than_a_fifth_however_wrong_the_estimates(
    seed: int, clock: Clock
) -> None:
    """Stages take a hundredth to a hundred times what was expected; some tell their progress, rightly or not."""
    seeded = random.Random(seed)
    stages = [(10 ** seeded.uniform(-1, 2), 10 ** seeded.uniform(-2, 2)) for _ in range(8)]
    forecast, shown = Forecast(), []
    for number, (expected_s, wrong) in enumerate(stages):
        rest_s, began, takes_s = sum(e for e, _ in stages[number + 1 :]), clock.now, min(expected_s * wrong, 600.0)
        left = forecast.left(rest_s, expected_s)
        while clock.now < began + takes_s:
            shown.append(left.seconds())
            clock.now += seeded.uniform(0.01, 1.0)
            if seeded.random() < 0.3:
                told = min(1.0, seeded.uniform(0.5, 1.5) * (clock.now - began) / takes_s) * (number % 2)
                left = forecast.left(rest_s, expected_s, clock.now - began, told)
                shown.append(left.seconds())
        forecast.ran(expected_s, takes_s)
    assert min(shown) > 0
    assert [(b, a) for b, a in itertools.pairwise(shown) if a > max(5.0, 1.2 * b) + 1e-9] == []


def test_it_is_the_larger_of_expected_less_elapsed_and_a_tenth_plus_the_rest(clock: Clock) -> None:
    assert Forecast().left(rest_s=30.0, stage_s=10.0).seconds() == pytest.approx(40.0)
    assert Forecast().left(rest_s=30.0, stage_s=10.0, elapsed_s=4.0).seconds() == pytest.approx(36.0)
    assert Forecast().left(rest_s=30.0, stage_s=10.0, elapsed_s=10.0).seconds() == pytest.approx(31.0)
    assert Forecast().left(rest_s=30.0, stage_s=10.0, elapsed_s=40.0).seconds() == pytest.approx(34.0)


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
        steps = math.ceil(takes_s)  # it is shown once a second
        for step in range(steps):
            shown.append(left.seconds())
            clock.now += takes_s / steps
            if number % 2:
                left = forecast.left(rest_s, expected_s, takes_s * (step + 1) / steps, (step + 1) / steps)
                shown.append(left.seconds())
        forecast.ran(expected_s, takes_s)
    assert min(shown) > 0
    assert [(b, a) for b, a in itertools.pairwise(shown) if a > max(5.0, 1.2 * b) + 1e-9] == []
    halfway = shown[len(shown) // 2]
    assert 0.4 < halfway / sum(t for _, t in stages[6:]) < 2.5
