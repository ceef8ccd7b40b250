"""The accuracy guard: a sequence of repairs of a compressed artifact, tried until the budget is kept.

Each rung is built, run by its runtime and compared with the source on the split "select"; what is chosen there is
verified on "test", like any other variant. Nothing on "test" chooses anything.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core import catalog, config, registry
from edgecompress.core.errors import ConfigError, EdgeError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Choice, Outcome, Outcomes, Stage
from edgecompress.core.plugins import TechniquePlugin
from edgecompress.core.settings import Limits, Variant
from edgecompress.data import metrics
from edgecompress.pipeline import conversion, diagnosis, variant_stages, verification
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.searches import kept_layers, on_select
from edgecompress.pipeline.searches.kept_layers import KeptLayer
from edgecompress.pipeline.searches.on_select import GOLDEN, SPLIT
from edgecompress.pipeline.searches.rung_trial import Recipe, RungTrial, nothing
from edgecompress.pipeline.searches.strength import shares, turns

PLAIN = "plain"
CALIBRATE, KEEP = 10, 40  # where these two stand among the rungs of techniques (their RUNG)
OWN = {"calibrate": CALIBRATE, "keep": KEEP}
BITS = "weight_bits"  # an option of those that quantize, and of those that prepare for it
PROGRAM = "stages.integer_program:run"
UNQUANTIZED = "unquantized"  # what a rung is measured beside: keeping layers has to leave it faster than that
RUNG_S = 30.0  # of a rung that does not train, roughly

Table = Mapping[str, Any]
Climb = Generator[list[Stage], None, Any]  # yields the stages that it needs the outcomes of


@dataclass(frozen=True)
class AccuracyGuard:
    """A search in the place of a variant's artifact: it ends as that of the first rung that keeps the budget.

    The rungs are the technique's own calibrators, then every technique that has a RUNG, and, at KEEP, layers in higher
    precision, chosen by an integer program. What helped stays while the next one is tried.
    """

    job: Job
    variant: Variant
    head: str  # the stage that compression to fewer bits starts from
    kind: str  # what that stage makes
    tail: tuple[Table, ...]  # the steps of the recipe from there
    variants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the plan calls it."""
        return f"{self.variant.name}/guard"

    @property
    def inputs(self) -> Mapping[str, str]:
        """What every rung asks for."""
        return {"model": self.head, "samples": "data", "golden": GOLDEN, "samples of turns": "excerpt"}

    @property
    def stage(self) -> Stage:
        """How the plan shows it."""
        call, _ = self._calls(Recipe())[-1]
        return Stage(self.name, call, self.inputs, variants=self.variants, estimate_s=self.estimate_s())

    def check(self) -> None:
        """Raises ConfigError for a rung that there is not, and for a recipe that a search ends."""
        technique, options = self._last(Recipe())
        if technique.goal and technique.goal(config.build(technique.options, options, technique.name)):
            where = f"{self.job.target.path}: variant {self.variant.name}: {technique.name}"
            raise ConfigError(f"{where}: bits are chosen once, the guard chooses them again; remove bits or the guard")
        for word in self.job.target.value.guard.rungs:
            if word not in rungs():
                where = f"{self.job.target.path}: guard: rungs"
                raise ConfigError(f"{where}: no rung '{word}'{did_you_mean(word, rungs())}")

    def bound(self) -> str:
        """Its maximum cost in words."""
        rungs = [label for label, _ in self._calibrators(Recipe())] + [word for _, word in self._ladder()]
        return f"rungs until the budget is kept on {SPLIT}: {', '.join([PLAIN, *dict.fromkeys(rungs)])}"

    def estimate_s(self) -> float:
        """Seconds of the plain artifact and a few rungs; training comes only where nothing else does."""
        return 4 * RUNG_S

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The next stages to run, or the choice. The ladder is climbed anew each time, over what is known by now."""
        climb = self._climb(outcomes)
        while True:
            try:
                stages = next(climb)
            except StopIteration as end:
                choice: Choice = end.value
                return choice
            if missing := [stage for stage in stages if stage.name not in outcomes]:
                return missing

    # ------------------------------------------------------------------ the ladder

    def _climb(self, outcomes: Outcomes) -> Climb:
        plain = best = yield from self._try(outcomes, PLAIN, PLAIN, Recipe())
        tried, cells = [plain], list[KeptLayer]()
        for number, word in self._ladder():
            if best.inside or plain.over is None:
                break
            rung: Climb
            if number == CALIBRATE:
                rung = self._calibrate(outcomes, best)
            elif number == KEEP:
                rung = self._keep(outcomes, best, cells)
            else:
                rung = self._prepare(outcomes, best, word)
            for trial in (yield from rung):
                tried.append(trial)
                best = trial if trial.better(best) else best
        costs = yield from self._costs(outcomes, tried)
        name = f"{self.name}/{PLAIN}/test"
        judged = verification.verify(self.job, name, self._runtime, plain.stage, self.variant)
        yield self._own([judged])
        return self._choice(best, tried, {"costs": costs, "cells": cells, "plain_test": _metric(outcomes[judged.name])})

    def _ladder(self) -> list[tuple[int, str]]:
        """The rungs in order, each with its place and its word."""
        names = self.job.target.value.guard.rungs
        rungs = list(zip(OWN.values(), OWN, strict=True))
        if self.kind == "module" and self._last(Recipe())[0].prepared:
            rungs += [(each.rung, each.name) for each in registry.techniques() if each.rung is not None]
        return sorted(rung for rung in rungs if not names or rung[1] in names)

    def _calibrators(self, recipe: Recipe) -> list[tuple[str, dict[str, Json]]]:
        """What else the technique's own calibration can do."""
        technique, options = self._last(recipe)
        return list(technique.rungs(options)) if technique.rungs else []

    def _calibrate(self, outcomes: Outcomes, best: RungTrial) -> Climb:
        trials = []
        for label, options in self._calibrators(best.recipe):
            recipe = dataclasses.replace(best.recipe, options={**best.recipe.options, **options})
            trials.append((yield from self._try(outcomes, "calibrate", label, recipe)))
            if trials[-1].inside:
                break
        return trials

    def _prepare(self, outcomes: Outcomes, best: RungTrial, technique: str) -> Climb:
        """A technique on the net before it is quantized; one that trains starts from weights that nothing rounded."""
        if why := conversion.untried(registry.load("techniques", technique)):
            return [nothing(technique, best, why)]
        trains = registry.technique(technique).trains
        earlier = [t for t in best.recipe.before if not (trains and _on_grid(t))]
        recipe = dataclasses.replace(best.recipe, before=(*earlier, technique))
        return [(yield from self._try(outcomes, technique, technique, recipe))]

    def _keep(self, outcomes: Outcomes, best: RungTrial, cells: list[KeptLayer]) -> Climb:
        """Layers in higher precision: each of the worst alone, then together those that an integer program chooses."""
        if why := conversion.untried(registry.call(PROGRAM)[0]):
            return [nothing("keep", best, why)]
        quantizer, options = self._last(best.recipe)
        kept = quantizer.kept
        stages = diagnosis.stages(self.job, f"{self.name}/diagnose", self._subject(best))
        if not kept or not stages:
            return [nothing("keep", best, "its layers cannot be identified, or not be excluded")]
        yield self._own(stages)
        outcome = outcomes[stages[-1].name]
        if outcome.status != "ok":
            return [nothing("keep", best, outcome.reason)]
        rows = kept_layers.worst(outcome.facts["layers"])[: self.job.target.value.guard.layers]
        alone = []
        for number, row in enumerate(rows, 1):
            recipe = dataclasses.replace(best.recipe, options={**best.recipe.options, **kept(options, [row])})
            alone.append((yield from self._try(outcomes, "keep", f"keep-only-{number}", recipe)))
        costs = yield from self._turns(outcomes, "layers", [best, *alone], self._unquantized(best))
        order = kept_layers.by_gain(best, list(zip(rows, alone, strict=True)), costs)
        cells += [cell for cell, _ in order]
        mending = [(cell, row) for cell, row in order if cell["gain"] > 0]
        program = kept_layers.program(
            [cell for cell, _ in mending], costs.get(UNQUANTIZED), self.job.target.value.guard.slower
        )
        stage = Stage(f"{self.name}/program", PROGRAM, {}, program, estimate_s=1.0)
        yield self._own([stage])
        outcome = outcomes[stage.name]
        if outcome.status != "ok":
            return [nothing("keep", best, outcome.reason)]
        sets = [[row for (_, row), at in zip(mending, c, strict=True) if at] for c in outcome.facts["choices"]]
        return (yield from self._together(outcomes, best, [rows for rows in sets if rows]))

    def _unquantized(self, best: RungTrial) -> dict[str, str]:
        """The stage that has the same net before it was quantized, where the runtime runs that."""
        stages, _ = self._chain(best.label, best.recipe)
        last = stages[-1]
        quantizes = last.call.endswith(":apply")
        runs = registry.runtime(self._runtime).format in registry.step(last.call).reads
        return {UNQUANTIZED: last.inputs["model"]} if quantizes and runs else {}

    def _subject(self, best: RungTrial) -> diagnosis.DiagnosisSubject:
        """What is diagnosed: the artifact, against the net as it was right before it was quantized."""
        stages, _ = self._chain(best.label, best.recipe)
        return subject(stages, self._runtime, self.head, self.kind, self.variant.export)

    def _together(self, outcomes: Outcomes, best: RungTrial, sets: Sequence[Sequence[Table]]) -> Climb:
        """Sets of layers one after the other, until the budget is kept."""
        quantizer, options = self._last(best.recipe)
        kept, trials = quantizer.kept, list[RungTrial]()
        for number, rows in enumerate(sets, 1):
            more = kept(options, rows) if kept else {}
            recipe = dataclasses.replace(best.recipe, options={**best.recipe.options, **more})
            trials.append((yield from self._try(outcomes, "keep", f"keep-{number}", recipe)))
            if trials[-1].inside:
                break
        return trials or [nothing("keep", best, "no layer recovers accuracy in the time that it may take")]

    # ------------------------------------------------------------------ one rung

    def _try(self, outcomes: Outcomes, rung: str, label: str, recipe: Recipe) -> Climb:
        """The rung's artifact, and how it does on the split that chooses."""
        try:
            stages, end = self._chain(label, recipe)
        except EdgeError as error:
            return RungTrial(rung, label, recipe, "", None, None, {}, str(error))
        verdict = on_select.stage(self.job, f"{self.name}/{label}/{SPLIT}", self._runtime, end, self.variant)
        yield self._own([*stages, verdict])
        return self._scored(outcomes, RungTrial(rung, label, recipe, end, None, None, {}), verdict.name)

    def _scored(self, outcomes: Outcomes, trial: RungTrial, verdict: str) -> RungTrial:
        outcome = outcomes[verdict]
        if outcome.status != "ok":  # lost: it answers what is no number; failed: it was not built, or does not run
            over = math.inf if outcome.artifact else None
            return dataclasses.replace(trial, over=over, reason=outcome.reason)
        over = on_select.budget(self.job, self.variant, outcomes).excess(outcome.facts)
        worst = min((o["sqnr_db"] for o in outcome.facts["outputs"] if o["sqnr_db"] is not None), default=None)
        artifact = outcomes[trial.stage].artifact
        facts = {"metric": _metric(outcome), "size_bytes": artifact.size_bytes if artifact else None}
        return dataclasses.replace(trial, over=over, sqnr_db=worst, facts=facts, lost=on_select.foretold(outcome.facts))

    def _tables(self, recipe: Recipe) -> tuple[Table, ...]:
        last = {**self.tail[-1], **recipe.options}
        before = (
            {"use": name, **_bits(name, last), **_unrounded(name, recipe.before[place + 1 :])}
            for place, name in enumerate(recipe.before)
        )
        return (*before, *self.tail[:-1], last)

    def _variant(self, label: str, recipe: Recipe) -> Variant:
        return dataclasses.replace(self.variant, name=f"{self.name}/{label}", compress=self._tables(recipe))

    def _calls(self, recipe: Recipe) -> list[conversion.Call]:
        target = self.job.target
        return conversion.steps(target.value, self._variant(PLAIN, recipe), self.kind, str(target.path))

    def _chain(self, label: str, recipe: Recipe) -> tuple[list[Stage], str]:
        """The stages to a rung's artifact, and the last one's name."""
        stages: variant_stages.Steps = {}
        end, _ = variant_stages.add(self.job, self._variant(label, recipe), self._calls(recipe), stages, self.head)
        return [stage for stage in stages.values() if isinstance(stage, Stage)], end

    def _last(self, recipe: Recipe) -> tuple[TechniquePlugin, Table]:
        """The technique that quantizes, and its options."""
        calls = [(call, options) for call, options in self._calls(recipe) if call.endswith(":apply")]
        return registry.technique(calls[-1][0].split(":")[0].partition(".")[2]), calls[-1][1]

    @property
    def _runtime(self) -> str:
        return self.variant.runtime or self.job.target.value.runtime

    def _own(self, stages: Sequence[Stage]) -> list[Stage]:
        """The stages, falling with the variant alone."""
        return [dataclasses.replace(stage, variants=self.variants) for stage in stages]

    # ------------------------------------------------------------------ what it costs

    def _costs(self, outcomes: Outcomes, tried: Sequence[RungTrial]) -> Climb:
        """The latency of each rung beside that of the plain artifact."""
        return (yield from self._turns(outcomes, "rungs", [t for t in tried if t.over is not None]))

    def _turns(
        self, outcomes: Outcomes, name: str, trials: Sequence[RungTrial], more: Mapping[str, str] | None = None
    ) -> Climb:
        """The latency of each trial, and of the stages of `more`, as a part of the first trial's, if it is measured."""
        ends = {t.label: t.stage for t in trials if t.over is not None} | dict(more or {})
        if self.job.unmeasured or len(ends) < 2:
            return {}
        profile = catalog.profile(variant_stages.TRIALS).value
        plugins = variant_stages.device_plugins(self.job)
        stage = turns(f"{self.name}/{name}", ends, self._runtime, profile, plugins)
        yield self._own([stage])
        outcome = outcomes[stage.name]
        return shares(outcome.facts, trials[0].label) if outcome.status == "ok" else {}

    # ------------------------------------------------------------------ the end

    def _choice(self, best: RungTrial, tried: Sequence[RungTrial], more: Table) -> Choice:
        rows = [trial.row(chosen=trial is best) for trial in tried]
        table = {"ladder": rows, "budget": _budget(verification.limits(self.job, self.variant)), "split": SPLIT, **more}
        table = {**table, "runtime": self._runtime, "variant": self.variant.name}
        if best.over is None:
            return Choice("", best.reason, table)
        where = f"{len(tried)} artifacts tried" if len(tried) > 1 else "as it is"
        if best.inside:
            return Choice(best.stage, f"{best.label}: inside the budget on {SPLIT}, {where}", table)
        return Choice(best.stage, f"{best.label}: the nearest to the budget on {SPLIT}, {where}", table)


