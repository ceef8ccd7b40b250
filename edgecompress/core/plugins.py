"""The description of a plug-in of each kind: what its file must define, what it may define, and the defaults.

A field in lower case is the constant of that name in capitals; a field that is a Callable is the function of that name.
Below each field stands what it means: CONTRIBUTING.md has these sentences in its tables; the conformance suite holds a
plug-in to the fields. `described` builds a description from a module's constants and functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    from argparse import Namespace

    import numpy as np
    from _typeshed import DataclassInstance

    from edgecompress.core.json import Json
    from edgecompress.core.model import Artifact, Goal, Promise, Request, Status
    from edgecompress.core.model_card import Card
    from edgecompress.core.operations import Foreseen, Kernels, Operation
    from edgecompress.core.operator_graph import Graph
    from edgecompress.core.package_contents import Contents, PackageCheck
    from edgecompress.core.protocols import Arena, ChangeableNet, Counter, Meter, Session, Shell, Subject
    from edgecompress.core.settings import Knob

    Report: TypeAlias = Any  # of reporting, which is above: reporting.model.Report and so on
    ReportRequest: TypeAlias = Any
    TextTable: TypeAlias = Any
    Figure: TypeAlias = Any

P = TypeVar("P", bound="Plugin")
Options: TypeAlias = Any  # an instance of a plug-in's own class of that name
STABLE, EXPERIMENTAL = "stable", "experimental"
PLAIN: Mapping[str, type] = {kind.__name__: kind for kind in (bool, int, str)}  # types of constants that are checked
APPLIED = {"beside": "apply"}  # of a field that only what has an `apply` can have


@dataclass(frozen=True)
class Plugin:
    """What every plug-in and every stage of the core may declare."""

    name: str
    module: ModuleType
    _: KW_ONLY
    requires: tuple[str, ...] = ()
    """The distributions that it needs, each with its least version where one is known."""
    optional: tuple[str, ...] = ()
    """Those that it needs for some sources only; where one is missing there, it raises MissingDependency."""
    extra: str = ""
    """The extra of pyproject.toml that installs them."""
    licence: str = ""
    """Whose licence binds who installs them, where they are not free software."""
    environment: tuple[str, ...] = ()
    """Pinned requirements that conflict with ours: its agent then runs in an environment of its own."""
    options: type[DataclassInstance] | None = field(default=None, metadata={"key": "Options"})
    """A frozen dataclass of its options; each has a default, and a comment that the reference shows."""


@dataclass(frozen=True, kw_only=True)
class Step(Plugin):
    """What a stage of a plan calls: a technique, the export of a runtime, or a stage of the core."""

    reads: tuple[str, ...] = ()
    """The kinds of artifacts that it takes."""
    needs: tuple[str, ...] = ()
    """What it takes besides the model: "samples" (calibrate, select, test), "dense" (the source before any
    compression), "training" (samples of the split "train", of which there may be none)."""
    runs_code: bool = False
    """Loading what it reads runs its author's code."""
    trains: bool = field(default=False, metadata=APPLIED)
    """It changes weights, and never how fast the net is."""
    zeros: bool = field(default=False, metadata=APPLIED)
    """It leaves zeros; what they save as bytes is told where zstandard is there."""
    writes: str = field(default="", metadata=APPLIED)
    """The kind that it makes."""
    goal: Callable[[Options], Goal | None] | None = field(default=None, metadata=APPLIED)
    """What its strength is to reach where a search may find it, by its options; None: it is given."""


