"""The race as a pure function: who runs in which round, who is dropped, who ships, and why the others do not."""

from __future__ import annotations

import dataclasses
import math
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgecompress.core import sequential_comparison
from edgecompress.core.model import Artifact, Choice, Outcome, Stage
from edgecompress.core.settings import Limits, Profile, Variant
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.searches import standings
from edgecompress.pipeline.searches.race import LOSERS, Race

PROFILE = Profile(
    "test", sessions=6, warmup_s=3, warmup_runs=1, window_s=10, window_runs=1, energy_windows=1, energy_window_s=1
)
NO_LIMITS = Limits()
NOISE = "other work held its processors for 40% of the time"
MEMORY = {"peak_rss_bytes": 1 << 20}


def race(
    speeds: dict[str, float], sessions: int = 6, limits: Limits = NO_LIMITS, references: tuple[str, ...] = ()
) -> Race:
    entrants = tuple(
        Candidate(Variant(n, reference=n in references), "null", f"{n}/made", f"{n}/verify", limits) for n in speeds
    )
    profile = Profile(**{**vars(PROFILE), "sessions": sessions})
    return Race(entrants, profile)


def passed(race_: Race) -> dict[str, Outcome]:
    return {e.verdict: Outcome(e.verdict, "ok") for e in race_.entrants}


Session = Callable[[str, int], dict[str, Any]]  # (variant, round) -> its numbers


def play(race_: Race, session: Session, outcomes: dict[str, Outcome]) -> tuple[Choice, list[Stage]]:
    """Answers every stage that the race asks for, until it chooses."""
    stages: list[Stage] = []
    while not isinstance(step := race_.step(outcomes), Choice):
        for stage in step:
            stages.append(stage)
            numbers = {v: session(v, stage.options.get("number", 0)) for v in stage.options["runtimes"]}
            artifact = Artifact(Path("nowhere"), "round", facts={"variants": numbers})
            outcomes[stage.name] = Outcome(stage.name, "ok", artifact)
    return step, stages


def steady(speeds: dict[str, float]) -> Session:
    """Sessions that agree, on a machine that slows down a little from round to round."""
    return lambda name, number: timed(speeds[name] * (1 + 0.001 * number))


def uneven(speeds: dict[str, float], by: float, seed: int = 0) -> Session:
    """Sessions that differ from process to process."""

    def session(name: str, number: int) -> dict[str, Any]:
        return timed(speeds[name] * math.exp(random.Random(f"{name} {number} {seed}").gauss(0, by)))

    return session


def timed(median_ms: float) -> dict[str, Any]:
    """A session whose windows agree."""
    each = [median_ms] * 3
    return {"median_ms": median_ms, "windows_ms": each, "rough_ms": each, "noisy": "", "memory": MEMORY}


def too_noisy(rough_ms: float) -> dict[str, Any]:
    """A session of which nothing can be said."""
    told = {"median_ms": None, "windows_ms": [None] * 3, "rough_ms": [rough_ms] * 3, "noisy": NOISE}
    return {**told, "memory": MEMORY}


def rounds(stages: list[Stage]) -> list[list[str]]:
    return [s.options["order"] for s in stages if s.name.startswith("race/")]


def test_the_fastest_ships_and_the_others_say_by_how_much_they_are_slower() -> None:
    speeds = {"a": 2.0, "b": 1.0, "c": 1.5}
    choice, _ = play(it := race(speeds), steady(speeds), passed(it))
    assert choice.stage == "b"
    assert choice.table["a"]["verdict"] == choice.table["c"]["verdict"] == "slower"
    assert re.match(r"2\.00x \(1\.\d\d–2\.\d\d\) the time of b, left after \d round", choice.table["a"]["reason"])
    assert choice.table["b"]["verdict"] == "shipped"
    assert choice.reason.startswith("the fastest that keeps the budget; c takes 1.50x as long in one session")


def test_the_order_of_a_round_is_rotated_and_its_number_orders_the_turns() -> None:
    speeds = {"a": 1.0, "b": 1.001}
    _, stages = play(it := race(speeds), steady(speeds), passed(it))
    assert rounds(stages) == [["a", "b"], ["b", "a"]] * 3
    assert [s.options["number"] for s in stages if s.name.startswith("race/")] == [1, 2, 3, 4, 5, 6]


def test_who_cannot_win_leaves_and_the_fastest_reference_stays() -> None:
    speeds = {"a": 1.0, "b": 1.004, "c": 1.15, "d": 4.0, "slowref": 9.0, "ref": 8.0}
    _, stages = play(it := race(speeds, references=("ref", "slowref")), steady(speeds), passed(it))
    sizes = [sorted(r) for r in rounds(stages)]
    assert sizes[0] == sorted(speeds)
    assert sizes[1] == ["a", "b", "c", "ref"]
    assert sizes[5] == ["a", "b", "ref"]


