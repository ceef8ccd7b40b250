"""What the passes tell of runs and of energy. Standard library and numpy: devices get it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

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


def in_words(figure: MeasuredTable) -> str:
    """A figure of energy in words."""
    if figure["value"] is None:
        return f"energy unavailable: {figure['reason']}"
    return f"{figure['value']:.4g} {figure['unit']} ({figure['status']}, {figure['scope']}: {figure['source']})"
