"""`edgecompress analyze`: the cost, zeros and sensitivity of each layer; memory-bound layers on devices."""

from __future__ import annotations

import csv
import dataclasses
import io
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Unpack

from edgecompress.commands import job_run, objects
from edgecompress.core import atomic_file, catalog, environments, output_place, registry
from edgecompress.core.errors import InputError, did_you_mean, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import Outcome, Stage
from edgecompress.core.plain_text import fitted, printed
from edgecompress.core.settings import Roof
from edgecompress.pipeline import conversion, plan, variant_stages
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, Model, Name, Options, keywords
from edgecompress.pipeline.runner import PlanRun

LEVELS: Mapping[str, tuple[float, ...]] = {"ratio": (0.25, 0.5, 0.75), "bits": (8, 4, 3, 2)}
BITS = range(2, 17)
ROLES = ("analysis", "sensitivity", "storage", "activations")
HERE = ("seed", "batch", "threads")
SUMMARIES = ("sparsity", "compute", "model", "modules", "percentile")  # Distiller's
CSV = ("parameter", "sparsity", "top1", "top5", "loss")  # of its file of a sensitivity
LONG = 40  # letters of a name in a table


@dataclass(frozen=True)
class SensitivityRequest:
    """The sensitivity measurement. `levels` empty: LEVELS; `layers`: names or patterns, empty: all layers."""

    by: str = "ratio"  # or "bits"
    structure: str = "element"  # what a ratio is of: element, filter, channel
    layers: tuple[str, ...] = ()
    levels: tuple[float, ...] = ()
    items: int = 64  # of the split "select"
    file: Name | None = None  # a CSV file in Distiller's format, of class labels

    def __post_init__(self) -> None:
        if self.file and self.by != "ratio":
            raise InputError("--csv is of --sensitivity ratio: Distiller's file has a column of sparsity")
        if self.by not in LEVELS or self.items < 1:
            raise InputError(f"--sensitivity {self.by} --items {self.items}: give ratio or bits, and at least 1 item")
        if self.by == "bits" and self.structure != "element":
            raise InputError(f"--structure {self.structure} works with --sensitivity ratio only; leave --structure out")
        good = [n in BITS if self.by == "bits" else 0 < n < 1 for n in self.levels]
        if not all(good):
            words = f"whole numbers from {BITS[0]} to {BITS[-1]}" if self.by == "bits" else "between 0 and 1"
            raise InputError(
                f"--levels {self.levels[good.index(False)]:g}: levels of --sensitivity {self.by} must be {words}"
            )


@dataclass(frozen=True)
class ActivationRequest:
    """What layers give on the first `items` of the split "select"; `layers`: names or patterns, empty: all."""

    layers: tuple[str, ...] = ()
    items: int = 64

    def __post_init__(self) -> None:
        if self.items < 1:
            raise InputError(f"--activations --items {self.items}: give at least 1 item")


@dataclass(frozen=True)
class SummaryRequest:
    """Distiller's summaries; `percentile`: the share of a weight's magnitudes that are below the one that is told."""

    names: tuple[str, ...]
    percentile: float = 0.9

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in SUMMARIES:
                raise InputError(f"--summary {name}: give {', '.join(SUMMARIES)}{did_you_mean(name, SUMMARIES)}")
        if not 0 < self.percentile <= 1:
            raise InputError(f"--percentile {self.percentile:g}: must be above 0, at most 1: 0.9 is the 90th")


