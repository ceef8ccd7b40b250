"""(source, target, device, profile) -> the stages: each name, option, kind and library is resolved beforehand."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from edgecompress.core import config, environments, extras, registry, user_code
from edgecompress.core.catalog import check_file
from edgecompress.core.errors import (
    EdgeError,
    InputError,
    MissingDependency,
    NoPath,
    NotFound,
    Unreachable,
    did_you_mean,
)
from edgecompress.core.model import Stage, Substitute, seconds
from edgecompress.core.settings import Device, Variant, is_factory
from edgecompress.core.source import PRETRAINED, ResolvedSource
from edgecompress.data import loaders, metrics, shipped_items
from edgecompress.device import machine
from edgecompress.pipeline import confinement, conversion, variant_stages, verification
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.conversion import Call
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.job_request import Name
from edgecompress.pipeline.searches import accuracy_guard, on_select
from edgecompress.pipeline.searches.instruction_count import Count
from edgecompress.pipeline.searches.race import Race
from edgecompress.pipeline.variant_stages import Steps

ITEMS = "items"  # the stage that has the data of a source with state, which has "data" after it
STORED = "stages.weight_storage:run"  # tells what zeros save as bytes, where its libraries are there
NAME = re.compile(r"variant\[\d+\]\.name")  # in a target's settings
LARGE = 1 << 30  # bytes of a model whose needs are told before
GOLDEN_SILENCE_S = 280.0  # for a batch of a stranger's net, which may loop for ever


@dataclass(frozen=True)
class Plan:
    """Stages in order, then the search that chooses among their results."""

    stages: tuple[Stage | Substitute, ...]
    race: Race | Count
    source: ResolvedSource

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """The variants that can be built from the source, in the target's order."""
        return self.race.entrants

    def user_code(self) -> str:
        """The first stage that runs the user's own code, in words, or ""."""
        stages = (s if isinstance(s, Stage) else s.stage for s in self.stages)
        names = {"data": self.source.data, ITEMS: self.source.data, "source": self.source.model}
        return next((f"stage {s.name} ({names.get(s.name, self.source.metric)})" for s in stages if s.user_code), "")

    def estimate_s(self) -> float:
        """Seconds the stages and the search may take when nothing is stored."""
        return sum(map(seconds, _once(self.stages))) + self.race.estimate_s()

    def large_needs(self) -> tuple[int, int] | None:
        """Bytes of memory and of disk that a model of a gigabyte and more may take; None of smaller ones.

        Memory: three times the weights, as a runtime packs them anew beside its own; disk: the source, each variant,
        and what ships.
        """
        reads = next((s for s in self.stages if isinstance(s, Stage) and s.name == "source"), None)
        size = confinement.input_bytes(reads, {}) if reads else 0
        return (3 * size, (2 + len(self.candidates)) * size) if size >= LARGE else None


def _once(stages: Iterable[Stage | Substitute]) -> Iterator[Stage | Substitute]:
    """Without the stages that do what one before them does, and find its result."""
    first, alike = dict[str, str](), dict[str, str]()
    for step in stages:
        work = step.name
        if isinstance(step, Stage):
            inputs = {role: alike[name] for role, name in step.inputs.items()}
            work = repr(dataclasses.replace(step, name="", inputs=inputs, variants=()))
        alike[step.name] = first.setdefault(work, step.name)
        if alike[step.name] == step.name:
            yield step


def deploy_all(
    targets: Iterable[Name], made: Callable[[Name], Job]
) -> tuple[list[tuple[Job, Plan]], dict[str, EdgeError]]:
    """The job and the plan of each target, and by their names why others are refused: no way leads there, a library is
    not installed, the device does not answer, its file is wrong, or none of the variants asked for is the target's.
    `made`: the job of a target.

    Raises any other error, and where every target is refused, why.
    """
    jobs, refused = jobs_of(targets, made)
    left, needed = list[Job](), list[ModuleType]()
    for job in parted(jobs):
        with _refusing(refused, job.target.name):
            needed += _needed(job, reached(job)[0]).values()
            left.append(job)
    plans = list[tuple[Job, Plan]]()
    for job in left:
        with _refusing(refused, job.target.name):
            plans.append((job, deploy(job, needed)))
    if not plans:
        raise _joined([*refused.values()])
    return plans, refused


