"""The race as a pure function: who runs in which round, who is dropped, who ships, and why the others do not."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from edgecompress.core.model import Artifact, Choice, Outcome, Stage
from edgecompress.core.settings import Limits, Profile, Variant
from edgecompress.pipeline.candidate import Candidate
from edgecompress.pipeline.searches.race import LOSERS, Race

PROFILE = Profile(
    "test", sessions=6, warmup_s=3, warmup_runs=1, window_s=10, window_runs=1, energy_windows=1, energy_window_s=1
)
NO_LIMITS = Limits()
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


def play(
    race_: Race, speeds: dict[str, float], outcomes: dict[str, Outcome], crash: tuple[str, ...] = ()
) -> tuple[Choice, list[Stage]]:
    """Answers every stage that the race asks for with the given speeds, until it chooses."""
    stages: list[Stage] = []
    while not isinstance(step := race_.step(outcomes), Choice):
        for stage in step:
            stages.append(stage)
            runtimes = stage.options["runtimes"]
            numbers = {
                v: {"crashed": "ended by SIGSEGV"}
                if v in crash
                else {"median_ms": speeds[v] * (1 + 0.001 * len(stages)), "memory": MEMORY}
                for v in runtimes
            }
            artifact = Artifact(Path("nowhere"), "round", facts={"variants": numbers})
            outcomes[stage.name] = Outcome(stage.name, "ok", artifact)
    return step, stages


def rounds(stages: list[Stage]) -> list[list[str]]:
    return [s.options["order"] for s in stages if s.name.startswith("race/")]


def test_the_fastest_ships_and_the_others_say_by_how_much_they_are_slower() -> None:
    speeds = {"a": 2.0, "b": 1.0, "c": 1.5}
    choice, _ = play(it := race(speeds), speeds, passed(it))
    assert choice.stage == "b"
    assert choice.table["a"]["verdict"] == "slower"
    assert choice.table["a"]["reason"].startswith("2.00x the time of b")
    assert choice.table["b"]["verdict"] == "shipped"


def test_variants_run_in_turns_with_the_order_rotated_each_round() -> None:
    speeds = {"a": 1.0, "b": 1.1}
    _, stages = play(it := race(speeds), speeds, passed(it))
    assert rounds(stages) == [["a", "b"], ["b", "a"]] * 3


def test_the_slower_half_is_dropped_after_two_and_four_rounds_but_never_the_fastest_reference() -> None:
    speeds = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0, "slowref": 9.0, "ref": 8.0}
    _, stages = play(it := race(speeds, references=("ref", "slowref")), speeds, passed(it))
    sizes = [sorted(r) for r in rounds(stages)]
    assert sizes[:2] == [sorted(speeds)] * 2
    assert sizes[2:4] == [["a", "b", "c", "ref"]] * 2
    assert sizes[4:] == [["a", "b", "ref"]] * 2
    sessions = int(it.bound().split(", ")[1].split()[0])
    assert sum(map(len, sizes)) == sessions


def test_within_two_percent_the_order_of_the_target_decides() -> None:
    speeds = {"first": 1.01, "second": 1.0}
    choice, _ = play(it := race(speeds), speeds, passed(it))
    assert choice.stage == "first"
    assert "before it in the target's order" in choice.reason


@pytest.mark.parametrize("sessions", [1, 2])
def test_too_few_sessions_still_ship_the_clearly_faster_one(sessions: int) -> None:
    speeds = {"first": 1.5, "second": 1.0}
    choice, stages = play(it := race(speeds, sessions), speeds, passed(it))
    assert choice.stage == "second"
    assert len(rounds(stages)) == sessions


def test_a_variant_that_failed_its_check_never_runs() -> None:
    speeds = {"good": 2.0, "wrong": 1.0}
    it = race(speeds)
    outcomes = {**passed(it), "wrong/verify": Outcome("wrong/verify", "lost", None, "7 items lost, limit 5")}
    choice, stages = play(it, speeds, outcomes)
    assert choice.stage == "good"
    assert all("wrong" not in r for r in rounds(stages))
    assert choice.table["wrong"] | {"verdict": "lost", "reason": "7 items lost, limit 5"} == choice.table["wrong"]


def test_a_crash_while_measuring_costs_only_its_variant() -> None:
    speeds = {"crashes": 1.0, "good": 2.0}
    choice, stages = play(it := race(speeds), speeds, passed(it), crash=("crashes",))
    assert choice.stage == "good"
    assert choice.table["crashes"]["verdict"] == "failed"
    assert "SIGSEGV" in choice.table["crashes"]["reason"]
    assert all("crashes" not in r for r in rounds(stages)[1:])


def test_a_round_that_broke_ends_the_race_with_what_was_measured_before() -> None:
    speeds = {"a": 1.0, "b": 2.0}
    it = race(speeds)
    outcomes = {**passed(it), "race/round-1": Outcome("race/round-1", "failed", None, "ended by SIGKILL")}
    choice, stages = play(it, speeds, outcomes)
    assert (choice.stage, choice.reason, stages) == ("", "no variant was measured", [])


def test_a_variant_over_its_latency_budget_is_lost_and_nothing_ships_when_all_are() -> None:
    speeds = {"a": 2.0, "b": 3.0}
    choice, _ = play(it := race(speeds, limits=Limits(latency_ms=2.5)), speeds, passed(it))
    assert (choice.stage, choice.table["b"]["verdict"]) == ("a", "lost")
    choice, _ = play(it := race(speeds, limits=Limits(latency_ms=0.5)), speeds, passed(it))
    assert choice.stage == ""
    assert "limit 0.5 ms" in choice.table["a"]["reason"]


def test_a_latency_whose_sessions_lie_on_both_sides_of_its_limit_ships_and_says_so_and_never_where_strict() -> None:
    speeds = {"a": 2.0}  # its sessions take 2.002 to 2.012 ms, their median is 2.007
    for limit, word in ((2.02, []), (2.01, ["undecided"]), (2.003, None)):
        choice, _ = play(it := race(speeds, limits=Limits(latency_ms=limit)), speeds, passed(it))
        says = [each.partition(": ")[2].split(",")[0] for each in choice.table["a"]["undecided"]]
        assert (choice.stage, says) == (("a", word) if word is not None else ("", ["undecided"]))
        strict, _ = play(it := race(speeds, limits=Limits(latency_ms=limit, strict=True)), speeds, passed(it))
        assert strict.stage == ("a" if word == [] else "")


def test_one_session_decides_no_limit() -> None:
    speeds = {"a": 2.0}
    choice, _ = play(it := race(speeds, 1, limits=Limits(latency_ms=9.0)), speeds, passed(it))
    (said,) = choice.table["a"]["undecided"]
    assert (choice.stage, said) == (
        "a",
        "2 ms, limit 9 ms; few sessions have no interval: undecided, more sessions may tell",
    )


def test_no_variant_is_called_slower_that_is_as_fast() -> None:
    speeds = {"first": 1.01, "second": 1.0, "third": 1.3}
    for sessions in (1, 6):
        choice, _ = play(it := race(speeds, sessions), speeds, passed(it))
        words = {
            name: (row["verdict"], row["reason"].split(",")[0].split(" (")[0]) for name, row in choice.table.items()
        }
        assert words["second"] == ("even", "as fast as first")
        assert words["third"] == ("slower", "1.29x the time of first")


def test_energy_and_operators_are_measured_for_the_winner_and_the_fastest_reference_only() -> None:
    speeds = {"a": 1.0, "b": 1.2, "ref": 3.0, "slowref": 4.0}
    _, stages = play(it := race(speeds, references=("ref", "slowref")), speeds, passed(it))
    finals = {s.name: set(s.options["runtimes"]) for s in stages if not s.name.startswith("race/")}
    assert finals == {"energy": {"a", "ref"}, "ops": {"a", "ref"}}


def test_operators_of_what_is_slower_than_the_reference_are_looked_at_the_slowest_where_there_are_many() -> None:
    slow = {f"slow{k}": 10.0 + k for k in range(LOSERS + 2)}
    speeds = {"a": 1.0, "b": 1.5, "ref": 2.0, **slow}
    _, stages = play(it := race(speeds, references=("ref",)), speeds, passed(it))
    ops = next(set(s.options["runtimes"]) for s in stages if s.name == "ops")
    assert ops == {"a", "ref", *list(slow)[2:]}


def test_no_variant_left_is_a_choice_of_nothing() -> None:
    it = race({"a": 1.0})
    choice = it.step({"a/verify": Outcome("a/verify", "failed", None, "crashed")})
    assert isinstance(choice, Choice)
    assert choice.stage == ""


def test_of_a_crowd_the_slower_half_goes_after_the_first_round_already() -> None:
    speeds = {name: 1.0 + index for index, name in enumerate("abcdefgh")}
    choice, stages = play(it := race(speeds, references=("h",)), speeds, passed(it))
    assert [len(order) for order in rounds(stages)] == [8, 5, 4, 4, 3, 3]
    assert choice.stage == "a"
    assert choice.table["g"]["reason"].endswith("(dropped after 1 round)")


def test_measurements_are_of_the_code_of_the_devices_transport_and_sensors() -> None:
    device = ("sensors.rapl", "transports.host")
    speeds = {"a": 1.0, "b": 2.0}
    _, stages = play(asked := dataclasses.replace(race(speeds), plugins=device), speeds, passed(asked))
    assert {stage.plugins for stage in stages} == {("runtimes.null", *device)}