# --------------------------------------------------------------------------- pure parts


def subject(
    stages: Sequence[Stage], runtime: str, head: str, kind: str, export: Mapping[str, Json]
) -> diagnosis.DiagnosisSubject:
    """What is diagnosed of an artifact: the stages that made it from `head`, an artifact of `kind`, in order."""
    last, applied = stages[-1], [s for s in reversed(stages) if s.call.endswith(":apply")]
    net = next((s.name for s in applied if registry.step(s.call).writes == "module"), head)
    before = last.inputs["model"] if last.call.endswith(":export") else ""
    reader = runtime if kind == registry.runtime(runtime).format else ""
    return diagnosis.DiagnosisSubject(runtime, last.name, net, kind, before, reader, tuple(export.items()))


def rungs() -> list[str]:
    """The words for every rung that there is."""
    return [*OWN, *(each.name for each in registry.techniques() if each.rung is not None)]


def ending(choice: Choice, metric: metrics.MetricComparison | None) -> str:
    """How a ladder ended, and the part of the plain artifact's loss, both on the split that judges, that it mends."""
    plain, ours = metrics.lost(choice.table["plain_test"]), metrics.lost(metric)
    if not plain or plain < 0 or ours is None:
        return choice.reason
    return f"{choice.reason}; of what {PLAIN} loses on test it recovers {100 * (1 - ours / plain):.0f} %"


def _bits(technique: str, last: Table) -> dict[str, Json]:
    """The width of weights that a technique prepares for, where the one that quantizes has another than it expects."""
    known = registry.load("techniques", technique).Options.__dataclass_fields__
    return {BITS: last[BITS]} if BITS in last and BITS in known else {}


def _unrounded(technique: str, after: Sequence[str]) -> Table:
    """Its options where another rounds the weights after it, and would learn what makes up for rounding as well."""
    options = registry.technique(technique).unrounded
    return options if any(_on_grid(other) for other in after) else {}


def _on_grid(technique: str) -> bool:
    return registry.technique(technique).on_grid


def _metric(outcome: Outcome) -> Table | None:
    metric: Table | None = outcome.facts.get("metric")
    return metric


def _budget(limits: Limits) -> dict[str, float]:
    plain = dataclasses.asdict(limits)
    return {name: plain[name] for name in verification.QUALITIES if plain[name] is not None}
