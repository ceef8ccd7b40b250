"""`edgecompress search`: finds recipes by trials, then deploys the best of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from edgecompress.commands import deploy, job_run, objects
from edgecompress.commands.job_run import Result
from edgecompress.core import atomic_file, catalog, config, environments, registry
from edgecompress.core.errors import CheckFailed, InputError, NotFound, did_you_mean, edge_errors
from edgecompress.core.json import Json, read_json
from edgecompress.core.model import Stage, Substitute
from edgecompress.core.plain_text import plural
from edgecompress.core.settings import SearchSpace, Target, Variant
from edgecompress.extras.search import front, recipe_space
from edgecompress.extras.search.front import Row
from edgecompress.extras.search.recipe_space import DrawnRecipe, RecipeSpace
from edgecompress.extras.search.recipe_trial import BASELINE, BROKEN, MEASURED, Attempt, TrialBench, TrialResult
from edgecompress.extras.search.study import TrialStudy
from edgecompress.extras.search.study import require as require
from edgecompress.pipeline import conversion, plan, store_place, variant_stages
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import Asks, Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.searches import on_select

FOLDER, FILE, TARGET, DATABASE = "searches", "search.json", "target.toml", "study.db"  # in a store; in FOLDER/ID
REPEATS = 50  # recipes in a row that were drawn before: then the space is searched
NEARLY = 1.2  # times the best value is as good: the one session of a trial tells no finer
STOPS = ("minutes", "trials", "patience")  # settings that change no trial
OF_TARGET = ("variant", "limits", "guard", "search", "target")  # groups of --set that the found target has already


@dataclass(frozen=True)
class SearchResult:
    """What a search found. `rows`: its trials, in order; `target`: the file with the best, None where there is none."""

    id: str
    objectives: tuple[str, ...]
    baseline: str
    why: str  # it ended
    rows: Sequence[Row]
    importances: Mapping[str, float]
    target: Path | None
    shipped: Result

    @property
    def front(self) -> list[Row]:
        """The trials inside the limits that no other beats, the best by the first objective first."""
        return front.front(self.rows, self.objectives)

    def facts(self) -> dict[str, Json]:
        """As the report, and --json, have it."""
        return {
            "id": self.id,
            "objectives": list(self.objectives),
            "baseline": self.baseline,
            "why": self.why,
            "trials": [dict(row) for row in self.rows],
            "front": [row["number"] for row in self.front],
            "importances": dict(self.importances),
        }


Told = Callable[[Row], None]


@keywords
@edge_errors
def search(
    model: Model | None = None,
    target: Name = "x86",
    *,
    options: Options | None = None,
    told: Told = lambda row: None,
    **how: Unpack[How],
) -> SearchResult:
    """Searches recipes for a target, ships the best, and returns what it found.

    The keywords are those of `deploy`; {"search.minutes": 5} in settings is --minutes 5. told: hears each trial as it
    ends.

    Raises EdgeError: MissingDependency without Optuna, InputError for a space that is empty or a name that is wrong.
    """
    require()
    options = options or Options()
    request = objects.written(model, how, options) | JobRequest(target=target)
    return run(job(**request, ask=job_run.asks(options)), request, options, told)


def run(job: Job, request: JobRequest, options: Options, told: Told = lambda row: None) -> SearchResult:
    """Searches for a job; `request` made it, and makes the job that ships what was found."""
    require()
    space, objectives = recipe_space.of(job), _objectives(job)
    walk = job_run.begin(job, options, f"{job.source.given}>{job.target.path}")
    baseline, steps = _baseline(job)
    walk.stages([*plan.front(job), plan.golden(job, on_select.SPLIT), *steps])
    found = _id(job, walk, space, objectives)
    place = walk.store.root / FOLDER / found
    place.mkdir(mode=store_place.PRIVATE, parents=True, exist_ok=True)
    bench = TrialBench(job, baseline, catalog.profile(variant_stages.TRIALS).value, objectives)
    with walk.store.locked(f"search-{found}"):
        study = TrialStudy(place / DATABASE, objectives, job.target.value.search.sampler, job.context.seed)
        loop = Loop(job, walk, space, bench, study, told)
        why = loop.run()
        return _ended(
            loop,
            SearchResult(found, objectives, baseline.name, why, study.rows(), study.importances(), None, Result(0, "")),
            request,
            options,
        )


def _objectives(job: Job) -> tuple[str, ...]:
    """Those asked for; on an emulated device instructions in the place of latency. Raises InputError."""
    simulated = registry.transport(job.device.value.transport).simulated
    asked = job.target.value.search.objectives
    names = tuple(dict.fromkeys("instructions" if simulated and name == "latency" else name for name in asked))
    if job.unmeasured and (names := tuple(n for n in asked if n in MEASURED)):
        raise InputError(
            f"{job.target.path}: search: {names[0]} is not measured: {job.unmeasured}; give objectives size, accuracy"
        )
    return names


def _baseline(job: Job) -> tuple[Candidate, list[Stage | Substitute]]:
    """What trials are measured beside, and the steps to it: the first reference that is reached with what is here."""
    target = job.target.value
    references = [v for v in target.variant if v.reference] or [Variant(BASELINE, target.runtime)]
    calls, left_out = plan.reached(job.having(references))
    for variant in (v for v in references if v.name in calls):
        if not any(map(environments.missing, conversion.modules(target, variant, calls[variant.name]).values())):
            steps: variant_stages.Steps = {}
            end, _ = variant_stages.add(job, variant, calls[variant.name], steps)
            return Candidate(variant, variant.runtime or target.runtime, end), [*steps.values()]
    raise InputError(
        f"{job.target.path}: search: no baseline: {next(iter(left_out.values()), 'its libraries are not installed')}"
    )


def _id(job: Job, walk: PlanRun, space: RecipeSpace, objectives: Sequence[str]) -> str:
    """What a search is called: the same for the same question, so that the same command goes on with it."""
    target = dataclasses.asdict(job.target.value)
    target["search"] = {k: v for k, v in target["search"].items() if k not in STOPS}
    asked = [walk.outcomes[name].artifact for name in ("source", "data")]
    context = dataclasses.asdict(job.context)
    told = [*(a.sha256 for a in asked if a), target, objectives, space.drawn(), job.source.value.metric, context]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:8]


@dataclass
class Loop:
    """Asks for trials, tries and tells them, until one of the stop rules ends it."""

    job: Job
    walk: PlanRun
    space: RecipeSpace
    bench: TrialBench
    study: TrialStudy
    told: Told
    plain: set[str] = field(default_factory=set)  # the recipes with nothing turned, in words
    seeded: bool = False  # with those that are trained

    @property
    def settings(self) -> SearchSpace:
        return self.job.target.value.search

    def run(self) -> str:
        """Why it ended."""
        plain = self.space.plain()
        self.plain = {self._words(values) for values in plain}
        self.study.begin(plain)
        for row in self.study.rows():
            self.told({**row, "stored": True})
        end = threading.Timer(min(60 * self.settings.minutes, threading.TIMEOUT_MAX), self.walk.stop)
        end.daemon = True
        end.start()
        try:
            while not (why := self._over()):
                self._seed()
                batch = list(self._asked())
                if not batch:
                    return f"the last {REPEATS} recipes had been tried before"
                self._try(batch)
            return why
        finally:
            end.cancel()

    def _over(self) -> str:
        rows, settings = self.study.rows(), self.settings
        if len(rows) >= settings.trials:
            return plural(len(rows), "trial")
        if self.walk.stopped:
            return f"{settings.minutes:g} minutes are over"
        still = front.since_gain(rows, self.bench.objectives)
        return f"no gain in {still} trials" if still >= max(settings.patience, len(self.plain)) else ""

    def _seed(self) -> None:
        """Once the plain recipes have ended: what is trained, on the best of them first.

        Of those nearly as good as the best, what was built soonest: each will be built many times.
        """
        if self.seeded or self.study.waiting:
            return
        self.seeded, first = True, self.bench.objectives[0]
        known = {row["words"]: (row["values"].get(first, math.inf), row["took_s"]) for row in self.study.rows()}
        near = NEARLY * min((value for value, _ in known.values()), default=math.inf)

        def order(values: Mapping[str, Json]) -> tuple[bool, float]:
            value, took_s = known.get(self._words(values), (math.inf, math.inf))
            return (value > near, took_s if value <= near else value)

        self.study.begin(self.space.trained(order))

    def _words(self, values: Mapping[str, Json]) -> str:
        return self.space.draw(recipe_space.Fixed(values)).words()

    def _asked(self) -> Iterator[tuple[Any, DrawnRecipe]]:
        """As many trials as stages are built side by side, each of a recipe that was not tried yet."""
        rows = self.study.rows()
        seen = {row["words"] for row in rows}
        closed = {
            (row["runtime"], row["precision"]) for row in rows if row["words"] in self.plain and not row["change"]
        }
        count = min(self.walk.jobs, self.settings.trials - len(rows))
        for _ in range(REPEATS + count):
            trial = self.study.ask()
            recipe = self.space.draw(trial)
            if recipe.words() in seen:
                self.study.skip(trial)
            elif (recipe.runtime, recipe.precision) in closed:
                self.study.skip(trial, {"built": BROKEN})
            else:
                seen.add(recipe.words())
                yield trial, recipe
                count -= 1
            if not count:
                return

    def _try(self, batch: Sequence[tuple[Any, DrawnRecipe]]) -> None:
        begun, left = time.monotonic(), dict[int, Attempt]()
        for trial, recipe in batch:
            left[trial.number] = self.bench.attempt(self.walk.outcomes, trial.number, recipe, self._promising)
        results = dict[int, TrialResult]()
        while left:
            steps = dict[str, Stage | Substitute]()
            for number, attempt in [*left.items()]:
                try:
                    steps |= {step.name: step for step in next(attempt)}
                except StopIteration as end:
                    results[number] = end.value
                    del left[number]
            self.walk.stages([step for step in steps.values() if step.name not in self.walk.outcomes])
            if self.walk.stopped:
                left.clear()  # they go on when the search does
        for trial, recipe in (each for each in batch if each[0].number in results):
            self._tell(trial, recipe, results[trial.number], time.monotonic() - begun)

    def _tell(self, trial: Any, recipe: DrawnRecipe, result: TrialResult, took_s: float) -> None:
        row: Row = {
            "number": trial.number,
            "words": recipe.words(),
            "runtime": recipe.runtime,
            "precision": recipe.precision,
            "compress": [dict(table) for table in result.compress],
            "values": dict(result.values),
            "inside": result.inside,
            "change": result.change,
            "reason": result.reason,
            "took_s": round(took_s, 1),
        }
        values = front.point(row, self.bench.objectives) if result.inside else None
        self.study.tell(trial, values, result.excess, row)
        self.told(row)

    def _promising(self, values: Mapping[str, float]) -> bool:
        """Whether no trial inside the limits beats values that are known but for the accuracy."""
        at = front.point({"values": values}, self.bench.objectives)
        inside = [front.point(row, self.bench.objectives) for row in self.study.rows() if row["inside"]]
        return not any(front.beats(other, at) for other in inside)


# --------------------------------------------------------------------------- what it found


def _ended(loop: Loop, found: SearchResult, request: JobRequest, options: Options) -> SearchResult:
    """Writes the target of the best trials and deploys it."""
    job, place = loop.job, loop.walk.store.root / FOLDER / found.id
    best = front.finalists(found.rows, found.objectives)
    told = {"target": job.target.name, "given": _given(job, request), **found.facts()}
    _write(loop.walk, place / FILE, json.dumps(told, indent=1, ensure_ascii=False))
    if not best:
        why = f"search {found.id}: none of {len(found.rows)} trials keeps the limits; see {place / FILE}"
        return dataclasses.replace(found, shipped=Result(CheckFailed.exit_code, why))
    raced = found.objectives[0] in front.RACED
    made = found_target(job.target.value, best, f"search {found.id} of {job.target.name}", raced)
    _write(loop.walk, place / TARGET, target_toml(made))
    again = _found_job(job.target.name, place / TARGET, _given(job, request), job_run.asks(options))
    shipped = deploy.run(again, plan.deploy(again), options, search=found.facts())
    return dataclasses.replace(found, target=place / TARGET, shipped=shipped)


def _write(walk: PlanRun, file: Path, text: str) -> None:
    with walk.store.told():
        atomic_file.write(file, text.encode())


def _given(job: Job, request: JobRequest) -> dict[str, Json]:
    """What makes the job again in any folder, but for the target."""
    source, settings = job.source, request.get("settings") or {}
    model = str(source.toml.resolve()) if source.toml else source.value.model
    data = {"data": source.value.data} if request.get("data") or not source.toml else {}
    own = {key: value for key, value in settings.items() if key.partition(".")[0] not in OF_TARGET}
    left = {"model", "target", "data", "settings", "only"}
    rest = {name: value for name, value in request.items() if name not in left and value is not None}
    return {**rest, "model": model, **data, "settings": own}  # type: ignore[dict-item]


def _found_job(name: str, file: Path, given: Mapping[str, Any], ask: Asks | None = None) -> Job:
    """The job of a target that a search wrote, called as the one that it searched for."""
    made = job(target=str(file), ask=ask, **given)
    return dataclasses.replace(made, target=dataclasses.replace(made.target, name=name))


def variant(row: Row) -> Variant:
    """A trial as a variant of a target."""
    name = f"{row['runtime']}-{row['precision']}-{row['number']}"
    return Variant(name, row["runtime"], tuple(row["compress"]))


def found_target(target: Target, rows: Sequence[Row], description: str, raced: bool = False) -> Target:
    """The target with trials as its variants; `raced`: its references with them, and a trial like one is that one."""
    references = {_recipe(target, v): v for v in target.variant if v.reference and raced}
    found = [references.pop(_recipe(target, v), v) for v in map(variant, rows)]
    variants = (*found, *references.values())
    return dataclasses.replace(target, variant=variants, description=description, search=SearchSpace())


def _recipe(target: Target, variant: Variant) -> str:
    """What makes two variants the same file."""
    return repr((variant.runtime or target.runtime, variant.compress, dict(variant.export)))


def target_toml(target: Target) -> str:
    """The text of a target's file; what is as by default is left out."""
    told = {k: v for k, v in _changed(target, Target("", "", (Variant("none"),))).items() if k != "variant"}
    lines = [f"{key} = {config.to_toml(v)}" for key, v in told.items() if not isinstance(v, Mapping)]
    for key, table in told.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key}]", *(f"{name} = {config.to_toml(v)}" for name, v in table.items())]
    for each in target.variant:
        changed = _changed(each, Variant(""))
        lines += ["", "[[variant]]", *(f"{name} = {config.to_toml(v)}" for name, v in changed.items())]
    return "\n".join([*lines, ""])


