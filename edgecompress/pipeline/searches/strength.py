"""Finds the compression strength by measuring: the saving of each part, then trials until a goal is met."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.model import Choice, Goal, Outcomes, Stage
from edgecompress.core.settings import Profile

GOALS = ("latency_ratio", "latency_ms", "speedup")  # options that name a goal: a trial has `saved` and `keep` instead
BAND = 0.9  # a goal is met from this part of it on: less would have been given away
TRIALS = 8
NEAREST = 0.01  # two strengths nearer than this are neighbours: nothing lies between them
LEAST = 0.02  # of the latency that a trial may be asked to keep
DENSE = "dense"
ROUNDS, WINDOW_S, WARMUP_S = 9, 0.2, 0.3  # of artifacts that run in turns
SAMPLES = "excerpt"  # the stage that has the inputs to run on
CELLS = 12  # as many as a net has, for the estimate alone


@dataclass(frozen=True)
class StrengthTrial:
    """One strength: `keep`, the part of the latency it was asked to leave; the part it left (None: it cannot)."""

    stage: str
    keep: float
    ratio: float | None


@dataclass(frozen=True)
class Fit:
    """A search in the place of a technique's stage: it ends as the one of its trials that meets the goal.

    First each cell of the technique (a class of layers, narrowed alone) is built and measured in turns beside the
    dense net: the table of what the device gains, layer by layer. Then the technique chooses widths by that table for
    the part of the latency it may keep, and what it made is measured, until the goal lies within BAND or two neighbours
    around it. Training is left out meanwhile: it changes no latency.
    """

    stage: Stage  # the technique's, its options with the goal
    goal: Goal
    rest: tuple[Stage, ...]  # from there to the artifact, each of the one before; their names are short
    runtime: str
    profile: Profile
    simulated: str = ""  # what stands in for the device: instructions are compared then
    plugins: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """That of the stage in whose place it stands."""
        return self.stage.name

    @property
    def inputs(self) -> Mapping[str, str]:
        """Those of the stage."""
        return {**self.stage.inputs, "samples of turns": SAMPLES}

    def bound(self) -> str:
        """Its maximum cost in words."""
        return f"a trial per class of layers, then at most {TRIALS} until {self._goal_text()} is met"

    def _goal_text(self) -> str:
        goal = self.goal
        return f"{goal.value:.3g} of {self._whole()}" if goal.quantity == "ratio" else f"{goal.value:g} ms"

    def _whole(self) -> str:
        """What a ratio is of."""
        return f"the dense net's {f'instructions by {self.simulated}' if self.simulated else 'latency'}"

    def estimate_s(self) -> float:
        """Seconds it may take at most, roughly."""
        one = self.stage.estimate_s + sum(s.estimate_s for s in self.rest)
        return (CELLS + TRIALS + 1) * one + (CELLS + 2 * TRIALS) * ROUNDS * WINDOW_S

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The cells, their table, then trials one by one until one is chosen."""
        cells = outcomes.get(f"{self.name}/cells")
        if cells is None:
            return [self._stage("cells", self.stage.call.split(":")[0] + ":cells", self._options({}))]
        if cells.artifact is None or cells.status != "ok":
            return Choice("", cells.reason)
        table = f"{self.name}/table"
        if table not in outcomes:
            return self._table_stages(outcomes, cells.facts["cells"])
        if outcomes[table].status != "ok":
            return Choice("", outcomes[table].reason)
        trials = self._trials(outcomes)
        keep = next_keep(self._ratio(outcomes), trials)
        if keep is None:
            return self._choice(outcomes, trials)
        label = f"trial-{len(trials) + 1}"
        known = outcomes[f"{self.name}/cells"].facts.get("known", {})
        request: dict[str, Json] = {**known, "saved": self._saved(outcomes), "keep": keep}
        first = self._stage(label, self.stage.call, self._options(request))
        stages = [first, *self._chain(label, first.name)]
        ends = {DENSE: self._end(DENSE, self.stage.inputs["model"]), label: stages[-1].name}
        return [*stages, self._turns(f"{label}/turns", ends)]

    # ------------------------------------------------------------------ stages

    def _stage(self, label: str, call: str, options: Mapping[str, Json]) -> Stage:
        return dataclasses.replace(
            self.stage, name=f"{self.name}/{label}", call=call, options=options, variants=self.variants
        )

    def _chain(self, label: str, at: str) -> list[Stage]:
        """The stages from `at` to an artifact."""
        stages = []
        for stage in self.rest:
            name = f"{self.name}/{label}/{stage.name}"
            inputs = {**stage.inputs, "model": at}
            stages.append(dataclasses.replace(stage, name=name, inputs=inputs, variants=self.variants))
            at = name
        return stages

    def _end(self, label: str, at: str) -> str:
        """The stage at the end of a chain."""
        return f"{self.name}/{label}/{self.rest[-1].name}" if self.rest else at

    def _turns(self, name: str, ends: Mapping[str, str]) -> Stage:
        stage = turns(f"{self.name}/{name}", ends, self.runtime, self.profile, self.plugins)
        return dataclasses.replace(stage, variants=self.variants)

    def _table_stages(self, outcomes: Outcomes, cells: Mapping[str, Mapping[str, Json]]) -> list[Stage]:
        """Dense and every cell, built; then, when they are, all of them in turns."""
        ends = {DENSE: self._end(DENSE, self.stage.inputs["model"])}
        stages = self._chain(DENSE, self.stage.inputs["model"])
        for number, (label, chosen) in enumerate(cells.items(), 1):
            first = self._stage(f"cell-{number}", self.stage.call, self._options(chosen))
            stages += [first, *self._chain(f"cell-{number}", first.name)]
            ends[label] = stages[-1].name
        if any(stage.name not in outcomes for stage in stages):
            return [stage for stage in stages if stage.name not in outcomes]
        built = {label: end for label, end in ends.items() if outcomes[end].status == "ok" and outcomes[end].artifact}
        return [self._turns("table", built)]

    def _options(self, more: Mapping[str, Json]) -> dict[str, Json]:
        """The stage's, with `more` in the place of the goal."""
        return {**{k: v for k, v in self.stage.options.items() if k not in GOALS}, **more}

    # ------------------------------------------------------------------ what was measured

    def _saved(self, outcomes: Outcomes) -> dict[str, float]:
        """The part of the dense net's latency that each cell saves."""
        left = shares(outcomes[f"{self.name}/table"].facts)
        return {label: round(1 - share, 4) for label, share in left.items() if label != DENSE}

    def _ratio(self, outcomes: Outcomes) -> float:
        """The goal as a part of the dense net's latency."""
        if self.goal.quantity == "ratio":
            return self.goal.value
        return self.goal.value / float(median(outcomes[f"{self.name}/table"].facts["medians_ms"][DENSE]))

    def _trials(self, outcomes: Outcomes) -> list[StrengthTrial]:
        """Those that were measured; what each was asked to keep follows from those before it."""
        trials: list[StrengthTrial] = []
        for number in range(1, TRIALS + 1):
            turns = outcomes.get(f"{self.name}/trial-{number}/turns")
            keep = next_keep(self._ratio(outcomes), trials)
            if turns is None or keep is None:
                break
            ratio = shares(turns.facts).get(f"trial-{number}") if turns.status == "ok" else None
            trials.append(StrengthTrial(f"{self.name}/trial-{number}", keep, ratio))
        return trials

    # ------------------------------------------------------------------ the end

    def _choice(self, outcomes: Outcomes, trials: Sequence[StrengthTrial]) -> Choice:
        ratio, table = self._ratio(outcomes), self._facts(outcomes, trials)
        built = [t for t in trials if t.ratio is not None]
        fast = [t for t in built if _value(t) <= ratio]
        if not fast:
            near = min(built, key=_value, default=None)
            why = f"the nearest measures {_value(near):.3f}" if near else outcomes[trials[-1].stage].reason
            return Choice("", f"nothing reaches {self._goal_text()}: {why}", table)
        best = max(fast, key=_value)
        if _value(best) >= BAND * ratio:
            return Choice(best.stage, f"{_value(best):.3f} of {self._whole()}, asked for {ratio:.3g}", table)
        above = min((t for t in built if _value(t) > ratio), key=_value, default=None)
        beside = f", the next wider one {_value(above):.3f}" if above else ""
        why = f"no width between: {_value(best):.3f} of {self._whole()}{beside}, asked for {ratio:.3g}"
        return Choice(best.stage, why, table)

    def _facts(self, outcomes: Outcomes, trials: Sequence[StrengthTrial]) -> dict[str, Json]:
        facts, told = outcomes[f"{self.name}/table"].facts, list[dict[str, Json]]()
        for trial in trials:
            outcome = outcomes[trial.stage]
            kept = {g["name"]: g["kept"] for g in outcome.facts.get("groups", [])}  # of each group, by the technique
            told.append({**dataclasses.asdict(trial), "kept": kept, "reason": outcome.reason})
        return {
            "goal": dataclasses.asdict(self.goal),
            "ratio": self._ratio(outcomes),
            "least": BAND * self._ratio(outcomes),
            "status": facts["status"],
            "simulated": self.simulated,
            "runtime": self.runtime,
            "saved": self._saved(outcomes),
            "dense_ms": median(facts["medians_ms"][DENSE]) if "medians_ms" in facts else None,
            "crashed": dict(facts.get("crashed", {})),
            "trials": told,
        }


