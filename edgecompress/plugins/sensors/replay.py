"""A recorded trace as a sensor: CSV columns t_s and power_w, or t_s and energy_uj, from a bench meter or another day.

Device options: `replay = { file = "trace.csv", offset_s = 12.5, wrap_uj = 262143328850, scope = "board" }`.
A trace time plus `offset_s` is a time of this machine's monotonic clock; without it the trace begins when the meter
starts. `wrap_uj` is the counter's largest value.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError
from edgecompress.core.model import Measured
from edgecompress.plugins.sensors import _trace
from edgecompress.plugins.sensors._counter import Curve, measured, no_energy
from edgecompress.plugins.sensors._sampler import options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
READS_FILE = True  # the one that its options name
STATUS = "replayed"
SCOPE = "board"  # unless the options name another
LARGEST = 64 << 20  # bytes of a trace


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no trace to replay, or ""."""
    options = options_of(device, "replay")
    if not options.get("file"):
        return "no trace is named; add replay = { file = ... } to the device's options"
    try:
        _load(Path(options["file"]), options.get("wrap_uj"))
    except InputError as error:
        return str(error)
    except (OSError, ValueError) as error:
        return f"{options['file']}: {error}"
    return ""


def open(device: Mapping[str, Json], root: Path) -> ReplayMeter:
    """A meter over the trace that the device's options name."""
    options = options_of(device, "replay")
    file = Path(options["file"])
    return ReplayMeter(_load(file, options.get("wrap_uj")), options.get("offset_s"), file, options.get("scope", SCOPE))


def _load(file: Path, wrap_uj: float | None) -> Curve:
    """The trace; raises ValueError with the line that is wrong."""
    header, *lines = plain_file.read(file, LARGEST).decode().splitlines() or [""]
    return _trace.curve(_trace.rows(lines, header), _trace.columns(header)[2], wrap_uj)


class ReplayMeter:
    """Windows of the monotonic clock, looked up in the trace."""

    def __init__(self, curve: Curve, offset_s: float | None, file: Path, scope: str) -> None:
        self.curve, self.offset_s, self.source, self.scope = curve, offset_s, f"replay of {file.name}", scope
        self.started_s = 0.0

    def start(self) -> None:
        """Lays the trace's beginning on this moment, unless an offset was given."""
        self.started_s = time.monotonic()
        if self.offset_s is None:
            self.offset_s = self.started_s - self.curve.times[0]

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments, or why the trace does not tell."""
        offset = self.offset_s or 0.0
        begin, end = begin_s - offset, end_s - offset
        try:
            reading = self.curve.read(begin, end)
        except ValueError as error:
            return no_energy(self.scope, self.source, str(error))
        if holes := self.curve.holes(begin, end):
            return no_energy(self.scope, self.source, holes)
        return measured(reading, "replayed", self.scope, self.source)

    def samples(self) -> list[tuple[float, float]]:
        """Watts over time of the trace's part since `start`, on this machine's clock."""
        offset, now = self.offset_s or 0.0, time.monotonic()
        return [(t + offset, w) for t, w in self.curve.trace() if self.started_s <= t + offset <= now]

    def stop(self) -> None:
        """Nothing to stop."""
