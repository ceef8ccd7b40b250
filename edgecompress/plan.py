"""(source, target, device, profile) -> the stages: each name, option, kind and library is resolved beforehand."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress import config, envs, registry
from edgecompress.catalog import check_file, is_factory
from edgecompress.errors import ConfigError, InputError, MissingDependency, NotFound, did_you_mean
from edgecompress.job import Job
from edgecompress.model import Stage
from edgecompress.race import Entrant, Race
from edgecompress.settings import Device, Source, Target, Variant
from edgecompress.stages import trace

ESTIMATE_S = {"trace": 6.0, "export": 12.0, "techniques": 20.0, "verify": 5.0, "golden": 6.0, "data": 3.0, "read": 2.0}
EXCERPT = 16  # test items that ship with the artifact, inputs and outputs: what devices and apps check against
RUN_CONTEXT = ("seed", "batch", "threads", "device")  # of stages that run an artifact where it will run


@dataclass(frozen=True)
class Route:
    """How one variant is reached: the stage that makes its artifact, the stage that verifies it, its runtime."""

    variant: Variant
    runtime: str
    artifact: str
    verdict: str


@dataclass(frozen=True)
class Plan:
    """Stages in order, then the search that chooses among what they made."""

    stages: tuple[Stage, ...]
    routes: tuple[Route, ...]
    race: Race
    modules: tuple[ModuleType, ...] = field(default=(), compare=False)

    def user_code(self) -> str:
        """The first stage that runs the user's own code, in words, or ""."""
        return next((f"stage {s.name} ({_whose(s)})" for s in self.stages if s.user_code and _whose(s)), "")

    def estimate_s(self) -> float:
        """Seconds the stages and the search may take when nothing is stored."""
        return sum(s.estimate_s for s in self.stages) + self.race.estimate_s()


def deploy(job: Job) -> Plan:
    """The plan of a deploy; raises InputError for whatever cannot work, before anything runs."""
    kind, reader = _reader(job.source.value)
    stages: dict[str, Stage] = {}
    modules: dict[str, ModuleType] = {}
    for stage in _front(job, kind, reader):
        stages[stage.name] = stage
    routes = [_route(job, kind, variant, stages, modules) for variant in _chosen(job)]
    _require(job, kind, modules, [*stages.values()])
    for route in routes:
        stages[route.verdict] = verify(job, route.verdict, route.runtime, route.artifact)
    ordered = [_with_variants(s, stages, routes) for s in stages.values()]
    return Plan(tuple(ordered), tuple(routes), _race(job, routes), modules=tuple(modules.values()))


def front(job: Job) -> list[Stage]:
    """The stages before any compression: data, source, golden."""
    return list(_front(job, *_reader(job.source.value)))


def plugins(target: Target) -> list[ModuleType]:
    """The plug-ins on the way from a torch source to a target, or from the first kind of file that reaches it.

    Nothing need be installed. Raises ConfigError when nothing reaches it, with what is wrong for a torch source.
    """
    first: ConfigError | None = None
    for kind in ("module", *sorted(m.FORMAT for _, m in registry.every("runtimes"))):
        modules: dict[str, ModuleType] = {}
        try:
            for variant in target.variant:
                _steps(target, variant, kind, "target", modules)
            return list(modules.values())
        except ConfigError as error:
            first = first or error
    assert first is not None
    raise first


# --------------------------------------------------------------------------- source, data, golden


def _whose(stage: Stage) -> str:
    """The factory that a stage calls, or the saved program that may run code when loaded."""
    named = (stage.options.get("model"), stage.options.get("source", {}).get("data"), stage.options.get("metric"))
    return next((n for n in named if n and (is_factory(n) or n.endswith(".pt2"))), "")


def _reader(source: Source) -> tuple[str, str]:
    """The kind of a source, and the call that reads it."""
    if is_factory(source.model):
        return "module", "stages.trace:load"
    path = Path(source.model)
    suffixes = {m.SUFFIX: (m.FORMAT, f"runtimes.{name}:read") for name, m in registry.every("runtimes") if m.SUFFIX}
    suffixes[".pt2"] = ("program", "stages.trace:load")
    if path.suffix not in suffixes:
        known = ", ".join(sorted(suffixes))
        raise InputError(f"{source.model}: a model is a factory pkg.mod:fn or a file ending in {known}")
    check_file(path, "model file")
    return suffixes[path.suffix]


