"""The request: source, target, device and profile with every `--set` applied, each value with its origin."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack, cast

from edgecompress.core import catalog, extras, plain_file, registry
from edgecompress.core import source as sources
from edgecompress.core.catalog import Found, FoundSource, Setting
from edgecompress.core.errors import ConfigError, InputError, NotFound, Unreachable, blamed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Context, sha256_of
from edgecompress.core.settings import MOST_THREADS, Device, Profile, Target, Variant
from edgecompress.core.source import ResolvedSource
from edgecompress.pipeline import conversion
from edgecompress.pipeline.job_request import How, Model, Name, Threads, checked, default, device_of

TARGETS = ("variant", "limits", "guard", "search")  # tables of a target that `--set` names without it
RUN_FLAGS = ("threads", "batch", "seed")
SOURCE_FLAGS = ("data", "metric", "samples")
ANY = "any"  # a platform that is not known yet
ALL = "all"  # threads: as many as the device has cores
LARGEST = 1 << 30  # bytes of a file that a sensor goes by
Asks = Callable[[str, Mapping[str, Json]], dict[str, Json]]  # a device by its name and its file's content, its facts
STABLE_FACTS = (
    "cpu",
    "cores",
    "features",
    "os",
    "machine",
    "emulator",
)  # of a device: what makes measurements comparable


@dataclass(frozen=True)
class Job:
    """The effective configuration of one run."""

    source: FoundSource
    target: Found[Target]
    device: Found[Device]
    profile: Found[Profile]
    context: Context
    only: tuple[str, ...] = ()

    @property
    def at_hand(self) -> bool:
        """Whether the target is for this device: only then its measurements rank the variants."""
        return runs_on(self.target, str(self.context.device["platform"]))

    @property
    def unmeasured(self) -> str:
        """Why nothing is measured, or ""."""
        if self.at_hand:
            target = self.target.value
            stand_ins = [registry.runtime(each.runtime or target.runtime).simulated for each in target.variant]
            return f"{stand_ins[0]} stands in for {self.device.name}" if all(stand_ins) else ""
        runs_on = " or ".join(self.target.value.platforms)
        return f"this machine is {self.context.device['platform']}, the target runs on {runs_on}"

    @cached_property
    def resolved(self) -> ResolvedSource:
        """The source with its kind; raises InputError for a model that no runtime loads."""
        return sources.resolved(self.source.value)

    @property
    def path(self) -> list[str]:
        """The folders of the user's own modules: that of the source's TOML, then the working folder."""
        beside = [str(self.source.toml.resolve().parent)] if self.source.toml else []
        return [*beside, str(Path.cwd())]

    def having(self, variants: Iterable[Variant], only: tuple[str, ...] = ()) -> Job:
        """The job with other variants in its target, of which `only` are asked for; without these all are.

        Raises ValueError for two of one name, and for too many.
        """
        target = dataclasses.replace(self.target.value, variant=tuple(variants))
        return dataclasses.replace(self, target=dataclasses.replace(self.target, value=target), only=only)

    def open_axes(self, runtime: str) -> Mapping[str, Mapping[str, str]]:
        """The axes that the source keeps open, as `dynamic` has them, as far as the runtime's files do."""
        declared = self.resolved.dynamic
        if not registry.runtime(runtime).fixed:
            return declared
        batches = {name: {a: d for a, d in axes.items() if d.startswith("batch:")} for name, axes in declared.items()}
        return {name: axes for name, axes in batches.items() if axes}

    def settings(self) -> list[Setting]:
        """Every value and where it came from."""
        files = {"source": self.source, "target": self.target, "device": self.device, "profile": self.profile}
        return [
            Setting(f"{name}.{s.key}", s.value, s.origin)
            for name, parsed in files.items()
            for s in parsed.settings  # type: ignore[attr-defined]
        ]


