"""Energy between two moments, from a counter's readings or from power samples. Standard library: devices get it."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from edgecompress.core.model import Measured, Status

T = TypeVar("T")

ENOUGH_PERIODS = 200  # a window of fewer sensor periods carries its error bound
LATE = 3.0  # a stretch of more than so many periods without a sample is a gap
COVERED = 0.99  # a window with a smaller share outside of gaps has no energy


def unwrap(readings: Sequence[float], wrap: float | None) -> list[float]:
    """A counter's growth since its first reading. It goes from `wrap` (its largest value) to 0; None: it never does.

    Right as long as it is read at least once per turn. Raises ValueError when it falls and cannot have wrapped.
    """
    grown = [0.0]
    for before, after in _pairs(readings):
        step = after - before
        if step < 0:
            if wrap is None or before > wrap:
                raise ValueError(f"the counter fell from {before:g} to {after:g} and its range is not known")
            step += wrap + 1
        grown.append(grown[-1] + step)
    return grown


def _pairs(values: Sequence[T]) -> Iterator[tuple[T, T]]:
    return zip(values, values[1:])  # noqa: B905, RUF007 (Python 3.9)


@dataclass(frozen=True)
class Reading:
    """Joules of a window, the error bound of that figure, and how many sensor periods the window held."""

    joules: float
    bound_j: float
    periods: float


@dataclass(frozen=True)
class Curve:
    """Energy since the first sample (J) over time (s); `watts` holds the samples where power was sampled."""

    times: Sequence[float]
    joules: Sequence[float]
    watts: Sequence[float] = ()

    @staticmethod
    def of_counter(times: Sequence[float], microjoules: Sequence[float], wrap_uj: float | None) -> Curve:
        """From readings of a cumulative counter."""
        return Curve(times, [e * 1e-6 for e in unwrap(microjoules, wrap_uj)])

    @staticmethod
    def of_power(times: Sequence[float], watts: Sequence[float]) -> Curve:
        """From samples of power, by the trapezoid rule."""
        joules = [0.0]
        for i in range(1, len(times)):
            joules.append(joules[-1] + (watts[i] + watts[i - 1]) / 2 * (times[i] - times[i - 1]))
        return Curve(times, joules, watts)

    @property
    def period_s(self) -> float:
        """The usual time between two samples."""
        return statistics.median(b - a for a, b in _pairs(self.times))

    def read(self, begin_s: float, end_s: float, period_s: float | None = None) -> Reading:
        """The window's energy, interpolated at both edges; `period_s`: the sensor's own, where it is not the samples'.

        Raises ValueError when the window is empty or not covered by the samples: nothing is extrapolated.
        """
        if len(self.times) < 2 or not self.times[0] <= begin_s < end_s <= self.times[-1]:
            extent = f" (they go from {self.times[0]:.3f} to {self.times[-1]:.3f} s)" if self.times else ""
            raise ValueError(f"no samples cover {begin_s:.3f}..{end_s:.3f} s{extent}")
        joules = self.at(end_s) - self.at(begin_s)
        return Reading(joules, self._bound(begin_s, end_s), (end_s - begin_s) / (period_s or self.period_s))

    def at(self, moment_s: float) -> float:
        """Energy since the first sample at a moment between two samples."""
        i = self._segment(moment_s)
        span, passed = self.times[i + 1] - self.times[i], moment_s - self.times[i]
        if not self.watts:
            return self.joules[i] + (self.joules[i + 1] - self.joules[i]) * passed / span
        slope = (self.watts[i + 1] - self.watts[i]) / span
        return self.joules[i] + self.watts[i] * passed + slope * passed * passed / 2

    def holes(self, begin_s: float, end_s: float, period_s: float | None = None) -> str:
        """Why the samples do not cover the window well enough, or ""."""
        late = LATE * (period_s or self.period_s)
        first, last = self._segment(begin_s), self._segment(end_s)
        edges = [(self.times[i], self.times[i + 1]) for i in range(first, last + 1)]
        gaps = [min(end, end_s) - max(begin, begin_s) for begin, end in edges if end - begin > late]
        covered = 1 - sum(gaps) / (end_s - begin_s)
        if covered >= COVERED:
            return ""
        return (
            f"samples cover {covered:.1%} of the window of {end_s - begin_s:.3g} s, less than {COVERED:.0%} "
            f"(the longest gap: {max(gaps):.3g} s)"
        )

    def trace(self) -> list[tuple[float, float]]:
        """Power over time: the samples, or the mean power between two readings of a counter at the middle of them."""
        if self.watts:
            return [(t, w) for t, w in zip(self.times, self.watts)]  # noqa: B905 (Python 3.9)
        steps = _pairs([(t, j) for t, j in zip(self.times, self.joules)])  # noqa: B905 (Python 3.9)
        return [((t + u) / 2, (k - j) / (u - t)) for (t, j), (u, k) in steps]

    def _segment(self, moment_s: float) -> int:
        """The i with times[i] <= moment < times[i + 1]; the last one for the last sample."""
        return min(bisect_right(self.times, moment_s) - 1, len(self.times) - 2)

    def _bound(self, begin_s: float, end_s: float) -> float:
        """How far the figure can be off.

        Power samples: power is monotonic between two samples, so a trapezoid is off by at most half its rise times its
        width. Counter: its readings are exact, and power inside an edge's segment is at most twice that segment's mean.
        """
        first, last = self._segment(begin_s), self._segment(end_s)
        if self.watts:
            w, t = self.watts, self.times
            return sum(abs(w[i + 1] - w[i]) * (t[i + 1] - t[i]) / 2 for i in range(first, last + 1))
        return self._edge(begin_s, first) + self._edge(end_s, last)

    def _edge(self, moment_s: float, i: int) -> float:
        part = (moment_s - self.times[i]) / (self.times[i + 1] - self.times[i])
        return (self.joules[i + 1] - self.joules[i]) * min(part, 1 - part)


def measured(reading: Reading, status: Status, scope: str, source: str) -> Measured:
    """The energy as a number that names its origin; a short window carries its error bound as its interval."""
    n = math.floor(reading.periods)
    if reading.periods >= ENOUGH_PERIODS:
        return Measured("energy", reading.joules, "J", status, n, source=source, scope=scope)
    low, high = reading.joules - reading.bound_j, reading.joules + reading.bound_j
    reason = f"window of {n} sensor periods, fewer than {ENOUGH_PERIODS}: the interval holds its error bound"
    return Measured("energy", reading.joules, "J", status, n, low, high, source, scope, reason)


def no_energy(scope: str, source: str, reason: str) -> Measured:
    """No energy, and why."""
    return Measured("energy", None, "J", "unavailable", source=source, scope=scope, reason=reason)
