"""The ladder of the accuracy guard: climbed on made-up outcomes, as far as the budget needs and no further."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.core import registry
from edgecompress.core.errors import ConfigError
from edgecompress.core.model import Artifact, Choice, Outcome, Stage
from edgecompress.core.settings import Limits
from edgecompress.data import output_checks
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.pipeline.searches.accuracy_guard import AccuracyGuard
from edgecompress.pipeline.searches.on_select import Budget
from edgecompress.pipeline.searches.rung_trial import Recipe, RungTrial
from edgecompress.stages import integer_program

ITEMS = 500
LAYERS = ("first", "second", "third")


def ladder(**settings: Any) -> AccuracyGuard:
    """The guard of the int8 variant of the demo on x86, under a budget of one item of 500."""
    asked = {"guard.on": True, "limits.items_lost": 1, **settings}
    steps = plan.deploy(job(None, "x86", only=["int8"], settings=asked))
    return next(s for s in steps.stages if isinstance(s, AccuracyGuard))


class Bench:
    """Plays the stages of a ladder: what each label loses on the split that chooses, what it measures."""

    def __init__(self, lost: Mapping[str, int], ms: Mapping[str, float] | None = None) -> None:
        self.lost, self.ms, self.ran, self.stages = lost, ms or {}, list[str](), list[Stage]()
        self.outcomes = {"data": self._made("data", {"splits": {"calibrate": 64, "select": ITEMS, "test": ITEMS}})}

    def play(self, guard: AccuracyGuard) -> Choice:
        """Steps until the guard chooses."""
        while not isinstance(step := guard.step(self.outcomes), Choice):
            assert step, "a step without stages would never end"
            for stage in step:
                self.ran.append(stage.name)
                self.stages.append(stage)
                self.outcomes[stage.name] = self._outcome(guard, stage)
        return step

    def tried(self, guard: AccuracyGuard) -> list[str]:
        """The labels that were held against the split that chooses, in order."""
        ends = [name.split("/") for name in self.ran if name.endswith("/select")]
        return [label for *_, label, _ in ends]

    def _outcome(self, guard: AccuracyGuard, stage: Stage) -> Outcome:
        label, _, what = stage.name.removeprefix(f"{guard.name}/").partition("/")
        if what in ("select", "test"):
            return self._verdict(stage.name, label)
        if stage.call.startswith("stages.interleaved"):
            rounds = {name: [self.ms.get(name, 1.0)] * 3 for name in stage.options["order"]}
            return self._made(stage.name, {"medians_ms": rounds})
        if stage.call.startswith("stages.diagnose"):
            return self._made(stage.name, {"layers": [row(name, i) for i, name in enumerate(LAYERS)]})
        if stage.call.startswith("stages.integer_program"):
            return self._made(stage.name, {"choices": integer_program.frontier(**stage.options)})
        return self._made(stage.name, {})

    def _verdict(self, name: str, label: str) -> Outcome:
        if label not in self.lost:
            return Outcome(name, "lost", reason="nothing to do")
        lost = self.lost[label]
        shares = {"before": 1.0, "after": 1.0 - lost / ITEMS}
        metric = {"name": "top1", "n": ITEMS, "items_lost": lost, "items_gained": 0, "net_lost": lost, **shares}
        metric["expected"] = {"lost": max(0, lost - 1) / ITEMS, "gained": 0.0}
        output = {"name": "logits", "sqnr_db": 40.0 - lost, "cosine": 1.0, "reason": ""}
        return self._made(name, {"metric": metric, "outputs": [output]})

    @staticmethod
    def _made(name: str, facts: Mapping[str, Any]) -> Outcome:
        return Outcome(name, "ok", Artifact(Path("nowhere"), "made", facts=facts, sha256=name))


def row(name: str, place: int) -> dict[str, Any]:
    """A layer of a diagnosis; the first is the worst."""
    known = {"name": name, "node": name, "module": name, "operator": f"node_{name}", "dtype": "int8"}
    return {**known, "effect": 0.1 / (place + 1), "own_sqnr_db": 20.0 + place, "not_finite": 0}


@pytest.fixture(autouse=True)
def no_other_rungs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ladder of these tests: calibrators, one technique on the net, layers kept."""
    for name, module in registry.every("techniques"):
        if hasattr(module, "RUNG") and name != "equalize":
            monkeypatch.delattr(module, "RUNG")


PLAIN_ONLY = {"plain": 0}
KEPT = {"plain": 20, "percentile": 9, "entropy": 15, "mse": 12, "equalize": 11, "keep-only-1": 4, "keep-only-2": 8}