def job(
    model: Model | None = None,
    target: Name = "x86",
    *,
    untrusted: bool = False,
    ask: Asks | None = None,
    **how: Unpack[How],
) -> Job:
    """The effective configuration of a request, whose model and data are references or paths by now.

    `untrusted`: files of ./targets, ./devices and ./profiles count only where they are named by their paths; `ask`: as
    of `context`.
    Raises InputError (ConfigError, NotFound) for a name, key or value that is wrong.
    """
    checked(how)
    asked: dict[str, Any] = {**{name: default(name) for name in How.__annotations__}, **how}
    settings, only = (
        {**(asked["settings"] or {}), **({"limits.strict": True} if asked["strict"] else {})},
        asked["only"],
    )
    laid, own = _laid(settings), not untrusted
    parsed_target = catalog.target(_name(target, "target"), laid["target"], own)
    device = device_of(asked["device"], _name(target, "target"))
    place_name = _name(device, "device") if device else _own_device(parsed_target)
    place = catalog.device(place_name, laid["device"], own)
    measured_as = catalog.profile(_name(asked["profile"], "profile"), laid["profile"], own)
    _check_names(parsed_target, place, measured_as)
    if device and not runs_on(parsed_target, place.value.platform or ANY):  # before it is reached, or built
        raise InputError(_wrong_place(parsed_target, place.name, place.value.platform))
    known = context(place.name, place.value, {"batch": asked["batch"], "seed": asked["seed"]}, ask)
    first, *others = _numbers(asked["threads"], int(known.device["cores"]))
    effective = Job(
        source=source(cast("str | None", model), settings, **{name: asked[name] for name in SOURCE_FLAGS}),
        target=parsed_target,
        device=place,
        profile=measured_as,
        context=dataclasses.replace(known, threads=first),
        only=tuple(filter(None, only.split(",") if isinstance(only, str) else only)),
    )
    if device and not effective.at_hand:
        raise InputError(_wrong_place(parsed_target, place.name, str(known.device["platform"])))
    effective = _by_precision(effective)
    return _raced(effective, others) if others else effective


def source(model: str | None, settings: Mapping[str, Json] | None, **flags: Any) -> FoundSource:
    """The source of a job, with `flags` of SOURCE_FLAGS; the model is not looked for yet. Raises InputError."""
    given = {key: value for key, value in flags.items() if value is not None}
    return catalog.source(model, {**_laid(settings or {})["source"], **given})


def _name(given: Name, what: str) -> str:
    """A name or a path as text. Raises InputError for an object that is neither."""
    try:
        return os.fsdecode(given)
    except TypeError as error:
        raise InputError(f"{what}: is a {type(given).__name__}; give a name, or the path of a TOML file") from error


def _check_names(target: Found[Target], device: Found[Device], profile: Found[Profile]) -> None:
    """Raises NotFound, with the file and the key, for a plug-in that a file names and that is not there."""
    wanted, place = target.value, device.value
    runtimes = [wanted.runtime, wanted.min_runtime, *wanted.also, *(v.runtime for v in wanted.variant)]
    for file, key, kind, names in (
        (target, "runtime", "runtimes", runtimes),
        (target, "search.runtimes", "runtimes", wanted.search.runtimes),
        (target, "package", "packagers", [wanted.package] if extras.is_here("apps") else []),
        (device, "transport", "transports", [place.transport]),
        (device, "sensors", "sensors", place.sensors),
        (profile, "profilers", "profilers", profile.value.profilers),
    ):
        for name in filter(None, names):
            if name not in registry.names(kind):
                hint = did_you_mean(name, registry.names(kind))
                raise NotFound(f"{file.path}: {key}: no {kind.removesuffix('s')} '{name}'{hint}")


def _own_device(target: Found[Target]) -> str:
    """The device that a target names: an installed one, for only the user chooses what else is connected to."""
    name = target.value.device
    if not catalog.is_installed("devices", name):
        raise InputError(
            f"target {target.name}: its device '{name}' is not an installed device; give it with --device {name}"
        )
    return name


def _numbers(threads: Threads, cores: int) -> list[int]:
    """Each number of threads once, in order. Raises InputError."""
    parts = threads.split(",") if isinstance(threads, str) else [threads] if isinstance(threads, int) else threads
    try:
        numbers = [cores if str(part).strip() == ALL else int(part) for part in parts]
    except (TypeError, ValueError):
        numbers = []
    if not numbers or min(numbers) < 1 or max(numbers) > MOST_THREADS:
        raise InputError(f"threads {threads}: give a whole number, 1 to {MOST_THREADS}, or several to race: 1,2,{ALL}")
    return list(dict.fromkeys(numbers))


def _by_precision(job: Job) -> Job:
    """The job with a variant for each name asked for that is none of its target's, but a precision that a technique
    gives the target's runtime, or RUNTIME-PRECISION of another of its runtimes."""
    target = job.target.value
    have, main, made = {v.name for v in target.variant}, target.runtime, list[Variant]()
    for runtime in dict.fromkeys((main, *(v.runtime for v in target.variant if v.runtime))):
        begin = "" if runtime == main else f"{runtime}-"
        for name in job.only:
            word = name.removeprefix(begin)
            if name not in have and name.startswith(begin) and conversion.provides(word, runtime):
                made.append(Variant(name, runtime if begin else "", ({"use": word},)))
                have.add(name)
    return job.having((*target.variant, *made), job.only) if made else job


