"""Fake machines for tests of sensors: files that follow a known power, on a clock that the test moves."""

from __future__ import annotations

import math
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgecompress.plugins.sensors import _sampler, android_odpm, joulescope, powermetrics

TICK_S = 1e-5  # what a look at the clock takes
WRITE_S = 1e-3  # the files follow at least so often


def put(file: Path, value: object) -> None:
    """As the kernel does: a reader never meets half a number."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.new")
    beside.write_text(f"{value}\n", encoding="utf-8")
    beside.replace(file)


class World:
    """A clock that only the test moves, a power over it, and the files that tell of it below `root`.

    The sampling threads of sensors are played by `advance`, in order, so that nothing depends on the machine's load.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.now_s, self.written_s = root, 1000.0, 0.0
        self.files: dict[Path, Callable[[float], object]] = {}
        self.told: dict[Path, str] = {}
        self.due: dict[Any, float] = {}  # the samplers that run, and when each samples next

        def begin(poll: Any) -> None:
            poll.now()
            self.due[poll] = self.now_s + poll._period_s

        for module in (_sampler, android_odpm, powermetrics, joulescope):
            monkeypatch.setattr(module, "time", self.clock())
        monkeypatch.setattr(_sampler._Poll, "start", begin)

    def clock(self) -> SimpleNamespace:
        """What stands in for the module `time`."""
        return SimpleNamespace(
            monotonic=self.monotonic,
            sleep=self.advance,
            CLOCK_BOOTTIME=7,
            clock_gettime=lambda _: self.now_s,
        )

    def monotonic(self) -> float:
        """The time; looking takes a moment."""
        self.now_s += TICK_S
        if self.now_s - self.written_s >= WRITE_S:
            self.write()
        return self.now_s

    def write(self) -> None:
        """Brings the files up to the time."""
        self.written_s = self.now_s
        for file, tells in self.files.items():
            text = str(tells(self.now_s))
            if self.told.get(file) != text:
                self.told[file] = text
                file.write_text(text)  # nobody reads meanwhile

    def advance(self, seconds: float, sampling: bool = True) -> None:
        """Lets time pass; without `sampling` no thread gets to run."""
        end = self.now_s + seconds
        while sampling and self.due and min(self.due.values()) <= end:
            poll = min(self.due, key=self.due.__getitem__)
            self._go(self.due[poll])
            poll.now()
            self.due[poll] += poll._period_s
        self._go(end)
        self.due = {poll: max(due, self.now_s) for poll, due in self.due.items()}

    def _go(self, moment_s: float) -> None:
        self.now_s = max(self.now_s, moment_s)
        self.write()

    def follow(self, tells: Mapping[str, Callable[[float], object]]) -> None:
        """Files, by their path below the root, that tell of the time."""
        for name, function in tells.items():
            put(self.root / name, "")
            self.files[self.root / name] = function
        self.write()

    def say(self, texts: Mapping[str, object]) -> None:
        """Files that stay as they are."""
        for name, value in texts.items():
            put(self.root / name, value)


# --------------------------------------------------------------------------- a known power


def watts(now_s: float) -> float:
    """The power of the fake machine: it rises and falls between 3 and 9 W, and drifts."""
    return 6 + 3 * math.sin(now_s) + 0.01 * (now_s - 1000)


def joules(begin_s: float, end_s: float) -> float:
    """What it used between two moments."""
    whole = 6 * (end_s - begin_s) + 3 * (math.cos(begin_s) - math.cos(end_s))
    return whole + 0.005 * ((end_s - 1000) ** 2 - (begin_s - 1000) ** 2)


def slow_watts(now_s: float) -> float:
    """A power that a slow gauge can follow."""
    return 5 + 0.02 * (now_s - 1000)


def slow_joules(begin_s: float, end_s: float) -> float:
    """What that used between two moments."""
    return 5 * (end_s - begin_s) + 0.01 * ((end_s - 1000) ** 2 - (begin_s - 1000) ** 2)


def counted(share: float = 1.0, first_uj: int = 1000, wrap_uj: int | None = None, update_s: float = 1e-4) -> Any:
    """A counter of a share of the power, in whole microjoules; it steps each `update_s`, and wraps after `wrap_uj`."""

    def tells(now_s: float) -> int:
        stepped_s = math.floor(now_s / update_s) * update_s
        value = first_uj + int(1e6 * share * joules(1000.0, stepped_s))
        return value if wrap_uj is None else value % (wrap_uj + 1)

    return tells


def scaled(unit: float, share: float = 1.0) -> Callable[[float], int]:
    """The power in a unit (1e6: microwatts), as a whole number."""
    return lambda now_s: round(unit * share * watts(now_s))


# --------------------------------------------------------------------------- who may read


@contextmanager
def nobody() -> Iterator[Path]:
    """A root folder, and a process that is not root while the block lasts; who is not root already stays that."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Real permissions: root may read everything, so it becomes somebody else for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


# --------------------------------------------------------------------------- real time


@contextmanager
def running(*steps: Callable[[], None], each_s: float = 0.002) -> Iterator[None]:
    """Calls the steps again and again in a thread while the block lasts."""
    ended = threading.Event()

    def turn() -> None:
        while not ended.wait(each_s):
            for step in steps:
                step()

    thread = threading.Thread(target=turn)
    switched_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)  # a self-test that computes would keep the thread waiting 5 ms for each file
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sys.setswitchinterval(switched_s)