def jobs_of(targets: Iterable[Name], made: Callable[[Name], Job]) -> tuple[list[Job], dict[str, EdgeError]]:
    """The job of each target, and by their names why others have none.

    Raises NotFound for a name that there is not, a slip of who wrote it; and where no target has a job, why.
    """
    jobs, refused = list[Job](), dict[str, EdgeError]()
    for target in dict.fromkeys(targets):
        name = Path(str(target)).stem
        with _refusing(refused, name):
            jobs.append(made(target))
        if isinstance(error := refused.get(name), NotFound):
            raise error
    if not jobs:
        raise _joined([*refused.values()])
    return jobs, refused


@contextlib.contextmanager
def _refusing(refused: dict[str, EdgeError], target: str) -> Iterator[None]:
    """What the body raises about its target is kept: the others go on."""
    try:
        yield
    except (InputError, Unreachable) as error:
        refused[target] = error


def parted(jobs: list[Job]) -> list[Job]:
    """The jobs, each with the variants asked for that its target has; raises NotFound for one that no target has.

    A precision is a variant where no target's file has one of that name.
    """
    if len(jobs) < 2:
        return jobs
    have = {job.target.name: {v.name for v in job.target.value.variant} for job in jobs}
    known = set().union(*have.values())
    if strange := next((name for name in jobs[0].only if name not in known), None):
        raise NotFound(f"--only {strange}: no target has such a variant{did_you_mean(strange, known)}")
    written = {job.target.name: {s.value for s in job.target.settings if NAME.fullmatch(s.key)} for job in jobs}
    all_written = set().union(*written.values())
    own = (
        [name for name in job.only if name in have[job.target.name] - (all_written - written[job.target.name])]
        for job in jobs
    )
    return [dataclasses.replace(job, only=tuple(only) or job.only) for job, only in zip(jobs, own, strict=True)]


def _joined(errors: Sequence[EdgeError]) -> EdgeError:
    """Several errors as one: the gravest, with what each says once."""
    gravest = max(errors, key=lambda error: error.exit_code)
    if len({str(error) for error in errors}) == 1 or all(isinstance(error, MissingDependency) for error in errors):
        return gravest  # the command of a MissingDependency installs what any of them lacks
    kind = Unreachable if isinstance(gravest, Unreachable) else InputError
    return kind("; ".join(dict.fromkeys(map(str, errors))))


def deploy(job: Job, beside: Iterable[ModuleType] = ()) -> Plan:
    """The plan of a deploy; raises InputError for anything that cannot work, before anything runs.

    `beside`: plug-ins that the command of a MissingDependency is to install, too.
    """
    stages: Steps = {stage.name: stage for stage in front(job)}
    shared = set(stages)
    calls, left_out = reached(job)
    _require(job, calls, beside)
    candidates = [_candidate(job, v, calls[v.name], stages) for v in chosen(job) if v.name in calls]
    for candidate in candidates:
        for runtime, name in ((candidate.runtime, candidate.verdict), *candidate.also.items()):
            stages[name] = verification.verify(job, name, runtime, candidate.artifact, candidate.variant)
        stages[candidate.verdict] = _named(job, stages[candidate.verdict], candidate, calls[candidate.name])
        if candidate.agrees:
            limit = candidate.limits.on_device
            stages[candidate.agrees] = verification.parity(job, candidate, candidate.verdict, limit)
    falling = (s if s.name in shared else _with_variants(s, stages, candidates) for s in stages.values())
    race = dataclasses.replace(ranking(job, tuple(candidates)), left_out=left_out)
    return Plan(tuple(falling), race, job.resolved)


def _named(job: Job, verify: Stage | Substitute, candidate: Candidate, calls: Sequence[Call]) -> Stage:
    """The stage that verifies a variant, with the precision that its recipe promises and its name says.

    A guard may leave layers in higher precision: then a part of the promise is enough.
    """
    assert isinstance(verify, Stage)
    promise = conversion.promised(calls)
    if promise and job.target.value.guard.on:
        promise = dataclasses.replace(promise, share=0.0, operators=0.0)
    precision = {"promise": dataclasses.asdict(promise) if promise else None, "name": candidate.name}
    return dataclasses.replace(verify, options={**verify.options, "precision": precision})


