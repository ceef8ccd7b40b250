"""One trial of `search`: built, judged on the split that chooses, measured beside the baseline; trained last.

What is cheap comes first, and a trial ends as soon as it is known that it cannot be of use: one that loses too much is
not measured, one that is slower than what loses nothing is not trained (training changes no latency).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError
from edgecompress.core.json import Json
from edgecompress.core.model import Outcome, Outcomes, Stage, Substitute
from edgecompress.core.settings import Profile, Variant
from edgecompress.data import metrics
from edgecompress.extras.search.recipe_space import DrawnRecipe, Table
from edgecompress.pipeline import conversion, diagnosis, variant_stages, verification
from edgecompress.pipeline.candidate_variant import Candidate, without_log
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.searches import accuracy_guard, kept_layers, on_select
from edgecompress.pipeline.searches.instruction_count import Count
from edgecompress.pipeline.searches.race import Race
from edgecompress.pipeline.searches.standings import Standings

TRIAL, BASELINE = "trial", "baseline"  # what the two are called where they are measured: for all trials the same
BROKEN = 1e6  # how far beyond every limit is what cannot be built, or answers what is no number
SHARE = 0.25  # of a search's minutes: a stage that takes longer, and does not train, ends its trial
LEAST_S = 120.0  # that every stage may take: an export of a small net takes a part of it
LOSS_DIGITS, NOISE_DIGITS = 4, 6  # of what is lost: less is none
MEASURED = ("latency", "memory", "energy", "instructions")

Promising = Callable[[Mapping[str, float]], bool]  # whether values, the best accuracy among them, may be on the front


@dataclass(frozen=True)
class TrialResult:
    """How a trial ended. `values`: as much of each objective as is known; `excess`: above 0 beyond a limit."""

    compress: tuple[Table, ...]
    values: Mapping[str, float] = field(default_factory=dict)
    excess: Mapping[str, float] = field(default_factory=dict)
    change: str = ""  # of the accuracy on the split that chooses, in words
    reason: str = ""  # why it is beyond a limit, or broke

    @property
    def inside(self) -> bool:
        """Whether it keeps every limit."""
        return all(value <= 0 for value in self.excess.values())


Attempt = Generator[Sequence[Stage | Substitute], None, TrialResult]  # yields the steps that it needs the outcomes of


@dataclass(frozen=True)
class TrialBench:
    """What all trials of a search have in common. `objectives`: their names, all of which are looked at."""

    job: Job
    baseline: Candidate
    profile: Profile  # that trials are measured by
    objectives: Sequence[str]

    def attempt(self, outcomes: Outcomes, number: int, recipe: DrawnRecipe, promising: Promising) -> Attempt:
        """The trial of a recipe; `outcomes` fills with what it yields."""
        own = _Trial(self, outcomes, f"{TRIAL}-{number}", recipe)
        try:
            return (yield from own.run(promising))
        except _Broke as broke:
            return TrialResult(broke.compress, excess={"built": BROKEN}, reason=without_log(str(broke)))

    def values(self, outcomes: Outcomes, artifact: str, measures: Mapping[str, str]) -> dict[str, float]:
        """Objectives of an artifact as shares of the baseline's; `measures`: the stages that measured them."""
        ours, theirs = (outcomes[stage].artifact for stage in (artifact, self.baseline.artifact))
        found = {"size": ours.size_bytes / theirs.size_bytes} if ours and theirs and theirs.size_bytes else {}
        facts = {name: outcomes[stage].facts for name, stage in measures.items()}
        if "latency" in facts:
            found |= _of_round(facts["latency"]["variants"])
        if "instructions" in facts:
            found["instructions"] = _part(facts["instructions"]["variants"], lambda row: row.get("instructions"))
        if "energy" in facts:
            found["energy"] = _part(facts["energy"]["variants"], lambda numbers: numbers[0]["value"])
        return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}


class _Broke(Exception):
    """A trial whose artifact cannot be built, judged or measured."""

    def __init__(self, compress: tuple[Table, ...], why: str) -> None:
        super().__init__(why)
        self.compress = compress


