"""An external meter while it logs: a CSV file that grows, or a serial port; its clock is aligned by marks in the load.

Device options: `meter = { file = "log.csv", scope = "wall" }`, columns t_s and power_w or t_s and energy_uj, or
`meter = { port = "/dev/ttyUSB0", baud = 115200, scale = 0.001, scope = "board" }`, a number per line, watts after
`scale`. When the meter is started all cores compute in a known on/off pattern (about 5 s), which is looked for in the
trace; where it is not found once and clearly, there is no energy.
"""

from __future__ import annotations

import hashlib
import math
import os
import select
import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.model import Measured
from edgecompress.plugins.sensors import _trace
from edgecompress.plugins.sensors._counter import Curve, measured, no_energy
from edgecompress.plugins.sensors._sampler import options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
STATUS = "measured"
SCOPE = "board"  # unless the options name another

# On and off, a chip each. Its correlation with a step, and with itself one or more chips away, is below 0.24.
PATTERN = (1, 0, 1, 0, 1, 0, 1, 0, 0, 0, 1, 1, 0, 1, 0, 0, 1, 0, 1, 1, 0)
CHIP_S = 0.25
MAYBE_LIKE = 0.6  # correlation of the trace with the pattern at a place that may be it
LEAST_LIKE = 0.85  # and at the place that is
RIVAL = 0.5  # another such place with more than this part of the swing makes the alignment ambiguous
SAMPLES_PER_CHIP = 2.5
SILENT_S = 60.0  # a log that was not written for so long is of another day
LATE_S = 5.0  # how long a logger may hold back what it has measured


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no meter to read, or ""."""
    options = options_of(device, "meter")
    if bool(options.get("file")) == bool(options.get("port")):
        return "no external meter is named; add meter = { file = ... } or { port = ... } to the device's options"
    try:
        if options.get("port"):
            os.close(_port(options))
            return ""
        log = Path(options["file"])
        _trace.columns(_Log(log).header)
        age_s = time.time() - log.stat().st_mtime
    except PermissionError as error:
        return f"not permitted to open {error.filename}: add this user to the group that owns it (dialout, uucp)"
    except (OSError, ValueError) as error:
        return f"{options.get('file') or options.get('port')}: {error}"
    return f"{log} was last written {age_s:.0f} s ago: start the meter's logging first" if age_s > SILENT_S else ""


def open(device: Mapping[str, Json], root: Path) -> ExternalMeter:
    """A meter over the log or the port that the device's options name."""
    options = options_of(device, "meter")
    trace = _Serial(options) if options.get("port") else _Log(Path(options["file"]), options.get("wrap_uj"))
    return ExternalMeter(trace, str(options.get("scope", SCOPE)))


# --------------------------------------------------------------------------- marks


@dataclass(frozen=True)
class Marks:
    """The pattern as it was played: on `chips[i]` from `edges[i]` to `edges[i + 1]`, on this machine's clock."""

    edges: Sequence[float]
    chips: Sequence[int]


def play() -> Marks:
    """Computes on all cores, or rests, chip after chip."""
    edges = [time.monotonic()]
    for on in PATTERN:
        _compute(CHIP_S) if on else time.sleep(CHIP_S)
        edges.append(time.monotonic())
    return Marks(edges, PATTERN)