@dataclass(frozen=True, kw_only=True)
class TechniquePlugin(Step):
    """One way to compress."""

    reads: tuple[str, ...] = field()
    """The kinds of artifacts that it compresses."""
    writes: str = field()
    provides: str
    """What users ask for: several techniques may provide one thing, each on kinds of its own."""
    synonyms: tuple[str, ...] = ()
    """Other words that mean it."""
    stability: str = STABLE
    """"stable", or "experimental": what may change or go with the next version."""
    needs: tuple[str, ...] = field()
    options: type[DataclassInstance] = field(metadata={"key": "Options"})
    apply: Callable[[Request], Artifact]
    """Fills `request.out` with an artifact of kind WRITES; inputs: "model", and what NEEDS names."""
    file_options: tuple[str, ...] = ()
    """Its options that name files of the user's: in a target's file they are relative to its folder."""
    expand: Callable[[Options], Sequence[tuple[str, Mapping[str, Json]]] | None] | None = None
    """The steps, as (technique, options), that one step of a recipe stands for, or None."""
    cells: Callable[[Request], Artifact] | None = None
    """The strengths that are worth a trial, as pipeline.searches.strength asks for them; with `goal`."""
    pinned: Callable[[Mapping[str, Json], Mapping[str, Any]], dict[str, Json]] | None = None
    """Its options with the strength that a search found, by the facts of what was made: nothing is measured again."""
    promises: Callable[[Options], Promise] | None = None
    """The precision of the weights that it leaves: an artifact that verify reads otherwise is lost."""
    knobs: Mapping[str, Knob] = field(default_factory=dict)
    """For `search`: which of its options are worth turning, and their values (settings.Knob); one that makes the net
    smaller, or trains, is tried only if it has some. The high end of one that makes it smaller leaves most."""
    rungs: Callable[[Mapping[str, Json]], Sequence[tuple[str, dict[str, Json]]]] | None = None
    """For the accuracy guard and `search`: what else its own calibration can do, as (label, options)."""
    kept: Callable[[Mapping[str, Json], Sequence[Mapping[str, Json]]], dict[str, Json]] | None = None
    """For the accuracy guard and `search`: its options with those layers of a diagnosis in higher precision."""
    finer: Mapping[int, Callable[[Mapping[str, Json], Sequence[Mapping[str, Json]]], dict[str, Json]]] = field(
        default_factory=dict
    )
    """For a goal of bits: by the bits of a weight then, its options with those layers of a diagnosis at them. Its
    facts have "numbers" {layer: weights}, "bits", and "int8": the layers that have 8 anyhow."""
    rung: int | None = None
    """Its place on the guard's ladder, on nets; where it finds nothing to do its artifact is "lost", with the
    reason."""
    prepared: bool = True
    """The guard may prepare the net for it, by techniques that have a RUNG: their grids are those of static int8."""
    on_grid: bool = False
    """It leaves weights that training would have to leave again."""
    unrounded: Mapping[str, Json] = field(default_factory=dict)
    """Its options where one that is ON_GRID follows it."""


