"""What the functions of plug-ins give and get: sessions, shells, meters, subjects; the kinds are in core.plugins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

from edgecompress.core.model import Artifact, Measured

if TYPE_CHECKING:
    import numpy as np


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
    """An opened artifact; plugins.OpenedSession is what it may have besides.

    Inputs and outputs have the names of the artifact's specs.
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


Change = Callable[["np.ndarray"], "np.ndarray"]  # of a weight as [filters, channels, *kernel] or [rows, columns]


class ChangeableNet(Protocol):
    """A net whose weights have the names of their layers: "conv1" for conv1.weight, the whole name for any other."""

    @property
    def layers(self) -> Sequence[str]:
        """Those that have a weight of two or more axes."""

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference with the weights as they are now."""

    def changed(self, layer: str, change: Change) -> AbstractContextManager[None]:
        """A context within which the weight of a layer is what `change` makes of it."""


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


class Meter(Protocol):
    """An opened sensor of energy; plugins.OpenedMeter is what it may have besides.

    Times are `time.monotonic()` seconds.
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


class TimedWindow(TypedDict):
    """Runs of a session, one after the other."""

    n: int
    window_s: float
    median_ms: float


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

    def at_once(
        self, sessions: int, seconds: float, runs: int
    ) -> AbstractContextManager[Callable[[], Sequence[TimedWindow]]]:
        """So many warm sessions, each in a process of its own. A call gives the window that each ran meanwhile."""

    def meter(self) -> tuple[Meter | None, str]:
        """The first energy sensor of the device that can be read, not started; or why there is none."""