def _front(job: Job, kind: str, reader: str) -> Iterable[Stage]:
    source = job.source.value
    torch = kind in ("module", "program")
    random = source.data == "random"
    if not source.data:
        raise InputError(
            f"{source.model}: no data to calibrate and verify with; give --data pkg.mod:fn, an .npz, a folder "
            "of .npy files or of images (or, asked for by name, --data random)"
        )
    if not random and not is_factory(source.data):
        check_file(Path(source.data), "data")
    plain = dataclasses.replace(source, name="", description="", licence="")  # words change no data
    data_options = {"source": dataclasses.asdict(plain), "samples": source.samples}
    data_inputs = {"source": "source"} if random else {}
    if random and kind == "module":
        raise InputError(
            "--data random: a factory does not say what its inputs are; give real data, or a .pt2 or .onnx"
        )
    load_inputs = {} if random or not torch else {"samples": "data"}
    options = {"model": source.model, "dynamic": source.dynamic} if torch else {"path": source.model}
    data = Stage("data", "stages.data:run", data_inputs, data_options, user_code=True, estimate_s=ESTIMATE_S["data"])
    load = Stage("source", reader, load_inputs, options, user_code=True, estimate_s=ESTIMATE_S["read"])
    yield from (load, data) if random else (data, load)
    yield Stage(
        "golden",
        "stages.golden:run",
        {"model": "source", "samples": "data"},
        {"splits": ["test"], "metric": source.metric},
        user_code=torch,
        estimate_s=ESTIMATE_S["golden"],
    )
    yield Stage(
        "excerpt", "stages.excerpt:run", {"golden": "golden", "samples": "data"}, {"items": EXCERPT}, estimate_s=1.0
    )


def _chosen(job: Job) -> list[Variant]:
    variants = {v.name: v for v in job.target.value.variant}
    for name in job.only:
        if name not in variants:
            raise NotFound(f"--only {name}: {job.target.path} has no such variant{did_you_mean(name, variants)}")
    return [v for v in variants.values() if not job.only or v.name in job.only]


# --------------------------------------------------------------------------- routes between kinds


def edges() -> list[tuple[str, str, str]]:
    """(from kind, to kind, call) of every way to change a kind without compressing."""
    exports = [
        (reads, module.FORMAT, f"runtimes.{name}:export")
        for name, module in registry.every("runtimes")
        for reads in module.READS
    ]
    return [("module", "program", "stages.trace:run"), *exports]


def way(start: str, goals: Sequence[str]) -> list[tuple[str, str]] | None:
    """The shortest list of (call, kind) from `start` to one of `goals`; None when there is none."""
    queue: deque[tuple[str, list[tuple[str, str]]]] = deque([(start, [])])
    seen = {start}
    while queue:
        kind, path = queue.popleft()
        if kind in goals:
            return path
        for reads, writes, call in edges():
            if reads == kind and writes not in seen:
                seen.add(writes)
                queue.append((writes, [*path, (call, writes)]))
    return None


def _technique(use: str, start: str, goal: str, where: str) -> str:
    """The technique that `use` means: its own name, or the one that provides this precision nearest to the goal."""
    if use in registry.names("techniques"):
        return use
    provided = {name: m for name, m in registry.every("techniques") if use == m.PROVIDES}
    if not provided:
        known = {*registry.names("techniques"), *(m.PROVIDES for _, m in registry.every("techniques"))}
        raise ConfigError(f"{where}: no technique or precision '{use}'{did_you_mean(use, known)}")
    costs = {}
    for name, module in provided.items():
        before, after = way(start, module.READS), way(module.WRITES, [goal])
        if before is not None and after is not None:
            costs[name] = (len(after), len(before))
    if not costs:
        raise ConfigError(f"{where}: no path from {start} to {goal} with {use} (tried {', '.join(provided)})")
    best = min(costs.values())
    winners = sorted(name for name, cost in costs.items() if cost == best)
    if len(winners) > 1:
        raise ConfigError(f"{where}: '{use}' could be {' or '.join(winners)}; name one of them")
    return winners[0]


def _steps(
    target: Target, variant: Variant, kind: str, where: str, modules: dict[str, ModuleType]
) -> list[tuple[str, dict[str, Any]]]:
    """The (call, options) from a source of `kind` to the variant's format; the plug-ins met are put into `modules`."""
    name = variant.runtime or target.runtime
    runtime = modules[f"runtime '{name}'"] = registry.load("runtimes", name)
    calls: list[tuple[str, dict[str, Any]]] = []
    for index, table in enumerate(variant.compress):
        place = f"{where}: variant {variant.name}: compress[{index}]"
        options = {k: v for k, v in table.items() if k != "use"}
        if "use" not in table:
            raise ConfigError(f"{place}: key 'use' is missing: a technique or a precision")
        technique = _technique(table["use"], kind, runtime.FORMAT, place)
        module = modules[f"technique '{technique}'"] = registry.load("techniques", technique)
        calls += _convert(kind, module.READS, place, modules)
        config.build(module.Options, options, f"{place} ({technique})")
        calls.append((f"techniques.{technique}:apply", options))
        kind = module.WRITES
    exports = _convert(kind, (runtime.FORMAT,), f"{where}: variant {variant.name}", modules)
    if variant.export:
        if not exports:
            raise ConfigError(f"{where}: variant {variant.name}: export: nothing is exported on this way")
        config.build(runtime.Options, variant.export, f"{where}: variant {variant.name}: export")
        exports[-1] = (exports[-1][0], dict(variant.export))
    return calls + exports


