"""(source, target, device, profile) -> the stages: each name, option, kind and library is resolved beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress import chain, config, envs, guard, judge, registry, routes
from edgecompress.catalog import check_file, is_factory
from edgecompress.chain import Steps
from edgecompress.count import Count
from edgecompress.errors import InputError, MissingDependency, NoPath, NotFound, did_you_mean
from edgecompress.job import Job
from edgecompress.model import Stage, Substitute, seconds
from edgecompress.race import Entrant, Race
from edgecompress.routes import Call
from edgecompress.settings import Device, Source, Variant
from edgecompress.stages import shipped, trace

ESTIMATE_S = {"data": 3.0, "read": 4.0, "golden": 6.0}
TORCH = ("module", "program")
STORED = ("onnx", "tflite")  # formats whose weights are read: what zeros save in them is told


@dataclass(frozen=True)
class Route:
    """How one variant is reached: the stage that makes its artifact, the stage that verifies it, its runtime."""

    variant: Variant
    runtime: str
    artifact: str
    verdict: str
    also: Mapping[str, str]  # another runtime of the same format -> the stage that verifies it there
    agrees: str = ""  # the stage that holds its answers on the device against those here
    made: tuple[str, ...] = ()  # the stages of its techniques, in order, and of what its zeros save


@dataclass(frozen=True)
class Plan:
    """Stages in order, then the search that chooses among what they made."""

    stages: tuple[Stage | Substitute, ...]
    routes: tuple[Route, ...]
    race: Race | Count

    def user_code(self) -> str:
        """The first stage that runs the user's own code, in words, or ""."""
        stages = (s if isinstance(s, Stage) else s.stage for s in self.stages)
        return next((f"stage {s.name} ({_whose(s)})" for s in stages if s.user_code and _whose(s)), "")

    def estimate_s(self) -> float:
        """Seconds the stages and the search may take when nothing is stored."""
        return sum(map(seconds, self.stages)) + self.race.estimate_s()


def deploy(job: Job) -> Plan:
    """The plan of a deploy; raises InputError for whatever cannot work, before anything runs."""
    kind, reader = _reader(job.source.value)
    stages: Steps = {stage.name: stage for stage in _front(job, kind, reader)}
    shared = set(stages)
    calls, left_out = _calls(job, kind)
    _require(job, kind, reader, calls)
    ends = [_route(job, variant, calls[variant.name], stages) for variant in _chosen(job) if variant.name in calls]
    for end in ends:
        for runtime, name in ((end.runtime, end.verdict), *end.also.items()):
            stages[name] = judge.verify(job, name, runtime, end.artifact, end.variant)
        if end.agrees:
            limit = judge.limits(job, end.variant).on_device
            stages[end.agrees] = judge.agree(job, _entrant(job, end), end.verdict, limit)
    falling = (s if s.name in shared else _with_variants(s, stages, ends) for s in stages.values())
    return Plan(tuple(falling), tuple(ends), dataclasses.replace(_race(job, ends), left_out=left_out))


def _calls(job: Job, kind: str) -> tuple[dict[str, list[Call]], dict[str, str]]:
    """The calls of each variant, and why the others are not reached; raises NoPath when none is."""
    calls: dict[str, list[Call]] = {}
    left_out: dict[str, NoPath] = {}
    for variant in _chosen(job):
        try:
            calls[variant.name] = routes.steps(job.target.value, variant, kind, str(job.target.path))
            _check_machine(job, variant)
        except NoPath as error:
            calls.pop(variant.name, None)
            left_out[variant.name] = error
    if not calls:
        raise next(iter(left_out.values()))
    return calls, {name: error.what for name, error in left_out.items()}


def _check_machine(job: Job, variant: Variant) -> None:
    """Raises NoPath where this machine cannot export what the variant asks for, or the device cannot run it."""
    name = variant.runtime or job.target.value.runtime
    runtime, transport = registry.load("runtimes", name), registry.load("transports", job.device.value.transport)
    why = runtime.unavailable(variant.export) if hasattr(runtime, "unavailable") else ""
    carried = getattr(transport, "RUNTIMES", None)
    if not why and carried is not None and name not in carried:
        why = f"{transport.SIMULATED} does not carry runtime {name}"
    if why:
        raise NoPath(f"{job.target.path}: variant {variant.name}", why)


def front(job: Job) -> list[Stage]:
    """The stages before any compression: data, source, golden."""
    return list(_front(job, *_reader(job.source.value)))


# --------------------------------------------------------------------------- source, data, golden


def _whose(stage: Stage) -> str:
    """The factory that a stage calls, or the saved model that may run code when loaded."""
    named = (stage.options.get("model"), stage.options.get("source", {}).get("data"), stage.options.get("metric"))
    called = next((n for n in named if n and (is_factory(n) or n.endswith(".pt2"))), "")
    reads = stage.call.endswith(":read") and getattr(registry.call(stage.call)[0], "RUNS_CODE", False)
    return called or (str(stage.options["path"]) if reads else "")