def test_of_shown_equals_the_order_of_the_target_decides() -> None:
    speeds = {"first": 1.004, "second": 1.0}
    choice, _ = play(it := race(speeds), steady(speeds), passed(it))
    assert choice.stage == "first"
    assert choice.reason == "equal to second within 2 %, and before it in the target's order"
    assert choice.table["second"]["verdict"] == "equal"
    assert choice.table["second"]["reason"] == "equal to first within 2 %, and after first in the target's order"


def test_what_is_not_shown_to_be_equal_ships_by_its_speed_and_says_that_it_is_not_decided() -> None:
    speeds = {"first": 1.015, "second": 1.0}
    choice, _ = play(it := race(speeds), uneven(speeds, 0.02), passed(it))
    assert choice.stage == "second"
    assert choice.reason.startswith("the fastest measured, undecided: first takes 1.0")
    assert choice.table["first"]["verdict"] == "undecided"
    assert choice.table["first"]["reason"].startswith("not decided: 1.0")


def test_undecided_leaders_run_on_and_the_race_ends_when_it_knows() -> None:
    speeds = {"first": 1.05, "second": 1.0, "third": 2.0}
    it = race(speeds)
    more = dataclasses.replace(it, profile=dataclasses.replace(it.profile, more_sessions=20))
    choice, stages = play(more, uneven(speeds, 0.03, seed=1), passed(more))
    assert 6 < len(rounds(stages)) < 26
    assert sorted(rounds(stages)[-1]) == ["first", "second"]
    assert (choice.stage, choice.table["first"]["verdict"]) == ("second", "slower")


@pytest.mark.parametrize("sessions", [1, 2])
def test_too_few_sessions_still_ship_the_clearly_faster_one(sessions: int) -> None:
    speeds = {"first": 1.5, "second": 1.0}
    choice, stages = play(it := race(speeds, sessions), steady(speeds), passed(it))
    assert choice.stage == "second"
    assert len(rounds(stages)) == sessions


def test_a_machine_too_noisy_gives_no_ratio_and_ends_the_race() -> None:
    speeds = {"a": 3.0, "b": 2.0, "ref": 9.0}
    it = race(speeds, references=("ref",))
    choice, stages = play(it, lambda name, number: too_noisy(speeds[name]), passed(it))
    assert len(rounds(stages)) == standings.GIVE_UP
    assert choice.stage == "b"
    assert choice.reason == f"too noisy to compare: {NOISE}; by rough times it is the fastest"
    for name in speeds:
        assert "ratio" not in choice.table[name] and choice.table[name]["median_ms"] is None
    assert choice.table["a"]["verdict"] == "noisy"
    assert choice.table["a"]["reason"] == f"too noisy to compare: {NOISE}"


def test_noisy_sessions_do_not_count_and_the_others_do() -> None:
    speeds = {"a": 1.0, "b": 1.3}
    it = race(speeds)
    choice, stages = play(it, lambda v, k: too_noisy(99.0) if (v, k) == ("a", 2) else timed(speeds[v]), passed(it))
    assert choice.stage == "a" and len(choice.table["a"]["medians_ms"]) == len(rounds(stages)) - 1
    assert choice.table["b"]["ratio"]["median"] == pytest.approx(1.3)


def test_windows_beside_each_other_are_compared_where_the_machine_changes_half_way() -> None:
    slow = [1.0, 1.0, 2.0, 2.0, 2.0]
    windows = {"a": slow, "b": [1.1 * t for t in slow]}
    it = race(dict.fromkeys("ab", 1.0))
    told = {"rough_ms": slow, "memory": MEMORY}
    choice, _ = play(it, lambda v, k: {**told, "median_ms": 1.0 + (v == "a"), "windows_ms": windows[v]}, passed(it))
    assert choice.stage == "a"
    assert choice.table["b"]["ratio"]["median"] == pytest.approx(1.1)


def test_windows_that_disagree_are_too_noisy_to_compare() -> None:
    assert sequential_comparison.paired([1.0, 1.0, 1.0, 1.0], [1.0, 2.0, 1.0, 3.0]) is None
    assert sequential_comparison.paired([1.0, None, None, 1.0], [1.0, 1.0, 1.0, None]) is None
    assert sequential_comparison.paired(
        [2.0, None, 2.0, 2.0, 2.0, 2.0], [1.0, 1.0, 1.01, 9.0, 1.0, 1.0]
    ) == pytest.approx(2.0)


def test_a_variant_that_failed_its_check_never_runs() -> None:
    speeds = {"good": 2.0, "wrong": 1.0}
    it = race(speeds)
    outcomes = {**passed(it), "wrong/verify": Outcome("wrong/verify", "lost", None, "7 items lost, limit 5")}
    choice, stages = play(it, steady(speeds), outcomes)
    assert choice.stage == "good"
    assert all("wrong" not in r for r in rounds(stages))
    assert choice.table["wrong"] | {"verdict": "lost", "reason": "7 items lost, limit 5"} == choice.table["wrong"]


