"""Meters that read a sensor while work runs: cumulative counters, and power sampled in a thread. Standard library."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Measured, Status
from edgecompress.plugins.sensors._counter import Curve, Reading, measured, no_energy

if TYPE_CHECKING:
    from edgecompress.core.json import Json

K = TypeVar("K")

SELF_TEST_S = 0.25
BUSY_S = 0.002  # between two looks of the self-test
QUICKEST_S = 0.02  # power is never sampled faster: sampling must not slow down what it measures
POLL_S = 0.25  # of a counter, against wraps and for the trace; the edges of a window are read when `energy` is asked
PATIENCE = 5.0  # periods that a sensor has to tell of a window's end
STUCK_S, STUCK_SAMPLES = 20.0, 20  # a power that is the same number for so long is none


@dataclass(frozen=True)
class Origin:
    """Where a number is from: the sensor and its rails, and what it covers."""

    source: str
    scope: str
    status: Status = "measured"


@dataclass(frozen=True)
class Stamped:
    """One reading of a counter, and when it held (`time.monotonic`)."""

    moment_s: float
    microjoules: float

    @staticmethod
    def now(read: Callable[[], float]) -> Stamped:
        """A reading, stamped at the middle of the time that it took."""
        begin = time.monotonic()
        value = read()
        return Stamped((begin + time.monotonic()) / 2, value)


def options_of(device: Mapping[str, Json], sensor: str) -> Mapping[str, Any]:
    """What the device says of one sensor."""
    tables = device.get("options")
    own = tables.get(sensor) if isinstance(tables, Mapping) else None
    return own if isinstance(own, Mapping) else {}


def denied(error: OSError, allow: str) -> str:
    """Why a file may not be read, and how that can be allowed."""
    return f"not permitted to read {error.filename}: {allow}"


def moving(readers: Mapping[K, Callable[[], object]], seconds: float = SELF_TEST_S) -> set[K]:
    """Those whose value changes while we look, and compute: power moves with the load."""
    first = {name: read() for name, read in readers.items()}
    moved: set[K] = set()
    end = time.monotonic() + seconds
    while len(moved) < len(first) and time.monotonic() < end:
        pause = time.monotonic() + BUSY_S
        while time.monotonic() < pause:
            pass
        moved |= {name for name in first.keys() - moved if readers[name]() != first[name]}
    return moved


class _Poll:
    """Calls `take` now, whenever asked, and each `period_s` in a thread; remembers when it failed, and why."""

    def __init__(self, take: Callable[[], None], period_s: float) -> None:
        self._take, self._period_s = take, period_s
        self.failed: list[tuple[float, str]] = []
        self.lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self.now()
        self._thread.start()

    def now(self) -> None:
        with self.lock:
            try:
                self._take()
            except (OSError, ValueError) as error:
                self.failed.append((time.monotonic(), str(error)))

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def failure(self, begin_s: float, end_s: float) -> str:
        """Why it could not read at some moment of the window, or ""."""
        return next((why for moment, why in self.failed if begin_s <= moment <= end_s), "")

    def _run(self) -> None:
        due = time.monotonic() + self._period_s
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self.now()
            due = max(due + self._period_s, time.monotonic())


class CounterMeter:
    """Cumulative counters, read together and added up. What wraps is told by the largest value of each, or None.

    `read` gives one stamped reading per counter, or nothing while there is none. A counter may show a reading again
    until it has a newer one: a window's energy then waits for one from after its end.
    """

    def __init__(
        self,
        read: Callable[[], Sequence[Stamped]],
        wraps_uj: Sequence[float | None],
        origin: Origin,
        update_s: float,
        around: contextlib.AbstractContextManager[object] | None = None,
    ) -> None:
        self._read, self.wraps_uj, self.origin, self._update_s = read, wraps_uj, origin, update_s
        self._columns: list[tuple[list[float], list[float]]] = [([], []) for _ in wraps_uj]
        self._poll = _Poll(self._take, max(update_s, POLL_S))
        self._around, self._open = around, contextlib.ExitStack()

    def start(self) -> None:
        """Takes the first reading."""
        if self._around:
            self._open.enter_context(self._around)
        self._poll.start()

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments (`time.monotonic()`); ask at the window's end: the counters are read then."""
        self._reach(end_s)
        try:
            readings = [curve.read(begin_s, end_s, self._update_s) for curve in self._curves()]
        except ValueError as error:
            why = self._poll.failure(begin_s, time.monotonic()) or str(error)
            return no_energy(self.origin.scope, self.origin.source, why)
        joules = sum(r.joules for r in readings)
        stale_j = abs(joules) / (end_s - begin_s) * self._update_s  # an edge may see the counter's last step
        whole = Reading(joules, sum(r.bound_j for r in readings) + stale_j, readings[0].periods)
        return measured(whole, self.origin.status, self.origin.scope, self.origin.source)

    def samples(self) -> list[tuple[float, float]]:
        """Watts over time since `start`: all counters, at the times of the first one."""
        try:
            first, *rest = self._curves()
        except ValueError:
            return []
        begin = max([first.times[0], *(c.times[0] for c in rest)])
        end = min([first.times[-1], *(c.times[-1] for c in rest)])
        times = [t for t in first.times if begin <= t <= end]
        return Curve(times, [sum(c.at(t) for c in (first, *rest)) for t in times]).trace()

    def stop(self) -> None:
        """Ends the polling."""
        self._poll.stop()
        self._open.close()

    def _reach(self, end_s: float) -> None:
        """Reads until every counter tells of a moment after `end_s`, or does not in time."""
        patience = time.monotonic() + PATIENCE * self._update_s
        while True:
            self._poll.now()
            if all(times and times[-1] >= end_s for times, _ in self._columns) or time.monotonic() > patience:
                return
            time.sleep(self._update_s / 4)

    def _take(self) -> None:
        for (times, values), stamped in zip(self._columns, self._read()):  # noqa: B905 (Python 3.9)
            if not times or stamped.moment_s > times[-1]:
                times.append(stamped.moment_s)
                values.append(stamped.microjoules)

    def _curves(self) -> list[Curve]:
        """Raises ValueError when there are too few readings, or a counter fell."""
        with self._poll.lock:
            columns = [(list(times), list(values)) for times, values in self._columns]
        if any(len(times) < 2 for times, _ in columns):
            raise ValueError("the counter has not changed since the start")
        pairs = zip(columns, self.wraps_uj)  # noqa: B905 (Python 3.9)
        return [Curve.of_counter(times, values, wrap) for (times, values), wrap in pairs]