def _reader(source: Source) -> tuple[str, str]:
    """The kind of a source, and the call that reads it."""
    if is_factory(source.model):
        return "module", "stages.trace:load"
    path = Path(source.model)
    suffixes = {".pt2": ("program", "stages.trace:load")}
    for name, module in registry.every("runtimes"):
        means = (module.FORMAT, f"runtimes.{name}:read")
        if module.SUFFIX:
            suffixes[module.SUFFIX] = means
        if (marker := getattr(module, "FOLDER", "")) and (path / marker).is_file():
            return means
    if path.suffix not in suffixes:
        known = ", ".join(sorted(suffixes))
        raise InputError(f"{source.model}: a model is a factory pkg.mod:fn, a SavedModel, or a file ending in {known}")
    check_file(path, "model file")
    return suffixes[path.suffix]


def _check_data(source: Source, torch: bool) -> None:
    """Raises InputError for data that is missing, or that cannot be made up."""
    if not source.data:
        raise InputError(
            f"{source.model}: no data to calibrate and verify with; give --data pkg.mod:fn, an .npz, a folder "
            "of .npy files or of images (or, asked for by name, --data random)"
        )
    if source.data == "random" and torch:
        raise InputError("--data random: a torch source is loaded with samples; give real data, or an .onnx")
    if source.data != "random" and not is_factory(source.data):
        check_file(Path(source.data), "data")


def _front(job: Job, kind: str, reader: str) -> Iterable[Stage]:
    source = job.source.value
    torch = kind in TORCH
    _check_data(source, torch)
    random = source.data == "random"
    plain = dataclasses.replace(chain.without_words(source), augment=())
    data_options = {"source": dataclasses.asdict(plain), "samples": source.samples}
    data_inputs = {"source": "source"} if random else {}
    load_inputs = {"samples": "data"} if torch else {}
    options = {"model": source.model, "dynamic": source.dynamic} if torch else {"path": source.model}
    data = Stage("data", "stages.data:run", data_inputs, data_options, user_code=True, estimate_s=ESTIMATE_S["data"])
    load = Stage("source", reader, load_inputs, options, user_code=True, estimate_s=ESTIMATE_S["read"])
    yield from (load, data) if random else (data, load)
    yield _golden(job, "golden", "test", kind)
    excerpt = {"golden": "golden", "samples": "data"}
    yield Stage("excerpt", "stages.excerpt:run", excerpt, {"items": shipped.ITEMS}, estimate_s=1.0)


def _golden(job: Job, name: str, split: str, kind: str) -> Stage:
    """The stage that has the source's answers to a split."""
    return Stage(
        name,
        "stages.golden:run",
        {"model": chain.SOURCE, "samples": "data"},
        {"splits": [split], "metric": job.source.value.metric},
        user_code=kind in TORCH,
        estimate_s=ESTIMATE_S["golden"],
    )


def _chosen(job: Job) -> list[Variant]:
    variants = {v.name: v for v in job.target.value.variant}
    for name in job.only:
        if name not in variants:
            raise NotFound(f"--only {name}: {job.target.path} has no such variant{did_you_mean(name, variants)}")
    return [v for v in variants.values() if not job.only or v.name in job.only]


# --------------------------------------------------------------------------- the stages of a variant


def _route(job: Job, variant: Variant, calls: Sequence[Call], stages: Steps) -> Route:
    """Adds the stages of one variant, but for those that judge it."""
    at, made = _artifact(job, variant, calls, stages)
    runtime = variant.runtime or job.target.value.runtime
    others = [r for r in routes.others(job.target.value, runtime) if not _untried(r)]
    also = {other: f"{variant.name}/verify-{other}" for other in others}
    agrees = "" if job.context.device["here"] else f"{variant.name}/agree"
    sparse = any(getattr(registry.call(call)[0], "ZEROS", False) for call, _ in calls)
    if sparse and registry.load("runtimes", runtime).FORMAT in STORED:
        made.append(f"{variant.name}/storage")
        stages[made[-1]] = Stage(made[-1], "stages.stored:run", {"model": at}, estimate_s=4.0)
    return Route(variant, runtime, at, f"{variant.name}/verify", also, agrees, tuple(made))


def _artifact(job: Job, variant: Variant, calls: Sequence[Call], stages: Steps) -> tuple[str, list[str]]:
    """Adds the stages to a variant's artifact; where it is guarded, those up to its ladder, and the ladder."""
    tail = routes.quantizing(variant)
    if not job.target.value.guard.on or variant.reference or not tail:
        return chain.add(job, variant, calls, stages)
    on_module = routes.leading(calls)
    at, made = chain.add(job, variant, on_module, stages) if on_module else (chain.SOURCE, [])
    kind, _ = _reader(job.source.value)
    stages.setdefault(guard.GOLDEN, _golden(job, guard.GOLDEN, guard.SPLIT, kind))
    ladder = guard.Guard(job, variant, at, kind, tail)
    ladder.check()
    stages[ladder.name] = ladder
    return ladder.name, made