@dataclass
class _Trial:
    """A trial on its way."""

    bench: TrialBench
    outcomes: Outcomes
    name: str
    recipe: DrawnRecipe
    compress: tuple[Table, ...] = ()

    def run(self, promising: Promising) -> Attempt:
        kept = yield from self._kept()
        self.compress = self.recipe.compress(kept, trained=False)
        end = yield from self._built(self.name)
        self.compress = self.recipe.compress(kept, trained=False)
        if not self.recipe.training:
            result = yield from self._judged(self.name, end)
            return (yield from self._measured(end, result)) if result.inside else result
        result = yield from self._measured(end, TrialResult(self.compress))
        if not (result.inside and promising({**result.values, "accuracy": 0.0})):
            why = result.reason or "not trained: another recipe is as good in all but accuracy and loses no accuracy"
            return dataclasses.replace(result, excess={"trained": 1.0, **result.excess}, reason=why)
        self.compress = self.recipe.compress(kept)
        end = yield from self._built(f"{self.name}/trained")
        judged = yield from self._judged(f"{self.name}/trained", end)
        return dataclasses.replace(judged, values={**result.values, **judged.values})

    # ------------------------------------------------------------------ build

    @property
    def _job(self) -> Job:
        return self.bench.job

    def _variant(self, name: str) -> Variant:
        return Variant(name, self.recipe.runtime, self.compress)

    def _steps(self, name: str) -> list[Stage | Substitute]:
        """The steps to the artifact of the recipe as it is now."""
        target, kind, variant = self._job.target, self._job.resolved.kind, self._variant(name)
        try:
            calls = conversion.steps(target.value, variant, kind, str(target.path))
            steps: variant_stages.Steps = {}
            variant_stages.add(self._job, variant, calls, steps)
        except EdgeError as error:
            raise _Broke(self.compress, str(error)) from error
        return [*steps.values()]

    def _built(self, name: str) -> Generator[Sequence[Stage | Substitute], None, str]:
        """The stage that has the artifact; a strength that was found is in the recipe from then on."""
        steps = self._steps(name)
        yield from self._done(steps)
        self.recipe = dataclasses.replace(self.recipe, net=tuple(self._pinned(t, steps) for t in self.recipe.net))
        return steps[-1].name if steps else variant_stages.SOURCE

    def _pinned(self, table: Table, steps: Sequence[Stage | Substitute]) -> Table:
        """A step of the recipe with the strength that a search in its place found."""
        technique = registry.technique(str(table["use"]))
        call = f"techniques.{technique.name}:apply"
        fit = next((step for step in steps if not isinstance(step, Stage) and step.stage.call == call), None)
        if fit is None or technique.pinned is None:
            return table
        return {"use": technique.name, **technique.pinned(fit.stage.options, self.outcomes[fit.name].facts)}

    def _done(
        self, steps: Sequence[Stage | Substitute]
    ) -> Generator[Sequence[Stage | Substitute], None, Outcome | None]:
        """The outcome of the last step. Raises _Broke where one of them is not well."""
        own = [self._bounded(dataclasses.replace(step, variants=(self.name,))) for step in steps]
        yield own
        if bad := next((o for step in own if (o := self.outcomes[step.name]).status != "ok"), None):
            raise _Broke(self.compress, bad.reason)
        return self.outcomes[own[-1].name] if own else None

    def _bounded(self, step: Stage | Substitute) -> Stage | Substitute:
        """A stage that does not train is stopped where it takes too much of the search's time."""
        if not isinstance(step, Stage) or registry.step(step.call).trains:
            return step
        most_s = max(LEAST_S, SHARE * 60 * self._job.target.value.search.minutes)
        return dataclasses.replace(step, timeout_s=min(step.timeout_s, most_s))

    def _kept(self) -> Generator[Sequence[Stage | Substitute], None, dict[str, Json]]:
        """The options of what quantizes that keep its worst layers, by a diagnosis of the same recipe without."""
        if not self.recipe.kept:
            return {}
        self.compress = self.recipe.compress(trained=False, calibrated=False)
        name, runtime = f"{self.name}/plain", self.recipe.runtime
        steps = self._steps(name)
        yield from self._done(steps)
        made = [step if isinstance(step, Stage) else step.stage for step in steps]
        subject = accuracy_guard.subject(made, runtime, variant_stages.SOURCE, self._job.resolved.kind, {})
        told = yield from self._done(diagnosis.stages(self._job, f"{self.name}/diagnose", subject))
        if told is None:
            raise _Broke(self.compress, "its layers cannot be distinguished")
        quantizer = registry.technique(self.recipe.technique)
        rows = kept_layers.worst(told.facts["layers"])[: self.recipe.kept]
        return quantizer.kept(self.recipe.options, rows) if quantizer.kept else {}

    # ------------------------------------------------------------------ judge and measure

    def _judged(self, name: str, end: str) -> Attempt:
        """What it loses on the split that chooses, and whether that is inside the limits."""
        job, variant = self._job, self._variant(name)
        verdict = on_select.stage(job, f"{name}/select", self.recipe.runtime, end, variant)
        yield [dataclasses.replace(verdict, variants=(self.name,))]
        outcome, value, excess = self.outcomes[verdict.name], math.inf, math.inf
        if outcome.artifact is None:
            raise _Broke(self.compress, outcome.reason)
        if outcome.status == "ok":
            value = loss(outcome.facts)
            excess = on_select.budget(job, variant, self.outcomes).decided(outcome.facts)
        most = job.target.value.search.limits.get("accuracy", math.inf)
        excess = min(max(excess, value - most), BROKEN)
        why = outcome.reason or ("loses more than the limits allow" if excess > 0 else "")
        values = {"accuracy": value} if math.isfinite(value) else {}
        return TrialResult(self.compress, values, {"accuracy": excess}, change(outcome.facts), why)

    def _measured(self, end: str, result: TrialResult) -> Attempt:
        """The result with what was measured beside the baseline."""
        measures = yield from self._measures(end)
        job, found = self._job, self.bench.values(self.outcomes, end, measures)
        if lacking := [name for name in self.bench.objectives if name not in {**found, "accuracy": 0}]:
            raise _Broke(self.compress, f"{', '.join(lacking)}: not measured")
        limits = verification.limits(job, None)
        over = {
            f"limit of {name}": found[name] / most - 1
            for name, most in job.target.value.search.limits.items()
            if name in found
        }
        if "latency" in measures:
            over |= _absolute(
                self.outcomes[measures["latency"]].facts["variants"][TRIAL], limits.latency_ms, limits.peak_rss_bytes
            )
        why = "; ".join(f"beyond the {name}" for name, value in over.items() if value > 0)
        values = {**result.values, **found}
        return dataclasses.replace(result, values=values, excess={**result.excess, **over}, reason=result.reason or why)

    def _measures(self, end: str) -> Generator[Sequence[Stage | Substitute], None, dict[str, str]]:
        """The stages that measured what is asked for."""
        asked = {*self.bench.objectives, *self._job.target.value.search.limits}
        runtime, ours = self.recipe.runtime, dataclasses.replace(self.bench.baseline, variant=Variant(BASELINE))
        field = (ours, Candidate(Variant(TRIAL), runtime, end))
        plugins, done = variant_stages.device_plugins(self._job), dict[str, str]()
        if "instructions" in asked:
            counting = self._named(Count(field, self.bench.profile, TRIAL, plugins=plugins).counting(field), "count")
            yield from self._done([counting])
            done["instructions"] = counting.name
        if asked & {"latency", "memory", "energy"}:
            measuring = self._named(Race(field, self.bench.profile, plugins=plugins).round(1, field), "measure")
            told = yield from self._done([measuring])
            done["latency"] = measuring.name
            rows = told.facts["variants"] if told else {}
            if "crashed" in rows.get(TRIAL, {}):
                raise _Broke(self.compress, rows[TRIAL]["crashed"])
            if "energy" in asked:
                options = {
                    **measuring.options,
                    "latency_ms": {each: Standings([rows], 1, 1).rough(each) for each in rows},
                }
                energy = dataclasses.replace(measuring, call="stages.energy:energy", options=options)
                yield from self._done([self._named(energy, "energy")])
                done["energy"] = f"{self.name}/energy"
        return done

    def _named(self, stage: Stage, name: str) -> Stage:
        return dataclasses.replace(stage, name=f"{self.name}/{name}")