def test_a_plain_artifact_inside_the_budget_is_taken_at_once() -> None:
    guard, bench = ladder(), Bench(PLAIN_ONLY)
    choice = bench.play(guard)
    assert bench.tried(guard) == ["plain"]
    assert choice.stage == "int8/guard/plain/ptq_int8" and choice.reason.startswith("plain: inside the budget")


def test_a_calibrator_that_mends_it_ends_the_climb() -> None:
    guard, bench = ladder(), Bench({"plain": 20, "percentile": 5, "entropy": 1, "mse": 0})
    choice = bench.play(guard)
    assert bench.tried(guard) == ["plain", "percentile", "entropy"]
    assert choice.stage == "int8/guard/entropy/ptq_int8"


def test_what_helped_stays_while_the_next_rung_is_tried() -> None:
    guard, bench = ladder(), Bench({"plain": 20, "percentile": 5, "entropy": 9, "mse": 9, "equalize": 0})
    choice = bench.play(guard)
    chosen = next(row for row in choice.table["ladder"] if row["chosen"])
    assert chosen["recipe"] == {"before": ("equalize",), "options": {"calibrator": "percentile"}}
    assert choice.stage == "int8/guard/equalize/ptq_int8"


COSTS = {"keep-only-1": 1.5, "keep-only-2": 1.01, "keep-only-3": 1.01}


def skipped(bench: Bench, guard: AccuracyGuard) -> list[list[str]]:
    """The layers of each set that was tried together, in order."""
    known = {stage.name: stage.options.get("skip") for stage in bench.stages}
    return [known[f"{guard.name}/{label}/ptq_int8"] for label in bench.tried(guard) if label in ("keep-1", "keep-2")]


def test_the_cheapest_layers_that_mend_enough_are_kept_then_all_that_pay() -> None:
    bench = Bench({**KEPT, "keep-only-3": 9, "keep-1": 8, "keep-2": 0}, COSTS)
    choice = bench.play(guard := ladder())
    assert choice.table["cells"][0]["name"] == "second"  # mends less than the first layer, for a fiftieth of the time
    assert skipped(bench, guard) == [["node_first"], ["node_second", "node_first"]]
    assert choice.stage.startswith("int8/guard/keep-2/")


def test_no_more_layers_are_kept_than_leave_it_faster_than_before_quantization() -> None:
    bench = Bench({**KEPT, "keep-only-3": 9, "keep-1": 8}, {**COSTS, "unquantized": 1.4})
    bench.play(guard := ladder())
    assert skipped(bench, guard) == [["node_second"]]


@pytest.mark.parametrize("unquantized", [1.0, 3.0])
def test_no_more_layers_are_kept_than_the_time_that_is_allowed(unquantized: float) -> None:
    bench = Bench({**KEPT, "keep-only-3": 9, "keep-1": 8}, {**COSTS, "unquantized": unquantized})
    bench.play(guard := ladder(**{"guard.slower": 0.1}))
    assert skipped(bench, guard) == [["node_second"]]


def test_where_quantization_gained_no_time_any_layer_may_stay() -> None:
    bench = Bench({**KEPT, "keep-only-3": 9, "keep-1": 8, "keep-2": 0}, {**COSTS, "unquantized": 1.0})
    bench.play(guard := ladder())
    assert "keep-2" in bench.tried(guard)


def test_without_the_solver_layers_are_not_tried_and_the_install_command_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(integer_program, "REQUIRES", ("scipy>=999",))
    bench = Bench({"plain": 20})
    told = next(row for row in bench.play(ladder()).table["ladder"] if row["rung"] == "keep")
    assert told["reason"].startswith("not tried: scipy>=999 is not installed; run: pip install ")


def test_a_ladder_that_ends_outside_says_how_near_it_came() -> None:
    guard = ladder()
    bench = Bench({**KEPT, "keep-only-3": 9, "keep-1": 7, "keep-2": 5})
    choice = bench.play(guard)
    assert choice.stage.startswith("int8/guard/keep-only-1/") or choice.stage.startswith("int8/guard/keep-")
    assert "nearest to the budget" in choice.reason and not any(row["inside"] for row in choice.table["ladder"])


def test_what_is_put_before_prepares_for_as_many_bits() -> None:
    guard = ladder(**{"variant.int8.weight_bits": 4})
    bench = Bench({"plain": 20, "percentile": 20, "entropy": 20, "mse": 20, "equalize": 0})
    bench.play(guard)
    stage = next(s for s in bench.stages if s.name == "int8/guard/equalize/equalize")
    assert stage.options["weight_bits"] == 4