def _untried(runtime: str) -> str:
    """Why a runtime that is not required is not tried here, or ""."""
    module = registry.load("runtimes", runtime)
    lacking = ", ".join(envs.missing(module))
    return f"not tried: {lacking} is not installed; run: {envs.install_command(module)}" if lacking else ""


def _with_variants(stage: Stage | Substitute, stages: Steps, ends: Sequence[Route]) -> Stage | Substitute:
    """The stage with the variants that fall with it."""
    users = tuple(end.variant.name for end in ends if stage.name in _all_needs(end, stages))
    return dataclasses.replace(stage, variants=users)


def _all_needs(end: Route, stages: Steps) -> set[str]:
    ends = [end.verdict, *end.also.values(), *end.made, *([end.agrees] if end.agrees else [])]
    return set().union(*(_needs(name, stages) for name in ends))


def _needs(name: str, stages: Steps) -> set[str]:
    return {name}.union(*(_needs(n, stages) for n in stages[name].inputs.values()))


# --------------------------------------------------------------------------- race


def _race(job: Job, ends: Sequence[Route]) -> Race | Count:
    return ranking(job, tuple(_entrant(job, end) for end in ends))


def ranking(job: Job, entrants: tuple[Entrant, ...]) -> Race | Count:
    """How the variants are ranked on the job's device: by time, or by instructions where it is simulated."""
    _check_passes(job)
    device, profile = job.device.value, job.profile.value
    plugins = chain.device_plugins(job)
    if simulated := getattr(registry.load("transports", device.transport), "SIMULATED", ""):
        return Count(entrants, profile, simulated, plugins=plugins)
    energy = only_estimates(device)
    return Race(entrants, profile, estimated_energy=energy, unmeasured=job.unmeasured, plugins=plugins)


def _check_passes(job: Job) -> None:
    """Raises NotFound for a pass that there is not, ConfigError for its options."""
    for name, options in job.profile.value.passes.items():
        module = registry.load("passes", name)
        config.build(module.Options, options, f"{job.profile.path}: passes.{name}")


def _entrant(job: Job, end: Route) -> Entrant:
    return Entrant(
        end.variant.name,
        end.runtime,
        end.artifact,
        end.verdict,
        end.variant.reference,
        limits=judge.limits(job, end.variant),
        also=end.also,
        untried={r: why for r in routes.others(job.target.value, end.runtime) if (why := _untried(r))},
        min_runtime=job.target.value.min_runtime,
        simulated=getattr(registry.load("runtimes", end.runtime), "SIMULATED", ""),
        estimated=getattr(registry.load("runtimes", end.runtime), "ESTIMATES", ""),
        agrees=end.agrees,
        made=end.made,
    )


def only_estimates(device: Device) -> bool:
    """Whether no sensor of the device can read now: then no energy window will be run. Elsewhere: by what they are."""
    if device.transport != "host":
        return all(registry.load("sensors", name).STATUS == "estimated" for name in device.sensors)
    plain = dataclasses.asdict(device)
    for name in device.sensors:
        sensor = registry.load("sensors", name)
        if not sensor.unavailable(plain, _root(device)):
            return bool(sensor.STATUS == "estimated")
    return True


def _root(device: Device) -> Path:
    """Where sensors look for /sys."""
    return Path(str(device.options.get("root", "/")))


def no_sensor(device: Device) -> str:
    """Why each of this machine's sensors cannot read; empty for a device elsewhere, or one that names none."""
    plain = dataclasses.asdict(device)
    sensors = [(name, registry.load("sensors", name)) for name in device.sensors if device.transport == "host"]
    told = {name: module.unavailable(plain, _root(device)) for name, module in sensors if module.STATUS != "estimated"}
    return "; ".join(f"{name}: {why}" for name, why in told.items() if why)


def _require(job: Job, kind: str, reader: str, calls: Mapping[str, Sequence[Call]]) -> None:
    """Every library is there, or the error says which variants can do without it."""
    reached = [v for v in _chosen(job) if v.name in calls]
    needed = {v.name: routes.modules(job.target.value, v, calls[v.name]) for v in reached}
    if kind in TORCH:
        envs.require(trace, "a torch source")
    else:
        envs.require(registry.call(reader)[0], f"a source of kind '{kind}'")
    for who, module in {k: m for each in needed.values() for k, m in each.items()}.items():
        try:
            envs.require(module, who)
        except MissingDependency as error:
            without = [name for name, each in needed.items() if not any(map(envs.missing, each.values()))]
            hint = f", or do without: --only {','.join(without)}" if without else ""
            raise MissingDependency(f"{error}{hint}") from error
