"""The description of a plug-in file, read once: each optional constant has its default here, a function may be None.

A field in lower case is the constant of that name in capitals; a field that is a Callable is the function of that name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance

    from edgecompress.core.json import Json
    from edgecompress.core.model import Artifact, Goal, Promise, Request, Status
    from edgecompress.formats.op_counts import Graph

Weights = Callable[["Artifact"], Iterator[tuple[str, "np.ndarray | None"]]]  # None: packed already
P = TypeVar("P", bound="Plugin")


@dataclass(frozen=True)
class Plugin:
    """What every plug-in and every stage of the core may declare: its requirements and its options."""

    name: str
    module: ModuleType
    requires: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    extra: str = ""
    environment: tuple[str, ...] = ()
    options: type[DataclassInstance] | None = field(default=None, metadata={"key": "Options"})


@dataclass(frozen=True)
class Step(Plugin):
    """What a stage of a plan calls: a technique, a runtime, or a stage of the core."""

    reads: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    runs_code: bool = False
    trains: bool = False
    zeros: bool = False
    writes: str = ""
    goal: Callable[[DataclassInstance], Goal | None] | None = None


@dataclass(frozen=True)
class TechniquePlugin(Step):
    """`plugins/techniques/NAME.py`; see protocols.Technique."""

    provides: str = ""
    rung: int | None = None
    on_grid: bool = False
    unrounded: Mapping[str, Json] = field(default_factory=dict)
    expand: Callable[[DataclassInstance], Sequence[tuple[str, Mapping[str, Json]]] | None] | None = None
    rungs: Callable[[Mapping[str, Json]], Sequence[tuple[str, dict[str, Json]]]] | None = None
    promises: Callable[[DataclassInstance], Promise] | None = None
    kept: Callable[[Mapping[str, Json], Sequence[Mapping[str, Json]]], dict[str, Json]] | None = None


@dataclass(frozen=True)
class RuntimePlugin(Step):
    """`plugins/runtimes/NAME.py`; see protocols.Runtime."""

    format: str = ""
    suffix: str = ""
    for_tests: bool = False
    folder: str = ""
    imports: tuple[str, ...] = ()
    simulated: str = ""
    estimates: str = ""
    opens_with: tuple[str, ...] | None = None
    not_opened: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)
    unavailable: Callable[[Mapping[str, Json]], str] | None = None
    tapped: Callable[[Request], Artifact] | None = None
    count: Callable[[Artifact, int], Graph] | None = None
    precision: Callable[[Artifact], tuple[dict[str, int], dict[str, int]]] | None = None
    weights: Weights | None = field(default=None, metadata={"key": "weights"})


@dataclass(frozen=True)
class TransportPlugin(Plugin):
    """`plugins/transports/NAME.py`; see protocols.Transport. `runtimes` is None where any may run there.

    `local`: its programs run here, need no network, and write to the folder of the stage alone. `lacking`: why no
    device can be reached from this machine, whichever it is, or "".
    """

    simulated: str = ""
    local: bool = False
    runtimes: tuple[str, ...] | None = None
    lacking: Callable[[], str] | None = None


@dataclass(frozen=True)
class SensorPlugin(Plugin):
    """`plugins/sensors/NAME.py`; see protocols.Sensor. `local`: it reads /sys and the like alone."""

    status: Status = "unavailable"
    scope: str = ""
    quantity: str = "energy"
    local: bool = False
    needs_work: bool = False
    reads_file: bool = False
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ProfilerPlugin(Plugin):
    """`plugins/profilers/NAME.py`; see protocols.Profiler."""

    lines: Callable[[Mapping[str, Json]], Sequence[str]] | None = None


@dataclass(frozen=True)
class PackagerPlugin(Plugin):
    """`plugins/packagers/NAME.py`; see protocols.Packager."""

    suffix: str = ""
    formats: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    purl: Callable[[Mapping[str, Json]], str] | None = None


KINDS: Mapping[str, type[Plugin]] = {
    "techniques": TechniquePlugin,
    "runtimes": RuntimePlugin,
    "transports": TransportPlugin,
    "sensors": SensorPlugin,
    "profilers": ProfilerPlugin,
    "packagers": PackagerPlugin,
}


def described(cls: type[P], name: str, module: ModuleType) -> P:
    """The description of a module; what it does not define keeps its default."""
    keys = {f.name: _key(f) for f in dataclasses.fields(cls) if f.name not in ("name", "module")}
    known = {name: getattr(module, key) for name, key in keys.items() if hasattr(module, key)}
    return cls(name=name, module=module, **known)


def _key(field: dataclasses.Field[object]) -> str:
    """What an author calls a field."""
    named = field.metadata.get("key")
    return str(named) if named else field.name if str(field.type).startswith("Callable") else field.name.upper()
