"""From the source to a variant's artifact: a stage per call, and a search where a strength is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from edgecompress.core import catalog, config, environments, registry
from edgecompress.core.errors import ConfigError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Goal, Stage, Substitute
from edgecompress.core.plugins import Step, TechniquePlugin
from edgecompress.core.settings import Variant, is_factory
from edgecompress.pipeline import channel_block, conversion, diagnosis
from edgecompress.pipeline.conversion import IMPORT, TRACE, Call
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.searches.bit_budget import OPTION, PROGRAM, BitBudget
from edgecompress.pipeline.searches.strength import GOALS, Fit

TRIALS = "quick"  # the profile that strengths are tried with, whatever the race is run with: they are not tried twice
ESTIMATE_S = {"run": 4.0, "export": 6.0, "apply": 5.0}
TRAIN_S, EPOCH_S = 900.0, 45.0  # nobody knows before it runs; the second time it is told from the first
STEP_TIMEOUT_S, TRAIN_TIMEOUT_S = 3600.0, 14 * 86400.0
SOURCE = "source"  # the stage that has the model as it was given
ROLES = {
    "samples": "data",
    "golden": "golden",
    "dense": SOURCE,
    "training": "training",
}  # what a technique needs -> who makes it

Steps = dict[str, Stage | Substitute]


def add(
    job: Job, variant: Variant, calls: Sequence[Call], stages: Steps, start: str = "", pupils: tuple[str, ...] = ()
) -> tuple[str, list[str]]:
    """Adds the stages to a variant's artifact; returns the last, and those of its techniques.

    Those before its first technique are shared with the others, unless it starts from a stage that is its own.
    `pupils`: the variants that learn from it.
    """
    at, own, made, used = start or SOURCE, bool(start), list[str](), list[str]()
    dynamic = job.open_axes(variant.runtime or job.target.value.runtime)
    for index, (call, given) in enumerate(calls):
        options = _for_device(job, call, given)
        closed = call == TRACE and dynamic != job.resolved.dynamic
        own = own or call.endswith(":apply") or bool(options) or closed
        name = f"{variant.name}/{_short(call)}" if own else _short(call)
        if name in used:  # the same technique once more
            name = f"{name}-{sum(s.startswith(name) for s in used) + 1}"
        used.append(name)
        if "training" in registry.step(call).needs:
            stages.setdefault("training", _training(job))
        if name not in stages:
            step = _aligned(job, variant, _step(job, name, (call, options), at, dynamic), stages)
            if "dense" in step.inputs and (teacher := _teacher(job, variant, options, stages, pupils)):
                step = dataclasses.replace(step, inputs={**step.inputs, "dense": teacher})
            goal = goal_of(step.call, step.options)
            if goal and goal.quantity == "bits":
                stages[name] = _bit_budget(job, variant, (step, goal), calls[index + 1 :], stages)
            elif goal:
                stages[name] = _fit(job, variant, (step, goal), calls[index + 1 :])
            else:
                stages[name] = step
        made += [name] if call.endswith(":apply") else []
        at = name
    return at, made


def _for_device(job: Job, call: str, options: dict[str, Json]) -> dict[str, Json]:
    """The options of a call, over those that the device's file has for an export. Raises ConfigError."""
    runtime = call.removeprefix("runtimes.").removesuffix(":export")
    own = job.device.value.export.get(runtime, {}) if call == f"runtimes.{runtime}:export" else {}
    if own:
        config.build(registry.load("runtimes", runtime).Options, own, f"{job.device.path}: export.{runtime}")
    return {**own, **options}


def _teacher(job: Job, variant: Variant, options: Mapping[str, Json], stages: Steps, pupils: tuple[str, ...]) -> str:
    """The stage that has the net of the variant that an option `teacher` names, added where it is not there yet.

    Empty where it names none. Raises ConfigError for a variant that there is not, or that learns from this one.
    """
    named = str(options.get("teacher") or "")
    if not named or is_factory(named):
        return ""
    where = f"{job.target.path}: variant {variant.name}: teacher = '{named}'"
    variants = {each.name: each for each in job.target.value.variant}
    if named not in variants:
        raise ConfigError(f"{where}: no such variant{did_you_mean(named, variants)}; or name a factory, pkg.mod:fn")
    if named in (variant.name, *pupils):
        raise ConfigError(f"{where}: it learns from {variant.name} itself; name another variant")
    calls = conversion.steps(job.target.value, variants[named], job.resolved.kind, where)
    imported = sum(call == IMPORT for call, _ in calls[:1])
    calls = [*calls[:imported], *conversion.leading(calls[imported:])]
    return add(job, variants[named], calls, stages, pupils=(*pupils, variant.name))[0]


def shared(job: Job, call: str, at: str) -> Stage:
    """The stage of a conversion before any technique, which all variants share."""
    return _step(job, _short(call), (call, {}), at, job.resolved.dynamic)


def _short(call: str) -> str:
    where, function = call.split(":")
    plugin = where.split(".")[-1]
    return f"export-{plugin}" if function == "export" else plugin


