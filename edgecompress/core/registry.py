"""Plug-ins by name: the file name is the plug-in's name. Listing imports nothing; entry points bring other people's."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from edgecompress.core import plugins
from edgecompress.core.errors import InputError, MissingDependency, NotFound, did_you_mean
from edgecompress.core.package_files import PACKAGE

if TYPE_CHECKING:
    from edgecompress.core.json import Json

KINDS = tuple(plugins.KINDS)
# Where the plug-ins of a kind lie, beside extras/*/KIND; those of all others: plugins/KIND.
PLACES = {
    "runtimes": ("engines/*/runtimes",),
    "techniques": ("techniques", "engines/*/techniques"),
    "commands": ("cli/commands",),
    "sections": ("reporting/sections",),
}
CONSTANT = re.compile(r"^([A-Z]+) = (\".*\"|[0-9]+)$", re.MULTILINE)

P = TypeVar("P", bound=plugins.Plugin)
_KNOWN: dict[tuple[str, str], plugins.Plugin] = {}

# --------------------------------------------------------------------------- names and modules


@cache
def _own(kind: str) -> Mapping[str, str]:
    """The plug-ins of this package by name, each with the name of its module."""
    places = (*PLACES.get(kind, (f"plugins/{kind}",)), f"extras/*/{kind}")
    files = [file for place in places for file in PACKAGE.glob(f"{place}/*.py")]
    parts = {file.stem: file.relative_to(PACKAGE.parent).with_suffix("").parts for file in files}
    return {name: ".".join(parts[name]) for name in sorted(parts) if not name.startswith("_")}


@cache
def entry_points() -> Mapping[str, list[metadata.EntryPoint]]:
    """The entry points `edgecompress.KIND` of installed distributions, by kind; read once for each process."""
    found, ours = metadata.entry_points(), "edgecompress."
    return {g.removeprefix(ours): [*found.select(group=g)] for g in found.groups if g.startswith(ours)}


def _others(kind: str) -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in entry_points().get(kind, ())}


def names(kind: str) -> list[str]:
    """Every plug-in of a kind: the files of its folders and the entry points `edgecompress.KIND`."""
    others = _others(kind)
    for name in others.keys() & _own(kind).keys():
        of = getattr(others[name].dist, "name", others[name].value)
        left_out(
            f"{kind.removesuffix('s')} '{name}' of distribution {of}: edgecompress has one of this name; rename it"
        )
    return sorted({*_own(kind), *others})


def load(kind: str, name: str) -> ModuleType:
    """The module of a plug-in; a file here wins over an entry point of the same name.

    Raises NotFound, or MissingDependency for one of another distribution that cannot be imported.
    """
    if own := _own(kind).get(name):
        return importlib.import_module(own)
    if point := _others(kind).get(name):
        return _imported(kind, point)
    raise NotFound(f"no {kind.removesuffix('s')} '{name}'{did_you_mean(name, names(kind))}")


def head(kind: str, name: str) -> dict[str, str]:
    """The constants of a plug-in's file that are plain text on one line, or numbers: read, nothing is imported.

    Empty for a plug-in of another distribution whose file is not found.
    """
    own, point = _own(kind).get(name), _others(kind).get(name)
    if own:
        file = PACKAGE.parent.joinpath(*own.split(".")).with_suffix(".py")
    else:
        try:
            spec = importlib.util.find_spec(point.value) if point else None
        except (ImportError, ValueError):
            return {}
        file = Path(spec.origin) if spec and spec.origin else Path()
    if not file.is_file():
        return {}
    return {key: value.strip('"') for key, value in CONSTANT.findall(file.read_text(encoding="utf-8"))}


def _imported(kind: str, point: metadata.EntryPoint) -> ModuleType:
    """The module of another distribution; an import error becomes one line."""
    try:
        return importlib.import_module(point.value)
    except Exception as error:
        dist = f"distribution {point.dist.name}" if point.dist else point.value
        who = f"{kind.removesuffix('s')} '{point.name}' of {dist} cannot be imported"
        raise MissingDependency(f"{who}: {_why(error, point)}") from error


def _why(error: Exception, point: metadata.EntryPoint) -> str:
    """What an import lacks, and what to do."""
    lacking = error.name if isinstance(error, ImportError) else None
    if not lacking:
        return f"{type(error).__name__}: {' '.join(str(error).split())}; correct {point.value}, or uninstall it"
    if lacking.split(".")[0] == "edgecompress":
        what = " ".join(str(error).split()) if not isinstance(error, ModuleNotFoundError) else f"no module {lacking}"
        return f"{what} in this version; update the distribution"
    if point.value.split(".")[0] == lacking.split(".")[0]:
        return f'no module {lacking}; correct its entry point, {point.name} = "{point.value}"'
    return f"no module {lacking}; run: pip install {lacking.split('.')[0]}"


def every(kind: str) -> Iterator[tuple[str, ModuleType]]:
    """Each name with its module; one of another distribution that is broken is left out, with a line why."""
    for name in names(kind):
        try:
            module = load(kind, name)
            _read(plugins.KINDS[kind], name, module)
        except InputError as error:
            left_out(str(error))
            continue
        yield name, module


@cache
def left_out(line: str) -> None:
    """Says once why a plug-in is not used."""
    print(f"edgecompress: left out: {line}", file=sys.stderr)


def call(reference: str) -> tuple[ModuleType, str]:
    """The module and function of a stage's `call`: "techniques.ptq_int8:apply" or "stages.verify:run"."""
    where, function = reference.split(":")
    kind, _, name = where.partition(".")
    return (load(kind, name) if kind in KINDS else importlib.import_module(f"edgecompress.{where}")), function