def test_what_makes_up_for_rounding_is_left_out_where_rounding_is_learned_next() -> None:
    guard, last = ladder(), {"use": "int8"}
    assert guard._tables(Recipe(("equalize",))) == ({"use": "equalize"}, last)
    equalized, rounded, _ = guard._tables(Recipe(("equalize", "adaround")))
    assert (equalized, rounded) == ({"use": "equalize", "bias_correction": False}, {"use": "adaround"})
    assert guard._tables(Recipe(("equalize", "qat")))[0] == {"use": "equalize"}  # it starts from the nearest


def test_a_rung_that_finds_nothing_to_do_is_told_and_passed_over() -> None:
    guard, bench = ladder(), Bench({"plain": 3, "percentile": 3, "entropy": 3, "mse": 3})
    choice = bench.play(guard)
    told = next(row for row in choice.table["ladder"] if row["rung"] == "equalize")
    assert told["over"] is None and told["reason"] == "nothing to do"


def test_only_the_rungs_that_are_named_are_climbed() -> None:
    guard, bench = ladder(**{"guard.rungs": ["equalize"]}), Bench({"plain": 3, "equalize": 2})
    bench.play(guard)
    assert bench.tried(guard) == ["plain", "equalize"]


def test_weights_in_groups_are_not_prepared_as_for_static_int8() -> None:
    guard = ladder(**{"variant.int8.compress": [{"use": "int4"}]})
    bench = Bench({"plain": 20, "awq": 9, "gptq": 5, "equalize": 0, "keep-only-1": 4, "keep-only-2": 8, "keep-1": 1})
    assert bench.play(guard).stage == "int8/guard/keep-1/onnx_int4"
    assert "equalize" not in bench.tried(guard)
    assert any(stage.options.get("int8") for stage in bench.stages)


def test_an_unknown_rung_is_named_before_anything_runs() -> None:
    with pytest.raises(ConfigError, match=r"guard: rungs: no rung 'equalise', did you mean 'equalize'\?"):
        ladder(**{"guard.rungs": ["equalise"]})


def test_the_references_are_not_guarded() -> None:
    steps = plan.deploy(job(None, "x86", only=["fp32"], settings={"guard.on": True}))
    assert not [s for s in steps.stages if isinstance(s, AccuracyGuard)]


@settings(deadline=None, max_examples=15)
@given(st.dictionaries(st.sampled_from(list(KEPT)), st.integers(0, 30), min_size=1))
def test_it_always_ends_and_never_takes_a_worse_rung_than_it_saw(lost: dict[str, int]) -> None:
    guard, bench = ladder(), Bench({"plain": 30, **lost})
    choice = bench.play(guard)
    seen = [row for row in choice.table["ladder"] if row["over"] is not None]
    chosen = next(row for row in seen if row["chosen"])
    assert chosen["inside"] or chosen["lost"] == min(row["lost"] for row in seen)
    assert len(bench.ran) == len(set(bench.ran))


# --------------------------------------------------------------------------- what a budget is


def verdict(**metric: Any) -> dict[str, Any]:
    numbers = {**dict.fromkeys(output_checks.LIMITS), "channel_error": 0.05}
    channels = {**numbers, "dead": [], "classifier": False, "found": None, "counted": None}
    if "items_lost" in metric:
        metric["net_lost"] = metric["items_lost"] - metric["items_gained"]
    metric = {"before": None, "after": None, "unit": "", **metric} if metric else {}
    return {"metric": metric or None, "outputs": [{"sqnr_db": 30.0, "cosine": 0.99, "reason": "", **channels}]}


def budget(items: int = 500, **limits: Any) -> Budget:
    return Budget(Limits(**limits), items, sure=0.75)


def test_items_that_were_lost_count_where_margins_foretell_fewer() -> None:
    foretold = {"lost": 0.0, "gained": 0.0}
    none = verdict(n=136, items_lost=0, items_gained=0, expected=foretold)
    one = verdict(n=136, items_lost=1, items_gained=0, expected=foretold)
    assert budget(items_lost=1).excess(none) == pytest.approx(0.75 - 1)
    assert budget(items_lost=1).excess(one) == pytest.approx(0.75 - (1 + 500 / 136) * math.exp(-500 / 136))