def reached(job: Job) -> tuple[dict[str, list[Call]], dict[str, str]]:
    """The calls of each variant, and why the others are not reached; raises NoPath when none is."""
    calls: dict[str, list[Call]] = {}
    left_out: dict[str, NoPath] = {}
    for variant in chosen(job):
        try:
            calls[variant.name] = conversion.steps(job.target.value, variant, job.resolved.kind, _where(job, variant))
            _check_machine(job, variant)
            _check_import(job, variant, calls[variant.name])
            _check_bits(job, variant, calls[variant.name])
        except NoPath as error:
            calls.pop(variant.name, None)
            left_out[variant.name] = error
    if not calls:
        raise next(iter(left_out.values()))
    return calls, {name: error.what for name, error in left_out.items()}


def _check_import(job: Job, variant: Variant, calls: Sequence[Call]) -> None:
    """Raises NoPath where a file would be imported for a variant whose libraries are not here: others need none."""
    if any(call == conversion.IMPORT for call, _ in calls):
        for who, module in conversion.modules(job.target.value, variant, calls).items():
            if lacking := environments.missing(module):
                what = f"{who} needs {', '.join(lacking)}, not installed; run: {environments.install_command(module)}"
                raise NoPath(f"{job.target.path}: variant {variant.name}", what)


def _check_bits(job: Job, variant: Variant, calls: Sequence[Call]) -> None:
    """Raises NoPath where the bits of each layer are to be chosen by what it loses, which a file does not tell."""
    goals = [goal for call, options in calls if (goal := variant_stages.goal_of(call, options))]
    if not job.resolved.torch and any(goal.quantity == "bits" for goal in goals):
        what = "it needs a torch source: which layers get more bits is chosen by what each one loses"
        raise NoPath(f"{job.target.path}: variant {variant.name}", what)


def _where(job: Job, variant: Variant) -> str:
    """What a variant was read from, in errors: the target's file, and what the command line set of it."""
    place = f"variant[{job.target.value.variant.index(variant)}]."
    given = [s.key for s in job.target.settings if s.origin == "command line" and s.key.startswith(place)]
    keys = (re.sub(r"^compress\[\d+\]\.", "", key.removeprefix(place)) for key in given)
    laid = " ".join(f"--set variant.{variant.name}.{key}" for key in keys)
    return f"{laid} over {job.target.path}" if laid else str(job.target.path)


def _check_machine(job: Job, variant: Variant) -> None:
    """Raises NoPath where this machine cannot export what the variant asks for, or the device cannot run it."""
    name = variant.runtime or job.target.value.runtime
    runtime, transport = registry.runtime(name), registry.transport(job.device.value.transport)
    why = runtime.unavailable(variant.export) if runtime.unavailable else ""
    if not why and not transport.runs(runtime):
        why = f"{transport.simulated} does not support runtime {name}"
    if why:
        raise NoPath(f"{job.target.path}: variant {variant.name}", why)


# --------------------------------------------------------------------------- source, data, golden


def _check(job: Job) -> None:
    """Raises InputError for data, code or a metric that is not there, as far as names tell: nothing is loaded."""
    source = job.resolved
    if not source.data:
        rest = "" if source.torch else " (or --data random)"
        raise InputError(
            f"{source.model}: no data to calibrate and verify with; give --data pkg.mod:fn, an .npz, a folder "
            f"of .npy files or of images, for a Hugging Face folder texts (.tsv, .jsonl){rest}"
        )
    if source.random and source.torch:
        raise InputError(
            "--data random: a torch source cannot be loaded without samples; give real data, or an .onnx model"
        )
    texts = False
    for file in source.files("data"):
        check_file(Path(file), "data")
        texts = loaders.kind_of(Path(file)) == "texts"
        if texts and source.call != PRETRAINED:
            raise InputError(
                f"{file}: texts need a tokenizer, so a Hugging Face folder as MODEL; with another model, data must be "
                "pkg.mod:fn, an .npz, a folder of .npy files or of images, or the word random"
            )
    if source.call == PRETRAINED:
        extras.part("hugging_face", "source").check(source, texts)
    for reference in filter(is_factory, (source.model, source.data, source.metric)):
        user_code.check(reference, job.path)
    if not source.calls("metric"):
        metrics.find(source.metric)