class Sampled:
    """A power, sampled each `period_s` and at the edges of windows; energy by the trapezoid rule.

    `read` gives watts. A window with a sample that failed, with gaps, or of a sensor that stands still has no energy.
    """

    def __init__(self, read: Callable[[], float], origin: Origin, period_s: float) -> None:
        self._read, self.origin, self._period_s = read, origin, max(period_s, QUICKEST_S)
        self._times: list[float] = []
        self._watts: list[float] = []
        self._poll = _Poll(self._take, self._period_s)

    def start(self) -> None:
        """Takes the first sample."""
        self._poll.start()

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments (`time.monotonic()`); ask at the window's end: power is sampled then."""
        self._poll.now()
        curve = self._curve()
        try:
            reading = curve.read(begin_s, end_s, self._period_s)
            why = self._poll.failure(begin_s, end_s) or curve.holes(begin_s, end_s, self._period_s) or _stuck(curve)
        except ValueError as error:
            why = self._poll.failure(begin_s, time.monotonic()) or str(error)
        if why:
            return no_energy(self.origin.scope, self.origin.source, why)
        return measured(reading, self.origin.status, self.origin.scope, self.origin.source)

    def samples(self) -> list[tuple[float, float]]:
        """Watts over time since `start`."""
        return self._curve().trace()

    def stop(self) -> None:
        """Ends the sampling."""
        self._poll.stop()

    def _take(self) -> None:
        begin = time.monotonic()
        watts = self._read()
        self._times.append((begin + time.monotonic()) / 2)
        self._watts.append(watts)

    def _curve(self) -> Curve:
        with self._poll.lock:
            return Curve.of_power(list(self._times), list(self._watts))


def _stuck(curve: Curve) -> str:
    """Why the samples are no measurement, or "": over idle and work, no power stays the same to the last digit."""
    long = len(curve.times) >= STUCK_SAMPLES and curve.times[-1] - curve.times[0] >= STUCK_S
    if not long or len(set(curve.watts)) > 1:
        return ""
    return f"the sensor does not change: {curve.watts[0]:g} W in each of {len(curve.watts)} samples"


def wait_for(ready: Callable[[], object], seconds: float, says: str) -> None:
    """Returns once something is ready; raises StageFailed with `says` when it is not in time."""
    end = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > end:
            raise StageFailed(says)
        time.sleep(0.01)