def test_a_share_is_of_the_items_that_judge() -> None:
    found = verdict(n=136, items_lost=1, items_gained=0, expected={"lost": 0.002, "gained": 0.0})
    for items in (100, 500, 3000):
        assert budget(items, items_lost=0.01).excess(found) == budget(items, items_lost=items // 100).excess(found)


def test_none_lost_of_a_few_is_no_promise_for_many() -> None:
    noisy = verdict(n=136, items_lost=0, items_gained=0, expected={"lost": 0.008, "gained": 0.002})
    quiet = verdict(n=136, items_lost=0, items_gained=0, expected={"lost": 0.0008, "gained": 0.0002})
    assert budget(items_lost=1).excess(noisy) > 0 > budget(items_lost=1).excess(quiet)


def test_gains_that_were_seen_do_not_pay_for_what_is_lost() -> None:
    foretold = {"lost": 0.002, "gained": 0.001}
    few, many = (verdict(n=500, items_lost=3, items_gained=gained, expected=foretold) for gained in (0, 9))
    assert budget(items_lost=1).excess(few) == budget(items_lost=1).excess(many) > 0


def test_what_few_items_leave_open_is_not_decided_to_be_beyond_a_budget() -> None:
    foretold = {"lost": 0.03, "gained": 0.0}
    told = {"n": 64, "items_gained": 0, "expected": foretold}
    one = verdict(items_lost=1, low=-0.08, high=0.02, **told)
    many = verdict(items_lost=12, low=-0.3, high=-0.1, **told)
    unknown = verdict(items_lost=1, low=None, high=None, **told)
    for limit in (0.01, 5):  # of the 500 items that judge
        assert budget(items_lost=limit).decided(one) == 0 < budget(items_lost=limit).decided(many)
        assert budget(items_lost=limit).excess(one) > 0 and budget(items_lost=limit).decided(unknown) > 0


def test_perplexity_and_a_metric_of_ones_own_have_budgets_too() -> None:
    assert budget(metric_ratio=1.01).excess(verdict(n=9, ratio=1.02)) == pytest.approx(0.01)
    assert budget(metric_drop=0.2).excess(verdict(n=9, before=0.8, after=0.7)) == pytest.approx(-0.1)


def test_of_a_number_with_an_interval_a_standard_error_is_added() -> None:
    found = verdict(n=9, ratio=1.005, low=1.005 - 0.0196, high=1.005 + 0.0196)
    assert budget(metric_ratio=1.01).excess(found) == pytest.approx(0.005, abs=1e-5)
    found = verdict(n=9, before=0.8, after=0.7, low=-0.1 - 0.196, high=-0.1 + 0.196)
    assert budget(metric_drop=0.15).excess(found) == pytest.approx(0.05, abs=1e-4)


def test_a_strict_budget_is_kept_by_what_is_decided_inside() -> None:
    quiet = verdict(n=500, items_lost=0, items_gained=0, expected={"lost": 0.0002, "gained": 0.0})
    assert budget(items_lost=3).excess(quiet) < 0 < budget(items_lost=3, strict=True).excess(quiet)
    assert budget(items_lost=4, strict=True).excess(quiet) < 0
    found = verdict(n=9, ratio=1.005, low=1.005 - 0.0196, high=1.005 + 0.0196)
    assert budget(metric_ratio=1.02, strict=True).excess(found) == pytest.approx(0.0046)
    no_interval = verdict(n=9, ratio=1.005, low=None, high=None)
    assert budget(metric_ratio=1.02, strict=True).excess(no_interval) == math.inf


def test_without_a_metric_the_limits_on_outputs_are_the_budget() -> None:
    assert budget(sqnr_db=28.0, cosine=0.95).excess(verdict()) == 0
    assert budget(sqnr_db=33.0).excess(verdict()) == pytest.approx(3)
    assert budget(channel_error=0.02).excess(verdict()) == pytest.approx(1.5)


def test_a_metric_without_a_limit_of_its_own_may_lose_one_percent_of_the_source() -> None:
    assert budget().excess(verdict(n=9, before=0.8, after=0.79)) == pytest.approx(0.01 / 0.8 - 0.01)
    assert budget(metric_drop=0.05).excess(verdict(n=9, before=0.8, after=0.79)) == pytest.approx(0.01 - 0.05)
    assert budget().excess(verdict(n=9, before=0.5, after=0.6, ratio=1.2)) == pytest.approx(0.19)


def trial(over: float | None, lost: float, sqnr_db: float | None = 30.0) -> RungTrial:
    return RungTrial("", "", Recipe(), "", over, sqnr_db, {}, lost=lost)


def test_inside_is_better_than_outside_whatever_it_loses() -> None:
    assert trial(-0.1, 0.02).better(trial(0.1, 0.01)) and not trial(0.1, 0.01).better(trial(-0.1, 0.02))


def test_outside_the_one_that_loses_less_is_better_and_luck_does_not_count() -> None:
    assert trial(0.4, 0.01).better(trial(0.3, 0.02))


def test_of_equal_rungs_the_nearer_one_is_better_and_a_broken_one_never_is() -> None:
    assert trial(0.1, 0.01, 40).better(trial(0.1, 0.01, 30)) and trial(0.1, 0.01, None).better(trial(0.1, 0.01, 99))
    assert trial(0.1, 9.0).better(trial(math.inf, 0.0)) and trial(math.inf, 0.0).better(trial(None, 0.0))