def front(job: Job) -> list[Stage]:
    """The stages before any compression: data, source, golden, excerpt. Items of a source with state get theirs."""
    source = job.resolved
    _check(job)
    items = ITEMS if source.state else "data"
    data = Stage(
        items,
        "stages.data:run",
        {"source": "source"} if source.random else {},
        source.for_data(),
        user_code=source.calls("data"),
        user_files=source.data_files,
        estimate_s=1.0,
    )
    load = Stage(
        "source",
        source.call,
        {"samples": items} if source.sized else {},
        source.for_model(),
        user_code=source.runs_code,
        user_files=source.files("model"),
        estimate_s=2.0,
    )
    excerpt = {"golden": "golden", "samples": "data"}
    return [
        *((load, data) if source.random else (data, load)),
        *([_with_states(job)] if source.state else []),
        golden(job, "test"),
        Stage("excerpt", "stages.shipped_items:run", excerpt, {"items": shipped_items.ITEMS}, estimate_s=0.5),
    ]


def _with_states(job: Job) -> Stage:
    """The stage that has the items with the state of the source before each."""
    return Stage(
        "data",
        "stages.states:run",
        {"model": variant_stages.SOURCE, "items": ITEMS},
        {"sequence": job.resolved.sequence},
        user_code=job.resolved.torch,
        plugins=_runs_source(job),
        estimate_s=3.0,
        silence_s=GOLDEN_SILENCE_S,
    )


def _runs_source(job: Job) -> tuple[str, ...]:
    """The runtime that runs a source which is no torch net: the first of its format."""
    return tuple(f"runtimes.{n}" for n, module in registry.every("runtimes") if job.resolved.kind == module.FORMAT)[:1]


def golden(job: Job, split: str) -> Stage:
    """The stage that has the source's outputs for a split, "test" or the one that chooses."""
    return Stage(
        on_select.GOLDEN if split == on_select.SPLIT else "golden",
        "stages.golden:run",
        {"model": variant_stages.SOURCE, "samples": "data"},
        {"splits": [split], "metric": job.resolved.metric, **verification.detect(job), **verification.labels(job)},
        user_code=job.resolved.torch,
        plugins=_runs_source(job),
        estimate_s=3.0,
        silence_s=GOLDEN_SILENCE_S,
    )


def chosen(job: Job) -> list[Variant]:
    variants = {v.name: v for v in job.target.value.variant}
    for name in job.only:
        if name not in variants:
            raise NotFound(f"--only {name}: {job.target.path} has no such variant{did_you_mean(name, variants)}")
    return [v for v in variants.values() if not job.only or v.name in job.only]


# --------------------------------------------------------------------------- the stages of a variant


def _candidate(job: Job, variant: Variant, calls: Sequence[Call], stages: Steps) -> Candidate:
    """Adds the stages of one variant, but for those that verify it."""
    at, made = _artifact(job, variant, calls, stages)
    runtime = variant.runtime or job.target.value.runtime
    plugin = registry.runtime(runtime)
    others = conversion.others(job.target.value, runtime)
    untried = {other: conversion.untried(registry.load("runtimes", other)) for other in others}
    sparse = any(registry.step(call).zeros for call, _ in calls)
    readable = any(each.weights for each in registry.of_format(plugin.format))
    if sparse and readable and not environments.missing(registry.call(STORED)[0]):
        made.append(f"{variant.name}/storage")
        stages[made[-1]] = Stage(
            made[-1],
            STORED,
            {"model": at},
            plugins=registry.readers(plugin.format),
            estimate_s=4.0,
        )
    return Candidate(
        variant,
        runtime,
        at,
        f"{variant.name}/verify",
        limits=verification.limits(job, variant),
        also={other: f"{variant.name}/verify-{other}" for other, why in untried.items() if not why},
        untried={other: why for other, why in untried.items() if why},
        min_runtime=job.target.value.min_runtime,
        also_told=job.target.value.also_told,
        simulated=plugin.simulated,
        estimated=plugin.estimates,
        agrees="" if job.context.device["here"] else f"{variant.name}/agree",
        made=tuple(made),
    )