def _changed(value: Any, default: Any) -> dict[str, Any]:
    """The fields that have another value than the default, those of tables inside likewise."""
    pairs = ((f.name, getattr(value, f.name), getattr(default, f.name)) for f in dataclasses.fields(value))
    return {
        name: _changed(a, b) if dataclasses.is_dataclass(a) else a for name, a, b in pairs if a != b and a is not None
    }


# --------------------------------------------------------------------------- deploy --from-search


def found_job(reference: str, store: Name | None, given: Mapping[str, Any]) -> Job:
    """The job that ships what a search found: ID its best trials, ID/TRIAL one of them; `given` overrides its keys.

    Raises NotFound for a search or a trial that there is not, InputError for one that found nothing.
    """
    name, _, number = reference.partition("/")
    root = store_place.root(store) / FOLDER
    known = sorted(path.parent.name for path in root.glob(f"*/{FILE}"))
    if name not in known:
        raise NotFound(f"--from-search {name}: {root.parent} holds no such search{did_you_mean(name, known)}")
    told, file = read_json(root / name / FILE), root / name / TARGET
    if not file.is_file():
        raise InputError(f"--from-search {name}: none of its trials keeps the limits; nothing to ship")
    if number:
        rows = {str(row["number"]): row for row in told["trials"] if row["inside"]}
        if number not in rows:
            raise NotFound(
                f"--from-search {reference}: no trial {number} that keeps the limits{did_you_mean(number, rows)}"
            )
        raced = told["objectives"][0] in front.RACED
        made = found_target(catalog.target(str(file)).value, [rows[number]], f"trial {number} of search {name}", raced)
        file = root / name / f"trial-{number}.toml"
        with atomic_file.told(file, "--store"):
            atomic_file.write(file, target_toml(made).encode())
    return _found_job(told["target"], file, {**told["given"], **given})