@dataclass(frozen=True, kw_only=True)
class RuntimePlugin(Step):
    """One inference engine, and the format of its files."""

    format: str
    """The kind of artifact that it runs."""
    reads: tuple[str, ...] = field()
    """The kinds that `export` turns into FORMAT; none where another runtime exports it."""
    export: Callable[[Request], Artifact]
    """The input "model", of a kind of READS, as FORMAT."""
    read: Callable[[Request], Artifact] | None = None
    """The user's file `request.options["path"]`, checked and copied: a source of kind FORMAT. A runtime without it
    reads no source."""
    suffix: str = ""
    """The suffix of the source files that `read` takes."""
    old_suffixes: tuple[str, ...] = ()
    """Those of older files that it takes, too."""
    open: Callable[..., Session]
    """`open(artifact, threads, profile=False)`: a session; `profile` makes one whose `ops` works."""
    unavailable: Callable[[Mapping[str, Json]], str] | None = None
    """Why this machine cannot export with these options, or ""; loads nothing."""
    folder: str = ""
    """A file that identifies a source that is a folder."""
    fixed: bool = False
    """Its files have fixed shapes, but for the batch: axes that a source keeps open get the sizes of the data's."""
    sized: bool = False
    """`read` has the input "samples" where the data is not random: axes that the source leaves open get their sizes."""
    for_tests: bool = False
    """Its files are for tests alone: no error offers their suffix."""
    imports: tuple[str, ...] = ()
    """The modules that are imported before memory and load time are measured."""
    settings: Mapping[str, Json] = field(default_factory=dict)
    """Names and values of what a session is opened with, beside its threads. They become part of each artifact of its
    format (facts["settings"]), and `open` applies what it finds there: the engine's defaults where that is empty."""
    simulated: str = ""
    """The substitute that runs its artifacts here: they are then verified, never measured."""
    estimates: str = ""
    """The tool that estimates the cycles of its artifacts, in their facts["estimate"]."""
    opens_with: tuple[str, ...] | None = None
    """The distributions that `open` needs on a board, the engine first, numpy left out; without it no board package has
    it."""
    not_opened: str = ""
    """Why `package verify` opens no such model of a stranger's."""
    no_arena: str = ""
    """Why its sessions have no `arena`."""
    empty: Callable[[Path], Artifact] | None = None
    """The smallest model that it opens, written without a library: what a call costs without a net is measured with
    it."""
    no_empty: str = ""
    """Why it has no `empty`."""
    tapped: Callable[[Request], Artifact] | None = None
    """The input "model" with the answers of its layers as further outputs, its own ones first and unchanged.
    facts["taps"], in the order of computing: "output" (a spec's name), "operator" and "type" as the format has them,
    "dtype" as it is held, "layout" ("NHWC" or ""), "module" (of the torch net, or ""); "tensor", the
    name of what it answers, where the file gives it one."""
    watched: Callable[[Request], Artifact] | None = None
    """The input "model" with all real numbers that it computes as further outputs, its own ones first and unchanged:
    what `diff` aligns. facts["values"]: [[output, value]]; facts["graph"]: its operators, as core.watched_graph has
    them."""
    foreign: Callable[[Request], Artifact] | None = None
    """The user's file or folder `request.options["path"]` of FORMAT as an artifact, for `diff`; by default `read`."""
    foreign_suffix: str = ""
    """The suffix of what `foreign` takes."""
    count: Callable[[Artifact, int], Graph] | None = None
    """The operators of one run of a batch, an op_counts.Graph: for `analyze`, the roofline and the energy model."""
    operations: Callable[[Artifact], Sequence[Operation]] | None = None
    """The operators of a file of FORMAT, in order, in the words of core.operations: for `check`."""
    alone: Callable[[Mapping[str, Json]], bool] | None = None
    """Whether with these options `export` refuses a net of which an operator would leave ACCELERATOR."""
    accelerator: str = ""
    """What in it is fast, where not all of its kernels are: `kernels` tells what that does not take."""
    kernels: Callable[[Operation, str], Kernels] | None = None
    """What it makes of an operator in a variant of a precision ("fp32", "int8", "int8-dynamic"): a table, nothing is
    built. For `check`."""
    compiled: Callable[[Artifact], Sequence[tuple[Operation, Kernels]]] | None = None
    """What its compiler made of each operator of an artifact, where that takes seconds: `check` has each variant
    compiled, with few samples, where its libraries are installed; elsewhere it goes by `kernels`."""
    foreseen: Callable[[Artifact], Foreseen] | None = None
    """What its `export` will replace and refuse in a "program", by the tables that it goes by: nothing is built. For
    `check`."""
    precision: Callable[[Artifact], tuple[dict[str, int], dict[str, int]]] | None = None
    """Bytes of the weights by precision, and the number of operators that multiply by what they compute in, as
    formats.precision has them; StageFailed, with the reason, where the file does not tell."""
    weights: Callable[[Artifact], Iterator[tuple[str, np.ndarray | None]]] | None = None
    """(name, array) of each weight of two or more axes, [filters, channels, *kernel] or [rows, columns], whole numbers
    less their zero point; None in the place of a packed one: for `analyze`."""
    stored: Callable[[Artifact], Iterator[tuple[str, np.ndarray | None]]] | None = None
    """The same in the order and layout of the file, each once, tables too: for `analyze --storage`; by default
    `weights`."""
    changeable: Callable[[Artifact, int], ChangeableNet] | None = None
    """The net, on so many threads, with weights that can be others for a while: for `analyze --sensitivity`."""


@dataclass(frozen=True)
class OpenedSession:
    """What an opened session of a runtime may have, beside `run`, `ops` and `close`."""

    arena: Callable[[], Arena] | None = None
    """Bytes that the engine plans for activations; without it, its runtime's NO_ARENA says why."""
    in_effect: Mapping[str, Json] = field(default_factory=dict, metadata={"key": "in_effect"})
    """The values that the engine has for its runtime's SETTINGS."""
    trace: Callable[[Mapping[str, np.ndarray]], Iterator[tuple[str, str, np.ndarray]]] | None = None
    """(name, type, array) of each operator's output of one inference, in the order of computing: `verify` names the
    operator at which an artifact changed with it."""


@dataclass(frozen=True, kw_only=True)
class SensorPlugin(Plugin):
    """One physical or modelled quantity."""

    status: Status
    """Whether its numbers are "measured" or "estimated"."""
    scope: str
    """What the number covers: a package, a rail, the whole board."""
    unavailable: Callable[[Mapping[str, Json], Path], str]
    """Why it cannot be read on a device, with /sys below a root, or ""."""
    open: Callable[[Mapping[str, Json], Path], Meter | Counter]
    """A meter, of QUANTITY energy, or a counter of instructions."""
    quantity: str = "energy"
    """What it tells: "energy" or "instructions"."""
    local: bool = False
    """It reads /sys and the like alone: no network, and no file of the device's options."""
    reads_file: bool = False
    """It goes by the file that its options name."""
    needs_work: bool = False
    """Its device has "work", of an inference (op_counts.total)."""
    legend: Mapping[str, str] = field(default_factory=dict)
    """What each class of instructions is, in words."""


