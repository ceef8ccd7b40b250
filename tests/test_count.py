"""The ranking of a simulated device: by instructions alone, the target's order between those that count the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from edgecompress.core.model import Artifact, Choice, Outcome
from edgecompress.core.settings import Profile, Variant
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.searches.instruction_count import Count

PROFILE = Profile("any", 1, 0, 1, 0, 1, 1, 1.0)
NAMES = ("first", "second", "third")


def count(names: tuple[str, ...] = NAMES, **more: Any) -> Count:
    entrants = tuple(
        Candidate(Variant(n), "null", f"{n}/apply", f"{n}/verify", agrees=f"{n}/agree", **more) for n in names
    )
    return Count(entrants, PROFILE, "an emulator")


def judged(names: tuple[str, ...] = NAMES) -> dict[str, Outcome]:
    return {f"{n}/{word}": Outcome(f"{n}/{word}", "ok", None) for n in names for word in ("apply", "verify", "agree")}


def counted(tmp_path: Path, **instructions: int | str) -> dict[str, Outcome]:
    """What the stage found: a number of instructions, or why a variant crashed."""
    rows = {
        n: {"crashed": v} if isinstance(v, str) else {"instructions": v, "classes": {"sdot": 1}, "identical": True}
        for n, v in instructions.items()
    }
    return {"count": Outcome("count", "ok", Artifact(tmp_path, "count", facts={"variants": rows}))}


def choice(found: Count, outcomes: dict[str, Outcome]) -> Choice:
    step = found.step(outcomes)
    assert isinstance(step, Choice)
    return step


def test_all_that_kept_their_promises_are_counted_in_one_stage() -> None:
    outcomes = judged() | {"second/agree": Outcome("second/agree", "lost", None, "it answers otherwise there")}
    (stage,) = count().step(outcomes)  # type: ignore[misc]
    assert stage.call == "stages.instructions:run" and stage.variants == ("first", "third")


def test_the_fewest_instructions_ship(tmp_path: Path) -> None:
    made = choice(count(), judged() | counted(tmp_path, first=300, second=100, third=200))
    assert made.stage == "second"
    assert "third takes 2.00x as many" in made.reason and "an emulator" in made.reason
    assert made.table["first"]["count_ratio"] == 3.0
    assert made.table["first"]["median_ms"] is None


def test_within_2_percent_the_order_decides(tmp_path: Path) -> None:
    made = choice(count(), judged() | counted(tmp_path, first=101, second=100, third=200))
    assert made.stage == "first" and "before it in the target's order" in made.reason


def test_one_that_crashed_is_failed_and_the_others_go_on(tmp_path: Path) -> None:
    made = choice(count(), judged() | counted(tmp_path, first="no such kernel", second=100, third=200))
    assert made.stage == "second"
    assert (made.table["first"]["verdict"], made.table["first"]["reason"]) == ("failed", "no such kernel")


def test_one_that_disagrees_on_the_device_is_lost_with_the_reason(tmp_path: Path) -> None:
    lost = {"second/agree": Outcome("second/agree", "lost", None, "it answers otherwise there")}
    made = choice(count(), judged() | lost | counted(tmp_path, first=300, third=200))
    assert made.stage == "third"
    assert made.table["second"]["reason"] == "it answers otherwise there"


def test_nothing_ships_when_nobody_is_left() -> None:
    broken = {n: Outcome(n, "failed", None, "broke") for n in judged()}
    made = choice(count(), broken)
    assert (made.stage, made.reason) == ("", "no variant is left to ship")


def test_counts_are_of_the_code_of_the_devices_transport_and_sensors() -> None:
    (stage,) = dataclasses.replace(count(), plugins=("sensors.instructions", "transports.qemu")).step(judged())  # type: ignore[misc]
    assert stage.plugins == ("runtimes.null", "sensors.instructions", "transports.qemu")
