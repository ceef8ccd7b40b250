"""What the tools of `edgecompress mcp` are asked and what they answer: the client sees these classes as JSON Schema.

The second part of an `Annotated` is what the client is told of an argument.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

# --------------------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class ModelRequest:
    """A model and its data, as the command line takes them."""

    model: Annotated[
        str | None,
        "a factory pkg.mod:fn, a .pt2, .onnx, .tflite or .keras file, a SavedModel, a Hugging Face folder, or a source "
        "TOML; without it the embedded demo",
    ] = None
    data: Annotated[str | None, "samples: pkg.mod:fn, an .npz, a folder of .npy files or images, or `random`"] = None
    metric: Annotated[str | None, "accuracy metric: top1, perplexity, map, miou, ..., none, or pkg.mod:fn"] = None
    samples: Annotated[int | None, "at most so many items per split"] = None
    threads: Annotated[int | None, "threads per inference"] = None
    batch: Annotated[int | None, "batch size"] = None
    seed: Annotated[int | None, "random seed"] = None
    settings: Annotated[
        dict[str, Any], 'values of the TOML files to override, by their keys, as {"limits.items_lost": 2}'
    ] = field(default_factory=dict)
    offline: Annotated[bool, "fetch nothing, and run every stage without network access"] = False
    untrusted: Annotated[bool, "refuse models and data that execute their author's code"] = False


@dataclass(frozen=True)
class PlanRequest(ModelRequest):
    """What to plan."""

    target: Annotated[str, "a target's name or TOML file"] = "x86"
    device: Annotated[str | None, "name or TOML file of a device; without it the target's"] = None
    profile: Annotated[str, "how to measure: quick, standard, strict, or a TOML file"] = "standard"
    only: Annotated[list[str], "names of the target's variants to build; without it all"] = field(default_factory=list)


@dataclass(frozen=True)
class DeployRequest(PlanRequest):
    """What to deploy."""

    out: Annotated[str | None, "output folder; without it dist/TARGET"] = None
    strict: Annotated[bool, "refuse what intervals of 95 % leave undecided, too"] = False
    remeasure: Annotated[bool, "measure again, even if a stored measurement is recent"] = False


@dataclass(frozen=True)
class ReportRequest:
    """Which report."""

    folder: Annotated[str, "the folder that a deploy wrote, as dist/x86"]


@dataclass(frozen=True)
class CompareRequest:
    """Which reports, and what of them is a failure."""

    reports: Annotated[list[str], "folders of deploys; the first is the baseline; FOLDER@VARIANT names a variant"]
    fail_if: Annotated[list[str], 'gates, as "latency_ms > 1.05x" or "accuracy_drop > 0.01"'] = field(
        default_factory=list
    )
    strict: Annotated[bool, "a gate that is undecided fails"] = False
    across_models: Annotated[bool, "compare reports of different models, too"] = False


@dataclass(frozen=True)
class DiagnoseRequest(ModelRequest):
    """What to diagnose."""

    target: Annotated[str | None, "a target's name or TOML file; without it that of the artifact, or x86"] = None
    variant: Annotated[str, "variant of the target; without it the first that compresses"] = ""
    artifact: Annotated[str | None, "folder that a deploy wrote, or a model file, in place of a variant"] = None
    items: Annotated[int, "number of items to run"] = 16
    out: Annotated[str | None, "folder for diagnosis.json and its page; without it none is written"] = None


# --------------------------------------------------------------------------- what is answered


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
