"""What the tools of `edgecompress mcp` answer: the client sees these classes as JSON Schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PlannedStage:
    """A stage, what it calls, and its seconds where nothing is stored."""

    name: str
    call: str
    estimate_s: float


@dataclass(frozen=True)
class PlanResult:
    """What a deploy would do; `left_out`: variants that cannot be built here, and why."""

    source: str
    target: str
    device: str
    profile: str
    estimate_s: float
    variants: list[str]
    left_out: dict[str, str]
    race: str
    stages: list[PlannedStage]


@dataclass(frozen=True)
class VariantResult:
    """A variant, how it ended and why; a number that is missing is None."""

    name: str
    runtime: str
    verdict: str
    reason: str
    latency_ms: float | None
    size_bytes: float | None
    accuracy: float | None


@dataclass(frozen=True)
class ReportResult:
    """The report of a deploy in short: the headline, what it costs and what is undecided; `page` is the whole."""

    title: str
    target: str
    device: str
    outcome: str
    shipped: str
    sentence: str
    remarks: list[str]
    warnings: list[str]
    variants: list[VariantResult]
    page: str


@dataclass(frozen=True)
class DeployResult:
    """How a deploy ended. exit_code 0: it shipped into `out`; 1: a check failed and nothing shipped; 4: it
    shipped, but its accuracy is not above chance."""

    exit_code: int
    message: str
    out: str | None
    report: ReportResult | None


@dataclass(frozen=True)
class MetricResult:
    """A metric of every report, and in words its change in each but the first."""

    metric: str
    better: str
    values: list[float | None]
    changes: list[str]


@dataclass(frozen=True)
class CompareResult:
    """A comparison. exit_code 0: all gates kept; 1: one is broken; 2: one asks for what is not there; 4: undecided."""

    exit_code: int
    verdict: str
    entries: list[str]
    metrics: list[MetricResult]
    gates: list[str]
    sentences: list[str]
    warnings: list[str]


@dataclass(frozen=True)
class LayerResult:
    """A layer: its noise so far and of its own in dB, and its effect at the output; None where it is not known."""

    name: str
    operator: str
    sqnr_db: float | None
    own_sqnr_db: float | None
    effect: float | None


@dataclass(frozen=True)
class DiagnoseResult:
    """Where an artifact departs from its source: the layers at fault, the remedy, those with the largest effect."""

    source: str
    runtime: str
    says: str
    culprits: list[str]
    layers: list[LayerResult]
    out: str | None
