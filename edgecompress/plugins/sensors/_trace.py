"""A trace as text: CSV columns t_s and power_w, or t_s and energy_uj. Standard library."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence

from edgecompress.plugins.sensors._counter import Curve

Row = tuple[float, float]


def columns(header: str) -> tuple[int, int, str]:
    """Where the time is, where the value is, and what that is called. Raises ValueError."""
    names = next(csv.reader([header]), [])
    value = next((c for c in ("energy_uj", "power_w") if c in names), "")
    if "t_s" not in names or not value:
        raise ValueError("needs the columns t_s and power_w, or t_s and energy_uj")
    return names.index("t_s"), names.index(value), value


def rows(lines: Iterable[str], header: str, first: int = 2) -> list[Row]:
    """The lines below the header as numbers; raises ValueError with the line that is wrong (`first`: its number)."""
    time, value, name = columns(header)
    samples = []
    for number, cells in enumerate(csv.reader(lines), first):
        if cells:
            samples.append(
                (_number(cells, time, f"line {number}: t_s"), _number(cells, value, f"line {number}: {name}"))
            )
    return samples


def curve(samples: Sequence[Row], value: str, wrap_uj: float | None) -> Curve:
    """Energy over time; raises ValueError for too few rows, times that do not grow, a counter that falls."""
    if len(samples) < 2:
        raise ValueError("holds fewer than two samples")
    if late := [i for i in range(1, len(samples)) if samples[i][0] <= samples[i - 1][0]]:
        raise ValueError(f"sample {late[0] + 1}: its t_s is not later than the one before")
    times, values = [t for t, _ in samples], [v for _, v in samples]
    return Curve.of_power(times, values) if value == "power_w" else Curve.of_counter(times, values, wrap_uj)


def _number(cells: Sequence[str], column: int, what: str) -> float:
    text = cells[column] if column < len(cells) else ""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what} is {text!r}, not a number")
    return number
