"""The protocols of the plug-ins, one for each kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from edgecompress.core.model import Artifact, Measured, Request, Status

if TYPE_CHECKING:
    import numpy as np
    from _typeshed import DataclassInstance

    from edgecompress.core.json import Json
    from edgecompress.packaging.contents import Contents, PackageCheck

# --------------------------------------------------------------------------- plug-ins: a module per name


class Technique(Protocol):
    """`plugins/techniques/NAME.py`: one way to compress. `Options`: a frozen dataclass. `PROVIDES`: what users ask for.

    NEEDS, besides the model: "samples" (calibrate, select, test), "dense" (the source itself, before any compression),
    "training" (samples of the split "train", of which there may be none).

    It may have `TRAINS = True`: it changes weights, and never how fast the net is; `ZEROS = True`: it leaves zeros, and
    what they save as bytes is told (it REQUIRES zstandard then); `expand(options)`: the steps, as
    (technique, options), that one step of a recipe stands for, or None; and, where its strength may be found by
    measuring, `goal(options) -> Goal | None` and `cells(request)`, as pipeline.searches.strength asks for them.

    Where it leaves weights of a precision, `promises(options) -> Promise` says which: an artifact that verify reads
    otherwise is lost.

    For the accuracy guard it may have `rungs(options) -> [(label, options)]`: what else its own calibration can do;
    `kept(options, layers) -> options`: those layers of a diagnosis in higher precision; on nets, `RUNG`: its place on
    the ladder (where it finds nothing to do its artifact is "lost", with the reason), and `ON_GRID = True`: it leaves
    weights that training would have to leave again; `UNROUNDED`: its options where one of those follows it.
    """

    REQUIRES: tuple[str, ...]
    READS: tuple[str, ...]
    WRITES: str
    PROVIDES: str
    NEEDS: tuple[str, ...]
    Options: type

    def apply(self, request: Request) -> Artifact:
        """Fills `request.out` with an artifact of kind WRITES; inputs: "model", and what NEEDS names."""


class OperatorTime(TypedDict):
    """One operator of an artifact: milliseconds per inference, and where it runs."""

    name: str
    type: str
    ms: float
    where: str


class OperatorTimes(TypedDict):
    """The operators of an artifact, why there are no times (""), and the names of those that left the accelerator."""

    ops: list[OperatorTime]
    why: str
    fallback: list[str] | None


class Arena(TypedDict):
    """Bytes that a runtime plans for activations, None with the reason; the largest tensor where most are held."""

    arena_bytes: int | None
    arena_reason: str
    arena_peak: str


class Session(Protocol):
    """An opened artifact. Inputs and outputs have the names of the artifact's specs.

    It may have `arena() -> Arena`; else its runtime may say in `NO_ARENA` why nothing is known of it.
    """

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """The operators of a session made for profiling.

        Of another session, with no inputs and no runs: no times, and `fallback` where the file alone tells it, else
        None.
        """

    def close(self) -> None:
        """Releases its resources."""


class Traced(Session, Protocol):
    """An optional method of a session, with which verify names the operator at which an artifact changed."""

    def trace(self, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
        """(name, type, array) of each operator's output of one inference, in the order in which they are computed."""


