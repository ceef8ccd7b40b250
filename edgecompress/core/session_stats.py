"""Statistics of one session's latencies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TypedDict

from edgecompress.core import stats

TOO_NOISY = "too noisy to compare"
KEPT = 200_000  # latencies in VARIANT.json; of more, every k-th (the statistics are over all)
STOLEN = 0.01  # processor seconds of the hypervisor's other guests per second: more is told
OTHERS = 0.25  # processors that others kept busy: more is told
GRAIN_S = 0.05  # the kernel counts processor time in hundredths of a second: less is not told


class SessionStatistics(TypedDict):
    """The statistics of a session's latencies; a percentile is None where there are too few runs to hold it.

    All are None where the session was too noisy.
    """

    median_ms: float | None
    mean_ms: float | None
    min_ms: float | None
    max_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    outliers: int | None
    drift: float | None


def in_numbers(latencies_ms: Sequence[float]) -> SessionStatistics:
    """Statistics over every run."""
    return {
        "median_ms": statistics.median(latencies_ms),
        "mean_ms": statistics.fmean(latencies_ms),
        "min_ms": min(latencies_ms),
        "max_ms": max(latencies_ms),
        "p90_ms": _tail(latencies_ms, 90),
        "p95_ms": _tail(latencies_ms, 95),
        "p99_ms": _tail(latencies_ms, 99),
        "outliers": stats.outliers(latencies_ms),
        "drift": stats.trend(latencies_ms),
    }


def unknown() -> SessionStatistics:
    """Those of a session of which nothing can be said."""
    return {
        "median_ms": None,
        "mean_ms": None,
        "min_ms": None,
        "max_ms": None,
        "p90_ms": None,
        "p95_ms": None,
        "p99_ms": None,
        "outliers": None,
        "drift": None,
    }


def _tail(latencies_ms: Sequence[float], percent: int) -> float | None:
    return stats.percentile(latencies_ms, percent) if len(latencies_ms) >= stats.ENOUGH[percent] else None


def drifting(change: float, over: str) -> str:
    """A trend in words."""
    return f"drifting: {change:+.0%} over the {over}".replace("-", "−")
