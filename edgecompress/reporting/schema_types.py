"""The parts of report.json that many files read, as types; report.schema.json says the same to everybody else."""

from __future__ import annotations

from typing import TypedDict


class ReportedMemory(TypedDict, total=False):
    """What a session reports of memory, in bytes."""

    artifact_bytes: int
    arena_bytes: int | None
    arena_reason: str
    arena_peak: str
    peak_rss_bytes: int
    file_backed_bytes: int


class ReportedSession(TypedDict):
    """One fresh process; `latencies_ms` holds every `every`-th run."""

    round: str
    crashed: str | None
    noisy: str  # why it has no statistics, or ""
    median_ms: float | None
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    min_ms: float | None
    max_ms: float | None
    mean_ms: float | None
    load_ms: float | None
    first_ms: float | None
    call_ms: float | None
    call_reason: str
    warmup_s: float | None
    n: int | None
    outliers: int | None
    warm: bool | None
    flags: list[str] | None
    memory: ReportedMemory | None
    windows_ms: list[float | None]  # of each turn; None where something disturbed it
    every: int
    latencies_ms: list[float]


class LatencyHistogram(TypedDict):
    """The body of the latencies; `over` counts the runs beyond it."""

    edges_ms: list[float]
    counts: list[int]
    over: int


class Distribution(TypedDict):
    """The shape of all latencies of a variant."""

    runs: int
    quantiles_ms: list[float]
    histogram: LatencyHistogram
