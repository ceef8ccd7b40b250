"""What the passes tell of runs and of energy. Standard library and numpy: devices get it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import StageFailed, brief
from edgecompress.core.model import Measured, MeasuredTable, measured_table
from edgecompress.core.protocols import Subject
from edgecompress.core.stats import ENOUGH

if TYPE_CHECKING:
    import numpy as np

Reader = Callable[[float, float], Measured]  # the energy between two moments of time.monotonic()


def tail_ms(nanoseconds: Sequence[int] | np.ndarray, percent: int) -> float | None:
    """A percentile in milliseconds, where there are runs enough to hold it."""
    import numpy as np

    enough = len(nanoseconds) >= ENOUGH.get(percent, 1)
    return float(np.percentile(nanoseconds, percent)) / 1e6 if enough else None


def spread_ms(nanoseconds: Sequence[int] | np.ndarray) -> dict[str, float | None]:
    """p50, p95, p99 and the maximum in milliseconds."""
    return {**{f"p{p}": tail_ms(nanoseconds, p) for p in (50, 95, 99)}, "max": tail_ms(nanoseconds, 100)}


@contextlib.contextmanager
def reading(subject: Subject) -> Iterator[Reader]:
    """The subject's sensor of energy, running; without one every answer is the reason why."""
    meter, why_not = subject.meter()
    if meter is None:
        nothing = Measured("energy", None, "J", "unavailable", reason=why_not)
        yield lambda begin_s, end_s: nothing
        return
    meter.start()
    try:
        yield meter.energy
    finally:
        meter.stop()


def per(energy: Measured, metric: str, unit: str, factor: float) -> MeasuredTable:
    """An energy times a factor, as another metric, in plain data."""
    value, low, high = (None if v is None else v * factor for v in (energy.value, energy.low, energy.high))
    figure = dataclasses.replace(energy, metric=metric, unit=unit, value=value, low=low, high=high)
    return measured_table(figure)


def swept(
    what: str, values: Iterable[int], row: Callable[[int], dict[str, Any]], left_out: dict[str, str]
) -> list[dict[str, Any]]:
    """A row for each value that ran; `left_out` gets why each other one did not. Raises StageFailed where none ran."""
    rows = []
    for value in values:
        try:
            rows.append(row(value))
        except Exception as error:  # the boundary: one that a runtime cannot run is no end of the sweep
            left_out[str(value)] = brief(f"{type(error).__name__}: {error}")
    if not rows:
        raise StageFailed(f"no {what} ran: {'; '.join(f'{value}: {why}' for value, why in left_out.items())}")
    return rows


def rate(items_per_s: float) -> str:
    """Items per second in words."""
    return f"{items_per_s:,.0f} items/s" if items_per_s >= 1000 else f"{items_per_s:.4g} items/s"


def an_item(figure: MeasuredTable) -> str:
    """The energy of an item, as the end of a line; "" where it is not known."""
    return "" if figure["value"] is None else f", {in_words(figure)} an item"


def in_words(figure: MeasuredTable) -> str:
    """A figure of energy in words."""
    if figure["value"] is None:
        return f"energy unavailable: {figure['reason']}"
    return f"{figure['value']:.4g} {figure['unit']} ({figure['status']}, {figure['scope']}: {figure['source']})"
