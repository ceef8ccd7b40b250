"""A recorded trace as a sensor: CSV columns t_s and power_w, or t_s and energy_uj, from a bench meter or another day.

Device options: `replay = { file = "trace.csv", offset_s = 12.5, wrap_uj = 262143328850, scope = "board" }`.
A trace time plus `offset_s` is a time of this machine's monotonic clock; without it the trace begins when the meter
starts. `wrap_uj` is the counter's largest value.
"""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.model import Measured
from edgecompress.sensors._counter import Curve, measured, no_energy

REQUIRES: tuple[str, ...] = ()
STATUS = "replayed"
SCOPE = "board"  # unless the options name another

GAP = 0.01  # of a window: a longer hole in the sampling (of more than three periods) makes it unavailable


def unavailable(device: Mapping[str, Any], root: Path) -> str:
    """Why there is no trace to replay, or ""."""
    options = _options(device)
    if not options.get("file"):
        return "no trace is named; add replay = { file = ... } to the device's options"
    try:
        _load(Path(options["file"]), options.get("wrap_uj"))
    except (OSError, ValueError) as error:
        return f"{options['file']}: {error}"
    return ""


def open(device: Mapping[str, Any], root: Path) -> ReplayMeter:
    """A meter over the trace that the device's options name."""
    options = _options(device)
    file = Path(options["file"])
    return ReplayMeter(_load(file, options.get("wrap_uj")), options.get("offset_s"), file, options.get("scope", SCOPE))


def _options(device: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = (device.get("options") or {}).get("replay") or {}
    return found


def _load(file: Path, wrap_uj: float | None) -> Curve:
    """The trace; raises ValueError with the line that is wrong."""
    with file.open(newline="", encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        columns = reader.fieldnames or []
        value = next((c for c in ("energy_uj", "power_w") if c in columns), "")
        if "t_s" not in columns or not value:
            raise ValueError("needs the columns t_s and power_w, or t_s and energy_uj")
        rows = [(_number(row, "t_s", reader), _number(row, value, reader)) for row in reader]
    if len(rows) < 2:
        raise ValueError("holds fewer than two samples")
    if late := [i for i in range(1, len(rows)) if rows[i][0] <= rows[i - 1][0]]:
        raise ValueError(f"sample {late[0] + 1}: its t_s is not later than the one before")
    times, values = [t for t, _ in rows], [v for _, v in rows]
    if value == "power_w":
        return Curve.of_power(times, values)
    return Curve.of_counter(times, values, wrap_uj)


def _number(row: Mapping[str, Any], column: str, reader: Any) -> float:
    try:
        number = float(row[column])
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"line {reader.line_num}: {column} is {row[column]!r}, not a number")
    return number


class ReplayMeter:
    """Windows of the monotonic clock, looked up in the trace."""

    def __init__(self, curve: Curve, offset_s: float | None, file: Path, scope: str) -> None:
        self.curve, self.offset_s, self.source, self.scope = curve, offset_s, f"replay of {file.name}", scope

    def start(self) -> None:
        """Lays the trace's beginning on this moment, unless an offset was given."""
        if self.offset_s is None:
            self.offset_s = time.monotonic() - self.curve.times[0]

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments, or why the trace does not tell."""
        offset = self.offset_s or 0.0
        begin, end = begin_s - offset, end_s - offset
        try:
            reading = self.curve.read(begin, end)
        except ValueError as error:
            return no_energy(self.scope, self.source, str(error))
        gap = self.curve.gap_s(begin, end)
        if gap > max(GAP * (end - begin), 3 * self.curve.period_s):
            reason = f"the sampling has a gap of {gap:.3g} s, over {GAP:.0%} of the window of {end - begin:.3g} s"
            return no_energy(self.scope, self.source, reason)
        return measured(reading, "replayed", self.scope, self.source)

    def stop(self) -> None:
        """Nothing to stop."""