class Runtime(Protocol):
    """`plugins/runtimes/NAME.py`: one inference engine and its FORMAT (a kind).

    It may have `OPTIONAL`: the distributions that `export` needs for some sources only; where one is missing, `export`
    raises MissingDependency. `OPENS_WITH`: the distributions that `open` needs, the engine first, numpy left out; they
    have wheels for boards. Without it no board package carries the runtime.

    It may have `NOT_OPENED`: why the check of a package opens no such model of a stranger's; for a
    format that formats/ does not read, `count(artifact, batch)`: the operators of one run, an op_counts.Graph, and
    `weights(artifact)`: (name, array) of each constant of two or more axes as the file has it, [filters, channels,
    *kernel] or [rows, columns], whole numbers less their zero point, None in the place of a packed one;
    `precision(artifact)`: bytes of the weights by precision and the number of operators that multiply by what they
    compute in, as formats.precision has them; StageFailed, with the reason, where the file does not tell.

    It may have `SETTINGS`: names and values of what a session is opened with, beside its threads. They become part of
    each artifact of its format (facts["settings"]), and `open` applies what it finds there: nothing but the engine's
    own defaults where that is empty. A session may tell `in_effect`: the values that the engine then has.

    It may have `empty(folder) -> Artifact`: the smallest model that it opens, written without a library: what a call
    costs without a net is measured with it; else it may say in `NO_EMPTY` why there is none.

    It may have `tapped(request) -> Artifact`: the input "model" with the answers of its layers as further outputs, its
    own ones first and unchanged. facts["taps"], in the order of computing: "output" (a spec's name), "operator" and
    "type" as the format has them, "dtype" as it is held, "layout" ("NHWC" or ""), "module" (of the torch net, or "").

    `FOR_TESTS = True`: its files are for tests alone, and no error offers their suffix.
    """

    REQUIRES: tuple[str, ...]
    FORMAT: str
    READS: tuple[str, ...]  # kinds that `export` turns into FORMAT
    SUFFIX: str  # file suffix of a source this runtime can read itself, or ""

    def export(self, request: Request) -> Artifact:
        """The input "model" (a kind of READS) as FORMAT."""

    def read(self, request: Request) -> Artifact:
        """The user's file `request.options["path"]` checked and copied: a source of kind FORMAT."""

    def open(self, artifact: Artifact, threads: int, profile: bool = False) -> Session:
        """A session; `profile` makes one whose `ops` works."""


Run = Callable[[Mapping[str, "np.ndarray"]], Mapping[str, "np.ndarray"]]  # one inference
DEADLINE = 124  # the code of a program that was ended at its deadline, as timeout(1) has it


class Shell(Protocol):
    """A device to run things on. Each call raises Unreachable when the device does not answer."""

    @property
    def here(self) -> bool:
        """Whether it is this machine: its paths are ours, and so are its Python and its libraries."""

    def push(self, path: Path) -> str:
        """Copies a file or folder to the device, for reading, and returns its path there; an existing copy is used."""

    def scratch(self, path: Path) -> str:
        """Copies a folder to the device for one run, which may write into it; `discard` removes it."""

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """Runs a command with its output in `log`; returns its exit code, or DEADLINE if it had to be killed."""

    def pull(self, there: str, path: Path) -> None:
        """Copies a file or folder from there."""

    def discard(self, there: str) -> None:
        """Removes what `scratch` made."""

    def facts(self) -> Mapping[str, Any]:
        """What `machine.facts` tells of it, and "python": the command there that runs an agent."""

    def close(self) -> None:
        """Ends the connection and all processes that still run there."""


class Transport(Protocol):
    """`plugins/transports/NAME.py`: how to reach a device. `SIMULATED`: what stands in for hardware there (no latency).

    `RUNTIMES`: those that it carries, where it is known beforehand. `lacking() -> str`: what this machine lacks to
    reach any device, or "".
    """

    def unavailable(self, device: Mapping[str, Any]) -> str:
        """Why the device cannot be reached now, or "". Takes five seconds at most."""

    def connect(self, device: Mapping[str, Any]) -> Shell:
        """Raises Unreachable, or InputError for options that are wrong."""