def _step(job: Job, name: str, call: Call, at: str, dynamic: Mapping[str, Mapping[str, str]]) -> Stage:
    reference, options = call
    traces, called = reference == TRACE, registry.step(reference)
    needs = ("samples",) if traces else called.needs
    code = job.resolved.torch or any(is_factory(str(value)) for value in options.values())
    files = called.file_options if isinstance(called, TechniquePlugin) else ()
    made_by = ROLES if job.resolved.kind == "module" else {**ROLES, "dense": _short(IMPORT)}
    return Stage(
        name,
        reference,
        {"model": at, **{role: made_by[role] for role in needs}},
        {"dynamic": dynamic} if traces else options,
        user_code=code and (traces or "module" in called.reads),
        user_files=tuple(str(options[option]) for option in files if options.get(option)),
        estimate_s=_trained_s(called, options) if called.trains else ESTIMATE_S[reference.split(":")[1]],
        timeout_s=TRAIN_TIMEOUT_S if called.trains else STEP_TIMEOUT_S,
    )


def _trained_s(called: Step, options: Mapping[str, Json]) -> float:
    """Seconds of training, by its minutes or epochs where it has some."""
    minutes = options.get("minutes", getattr(called.options, "minutes", None))
    if isinstance(minutes, (int, float)):
        return 60.0 * minutes
    epochs = options.get("epochs", getattr(called.options, "epochs", None))
    return EPOCH_S * epochs if isinstance(epochs, int) else TRAIN_S


def _training(job: Job) -> Stage:
    """The data to train on: all of the split "train", which nothing else reads."""
    source = job.resolved
    return Stage(
        "training",
        "stages.data:training",
        options=source.for_data(augment=True),
        user_code=source.calls("data"),
        user_files=source.data_files,
        estimate_s=20.0,
    )


def goal_of(call: str, options: Mapping[str, Json]) -> Goal | None:
    """What the technique of a call is to measure, where it is asked for that."""
    called = registry.step(call)
    if called.goal is None or called.options is None or not call.endswith(":apply"):
        return None
    return called.goal(config.build(called.options, options, call))


def _bit_budget(
    job: Job, variant: Variant, step_and_goal: tuple[Stage, Goal], rest: Sequence[Call], stages: Steps
) -> BitBudget:
    """The search for the bits of each layer; raises ConfigError where a diagnosis cannot tell what each one loses."""
    (step, goal), runtime = step_and_goal, variant.runtime or job.target.value.runtime
    where = f"{job.target.path}: {step.name}: bits"
    if not registry.runtime(runtime).tapped:
        raise ConfigError(f"{where} needs what each layer loses, but {runtime} does not return their outputs")
    environments.require(registry.call(PROGRAM)[0], where)
    options = {key: value for key, value in step.options.items() if key != OPTION}
    plain = [dataclasses.replace(step, name=f"{step.name}/plain", options=options)]
    for call in rest:
        name = f"{step.name}/plain/{_short(call[0])}"
        plain.append(_step(job, name, call, plain[-1].name, job.open_axes(runtime)))
    source = diagnosis.float_source(stages, step.inputs["model"])
    kind = job.resolved.kind if source == SOURCE else "program"
    before = plain[-1].inputs["model"] if plain[-1].call.endswith(":export") else ""
    export = tuple(variant.export.items()) if before else ()
    subject = diagnosis.DiagnosisSubject(runtime, plain[-1].name, source, kind, before, export=export)
    return BitBudget(step, goal.value, (*plain, *diagnosis.stages(job, f"{step.name}/diagnosis", subject)))


def _fit(job: Job, variant: Variant, step_and_goal: tuple[Stage, Goal], rest: Sequence[Call]) -> Fit:
    """The search in the place of a technique's stage; raises ConfigError where there is nothing to measure on."""
    step, goal = step_and_goal
    simulated = registry.transport(job.device.value.transport).simulated
    why = job.unmeasured or (f"{simulated} counts instructions" if simulated and goal.quantity != "ratio" else "")
    if why:
        asked = " and ".join(name for name in GOALS if step.options.get(name) is not None)
        raise ConfigError(f"{job.target.path}: {step.name}: {asked} needs measurements, but {why}; give macs or ratio")
    chain = [(call, options) for call, options in rest if not registry.step(call).trains]
    runtime = variant.runtime or job.target.value.runtime
    dynamic = job.open_axes(runtime)
    stages = tuple(_step(job, f"{i}-{_short(call[0])}", call, "", dynamic) for i, call in enumerate(chain, 1))
    return Fit(step, goal, stages, runtime, catalog.profile(TRIALS).value, simulated, device_plugins(job))


def _aligned(job: Job, variant: Variant, step: Stage, stages: Steps) -> Stage:
    """A stage whose technique aligns channels to the device's block: the device file's, else what is measured."""
    options = registry.step(step.call).options
    if "align" not in getattr(options, "__dataclass_fields__", ()) or step.options.get("align") is not None:
        return step
    runtime, precision = variant.runtime or job.target.value.runtime, conversion.precision(variant)
    known = job.device.value.blocks.get(f"{runtime}-{precision}")
    if known:
        return dataclasses.replace(step, options={**step.options, "align": known})
    if why := job.unmeasured:
        raise ConfigError(
            f"{job.target.path}: {step.name}: the channel block of {runtime} {precision} on {job.device.name} is not "
            f"known and cannot be measured: {why}; give align, or [blocks] in the device's file"
        )
    name = f"block/{runtime}-{precision}"
    stages.setdefault(name, dataclasses.replace(channel_block.stage(runtime, precision, job.device.value), name=name))
    return dataclasses.replace(step, inputs={**step.inputs, "block": name})


def device_plugins(job: Job) -> tuple[str, ...]:
    """The plug-ins of the device: with other code of them it is measured again."""
    device = job.device.value
    return (f"transports.{device.transport}", *(f"sensors.{name}" for name in device.sensors))
