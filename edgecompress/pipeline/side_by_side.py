"""Steps of a plan side by side: several that build at once; what measures or trains has the machine to itself."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Stage, Substitute

JOBS = "EDGECOMPRESS_JOBS"  # in the environment: what --jobs is where it is not given
MOST = 4  # steps at once, as a rule: beyond, the longest one decides
LIBRARIES_BYTES = 2 << 30  # of a stage that converts a small model: torch and a converter
COPIES = 8  # of its inputs that a stage may hold, roughly
PATIENCE_S = 5.0  # for those that were told to stop

Step = Stage | Substitute


def usual() -> int:
    """How many steps run at once where no option says so: EDGECOMPRESS_JOBS, else the processors, and MOST at most.

    Raises InputError.
    """
    if given := os.environ.get(JOBS):
        if not given.isdecimal() or not int(given):
            raise InputError(f"{JOBS}={given}: give a number of stages, at least 1")
        return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST)


@dataclass
class Turns:
    """Who may work: any number that build, or one alone. Who waits to be alone comes before who would build."""

    _changed: threading.Condition = field(default_factory=threading.Condition)
    _building: int = 0
    _alone: bool = False
    _waiting: int = 0

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Waits while something works alone, or is about to."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._alone or self._waiting))
            self._building += 1
        try:
            yield
        finally:
            with self._changed:
                self._building -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Waits until nothing else works."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not (self._alone or self._building))
                self._alone = True
            finally:
                self._waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


@dataclass(frozen=True)
class SideBySide:
    """Runs steps when what they need is done: `jobs` at once, one where no other `fits` beside it."""

    do: Callable[[Step], object]
    fits: Callable[[Step], bool]
    stop: Callable[[], None]  # ends those that work
    jobs: int
    _works: dict[str, threading.Thread] = field(default_factory=dict)
    _due: queue.SimpleQueue[Callable[[], object]] = field(default_factory=queue.SimpleQueue)

    @property
    def working(self) -> int:
        """How many steps run now."""
        return len(self._works)

    def later(self, call: Callable[[], object]) -> None:
        """Has the thread that waits for the steps call something: a listener hears all from one thread."""
        self._due.put(call)

    def run(self, steps: Sequence[Step]) -> None:
        """Runs all of them. Raises the first error of `do`, or of this thread (Ctrl-C), after the others ended."""
        todo = list(steps)
        try:
            while todo or self._works:
                for step in _ready(steps, todo, self._works):
                    if len(self._works) < self.jobs and (not self._works or self.fits(step)):
                        todo.remove(step)
                        self._works[step.name] = threading.Thread(target=self._work, args=(step,), daemon=True)
                        self._works[step.name].start()
                self._due.get()()
        except BaseException:
            self.stop()
            for thread in self._works.values():
                thread.join(PATIENCE_S)
            raise

    def _work(self, step: Step) -> None:
        broke: BaseException | None = None
        try:
            self.do(step)
        except BaseException as error:  # raised by who waits
            broke = error

        def ended() -> None:
            self._works.pop(step.name).join()
            if broke:
                raise broke

        self.later(ended)


def _ready(steps: Sequence[Step], todo: Sequence[Step], works: Collection[str]) -> Iterator[Step]:
    """The steps that wait for no other. A search waits for all that everything depends on, too: it asks for more."""
    pending = {*works, *(step.name for step in todo)}
    front = {step.name for step in steps if isinstance(step, Stage) and not step.variants}
    for step in list(todo):
        needs = {*step.inputs.values()} | (set() if isinstance(step, Stage) else front)
        if pending.isdisjoint(needs):
            yield step


def room(inputs: Iterable[Artifact]) -> bool:
    """Whether the memory that is free is enough for a stage with these inputs, beside those that work."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) << 10
        return free > LIBRARIES_BYTES + COPIES * sum(artifact.size_bytes for artifact in inputs)
    return False  # nobody tells