def _compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    block = bytes(1 << 18)  # hashing so much lets go of the interpreter: the threads run at once

    def hash_on() -> None:
        while time.monotonic() < end:
            hashlib.sha256(block).digest()

    threads = [threading.Thread(target=hash_on) for _ in range(os.cpu_count() or 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def align(curve: Curve, marks: Marks) -> float:
    """What a time of this machine is ahead of the trace's. Raises ValueError when that is not clear.

    The chips' mean power is compared with on and off at every place in the trace: it must correlate, and of the places
    where it does the one with the largest swing is taken, unless another comes near.
    """
    chip_s = (marks.edges[-1] - marks.edges[0]) / len(marks.chips)
    if curve.period_s * SAMPLES_PER_CHIP > chip_s:
        raise ValueError(f"one sample every {curve.period_s:.3g} s is too few for marks of {chip_s:.3g} s")
    first, last = curve.times[0] - marks.edges[0], curve.times[-1] - marks.edges[-1]
    places = [(_likeness(curve, marks, shift), shift) for shift in _steps(first, last, chip_s / 4)]
    swings = [(swing, shift) for (like, swing), shift in places if like >= MAYBE_LIKE]
    if not swings:
        best = max((like for (like, _), _ in places), default=0.0)
        raise ValueError(f"the marks were not found in the trace (best correlation {best:.2f})")
    about = max(swings)[1]
    fine = _steps(max(first, about - chip_s / 2), min(last, about + chip_s / 2), chip_s / 100)
    (like, swing), shift = max((_likeness(curve, marks, s), s) for s in fine)
    if like < LEAST_LIKE:
        raise ValueError(f"the marks were not found in the trace (best correlation {like:.2f}, below {LEAST_LIKE})")
    if rivals := [s for other, s in swings if abs(s - shift) > chip_s and other > RIVAL * swing]:
        raise ValueError(f"the marks were found in several places, {abs(rivals[0] - shift):.3g} s apart")
    return -shift


def _steps(begin: float, end: float, step: float) -> list[float]:
    return [begin + i * step for i in range(int((end - begin) / step) + 1)] if end >= begin else []


def _likeness(curve: Curve, marks: Marks, shift: float) -> tuple[float, float]:
    """Correlation of on and off with the trace's mean power in the chips, laid on it at a shift; and covariance."""
    at = [curve.at(edge + shift) for edge in marks.edges]
    watts = [(at[i + 1] - at[i]) / (marks.edges[i + 1] - marks.edges[i]) for i in range(len(marks.chips))]
    level, mean = statistics.fmean(marks.chips), statistics.fmean(watts)
    both = sum((c - level) * (w - mean) for c, w in zip(marks.chips, watts))  # noqa: B905 (Python 3.9)
    norm = sum((c - level) ** 2 for c in marks.chips) * sum((w - mean) ** 2 for w in watts)
    return (both / math.sqrt(norm) if norm > 0 else 0.0), both


# --------------------------------------------------------------------------- traces


class _Log:
    """A CSV file that somebody else writes: its rows since it was opened here, on its own clock."""

    def __init__(self, file: Path, wrap_uj: float | None = None) -> None:
        self.name, self._file, self._wrap_uj = file.name, file, wrap_uj
        with file.open(encoding="utf-8") as stream:
            self.header = stream.readline().strip()
        self._read_to = 0
        self._rows: list[_trace.Row] = []

    def begin(self) -> None:
        """What is in the file already was before the marks; its last line may be half written."""
        self._read_to = self._file.read_bytes().rfind(b"\n") + 1

    def curve(self) -> Curve:
        """What has been logged since. Raises ValueError with what is wrong."""
        with self._file.open("rb") as stream:
            stream.seek(self._read_to)
            whole, newline, _ = stream.read().rpartition(b"\n")
        self._read_to += len(whole) + len(newline)
        self._rows += _trace.rows(whole.decode("utf-8").splitlines(), self.header)
        return _trace.curve(self._rows, _trace.columns(self.header)[2], self._wrap_uj)

    def end(self) -> None:
        """Nothing to close."""


class _Serial:
    """A serial port that says a number per line, stamped when the line arrives."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.name, self._options = str(options["port"]), options
        self._rows: list[_trace.Row] = []
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._listen, daemon=True)

    def begin(self) -> None:
        """Starts to listen."""
        self._port = _port(self._options)
        self._reader.start()

    def curve(self) -> Curve:
        """What it has said."""
        return _trace.curve(list(self._rows), "power_w", None)

    def end(self) -> None:
        """Closes the port."""
        self._ended.set()
        self._reader.join()
        os.close(self._port)

    def _listen(self) -> None:
        held, scale = b"", float(self._options.get("scale", 1.0))
        while not self._ended.is_set():
            if not select.select([self._port], [], [], 0.05)[0]:
                continue
            *lines, held = (held + os.read(self._port, 4096)).split(b"\n")
            now = time.monotonic()
            for line in lines:
                self._hear(line, scale, now)

    def _hear(self, line: bytes, scale: float, now: float) -> None:
        try:
            watts = float(line) * scale
        except ValueError:  # the first line may be cut
            return
        if not math.isfinite(watts):
            return
        if not self._rows or now > self._rows[-1][0]:
            self._rows.append((now, watts))


def _port(options: Mapping[str, Json]) -> int:
    """The port, opened raw. Raises OSError, or ValueError for a speed that there is not."""
    import termios
    import tty

    baud = options.get("baud", 115200)
    speed = getattr(termios, f"B{baud}", None)
    if speed is None:
        raise ValueError(f"{baud} baud is not supported")
    port = os.open(str(options["port"]), os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)
    try:
        tty.setraw(port)
        settings = termios.tcgetattr(port)
        settings[4] = settings[5] = speed
        termios.tcsetattr(port, termios.TCSANOW, settings)
    except termios.error as error:
        os.close(port)
        raise ValueError(f"not a serial port: {error}") from error
    return port


class ExternalMeter:
    """Windows of this machine's clock, looked up in the trace of a meter that is logging."""

    def __init__(self, trace: _Log | _Serial, scope: str) -> None:
        self._trace, self.scope, self.source = trace, scope, f"external meter, {trace.name}"
        self._marks: Marks | None = None
        self._offset_s: float | None = None
        self._known: Curve | None = None

    def start(self) -> None:
        """Plays the marks."""
        self._trace.begin()
        self._marks = play()

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments, once the trace has come so far; or why it does not tell."""
        deadline = time.monotonic() + LATE_S
        while True:
            try:
                return self._energy(self._trace.curve(), begin_s, end_s)
            except (OSError, ValueError) as error:
                if time.monotonic() > deadline:
                    return no_energy(self.scope, self.source, str(error))
            time.sleep(0.05)

    def samples(self) -> list[tuple[float, float]]:
        """Watts over time, on this machine's clock; nothing while the clocks are not aligned."""
        if self._offset_s is None or self._known is None:
            return []
        return [(t + self._offset_s, w) for t, w in self._known.trace()]

    def stop(self) -> None:
        """Ends the reading."""
        self._trace.end()

    def _energy(self, curve: Curve, begin_s: float, end_s: float) -> Measured:
        if self._offset_s is None:
            assert self._marks
            self._offset_s = align(curve, self._marks)
        self._known = curve
        begin, end = begin_s - self._offset_s, end_s - self._offset_s
        reading = curve.read(begin, end)
        if holes := curve.holes(begin, end):
            return no_energy(self.scope, self.source, holes)
        return measured(reading, "measured", self.scope, self.source)