def _artifact(job: Job, variant: Variant, calls: Sequence[Call], stages: Steps) -> tuple[str, list[str]]:
    """Adds the stages to a variant's artifact; where it is guarded, those up to its ladder, and the ladder."""
    tail = conversion.quantizing(variant)
    if not job.target.value.guard.on or variant.reference or not tail:
        return variant_stages.add(job, variant, calls, stages)
    on_module = conversion.leading(calls)
    at, made = variant_stages.add(job, variant, on_module, stages) if on_module else (variant_stages.SOURCE, [])
    stages.setdefault(on_select.GOLDEN, golden(job, on_select.SPLIT))
    ladder = accuracy_guard.AccuracyGuard(job, variant, at, job.resolved.kind, tail)
    ladder.check()
    stages[ladder.name] = ladder
    return ladder.name, made


def _with_variants(stage: Stage | Substitute, stages: Steps, candidates: Sequence[Candidate]) -> Stage | Substitute:
    """The stage with the variants that fall with it."""
    ends = {c.name: [c.verdict, *c.also.values(), *c.made, *filter(None, [c.agrees])] for c in candidates}
    users = (name for name, last in ends.items() if any(stage.name in _needs(end, stages) for end in last))
    return dataclasses.replace(stage, variants=tuple(users))


def _needs(name: str, stages: Steps) -> set[str]:
    return {name}.union(*(_needs(n, stages) for n in stages[name].inputs.values()))


# --------------------------------------------------------------------------- race


def ranking(job: Job, candidates: tuple[Candidate, ...]) -> Race | Count:
    """How the variants are ranked on the job's device: by time, or by instructions if it is simulated."""
    _check_profilers(job)
    device, profile = job.device.value, job.profile.value
    plugins = variant_stages.device_plugins(job)
    if simulated := registry.transport(device.transport).simulated:
        return Count(candidates, profile, simulated, plugins=plugins)
    energy = only_estimates(device)
    return Race(candidates, profile, estimated_energy=energy, unmeasured=job.unmeasured, plugins=plugins)


def _check_profilers(job: Job) -> None:
    """Raises NotFound for a profiler that there is not, ConfigError for its options."""
    for name, options in job.profile.value.profilers.items():
        module = registry.load("profilers", name)
        config.build(module.Options, options, f"{job.profile.path}: profilers.{name}")


def only_estimates(device: Device) -> bool:
    """Whether no sensor of the device can read now: then no energy window runs. Off this host: by kind."""
    if device.transport != "host":
        return all(registry.load("sensors", name).STATUS == "estimated" for name in device.sensors)
    plain = dataclasses.asdict(device)
    for name in device.sensors:
        sensor = registry.load("sensors", name)
        if not sensor.unavailable(plain, machine.root()):
            return bool(sensor.STATUS == "estimated")
    return True


def no_sensor(device: Device) -> str:
    """Why each of this machine's sensors cannot read; empty for an external device, or one that names none."""
    plain = dataclasses.asdict(device)
    sensors = [(name, registry.load("sensors", name)) for name in device.sensors if device.transport == "host"]
    reasons = {
        name: module.unavailable(plain, machine.root()) for name, module in sensors if module.STATUS != "estimated"
    }
    return "; ".join(f"{name}: {why}" for name, why in reasons.items() if why)


def _needed(job: Job, calls: Mapping[str, Sequence[Call]]) -> dict[str, ModuleType]:
    """The plug-ins of the source and of the variants that are reached, by what they are in errors."""
    source = job.resolved
    loader = "a torch source" if source.torch else f"a source of kind '{source.kind}'"
    every = (_of_variant(job, variant, calls) for variant in chosen(job) if variant.name in calls)
    return {loader: registry.call(source.call)[0], **{who: module for each in every for who, module in each.items()}}


def _of_variant(job: Job, variant: Variant, calls: Mapping[str, Sequence[Call]]) -> dict[str, ModuleType]:
    return conversion.modules(job.target.value, variant, calls[variant.name])


def _require(job: Job, calls: Mapping[str, Sequence[Call]], beside: Iterable[ModuleType]) -> None:
    """Every library is there, or the error says which variants can do without it."""
    needed = _needed(job, calls)
    every = [*needed.values(), *beside]
    for who, module in needed.items():
        try:
            environments.require(module, who, every)
        except MissingDependency as error:
            loader = registry.call(job.resolved.call)[0]
            every_of = {v.name: [loader, *_of_variant(job, v, calls).values()] for v in chosen(job) if v.name in calls}
            without = [name for name, each in every_of.items() if not any(map(environments.missing, each))]
            hint = f", or do without: --only {','.join(without)}" if without else ""
            raise MissingDependency(f"{error}{hint}") from error
