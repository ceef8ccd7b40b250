"""`edgecompress deploy --train 30m`: what shipped is narrowed and trained for so long, and the better ships."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Unpack

from edgecompress.commands import deploy, job_run, objects
from edgecompress.commands.job_run import Result
from edgecompress.core import environments, registry
from edgecompress.core.errors import InputError, NoPath, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import Outcome, Stage, Substitute
from edgecompress.core.plugins import TechniquePlugin
from edgecompress.core.settings import Variant
from edgecompress.extras.search.recipe_trial import change
from edgecompress.pipeline import conversion, plan, variant_stages
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.job import job as make_job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.searches import on_select
from edgecompress.pipeline.variant_stages import Steps

PARTS = 5  # of the minutes: four train nets that were narrowed, the last one trains the best to be rounded
STEP = 0.8  # of the latency, or of the MACs where nothing is measured, that a level may keep of the one before
NARROWS, FACTORS, TRAINS, ROUNDS = "prune_channels", "low_rank", "finetune", "qat"  # the techniques
ALIGN = 8  # channels that go at once where no device is at hand to measure
LEVEL = "level"  # whom stages belong to in what is told of them
NAME = "pruned-{}"  # what the variant is called that is made of another

Table = Mapping[str, Json]
Told = Callable[[str], None]


@dataclass(frozen=True)
class Trained:
    """A net that was narrowed and trained, as a variant has it, and what it changes on the split that chooses."""

    compress: tuple[Table, ...]
    level: int = 0  # how often it was narrowed
    change: str = ""
    excess: float = 0.0  # beyond the limits, at most 0 inside
    reason: str = ""  # why it broke

    @property
    def inside(self) -> bool:
        """Whether it keeps the limits."""
        return not self.reason and self.excess <= 0


@keywords
@edge_errors
def train(
    model: Model | None = None,
    target: Name = "x86",
    *,
    minutes: float = 30.0,
    options: Options | None = None,
    told: Told = lambda words: None,
    **how: Unpack[How],
) -> Result:
    """Deploys, then narrows what shipped and trains it for so many minutes, and ships the better.

    The keywords are those of `deploy`. told: hears what came of each level.

    Raises EdgeError: InputError for a source that cannot be trained.
    """
    options = options or Options()
    made = make_job(**objects.written(model, how, options) | JobRequest(target=target))
    return run(made, plan.deploy(made), options, minutes, told)


def run(job: Job, steps: Plan, options: Options, minutes: float, told: Told = lambda words: None) -> Result:
    """Deploys; then narrows and trains what shipped, `minutes` altogether, and deploys that beside all others.

    A level narrows the best net so far by a fifth of its measured latency (of its MACs where no device is at hand),
    then trains it, the source its teacher. While it is inside the limits on the split "select" the next level follows;
    one that is not is trained further; where already the first one is not, layers become ones of low rank instead,
    of the source, level after level. The best ends with training of its rounding, where it is static int8. `told`
    hears of each in words. What is done is in the store: the same command goes on after an end by whatever.

    Raises InputError for a source that cannot be trained.
    """
    _check(job)
    if not minutes > 0:
        raise InputError(f"--train: minutes is {minutes:g}; give how long to train, above 0")
    first = deploy.run(job, steps, options)
    if first.exit_code or first.out is None:
        return first
    name = first.read_report()["choice"]["variant"]
    base = next(v for v in job.target.value.variant if v.name == name)
    told(f"training for {_span(minutes)} in all, {_span(minutes / PARTS)} at a time; making each net comes on top")
    climb = _Climb(job, job_run.begin(job, options, f"{job.source.given}>{job.target.path}"), base, minutes, told)
    best = climb.best()
    if best is None:
        trained = f"{_span(minutes)} of training brought nothing inside the limits"
        told(f"{trained if climb.tried else 'nothing was trained'}: {name} stays")
        return first
    made = dataclasses.replace(base, name=NAME.format(name), compress=(*best.compress, *base.compress), reference=False)
    again = job.having((made, *job.target.value.variant), (made.name, *job.only) if job.only else ())
    return deploy.run(again, plan.deploy(again), options)


def _check(job: Job) -> None:
    """Raises InputError for a source that cannot be trained, MissingDependency for what training needs."""
    if job.resolved.random:
        raise InputError("--train: random data has nothing to learn from; give --data with items like those in use")
    narrowed = Variant("narrowed", job.target.value.runtime, ({"use": NARROWS, "macs": STEP},))
    try:
        conversion.steps(job.target.value, narrowed, job.resolved.kind, str(job.target.path))
    except NoPath as error:
        raise InputError(f"--train: {error.what}") from error
    for name in (NARROWS, TRAINS):
        environments.require(registry.technique(name).module, "--train")


@dataclass
class _Climb:
    """Level after level, each from the net of the one before."""

    job: Job
    walk: PlanRun
    base: Variant
    minutes: float
    told: Told
    narrows: str = NARROWS
    factored: bool = False
    levels: int = 0
    tried: int = 0

    def best(self) -> Trained | None:
        """The most narrow net inside the limits; None where none is."""
        self.walk.stages([*plan.front(self.job), plan.golden(self.job, on_select.SPLIT)])
        best: Trained | None = None
        begun: tuple[Table, ...] = ()
        for _ in range(PARTS - 1):
            begun = begun or self._narrowed(best.compress if best else ())
            if not begun:
                break  # nothing more can be removed
            level = self._try((*begun, self._training(TRAINS)), self.levels)
            if level.inside:
                best, begun = level, ()
            else:
                begun = (() if best else self._of_low_rank()) or level.compress
        if best is None or not self._is_rounded():
            return best
        rounded = self._try((*best.compress, self._training(ROUNDS)), best.level)
        return rounded if rounded.inside and rounded.excess <= best.excess else best

    def _of_low_rank(self) -> tuple[Table, ...]:
        """The first level by FACTORS, once, where a device measures it; else none."""
        if self.factored or self.job.unmeasured or environments.missing(registry.technique(FACTORS).module):
            return ()
        self.factored, self.narrows, self.levels = True, FACTORS, 0
        self.told("level 1: layers of low rank instead")
        if not (made := self._narrowed(())):
            self.narrows, self.levels = NARROWS, 1
        return made

    def _narrowed(self, before: tuple[Table, ...]) -> tuple[Table, ...]:
        """The steps so far and one that narrows, to the widths that are found; none where nothing can go.

        FACTORS begins with the source each time: layers of low rank are not factorized again.
        """
        self.levels += 1
        left = round(STEP**self.levels, 4)
        if self.narrows == FACTORS:
            before, strength = (), {"latency_ratio": left}
        else:
            strength = {"macs": left, "align": ALIGN} if self.job.unmeasured else {"latency_ratio": STEP}
        name = f"{self.narrows}-{self.levels}"
        variant = self._variant(name, (*before, {"use": self.narrows, **strength}))
        steps: Steps = {}
        _, made = variant_stages.add(self.job, variant, self._calls(variant), steps)
        last = made[len(before)]
        outcome = self._done([*steps.values()][: [*steps].index(last) + 1])[last]
        if outcome.artifact is None:
            self.told(f"level {self.levels}: {outcome.reason}")
            return ()
        pinned = registry.technique(self.narrows).pinned
        return (*before, {"use": self.narrows, **(pinned({}, outcome.facts) if pinned else strength)})

    def _training(self, technique: str) -> Table:
        return {"use": technique, "minutes": round(self.minutes / PARTS, 4)}

    def _is_rounded(self) -> bool:
        """Whether what quantizes has the grid that training of the rounding prepares for, and that is installed."""
        techniques = [registry.step(call) for call, _ in self._calls(self.base)]
        static = [each for each in techniques if isinstance(each, TechniquePlugin) and each.provides == "int8"]
        return any(each.prepared for each in static) and not environments.missing(registry.technique(ROUNDS).module)

    def _calls(self, variant: Variant) -> list[conversion.Call]:
        target = self.job.target
        return conversion.steps(target.value, variant, self.job.resolved.kind, str(target.path))

    def _variant(self, name: str, compress: tuple[Table, ...]) -> Variant:
        return dataclasses.replace(self.base, name=name, compress=(*compress, *self.base.compress))

    def _done(self, steps: Iterable[Stage | Substitute]) -> Mapping[str, Outcome]:
        """What came of all steps, once these have run."""
        new = [step for step in steps if step.name not in self.walk.outcomes]
        self.walk.stages([dataclasses.replace(step, variants=(LEVEL,)) for step in new])
        return self.walk.outcomes

    def _try(self, compress: tuple[Table, ...], number: int) -> Trained:
        """Trains, quantizes and judges a net that was narrowed."""
        self.tried += 1
        variant = self._variant(f"try-{self.tried}", compress)
        runtime, steps = variant.runtime or self.job.target.value.runtime, Steps()
        end, _ = variant_stages.add(self.job, variant, self._calls(variant), steps)
        judge = on_select.stage(self.job, f"{variant.name}/select", runtime, end, variant)
        outcomes = self._done([*steps.values(), judge])
        verdict = outcomes[judge.name]
        if verdict.status == "ok":
            excess = on_select.budget(self.job, variant, outcomes).excess(verdict.facts)
            level = Trained(compress, number, change(verdict.facts), excess)
        else:
            level = Trained(compress, number, reason=verdict.reason)
        self.told(f"level {number}: {', '.join(_words(level))}")
        return level


def _words(level: Trained) -> Iterator[str]:
    if level.reason:
        yield level.reason
        return
    uses = [str(table["use"]) for table in level.compress]
    yield f"{'rounding trained' if uses[-1] == ROUNDS else 'trained'}, {level.change} on select"
    yield "inside the limits" if level.inside else "not inside the limits yet"


def _span(minutes: float) -> str:
    """`30 min`, `24 s`."""
    return f"{minutes:.3g} min" if minutes >= 1 else f"{60 * minutes:.3g} s"


def minutes_of(text: str) -> float:
    """Minutes of `30m`, `2h`, `90s`, or a number of minutes. Raises InputError."""
    units = {"s": 1 / 60, "m": 1.0, "h": 60.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1.0)
    try:
        minutes = float(number) * unit
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 1e6:
        raise InputError(f"--train {text}: give how long to train: 30m, 2h")
    return minutes