def _raced(job: Job, others: Sequence[int]) -> Job:
    """The job with each variant but the references once more for each of `others`, behind all that there are.

    Raises InputError where nothing would decide between them.
    """
    simulated = registry.transport(job.device.value.transport).simulated
    if why := job.unmeasured or (simulated and f"{simulated} counts instructions"):
        raise InputError(f"threads: which number is fastest needs measurements, but {why}; give one number")
    asked = [v for v in job.target.value.variant if not job.only or v.name in job.only]
    own = [v for v in asked if not v.reference and v.threads is None]
    more = [dataclasses.replace(v, name=f"{v.name}-{n}-threads", threads=n) for n in others for v in own]
    only = (*job.only, *(v.name for v in more)) if job.only else ()
    try:
        return job.having((*job.target.value.variant, *more), only)
    except ValueError as error:  # too many variants, or one that is there already
        raise InputError(f"threads: {job.target.path}: {error}; give fewer numbers, or --only") from error


def runs_on(target: Found[Target], platform: str) -> bool:
    """Whether a target runs on a platform."""
    patterns = target.value.platforms
    return not patterns or platform == ANY or any(fnmatch(platform, pattern) for pattern in patterns)


def _wrong_place(target: Found[Target], device: str, platform: str) -> str:
    runs_on = " or ".join(target.value.platforms)
    return (
        f"--device {device}: it is {platform}, target {target.name} runs on {runs_on}, so its measurements cannot rank "
        f"the variants; give a device of that platform, of several targets --device {target.name}=DEVICE, or leave "
        "--device out"
    )


def _laid(settings: Mapping[str, Json]) -> dict[str, dict[str, Json]]:
    """`--set` values by the file they lie over: `profile.window_s` is the profile's `window_s`."""
    laid: dict[str, dict[str, Json]] = {"target": {}, "device": {}, "profile": {}, "source": {}}
    for key, value in settings.items():
        first, _, rest = key.partition(".")
        if first in TARGETS and rest:
            laid["target"][key] = value
        elif first == "preprocess" and rest:
            laid["source"][key] = value
        elif first in laid and rest:
            laid[first][rest] = value
        else:
            known = (*TARGETS, "preprocess", *laid)
            if first in known:
                raise ConfigError(f"--set {key}: write --set {key}.KEY=VALUE for each of its keys")
            raise ConfigError(f"--set {key}: write --set GROUP.KEY=VALUE{did_you_mean(first, known)}")
    return laid


def context(name: str, device: Device, more: Mapping[str, int | None], ask: Asks | None = None) -> Context:
    """What a run on a device may know of it; `more`: threads, batch, seed. Raises Unreachable, InputError.

    `ask`: who asks the device for its facts, where another machine than this one reaches it.
    """
    try:
        threads, batch, seed = (
            d if (value := more.get(k)) is None else int(value) for k, d in zip(RUN_FLAGS, (1, 1, 0), strict=True)
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"threads, batch and seed must be whole numbers: {error}") from error
    if threads < 1 or batch < 1 or seed < 0:
        raise InputError(
            f"threads {threads}, batch {batch}, seed {seed}: threads and batch must be at least 1, the seed at least 0"
        )
    plain = dataclasses.asdict(device)
    del plain["blocks"]  # they choose widths, and change nothing of what is measured
    if device.unreachable:
        raise Unreachable(f"{name}: {device.unreachable}")
    host = facts_of("host", {"transport": "host"})
    try:
        facts = host if device.transport == "host" and not ask else (ask or facts_of)(name, plain)
    except InputError as error:
        raise InputError(f"device {name}: {error}") from error
    plain["cores"] = device.cores or facts.get("cores") or os.cpu_count()
    plain["platform"] = device.platform or facts.get("platform") or ""
    known = {**plain, "here": facts["here"], "fingerprint": stable(facts), "files": _files(device)}
    return Context(seed, threads, batch, known, stable(host))


def facts_of(_name: str, device: Mapping[str, Json]) -> dict[str, Json]:
    """What a device, by the content of its file, tells of itself. Raises Unreachable, InputError."""
    shell = registry.load("transports", str(device["transport"])).connect(device)
    try:
        return {**shell.facts(), "here": shell.here}
    finally:
        shell.close()


def _files(device: Device) -> dict[str, str]:
    """The sha256 of each file that a sensor goes by (READS_FILE): another trace or calibration gives other results.

    Raises InputError for what is no regular file, or too large.
    """
    sensors = [name for name in device.sensors if registry.sensor(name).reads_file]
    named = [Path(str((device.options.get(name) or {}).get("file", ""))) for name in sensors]
    try:
        for path in filter(os.path.lexists, named):
            plain_file.check(path, LARGEST)
        return {str(path): sha256_of(path) for path in named if path.is_file()}
    except OSError as error:
        raise blamed(error)(f"device {device.description!r}: a sensor's file cannot be read: {error}") from error


def stable(facts: Mapping[str, Json]) -> dict[str, Json]:
    """Of the facts of a machine those that make measurements comparable."""
    return {k: facts[k] for k in STABLE_FACTS if k in facts}