def turns(name: str, ends: Mapping[str, str], runtime: str, profile: Profile, plugins: Sequence[str]) -> Stage:
    """The stage that measures artifacts in turns: `ends` has the stage that made each, by what it is called there."""
    options = {"runtime": runtime, "rounds": ROUNDS, "window_s": WINDOW_S, "order": list(ends)}
    return Stage(
        name,
        "stages.interleaved:run",
        {**ends, "samples": SAMPLES},
        {**options, "profile": {**profile.protocol(), "warmup_s": WARMUP_S}},
        context=("seed", "batch", "threads", "device"),
        plugins=(*plugins, f"runtimes.{runtime}"),
        max_age_s=profile.max_age_s,
        estimate_s=len(ends) * (ROUNDS * WINDOW_S + WARMUP_S) + 3.0,
    )


def next_keep(goal: float, trials: Sequence[StrengthTrial]) -> float | None:
    """The part of the latency to ask the next trial to keep, so that it measures in [BAND * goal, goal]; None: enough.

    The first is the goal itself; while all lie on one side, in proportion to what was measured; then by bisection.
    """
    middle = goal * (1 + BAND) / 2
    if any(t.ratio is not None and BAND * goal <= t.ratio <= goal for t in trials) or len(trials) >= TRIALS:
        return None
    fast = [t.keep for t in trials if t.ratio is None or t.ratio < BAND * goal]
    slow = [t.keep for t in trials if t.ratio is not None and t.ratio > goal]
    if fast and slow:
        low, high = max(fast), min(slow)
        return None if abs(high - low) < NEAREST else (low + high) / 2
    if not trials:
        return min(goal, 1.0)
    last = trials[-1]
    keep = min(1.0, max(LEAST, last.keep * middle / last.ratio if last.ratio else (last.keep + 1) / 2))
    return None if abs(keep - last.keep) < NEAREST / 2 else keep


def shares(facts: Mapping[str, Any], of: str = DENSE) -> dict[str, float]:
    """Each label's part of one: the median over the rounds of the ratio of two that ran in the same one."""
    if "instructions" in facts:
        return {label: n / facts["instructions"][of] for label, n in facts["instructions"].items()}
    rounds = facts["medians_ms"]
    whole = rounds.get(of, [])
    return {label: median(a / b for a, b in zip(ms, whole, strict=True)) for label, ms in rounds.items() if whole}


def _value(trial: StrengthTrial) -> float:
    assert trial.ratio is not None
    return trial.ratio