# --------------------------------------------------------------------------- what they say of themselves


def technique(name: str) -> plugins.TechniquePlugin:
    """The description of a technique; raises as `load` does, like those below."""
    return _described(plugins.TechniquePlugin, "techniques", name)


def runtime(name: str) -> plugins.RuntimePlugin:
    """The description of a runtime."""
    return _described(plugins.RuntimePlugin, "runtimes", name)


def transport(name: str) -> plugins.TransportPlugin:
    """The description of a transport."""
    return _described(plugins.TransportPlugin, "transports", name)


def sensor(name: str) -> plugins.SensorPlugin:
    """The description of a sensor."""
    return _described(plugins.SensorPlugin, "sensors", name)


def profiler(name: str) -> plugins.ProfilerPlugin:
    """The description of a profiler."""
    return _described(plugins.ProfilerPlugin, "profilers", name)


def packager(name: str) -> plugins.PackagerPlugin:
    """The description of a packager."""
    return _described(plugins.PackagerPlugin, "packagers", name)


def command(name: str) -> plugins.CommandPlugin:
    """The description of a command."""
    return _described(plugins.CommandPlugin, "commands", name)


def techniques() -> list[plugins.TechniquePlugin]:
    """Every technique that can be imported."""
    return [technique(name) for name, _ in every("techniques")]


def runtimes() -> list[plugins.RuntimePlugin]:
    """Every runtime that can be imported, ours before those of other distributions."""
    return [runtime(name) for name, _ in sorted(every("runtimes"), key=lambda each: each[0] not in _own("runtimes"))]


def sensors() -> list[plugins.SensorPlugin]:
    """Every sensor that can be imported."""
    return [sensor(name) for name, _ in every("sensors")]


def packagers() -> list[plugins.PackagerPlugin]:
    """Every packager that can be imported."""
    return [packager(name) for name, _ in every("packagers")]


def sections() -> list[plugins.SectionPlugin]:
    """Every section of the report, in their order."""
    found = [_described(plugins.SectionPlugin, "sections", name) for name, _ in every("sections")]
    return sorted(found, key=lambda section: section.order)


def of_format(kind: str) -> list[plugins.RuntimePlugin]:
    """The runtimes of a format; of what several tell, the first one's word counts."""
    return [each for each in runtimes() if each.format == kind]


def readers(kind: str) -> tuple[str, ...]:
    """What a stage that reads files of a format depends on, for `Stage.plugins`."""
    return tuple(f"runtimes.{each.name}" for each in of_format(kind))


def settings_of(kind: str) -> Mapping[str, Json]:
    """The settings by which sessions of a format are opened; none where its runtimes have none."""
    return next((each.settings for each in of_format(kind) if each.settings), {})


def step(reference: str) -> plugins.Step:
    """The description of what a stage calls: of a technique, a runtime, or a stage of the core."""
    kind, _, name = reference.split(":")[0].partition(".")
    if kind == "techniques":
        return technique(name)
    return runtime(name) if kind == "runtimes" else _read(plugins.Step, name, call(reference)[0])


def _described(cls: type[P], kind: str, name: str) -> P:
    return _read(cls, name, load(kind, name))


def _read(cls: type[P], name: str, module: ModuleType) -> P:
    """Read once for each module."""
    known = _KNOWN.get((cls.__name__, name))
    if not isinstance(known, cls) or known.module is not module:
        known = plugins.described(cls, name, module)
        _KNOWN[cls.__name__, name] = known
    return known
