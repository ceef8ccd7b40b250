"""How strongly to compress, found by measuring: on made-up devices whose latency falls in steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.core import catalog
from edgecompress.core.model import Artifact, Choice, Goal, Outcome, Stage
from edgecompress.pipeline.searches.strength import BAND, NEAREST, TRIALS, Fit, StrengthTrial, next_keep

Device = Callable[[float], float | None]  # what a net measures that was asked to keep so much, as a part of dense
DENSE_MS = 0.4
CELLS = {"early@16": {"widths": {"early": 16}}, "late@16": {"widths": {"late": 16}}}


def played(goal: float, device: Device) -> list[StrengthTrial]:
    """The trials of a search on a device."""
    trials: list[StrengthTrial] = []
    while (keep := next_keep(goal, trials)) is not None:
        trials.append(StrengthTrial(f"trial-{len(trials) + 1}", keep, device(keep)))
    return trials


def test_a_true_table_needs_one_trial() -> None:
    assert [t.keep for t in played(0.6, lambda keep: 0.97 * keep)] == [0.6]


def test_a_table_that_promises_too_much_is_corrected_in_proportion() -> None:
    trials = played(0.6, lambda keep: min(1.0, keep + 0.15))
    assert BAND * 0.6 <= trials[-1].ratio <= 0.6 and len(trials) <= 4


def test_a_strength_that_cannot_be_built_is_taken_for_too_strong() -> None:
    trials = played(0.6, lambda keep: keep if keep > 0.7 else None)
    assert trials[0].ratio is None and trials[1].keep > trials[0].keep


@given(st.floats(0.2, 0.95), st.lists(st.floats(0.05, 1.0), min_size=1, max_size=12), st.floats(0.7, 1.4))
def test_it_ends_inside_the_band_or_with_neighbours_around_it(goal: float, steps: list[float], bias: float) -> None:
    levels = sorted({*steps, 1.0})

    def device(keep: float) -> float:
        return min(1.0, bias * max([x for x in levels if x <= keep], default=levels[0]))

    trials = played(goal, device)
    assert 1 <= len(trials) <= TRIALS
    if any(BAND * goal <= (t.ratio or 0) <= goal for t in trials):
        assert sum(BAND * goal <= (t.ratio or 0) <= goal for t in trials) == 1
        return
    fast = [t.keep for t in trials if (t.ratio or 0) < BAND * goal]
    slow = [t.keep for t in trials if (t.ratio or 0) > goal]
    near = not fast or not slow or min(slow) - max(fast) < NEAREST
    assert near or len(trials) == TRIALS


# --------------------------------------------------------------------------- the whole search


def fit(goal: Goal) -> Fit:
    """A search for a technique of two steps to its artifact."""
    options = {"latency_ratio": 0.6, "criterion": "l2"}
    technique = Stage("int8/prune", "techniques.prune:apply", {"model": "source", "samples": "data"}, options)
    rest = (Stage("1-trace", "stages.trace:run", {"model": "", "samples": "data"}), Stage("2-int8", "t.q:apply"))
    profile = catalog.profile("quick").value
    return Fit(technique, goal, rest, "litert", profile, variants=("int8",))


class Play:
    """Plays the stages of a search: `device` says what a trial measures, `saved` what each cell saves."""

    def __init__(self, device: Device, saved: dict[str, float]) -> None:
        self.device, self.saved = device, saved
        self.outcomes: dict[str, Outcome] = {}
        self.stages: dict[str, Stage] = {}

    def run(self, search: Fit) -> Choice:
        while not isinstance(step := search.step(self.outcomes), Choice):
            assert step, "nothing to do, and no choice"
            for stage in step:
                assert stage.name not in self.stages, f"{stage.name} asked for twice"
                assert stage.variants == ("int8",), "a trial that breaks must not end the run"
                self.stages[stage.name] = stage
                self.outcomes[stage.name] = self.outcome(stage)
        return step

    def outcome(self, stage: Stage) -> Outcome:
        if any(self.outcomes[n].status != "ok" for n in stage.inputs.values() if n in self.outcomes):
            return Outcome(stage.name, "failed", reason="fallen")
        if stage.options.get("keep") is not None and self.device(stage.options["keep"]) is None:
            return Outcome(stage.name, "failed", reason="no width is so narrow")
        return Outcome(stage.name, "ok", Artifact(Path("nowhere"), "any", facts=self.facts(stage)))

    def facts(self, stage: Stage) -> dict[str, Any]:
        if stage.name.endswith("/cells"):
            return {"cells": CELLS}
        if stage.call != "stages.interleaved:run":
            return {}
        shares = {label: self.share(label) for label in stage.options["order"]}
        return {"medians_ms": {n: [DENSE_MS * s, 2 * DENSE_MS * s] for n, s in shares.items()}, "status": "measured"}

    def share(self, label: str) -> float:
        if label.startswith("trial-"):
            found = self.device(self.stages[f"int8/prune/{label}"].options["keep"])
            assert found is not None
            return found
        return 1.0 - self.saved.get(label, 0.0)


def test_cells_are_measured_beside_dense_and_their_savings_choose_the_trials() -> None:
    play = Play(lambda keep: 0.95 * keep, {"early@16": 0.25, "late@16": 0.125})
    choice = play.run(fit(Goal("ratio", 0.6)))
    assert choice.stage == "int8/prune/trial-1"
    assert choice.table["saved"] == {"early@16": 0.25, "late@16": 0.125}
    assert play.stages["int8/prune/cell-1"].options == {"criterion": "l2", "widths": {"early": 16}}
    asked = play.stages["int8/prune/trial-1"].options
    assert asked == {"criterion": "l2", "saved": choice.table["saved"], "keep": 0.6}
    assert play.stages["int8/prune/trial-1/2-int8"].inputs["model"] == "int8/prune/trial-1/1-trace"
    assert play.stages["int8/prune/dense/1-trace"].inputs["model"] == "source"


def test_a_goal_in_milliseconds_is_a_part_of_what_dense_measures() -> None:
    play = Play(lambda keep: keep, {})
    choice = play.run(fit(Goal("latency_ms", 0.3)))
    assert choice.table["ratio"] == pytest.approx(0.3 / (1.5 * DENSE_MS))
    assert choice.table["trials"][0]["keep"] == pytest.approx(0.5)


def test_where_no_width_lies_between_both_neighbours_are_told() -> None:
    choice = Play(lambda keep: 0.72 if keep > 0.55 else 0.4, {}).run(fit(Goal("ratio", 0.6)))
    assert choice.reason == (
        "no width between: 0.400 of the dense net's latency, the next wider one 0.720, asked for 0.6"
    )
    assert choice.table["trials"][0]["ratio"] == pytest.approx(0.72)


def test_a_goal_out_of_reach_chooses_nothing_and_names_the_nearest() -> None:
    choice = Play(lambda keep: 0.8, {}).run(fit(Goal("ratio", 0.5)))
    assert not choice.stage
    assert choice.reason == "nothing reaches 0.5 of the dense net's latency: the nearest measures 0.800"


def test_a_cell_that_cannot_be_built_costs_only_itself() -> None:
    play = Play(lambda keep: keep * 0.96, {"late@16": 0.2})
    built = play.outcome

    def outcome(stage: Stage) -> Outcome:
        return Outcome(stage.name, "failed", reason="broke") if stage.name == "int8/prune/cell-1" else built(stage)

    play.outcome = outcome  # type: ignore[method-assign]
    choice = play.run(fit(Goal("ratio", 0.6)))
    assert choice.stage and list(choice.table["saved"]) == ["late@16"]


def test_instructions_are_compared_where_the_device_is_simulated() -> None:
    play = Play(lambda keep: keep * 0.96, {})

    def counted(stage: Stage) -> dict[str, Any]:
        told = Play.facts(play, stage)
        if "medians_ms" in told:
            return {
                "instructions": {n: int(1e6 * ms[0]) for n, ms in told["medians_ms"].items()},
                "status": "simulated",
            }
        return told

    play.facts = counted  # type: ignore[method-assign]
    choice = play.run(dataclasses.replace(fit(Goal("ratio", 0.6)), simulated="an emulator"))
    assert choice.table["status"] == "simulated" and choice.table["dense_ms"] is None