def _convert(
    start: str, goals: Sequence[str], where: str, modules: dict[str, ModuleType]
) -> list[tuple[str, dict[str, Any]]]:
    path = way(start, goals)
    if path is None:
        raise ConfigError(f"{where}: no path from {start} to {' or '.join(goals)}; give another source or runtime")
    for call, _ in path:
        module, _function = registry.call(call)
        modules[call.split(":")[0].replace("runtimes.", "runtime ")] = module
    return [(call, {}) for call, _ in path]


def _route(job: Job, kind: str, variant: Variant, stages: dict[str, Stage], modules: dict[str, ModuleType]) -> Route:
    """Adds the stages of one variant; those before its first technique are shared with the others."""
    at, prefix = "source", ""
    for call, options in _steps(job.target.value, variant, kind, str(job.target.path), modules):
        function = call.split(":")[1]
        if function == "apply" or options:
            prefix = f"{variant.name}/"
        name = f"{prefix}{_short(call)}"
        if name not in stages:
            stages[name] = _step(job, name, call, at, options)
        at = name
    return Route(variant, variant.runtime or job.target.value.runtime, at, f"{variant.name}/verify")


def _short(call: str) -> str:
    where, function = call.split(":")
    plugin = where.split(".")[-1]
    return {"export": f"export-{plugin}", "run": plugin}.get(function, plugin)


def _step(job: Job, name: str, call: str, at: str, options: Mapping[str, Any]) -> Stage:
    module, function = registry.call(call)
    inputs = {"model": at}
    if call == "stages.trace:run" or getattr(module, "NEEDS_SAMPLES", False):
        inputs["samples"] = "data"
    if call == "stages.trace:run":
        options = {"dynamic": job.source.value.dynamic}
    estimate = ESTIMATE_S["techniques" if function == "apply" else "export" if function == "export" else "trace"]
    return Stage(name, call, inputs, options, user_code=call == "stages.trace:run", estimate_s=estimate)


def _with_variants(stage: Stage, stages: Mapping[str, Stage], routes: Sequence[Route]) -> Stage:
    """The stage with the variants that fall with it: none named when the whole deploy does."""
    if stage.name in ("data", "source", "golden", "excerpt"):
        return stage
    users = tuple(r.variant.name for r in routes if stage.name in _needs(r.verdict, stages))
    return dataclasses.replace(stage, variants=users)


def _needs(name: str, stages: Mapping[str, Stage]) -> set[str]:
    return {name}.union(*(_needs(n, stages) for n in stages[name].inputs.values()))


# --------------------------------------------------------------------------- verify, race


def verify(job: Job, name: str, runtime: str, artifact: str) -> Stage:
    """The stage that holds the artifact made by a stage against the golden outputs and the target's limits."""
    source = job.source.value
    limits = dataclasses.asdict(job.target.value.limits)
    return Stage(
        name,
        "stages.verify:run",
        {"model": artifact, "golden": "golden", "samples": "data"},
        {"runtime": runtime, "metric": source.metric, "limits": limits},
        context=RUN_CONTEXT,
        plugins=(f"runtimes.{runtime}",),
        user_code=is_factory(source.metric),
        estimate_s=ESTIMATE_S["verify"],
    )


def _race(job: Job, routes: Sequence[Route]) -> Race:
    entrants = tuple(Entrant(r.variant.name, r.runtime, r.artifact, r.verdict, r.variant.reference) for r in routes)
    return Race(entrants, job.profile.value, job.target.value.limits, estimated_energy=only_estimates(job.device.value))


def only_estimates(device: Device) -> bool:
    """Whether no sensor of the device can read now: then no energy window will be run."""
    plain = dataclasses.asdict(device)
    for name in device.sensors:
        sensor = registry.load("sensors", name)
        if not sensor.unavailable(plain, Path("/")):
            return bool(sensor.STATUS == "estimated")
    return True


def _require(job: Job, kind: str, modules: Mapping[str, ModuleType], stages: Sequence[Stage]) -> None:
    """Every library is there, or the error says which variants can do without it."""
    needed = dict(modules)
    if kind in ("module", "program"):
        needed["a torch source"] = trace
    for who, module in needed.items():
        try:
            envs.require(module, who)
        except MissingDependency as error:
            without = _variants_without(job, module, kind)
            hint = f", or do without: --only {','.join(without)}" if without else ""
            raise MissingDependency(f"{error}{hint}") from error


def _variants_without(job: Job, lacking: ModuleType, kind: str) -> list[str]:
    found = []
    for variant in _chosen(job):
        modules: dict[str, ModuleType] = {}
        _steps(job.target.value, variant, kind, str(job.target.path), modules)
        if all(m is not lacking and not envs.missing(m) for m in modules.values()):
            found.append(variant.name)
    return found if lacking is not trace else []