@dataclass(frozen=True)
class OpenedMeter:
    """What an opened meter may have, beside `start`, `energy` and `stop`."""

    samples: Callable[[], Sequence[tuple[float, float]]] | None = None
    """(seconds, watts) since `start`: the trace of power in the report."""


@dataclass(frozen=True, kw_only=True)
class TransportPlugin(Plugin):
    """How to reach a device."""

    unavailable: Callable[[Mapping[str, Json]], str]
    """Why the device cannot be reached now, or "". Takes five seconds at most."""
    connect: Callable[[Mapping[str, Json]], Shell]
    """The device as a Shell. Raises Unreachable, or InputError for options that are wrong."""
    simulated: str = ""
    """What stands in for hardware there: no latency is reported."""
    local: bool = False
    """Its programs run here, need no network, and write to the folder of the stage alone."""
    carries: tuple[str, ...] | None = None
    """The distributions that it has: it runs the runtimes whose OPENS_WITH are among them, and of those without that
    the ones whose name is; None: those of the device."""
    lacking: Callable[[], str] | None = None
    """What this machine lacks to reach any device, or ""."""

    def runs(self, runtime: RuntimePlugin) -> bool:
        """Whether it has what a runtime opens its artifacts with, as far as that is known beforehand; see `carries`."""
        needed = (runtime.name,) if runtime.opens_with is None else runtime.opens_with
        return self.carries is None or {*needed} <= {*self.carries}


@dataclass(frozen=True, kw_only=True)
class ProfilerPlugin(Plugin):
    """One more profile of an artifact on its device."""

    options: type[DataclassInstance] = field(metadata={"key": "Options"})
    estimate_s: Callable[[Options], float]
    """Seconds that it takes with its options, roughly."""
    measure: Callable[[Subject, Options], Mapping[str, Json]]
    """Measures a protocols.Subject with its options; returns the result as JSON."""
    lines: Callable[[Mapping[str, Json]], Sequence[str]] | None = None
    """The result of `measure` in a few lines of text."""


@dataclass(frozen=True, kw_only=True)
class PackagerPlugin(Plugin):
    """Wraps what a deploy shipped for an app.

    What every package has (the card and the bill of materials at its root, SHA256SUMS, the archive's fixed order and
    times, signatures) is not its business but that of `extras/apps`.
    """

    suffix: str
    """Of the file that it becomes: ".zip" or ".tar.gz"."""
    formats: tuple[str, ...]
    """The kinds of artifacts that it wraps; () is all."""
    carried: tuple[str, ...]
    """Patterns of the files of others that it carries as they are."""
    options: type[DataclassInstance] = field(metadata={"key": "Options"})
    build: Callable[[Contents, Path], None]
    """Writes the package's tree into an empty folder; the same core.package_contents.Contents give the same bytes.
    Raises InputError for options that do not do, MissingDependency for a tool that is not there."""
    code: Callable[[Contents, Path, Path], None]
    """Writes the package's code alone into a folder, for the opened package: what `package verify` compares."""
    payload: Callable[[Path, Path], Path]
    """Where an opened package has its payload; it may be unpacked into the empty folder that is given. Raises
    InputError for a package that has none."""
    checks: Callable[[Path, Card, Path], Iterator[PackageCheck]]
    """What only packages of this kind have to keep: a core.package_contents.PackageCheck each. Nothing is executed.
    The card is plain data, as core.model_card types it."""
    purl: Callable[[Card], str] | None = None
    """The runtime of a card as its users install it, "pkg:maven/...", for the bill of materials."""


@dataclass(frozen=True, kw_only=True)
class CommandPlugin(Plugin):
    """One command of the command line; in a file's name `_` stands for the space between two words."""

    help: str
    """Its line in the list, on one line of the file: lists read the file, and import nothing."""
    purpose: str = "others"
    """The heading that it stands under, on one line, too."""
    order: int = 100
    """Its place under that heading."""
    stability: str = STABLE
    """"stable", or "experimental": what may change or go with the next version; on one line."""
    description: str = ""
    """What its own help says first; by default HELP."""
    examples: str = ""
    """Lines, without the name of the program."""
    arguments: tuple[Any, ...] = ()
    """A cli.arguments.Argument each."""
    common: bool = True
    """Whether it takes --json, --verbose and --quiet."""
    run: Callable[[Namespace], int] | None = None
    """Runs it; returns the exit code. Raises EdgeError."""
    commands: tuple[Any, ...] = ()
    """In the place of `run`: the commands below it, a cli.arguments.Command each."""


