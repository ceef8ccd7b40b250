"""Rounds into sessions: what each fresh process measured, and the shape of all its latencies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import msgspec

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact
from edgecompress.core.sequential_comparison import paired
from edgecompress.core.stats import interval, of_ratios
from edgecompress.reporting.model_numbers import KEPT, Called, Change, Distribution, Histogram, Session, values

BINS = 24
LATENCY = "median_ms"  # the number of a session that is compared window by window


class Bounds(TypedDict, total=False):
    """The interval of a number, where it has one."""

    low: float
    high: float


def rounds(inputs: Mapping[str, Artifact]) -> list[tuple[str, Artifact]]:
    """The rounds in the order they ran: "round-2" before "round-10"."""
    pairs = [(role, artifact) for role, artifact in inputs.items() if artifact.kind == "round"]
    return sorted(pairs, key=lambda pair: (len(pair[0]), pair[0]))


def of_variant(inputs: Mapping[str, Artifact], variant: str) -> tuple[list[Session], Distribution | None]:
    """The sessions of a variant, and the distribution of all their latencies (None when none was kept)."""
    sessions, raw = [], []
    for role, artifact in rounds(inputs):
        facts = artifact.facts["variants"].get(variant)
        if facts is None:
            continue
        latencies = [] if facts.get("crashed") or facts.get("noisy") else _latencies(artifact.path / f"{variant}.json")
        every = max(1, -(-len(latencies) // KEPT))
        kept = [float(f"{v:.6g}") for v in latencies[::every]]
        known = {key: value for key, value in facts.items() if value is not None}
        sessions.append(msgspec.convert({**known, "round": role, "every": every, "latencies_ms": kept}, Session))
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


def distribution(raw: Sequence[Sequence[float]]) -> Distribution | None:
    """Of all sessions together: a histogram of the body, the runs beyond it counted, and the 0..100 % quantiles."""
    import numpy as np

    pooled = np.array([v for session in raw for v in session], dtype=np.float64)
    if not len(pooled):
        return None
    quantiles = np.percentile(pooled, np.arange(101)).astype(np.float64)
    # The body ends at the 99th percentile, or where a long tail would press it into one bin.
    spread, low = quantiles[75] - quantiles[25], float(pooled.min())
    top = float(min(quantiles[99], quantiles[75] + 8 * spread) if spread else quantiles[99])
    counts, edges = np.histogram(pooled, bins=BINS, range=(low, top if top > low else low * 1.01 + 1e-9))
    over = int((pooled > edges[-1]).sum())
    body = Histogram([float(f"{e:.6g}") for e in edges], counts.tolist(), over)
    return Distribution(len(pooled), [float(f"{q:.6g}") for q in quantiles], body)


def ratios(some: Sequence[Session], others: Sequence[Session], key: str) -> list[float]:
    """The one's number `key` to the other's, of each round that measured both: of latencies window beside window."""
    if key == LATENCY:
        theirs = {s.round: _windows(s) for s in others}
        each = (paired(_windows(s), theirs[s.round]) for s in some if s.round in theirs)
        return [ratio for ratio in each if ratio is not None]
    mine, other = values(some, key), values(others, key)
    return [mine[r] / other[r] for r in mine if mine[r] > 0 and other.get(r, 0.0) > 0]


def _windows(session: Session) -> Sequence[float | None]:
    return session.windows_ms or [session.median_ms]


def improvement(before: Sequence[Session], after: Sequence[Session], key: str) -> Change | None:
    """How many times smaller `key` became, over the rounds that compare both; None when none does."""
    each = ratios(before, after, key)
    if not each:
        return None
    change = of_ratios(each)
    called: Called = (
        "none" if change.low is None else "same" if not change.changed else "better" if change.median > 1 else "worse"
    )
    return Change(change.median, change.low, change.high, change.n, called)


def bounds(numbers: Sequence[float]) -> Bounds:
    """The interval of the median as `low` and `high`, or nothing with one session."""
    ends = interval(numbers)
    return {"low": ends[0], "high": ends[1]} if ends else {}