def test_a_crash_while_measuring_costs_only_its_variant() -> None:
    speeds = {"crashes": 1.0, "good": 2.0}

    def crashing(name: str, number: int) -> dict[str, Any]:
        return {"crashed": "ended by SIGSEGV"} if name == "crashes" else timed(speeds[name])

    choice, stages = play(it := race(speeds), crashing, passed(it))
    assert choice.stage == "good"
    assert choice.table["crashes"]["verdict"] == "failed"
    assert "SIGSEGV" in choice.table["crashes"]["reason"]
    assert all("crashes" not in r for r in rounds(stages)[1:])


def test_a_round_that_broke_ends_the_race_with_what_was_measured_before() -> None:
    speeds = {"a": 1.0, "b": 2.0}
    it = race(speeds)
    outcomes = {**passed(it), "race/round-1": Outcome("race/round-1", "failed", None, "ended by SIGKILL")}
    choice, stages = play(it, steady(speeds), outcomes)
    assert (choice.stage, choice.reason, stages) == ("", "no variant was measured: ended by SIGKILL", [])
    assert choice.table["b"]["reason"] == "was not measured: ended by SIGKILL"


def test_a_variant_over_its_latency_budget_is_lost_and_nothing_ships_when_all_are() -> None:
    speeds = {"a": 2.0, "b": 3.0}
    choice, _ = play(it := race(speeds, limits=Limits(latency_ms=2.5)), steady(speeds), passed(it))
    assert (choice.stage, choice.table["b"]["verdict"]) == ("a", "lost")
    choice, _ = play(it := race(speeds, limits=Limits(latency_ms=0.5)), steady(speeds), passed(it))
    assert choice.stage == ""
    assert "limit 0.5 ms" in choice.table["a"]["reason"]


def test_a_latency_whose_sessions_lie_on_both_sides_of_its_limit_ships_and_says_so_and_never_where_strict() -> None:
    speeds = {"a": 2.0}  # its sessions take 2.002 to 2.012 ms, their median is 2.007
    for limit, word in ((2.02, []), (2.01, ["undecided"]), (2.003, None)):
        choice, _ = play(it := race(speeds, limits=Limits(latency_ms=limit)), steady(speeds), passed(it))
        says = [each.partition(": ")[2].split(",")[0] for each in choice.table["a"]["undecided"]]
        assert (choice.stage, says) == (("a", word) if word is not None else ("", ["undecided"]))
        strict, _ = play(it := race(speeds, limits=Limits(latency_ms=limit, strict=True)), steady(speeds), passed(it))
        assert strict.stage == ("a" if word == [] else "")


def test_one_session_decides_no_limit() -> None:
    speeds = {"a": 2.0}
    choice, _ = play(it := race(speeds, 1, limits=Limits(latency_ms=9.0)), steady(speeds), passed(it))
    (said,) = choice.table["a"]["undecided"]
    assert (choice.stage, said) == (
        "a",
        "2 ms, limit 9 ms; few sessions have no interval: undecided, more sessions may decide",
    )


def test_energy_and_operators_are_measured_for_the_winner_and_the_fastest_reference_only() -> None:
    speeds = {"a": 1.0, "b": 1.2, "ref": 3.0, "slowref": 4.0}
    _, stages = play(it := race(speeds, references=("ref", "slowref")), steady(speeds), passed(it))
    finals = {s.name: set(s.options["runtimes"]) for s in stages if not s.name.startswith("race/")}
    assert finals == {"energy": {"a", "ref"}, "ops": {"a", "ref"}}


def test_operators_of_what_is_slower_than_the_reference_are_looked_at_the_slowest_where_there_are_many() -> None:
    slow = {f"slow{k}": 10.0 + k for k in range(LOSERS + 2)}
    speeds = {"a": 1.0, "b": 1.5, "ref": 2.0, **slow}
    _, stages = play(it := race(speeds, references=("ref",)), steady(speeds), passed(it))
    ops = next(set(s.options["runtimes"]) for s in stages if s.name == "ops")
    assert ops == {"a", "ref", *list(slow)[2:]}


def test_no_variant_left_is_a_choice_of_nothing() -> None:
    it = race({"a": 1.0})
    choice = it.step({"a/verify": Outcome("a/verify", "failed", None, "crashed")})
    assert isinstance(choice, Choice)
    assert choice.stage == ""


def test_measurements_are_of_the_code_of_the_devices_transport_and_sensors() -> None:
    device = ("sensors.rapl", "transports.host")
    speeds = {"a": 1.0, "b": 2.0}
    _, stages = play(asked := dataclasses.replace(race(speeds), plugins=device), steady(speeds), passed(asked))
    assert {stage.plugins for stage in stages} == {("runtimes.null", *device)}