@dataclass(frozen=True, kw_only=True)
class SectionPlugin(Plugin):
    """One section of the report, in each of its forms.

    What it tells is data of its own, under KEY of report.json, or what a PROFILER found, or of the rest of the report.
    """

    title: str
    """Its heading."""
    order: int = 100
    """Its place among the others."""
    place: str = ""
    """The section of the core that it stands in: "memory" or "operators"; by default it is one of its own."""
    key: str = ""
    """The key of report.json that its data stand under."""
    data: Any = field(default=None, metadata={"key": "Data"})
    """The class of its data, a reporting.model.Part, or a list of one: the schema and the checks of a reader."""
    found: Callable[[Request, ReportRequest, Report], Any] | None = None
    """Its data, by what the stage of the report was given and what is in the report by then: `request.inputs` has
    "source", "samples" and "golden", and of each variant "NAME/artifact" and "NAME/verdict". Afterwards they are
    `report.rest[KEY]`."""
    profiler: str = ""
    """The profiler whose findings it shows, in the place of their words."""
    shape: Mapping[str, Json] = field(default_factory=dict)
    """What is read of the profiler's answer, in the words of reporting.profilers: others are refused."""
    tables: Callable[[Report], Sequence[TextTable]]
    """The tables of a reporting.model.Report, each a reporting.tables.TextTable; where the first is empty, so is the
    section."""
    opened: int = 1
    """How many of them stand open on the page; the others are folded."""
    figures: Callable[[Report], Sequence[Figure]] | None = None
    """Its figures, each a reporting.figure_style.Figure."""


KINDS: Mapping[str, type[Plugin]] = {
    "techniques": TechniquePlugin,
    "runtimes": RuntimePlugin,
    "transports": TransportPlugin,
    "sensors": SensorPlugin,
    "profilers": ProfilerPlugin,
    "packagers": PackagerPlugin,
    "commands": CommandPlugin,
    "sections": SectionPlugin,
}


def with_stability(line: str, stability: str) -> str:
    """A line of a list, with what the stability of its plug-in warns of."""
    return f"{line} ({EXPERIMENTAL})" if stability == EXPERIMENTAL else line


def capabilities(cls: type[DataclassInstance]) -> Mapping[str, dataclasses.Field[object]]:
    """What a description may hold, by what an author calls it."""
    return _capabilities(cls)


@cache
def _capabilities(cls: type[DataclassInstance]) -> Mapping[str, dataclasses.Field[object]]:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    told = [f for name, f in fields.items() if name not in ("name", "module")]
    return {_key(f): f for f in told if f.metadata.get("beside", f.name) in fields or cls is Step}


def required(field: dataclasses.Field[object]) -> bool:
    """Whether a plug-in must define it."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def described(cls: type[P], name: str, module: ModuleType) -> P:
    """The description of a module; what it does not define keeps its default.

    Raises InputError for one without what it must define.
    """
    known = {f.name: getattr(module, key) for key, f in capabilities(cls).items() if hasattr(module, key)}
    if lacking := [key for key, f in capabilities(cls).items() if required(f) and f.name not in known]:
        raise InputError(f"plug-in '{name}' ({module.__name__}) defines no {', '.join(lacking)}; see CONTRIBUTING.md")
    for key, f in capabilities(cls).items():
        kind = PLAIN.get(str(f.type))
        if kind and f.name in known and not isinstance(known[f.name], kind):
            what = f"{key} is {known[f.name]!r}, and is to be of type {kind.__name__}"
            raise InputError(f"plug-in '{name}' ({module.__name__}): {what}; see CONTRIBUTING.md")
    return cls(name=name, module=module, **known)


def _key(field: dataclasses.Field[object]) -> str:
    """What an author calls a field."""
    named = field.metadata.get("key")
    return str(named) if named else field.name if is_function(field) else field.name.upper()


def is_function(field: dataclasses.Field[object]) -> bool:
    """Whether a plug-in defines it as a function."""
    return str(field.type).startswith("Callable")