class Meter(Protocol):
    """An opened sensor of energy. Times are `time.monotonic()` seconds.

    It may offer `samples() -> [(t_s, watts)]` since `start`: the trace of power in the report.
    """

    def start(self) -> None: ...

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments since `start`."""

    def stop(self) -> None: ...


class Counter(Protocol):
    """An opened sensor of QUANTITY "instructions"."""

    def count(self, act: Callable[[], object]) -> Mapping[str, int]:
        """Runs `act`; returns its "instructions" and the number in each class."""


class Windows(TypedDict, total=False):
    """How to measure, as plain data: the numbers of settings.Profile that a device gets."""

    warmup_s: float
    warmup_runs: int
    warmup_tolerance: float
    warmup_cap_s: float
    windows: int
    window_s: float
    window_runs: int
    energy_windows: int
    energy_window_s: float
    idle_s: float
    ops_runs: int
    count_runs: int


class StartTimes(TypedDict):
    """Milliseconds of a fresh process: import of the runtime, load, first and second inference."""

    import_ms: float
    load_ms: float
    first_ms: float
    second_ms: float


class WarmUp(TypedDict):
    """How a warm-up ended: whether the latency was steady, after how long; the median of each of its blocks."""

    warm: bool
    warmup_s: float
    warmup_runs: int
    warmup_blocks_ms: list[float]


class Subject(Protocol):
    """An artifact on its device, as profilers get it."""

    model: Artifact
    profile: Windows
    batch: int
    threads: int
    out: Path
    root: Path  # below which /sys and /proc are read

    def open(self, profile: bool = False) -> Session:
        """A new session; `profile` makes one whose `ops` works."""

    def start(self) -> StartTimes:
        """The times of a process of its own."""

    def inputs(self, batch: int | None = None) -> list[dict[str, np.ndarray]]:
        """Batches of real inputs, in memory."""

    def timed(
        self,
        run: Callable[[Mapping[str, np.ndarray]], object],
        inputs: Sequence[Mapping[str, np.ndarray]],
        seconds: float,
        runs: int,
    ) -> Sequence[int]:
        """Nanoseconds of each run, for at least `seconds` and `runs`."""

    def warm_up(
        self, run: Callable[[Mapping[str, np.ndarray]], object], inputs: Sequence[Mapping[str, np.ndarray]]
    ) -> WarmUp:
        """Runs as the profile says until the latency is steady."""

    def meter(self) -> tuple[Meter | None, str]:
        """The first energy sensor of the device that can be read, not started; or why there is none."""


class Profiler(Protocol):
    """`plugins/profilers/NAME.py`: one more profile of an artifact on its device. `Options`: a frozen dataclass."""

    REQUIRES: tuple[str, ...]
    Options: type

    def estimate_s(self, options: DataclassInstance) -> float:
        """Seconds it takes, roughly."""

    def measure(self, subject: Subject, options: DataclassInstance) -> Mapping[str, Json]:
        """Measures; returns the result as JSON."""

    def lines(self, answer: Mapping[str, Json]) -> list[str]:
        """The result of `measure` in a few lines of text."""


class Packager(Protocol):
    """`plugins/packagers/NAME.py`: wraps what a deploy shipped for an app. Templates: `packagers/templates/NAME/`.

    `Options` is a frozen dataclass, as a technique's. What every package has (the card and the bill of materials at its
    root, SHA256SUMS, the archive's fixed order and times, signatures) is not its business but `packaging`'s.
    """

    REQUIRES: tuple[str, ...]
    EXTRA: str
    SUFFIX: str  # of the file it becomes: ".zip" or ".tar.gz"
    FORMATS: tuple[str, ...]  # kinds of artifacts that it wraps

    def build(self, contents: Contents, root: Path) -> None:
        """Writes the package's tree into the empty folder `root`; `contents` is a packaging.contents.Contents.

        The same contents give the same bytes. Raises InputError for options that do not do, MissingDependency for a
        tool that is not there.
        """

    def code(self, contents: Contents, root: Path, package: Path) -> None:
        """Writes the package's code alone into `root`, for the opened `package`: what `package verify` compares."""

    def payload(self, root: Path, work: Path) -> Path:
        """Where an opened package has its payload; it may be unpacked into the empty folder `work`.

        Raises InputError for a package that has none.
        """

    def checks(self, root: Path, card: Mapping[str, Any], work: Path) -> Iterator[PackageCheck]:
        """What only packages of this kind have to keep: a packaging.contents.PackageCheck each. Nothing is executed."""


class Sensor(Protocol):
    """`plugins/sensors/NAME.py`: one physical or modelled quantity. `QUANTITY`: "energy" where it is not named.

    `NEEDS_WORK = True`: its device has "work", of an inference (op_counts.total). `READS_FILE = True`: it goes by
    the file that its options name.
    """

    STATUS: Status
    SCOPE: str

    def unavailable(self, device: Mapping[str, Any], root: Path) -> str:
        """Why it cannot be read here, or ""."""

    def open(self, device: Mapping[str, Any], root: Path) -> Meter: ...
