"""Rounds into sessions: what each fresh process measured, and the shape of all its latencies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact
from edgecompress.core.stats import interval, ratio
from edgecompress.reporting.schema_types import Distribution, LatencyHistogram, ReportedSession

if TYPE_CHECKING:
    import numpy as np


KEPT = 2000  # latencies of one session that report.json keeps, every k-th in run order
BINS = 24


class Bounds(TypedDict, total=False):
    """The interval of a number, where it has one."""

    low: float
    high: float


def rounds(inputs: Mapping[str, Artifact]) -> list[tuple[str, Artifact]]:
    """The rounds in the order they ran: "round-2" before "round-10"."""
    pairs = [(role, artifact) for role, artifact in inputs.items() if artifact.kind == "round"]
    return sorted(pairs, key=lambda pair: (len(pair[0]), pair[0]))


def of_variant(inputs: Mapping[str, Artifact], variant: str) -> tuple[list[ReportedSession], Distribution | None]:
    """The sessions of a variant, and the distribution of all their latencies (None when none was kept)."""
    sessions, raw = [], []
    for role, artifact in rounds(inputs):
        facts = artifact.facts["variants"].get(variant)
        if facts is None:
            continue
        latencies = [] if facts.get("crashed") else _latencies(artifact.path / f"{variant}.json")
        sessions.append(_session(role, facts, latencies))
        raw.append(latencies)
    return sessions, distribution(raw)


def _latencies(file: Path) -> list[float]:
    """Milliseconds in run order; empty where a round kept none."""
    try:
        return [float(v) for v in json.loads(file.read_text(encoding="utf-8")).get("latencies_ms", [])]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise StageFailed(f"{file}: the raw latencies cannot be read: {error}; measure again (--remeasure)") from error


def _session(role: str, facts: Mapping[str, Any], latencies: list[float]) -> ReportedSession:
    every = max(1, -(-len(latencies) // KEPT))
    kept = [float(f"{v:.6g}") for v in latencies[::every]]
    return {
        "round": role,
        "crashed": facts.get("crashed"),
        "median_ms": facts.get("median_ms"),
        "p90_ms": facts.get("p90_ms"),
        "p95_ms": facts.get("p95_ms"),
        "p99_ms": facts.get("p99_ms"),
        "min_ms": facts.get("min_ms"),
        "max_ms": facts.get("max_ms"),
        "mean_ms": facts.get("mean_ms"),
        "load_ms": facts.get("load_ms"),
        "first_ms": facts.get("first_ms"),
        "call_ms": facts.get("call_ms"),
        "call_reason": facts.get("call_reason", ""),
        "warmup_s": facts.get("warmup_s"),
        "n": facts.get("n"),
        "outliers": facts.get("outliers"),
        "warm": facts.get("warm"),
        "flags": facts.get("flags"),
        "memory": facts.get("memory"),
        "every": every,
        "latencies_ms": kept,
    }


def distribution(raw: Sequence[Sequence[float]]) -> Distribution | None:
    """Of all sessions together: a histogram of the body, the runs beyond it counted, and the 0..100 % quantiles."""
    import numpy as np

    pooled = np.array([v for session in raw for v in session], dtype=np.float64)
    if not len(pooled):
        return None
    quantiles = np.percentile(pooled, np.arange(101)).astype(np.float64)
    return {
        "runs": len(pooled),
        "quantiles_ms": [float(f"{q:.6g}") for q in quantiles],
        "histogram": _histogram(pooled, _top(quantiles)),
    }


def _top(quantiles: np.ndarray) -> float:
    """Where the body ends: the 99th percentile, or where a long tail would press the body into one bin."""
    spread = quantiles[75] - quantiles[25]
    return float(min(quantiles[99], quantiles[75] + 8 * spread) if spread else quantiles[99])


def _histogram(values: np.ndarray, top: float) -> LatencyHistogram:
    import numpy as np

    low = float(values.min())
    counts, edges = np.histogram(values, bins=BINS, range=(low, top if top > low else low * 1.01 + 1e-9))
    over = int((values > edges[-1]).sum())
    return {"edges_ms": [float(f"{e:.6g}") for e in edges], "counts": counts.tolist(), "over": over}


def values(sessions: Sequence[Mapping[str, object]], key: str) -> dict[str, float]:
    """round -> the number `key` ("median_ms", "memory.peak_rss_bytes") of each session that has it."""
    numbers = {}
    for session in sessions:
        value: object = session
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if isinstance(value, (int, float)):
            numbers[str(session["round"])] = float(value)
    return numbers


def improvement(before: Sequence[ReportedSession], after: Sequence[ReportedSession], key: str) -> dict[str, Any] | None:
    """How many times smaller `key` became, over the rounds that measured both; None when none did."""
    old, new = values(before, key), values(after, key)
    both = [r for r in old if r in new and new[r] > 0 and old[r] > 0]
    if not both:
        return None
    change = ratio([old[r] for r in both], [new[r] for r in both])
    called = (
        "none" if change.low is None else "same" if not change.changed else "better" if change.median > 1 else "worse"
    )
    return {"factor": change.median, "low": change.low, "high": change.high, "n": change.n, "called": called}


def bounds(numbers: Sequence[float]) -> Bounds:
    """The interval of the median as `low` and `high`, or nothing with one session."""
    ends = interval(numbers)
    return {"low": ends[0], "high": ends[1]} if ends else {}