@dataclass(frozen=True, repr=False)
class Analysis:
    """What was found, as JSON, and the page if one was asked for."""

    facts: Mapping[str, Any]
    page: Path | None = None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Analysis({text(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda columns: text(self, width=columns))


@dataclass(frozen=True)
class AnalysisRequest:
    """What to report beside the costs: the memory-bound layers of `devices`, and an HTML page.

    `storage`: the bytes of the weights in sparse and compressed encodings.
    """

    devices: str | Sequence[str] = ("host",)
    sensitivity: SensitivityRequest | None = None
    page: Name | None = None
    storage: bool = False
    activations: ActivationRequest | None = None
    summary: SummaryRequest | None = None  # as text in the place of the tables of costs, devices and zeros


@keywords
@edge_errors
def analyze(
    model: Model | None = None,
    request: AnalysisRequest | None = None,
    *,
    options: Options | None = None,
    **how: Unpack[How],
) -> Analysis:
    """Costs, zeros and, where asked for, sensitivity of `model` (None: the embedded demo). Raises EdgeError.

    The keywords are those of `deploy`.
    """
    request, options = request or AnalysisRequest(), options or Options()
    file = Path(request.page) if request.page else None
    rows = Path(request.sensitivity.file) if request.sensitivity and request.sensitivity.file else None
    for option, place in (("--html", file), ("--csv", rows)):
        if place:
            output_place.check_file(place, option)
    analysis_job = job(**objects.written(model, how, options))
    names = request.devices.split(",") if isinstance(request.devices, str) else request.devices
    devices = [catalog.device(name) for name in names]
    steps = stages(analysis_job, request)
    walk = job_run.begin(analysis_job, options, f"analyze>{analysis_job.source.given}")
    walk.stages(steps)
    facts = {"source": analysis_job.source.value.title, **_facts(walk, "analysis")}
    facts["devices"] = [bound(f.name, f.value.roof, facts["layers"]) for f in devices]
    facts["sensitivity"] = _facts(walk, "sensitivity") if request.sensitivity else None
    facts["storage"] = _facts(walk, "storage") if request.storage else None
    facts["activations"] = _facts(walk, "activations") if request.activations else None
    facts["summary"] = _facts(walk, "summary") if "summary" in walk.outcomes else None
    facts["asked"] = list(request.summary.names) if request.summary else []
    if rows:
        written = io.StringIO(newline="")
        csv.writer(written).writerows([CSV, *facts["sensitivity"]["csv"]])
        rows.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(rows, written.getvalue().encode())
    return Analysis(facts, _drawn(walk, facts, file) if file else None, walk.outcomes)


def _facts(walk: PlanRun, stage: str) -> dict[str, Any]:
    return dict(job_run.artifact_of(walk, stage).facts)


# --------------------------------------------------------------------------- stages


def stages(job: Job, request: AnalysisRequest) -> list[Stage]:
    """The stages in their order; a file needs data only for its sensitivity, a torch net to be loaded.

    A kind whose layers are not read, as Keras has them, is counted as the .onnx that it is exported to.
    """
    source, sensitivity, activations = job.source.value, request.sensitivity, request.activations
    torch = job.resolved.torch
    if not source.data and not sensitivity and not activations and not torch:
        value = dataclasses.replace(source, data="random")  # of the model's own inputs, and never made
        job = dataclasses.replace(job, source=dataclasses.replace(job.source, value=value))
    front = plan.front(job)
    environments.require(registry.call(job.resolved.call)[0], f"the source {source.model}")
    names = ("source", "data", plan.ITEMS) if job.resolved.sized or sensitivity or activations else ("source",)
    data = {"samples": "data"} if torch else {}
    made = [stage for stage in front if stage.name in names]
    read = registry.readers(job.resolved.kind)
    at = variant_stages.SOURCE
    if not torch and not any(runtime.weights for runtime in registry.of_format(job.resolved.kind)):
        for call in conversion.shortest_path(job.resolved.kind, ("onnx",)) or ():
            made.append(variant_stages.shared(job, call, at))
            at, read = made[-1].name, registry.readers("onnx")
    made.append(Stage("analysis", "stages.analyze:run", {"model": at, **data}, plugins=read, user_code=torch))
    if request.storage:
        environments.require(registry.call(plan.STORED)[0], "--storage")
        made.append(Stage("storage", plan.STORED, {"model": "source"}, plugins=read, user_code=torch))
    if activations:
        inputs, asked = {"model": "source", "samples": "data"}, dataclasses.asdict(activations)
        made.append(Stage("activations", "stages.analyze:watch", inputs, asked, context=HERE, user_code=torch))
    if request.summary and (chosen := [n for n in request.summary.names if n != "sparsity"]):
        of, inputs = {"names": chosen, "percentile": request.summary.percentile}, {"model": at, **data}
        made.append(Stage("summary", "stages.analyze:summarize", inputs, of, plugins=read, user_code=torch))
    return [*made, *([_sense(job, sensitivity, torch)] if sensitivity else [])]


def _sense(job: Job, sensitivity: SensitivityRequest, torch: bool) -> Stage:
    """The levels go from the weakest to the strongest."""
    metric, levels = (
        job.source.value.metric,
        sorted(sensitivity.levels or LEVELS[sensitivity.by], reverse=sensitivity.by == "bits"),
    )
    asked = {key: value for key, value in dataclasses.asdict(sensitivity).items() if key != "file"}
    return Stage(
        "sensitivity",
        "stages.analyze:sense",
        {"model": "source", "samples": "data"},
        {**asked, "levels": levels, "metric": metric, "csv": bool(sensitivity.file)},
        context=HERE,
        plugins=registry.readers(job.resolved.kind),
        user_code=torch or job.resolved.calls("metric"),
        estimate_s=30.0,
    )


def _drawn(walk: PlanRun, facts: Mapping[str, Json], file: Path) -> Path:
    """The page, copied to where it was asked for."""
    roles: dict[str, str] = {role: role for role in ROLES if role in walk.outcomes}
    options = {"title": facts["source"], "devices": facts["devices"]}
    walk.stage(Stage("page", "stages.analyze:draw", roles, options))
    file.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(job_run.artifact_of(walk, "page").file(".html"), file)
    return file


# --------------------------------------------------------------------------- devices


def bound(name: str, roof: Roof | None, layers: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """The layers that are memory-bound on a device: those whose FLOP per byte is below the ridge of its roofline.

    `roof` is the device file's, or None: then `why` says how to measure it. Layers without MACs are left out.
    """
    if roof is None:
        how = f"edgecompress profile FOLDER --profile throughput --device {name}"
        why = f"unknown: its device file has no [roof]; measure it with: {how}"
        return {"name": name, "ridge_flops_per_byte": None, "memory_bound": None, "why": why}
    ridge = roof.gflops / roof.gb_per_s
    placed = [row for row in layers if row["flops_per_byte"] is not None]
    waiting = [row for row in placed if row["flops_per_byte"] < ridge]
    macs = sum(row["macs"] for row in placed)
    return {
        "name": name,
        "ridge_flops_per_byte": ridge,
        "memory_bound": [row["name"] or row["type"] for row in waiting],
        "layers": len(placed),
        "share_of_macs": sum(row["macs"] for row in waiting) / macs if macs else 0.0,
        "source": roof.source,
        "why": "",
    }


# --------------------------------------------------------------------------- text


def text(analysis: Analysis, brief: bool = False, width: int = sys.maxsize) -> str:
    """The totals and all tables as text; `brief`: the totals, in one line."""
    from edgecompress.stages.analyze import page

    facts, minded, takes = analysis.facts, analysis.facts["sensitivity"], analysis.facts["storage"]
    parts = [f"{facts['source']}: {page.sentence(facts)}"]
    if brief:
        return parts[0]
    usual = (page.costs(facts), page.devices(facts["devices"]), page.zeros(facts))
    parts += [_summary(name, facts, width) for name in facts["asked"]] or [_table(t, width) for t in usual]
    if takes:
        parts += [_table(page.stored(takes), width), _table(page.forms(takes), width)]
    if watched := facts["activations"]:
        parts.append(f"{_table(page.activations(watched), width)}\n{page.seen_on(watched)}")
    if minded:
        parts.append(f"{_table(page.sensitivity(minded), width)}\n{page.scored_on(minded)}")
    return "\n\n".join([*parts, *([f"page: {analysis.page}"] if analysis.page else [])])


def _summary(name: str, facts: Mapping[str, Any], width: int) -> str:
    """One of Distiller's."""
    from edgecompress.stages.analyze import page

    if name == "model":
        return str(facts["summary"]["model"])
    made = {"sparsity": page.zeros, "compute": page.compute, "modules": page.modules, "percentile": page.percentile}
    return _table(made[name](facts), width)


def _table(table: Any, width: int) -> str:
    rows = [(_short(name), *rest) for name, *rest in table.rows]
    return "\n".join([table.title, *(f"  {line}" for line in fitted([table.head, *rows], width - 2))])


def _short(name: str) -> str:
    """A long name of the converter from torch, "pkg.Net/torch.nn.modules.conv.Conv2d_stem;…;1", as "stem"; its end."""
    first = name.partition(";")[0]
    modules = (part.rpartition(".")[2].partition("_")[2] for part in first.split("/") if "." in part)
    found = name if len(name) <= LONG else ".".join(filter(None, modules)) or first
    return found if len(found) <= LONG else f"…{found[1 - LONG :]}"