# --------------------------------------------------------------------------- pure parts


def loss(facts: Mapping[str, Any]) -> float:
    """What a verdict loses of the metric, as its margins foretell; of outputs without one the noise of the worst."""
    if facts.get("metric"):
        return round(on_select.foretold(facts), LOSS_DIGITS)
    noise = (10 ** (-o["sqnr_db"] / 10) for o in facts["outputs"] if o["sqnr_db"] is not None)
    return round(max(noise, default=0.0), NOISE_DIGITS)


def change(facts: Mapping[str, Any]) -> str:
    """What a verdict changes, in words: `-0.40 pt`, `x1.012`, `34 dB`."""
    metric: metrics.MetricComparison | None = facts.get("metric")
    if metric and (net := metric.get("net_lost")) is not None:
        return f"{-100 * net / metric['n']:+.2f} pt"
    if metric and (ratio := metric.get("ratio")) is not None:
        return f"x{ratio:.3f}"
    if metric and (lost := metrics.lost(metric)) is not None:
        return f"{-lost:+.4f}"
    worst = min((o["sqnr_db"] for o in facts.get("outputs", ()) if o["sqnr_db"] is not None), default=None)
    return "same" if worst is None else f"{worst:.0f} dB"


def _of_round(rows: Mapping[str, Any]) -> dict[str, float]:
    """Latency and memory from a round: the ratio of two that ran by turns, so that drift is in both."""
    standings = Standings([rows], 1, 1)
    ratio = standings.ratio(TRIAL, BASELINE)
    rough = standings.rough(TRIAL) / standings.rough(BASELINE)
    return {
        "latency": ratio.median if ratio else rough,
        "memory": _part(rows, lambda row: row["memory"]["peak_rss_bytes"]),
    }


def _part(rows: Mapping[str, Any], of: Callable[[Any], float | None]) -> float:
    """The trial's number as a part of the baseline's; not a number where one has none."""
    ours, theirs = (None if "crashed" in rows[label] else of(rows[label]) for label in (TRIAL, BASELINE))
    return ours / theirs if ours is not None and theirs else math.nan


def _absolute(row: Mapping[str, Any], latency_ms: float | None, peak: int | None) -> dict[str, float]:
    """How far a session is beyond the target's own limits on what is measured, as a share of each."""
    told = {
        "limits.latency_ms": (row.get("median_ms"), latency_ms),
        "limits.peak_rss_bytes": (row["memory"]["peak_rss_bytes"], peak),
    }
    return {name: value / most - 1 for name, (value, most) in told.items() if value is not None and most}
