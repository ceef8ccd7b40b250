"""Plug-ins by name: the file name is the plug-in's name. Listing imports nothing; entry points bring other people's."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType

from edgecompress.errors import NotFound, did_you_mean

KINDS = ("techniques", "runtimes", "transports", "sensors", "passes", "packages")
ROOT = Path(__file__).parent


@cache
def _own(kind: str) -> tuple[str, ...]:
    return tuple(sorted(p.stem for p in (ROOT / kind).glob("*.py") if not p.stem.startswith("_")))


@cache
def _others(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"edgecompress.{kind}")}


def names(kind: str) -> list[str]:
    """Every plug-in of a kind: the files of its folder and the entry points `edgecompress.KIND`."""
    return sorted({*_own(kind), *_others(kind)})


def load(kind: str, name: str) -> ModuleType:
    """The module of a plug-in; a file here wins over an entry point of the same name. Raises NotFound."""
    if name in _own(kind):
        return importlib.import_module(f"edgecompress.{kind}.{name}")
    if name in _others(kind):
        return importlib.import_module(_others(kind)[name].value)
    one = "pass" if kind == "passes" else kind.removesuffix("s")
    raise NotFound(f"no {one} '{name}'{did_you_mean(name, names(kind))}")


def every(kind: str) -> Iterable[tuple[str, ModuleType]]:
    """Each name with its module."""
    return ((name, load(kind, name)) for name in names(kind))


def call(reference: str) -> tuple[ModuleType, str]:
    """The module and function of a stage's `call`: "techniques.ptq_int8:apply" or "stages.verify:run"."""
    where, function = reference.split(":")
    kind, _, name = where.partition(".")
    return (load(kind, name) if kind in KINDS else importlib.import_module(f"edgecompress.{where}")), function
