"""What makes a window doubtful on any system, and how windows that were disturbed are taken again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from edgecompress.core.errors import StageFailed
from edgecompress.device.agent import disturbance, window_schedule
from edgecompress.device.agent.disturbance import Counters, Window

RUN_MS = 1.0


def window(**more: Any) -> Window:
    """A window of 100 runs of a millisecond that computed all the time."""
    quiet: dict[str, Any] = {"n": 100, "window_s": 0.1, "median_ms": RUN_MS, "cpu_s": 0.1, "waited_s": 0.0}
    quiet |= {"preempted": 0, "gave_up": 0, "long_s": 0.0, "stolen_s": 0.0, "others_s": 0.0}
    found: Window = {**quiet, **more}  # type: ignore[typeddict-item]
    return found


UNTOLD = {"waited_s": None, "stolen_s": None, "others_s": None}  # macOS; Windows counts no switches either


@pytest.mark.parametrize(
    "more",
    [
        {},
        {**UNTOLD},
        {**UNTOLD, "preempted": None},
        {"waited_s": 0.05, "preempted": 15},  # half of the time, but few of the runs
        {"waited_s": 0.0005, "preempted": 60},  # many of the runs, but no time to speak of
        {"cpu_s": 0.002, "gave_up": 100},  # it sleeps, evenly
        {**UNTOLD, "cpu_s": 0.002, "gave_up": 100},
        {"cpu_s": 0.19},  # two threads
        {"long_s": 0.05},  # a long run that computed
        {"stolen_s": 0.02},  # two ticks
    ],
)
def test_what_leaves_the_median_alone_is_no_disturbance(more: dict[str, Any]) -> None:
    assert disturbance.cause(window(**more), 1 + (more.get("cpu_s", 0.0) > 0.1)) == ""


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"waited_s": 0.05, "preempted": 40, "cpu_s": 0.05}, "other work held its processors for 50% of the time"),
        ({"waited_s": 0.05, "preempted": None, "cpu_s": 0.05}, "other work held its processors for 50% of the time"),
        ({**UNTOLD, "preempted": 40, "cpu_s": 0.06}, "other work held its processors for 40% of the time"),
        ({"waited_s": 0.08, "gave_up": 100, "cpu_s": 0.02}, "other work held its processors for 80% of the time"),
        ({"stolen_s": 0.04}, "the hypervisor took 40% of a processor"),
        ({"window_s": 0.4, "long_s": 0.3}, "it stood still for 75% of the time"),  # stopped once
        ({**UNTOLD, "preempted": None, "window_s": 0.4, "long_s": 0.3}, "it stood still for 75% of the time"),
        ({"window_s": 0.4, "long_s": 0.3, "cpu_s": 0.002}, "it stood still for 75% of the time"),  # of one that sleeps
    ],
)
def test_what_moves_the_median_or_stops_the_process_is_named(more: dict[str, Any], says: str) -> None:
    assert disturbance.cause(window(**more), 1) == says


def test_a_standstill_of_two_threads_is_noticed() -> None:
    assert disturbance.cause(window(window_s=0.4, long_s=0.3, cpu_s=0.2), 2) == "it stood still for 75% of the time"


def test_a_window_is_what_the_kernel_counted_between_two_readings() -> None:
    before = Counters(10.0, 1.0, 0.5, (7, 20), (100, 0, 0, 900, 0, 0, 0, 0))
    after = Counters(10.1, 1.09, 0.51, (9, 23), (110, 0, 0, 909, 0, 0, 0, 1))
    found = disturbance.window(before, after, [1_000_000] * 80 + [21_000_000], 1.0)
    assert found == pytest.approx(
        {
            "n": 81,
            "window_s": 0.1,
            "median_ms": 1.0,
            "cpu_s": 0.09,
            "waited_s": 0.01,
            "preempted": 2,
            "gave_up": 3,
            "long_s": 0.02,
            "stolen_s": 0.01,
            "others_s": 0.01,
        }
    )
    silent = disturbance.window(Counters(0.0, 0.0, None, None, ()), Counters(0.1, 0.1, None, None, ()), [1, 1], 1.0)
    assert [silent[key] for key in ("waited_s", "preempted", "gave_up", "stolen_s", "others_s")] == [None] * 5


# --------------------------------------------------------------------------- turns


def machine(doubtful: Callable[[int], bool]) -> tuple[window_schedule.Take, list[int]]:
    """Takes windows that are doubtful by their number; the numbers of all that were taken."""
    taken: list[int] = []

    def take() -> Window:
        taken.append(len(taken))
        return window(waited_s=0.05, preempted=90) if doubtful(taken[-1]) else window()

    return take, taken


def doubt(window: Window) -> str:
    """As the agent doubts it."""
    return disturbance.cause(window, 1)


def test_each_turn_has_a_window_of_everybody_in_another_order() -> None:
    order: list[str] = []

    def take(label: str) -> window_schedule.Take:
        return lambda: order.append(label) or window()  # type: ignore[func-returns-value]

    taken = window_schedule.take({label: take(label) for label in "abc"}, 20, 1, doubt)
    each = ["".join(order[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(turn) == ["a", "b", "c"] for turn in each) and len(set(each)) > 3
    assert taken["a"].numbers == list(range(20)) and not taken["a"].noisy


def test_a_disturbed_window_is_taken_again_until_it_is_not() -> None:
    take, taken = machine(lambda number: 2 <= number < 6)
    found = window_schedule.take({"a": take}, 10, 0, doubt)["a"]
    assert (found.repeated, found.noisy, len(taken)) == (4, "", 14)
    assert found.numbers == [0, 1, *range(6, 14)] and found.kept == list(range(10))


def test_repeats_are_bounded_and_a_session_that_stays_disturbed_is_too_noisy() -> None:
    take, taken = machine(lambda number: True)
    found = window_schedule.take({"a": take}, 10, 0, doubt)["a"]
    assert len(taken) <= 20
    assert found.noisy == "other work held its processors for 50% of the time (10 of 10 windows, each repeated)"
    assert found.kept == list(range(10))  # what is known is kept, as a rough time


def test_a_few_windows_that_stay_disturbed_are_left_out() -> None:
    spent = iter([True] * 12)
    take, _ = machine(lambda number: next(spent, False))
    found = window_schedule.take({"a": take}, 10, 0, doubt)["a"]
    assert not found.noisy and 5 < len(found.kept) < 10
    assert all(not found.causes[turn] for turn in found.kept)


def test_a_process_that_ends_costs_its_own_session_only() -> None:
    def ends() -> Window:
        raise StageFailed("ended by SIGKILL")

    taken = window_schedule.take({"a": ends, "b": machine(lambda number: False)[0]}, 3, 0, doubt)
    assert (taken["a"].crashed, taken["a"].windows) == ("ended by SIGKILL", [])
    assert len(taken["b"].windows) == 3
