"""`diagnose`: compares an artifact with its source layer by layer; the artifact is a variant's or the user's."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from edgecompress.commands import job_run, objects
from edgecompress.commands.diff import diff
from edgecompress.commands.shipped_folder import Origin, runtime_of, shipped, shipped_with
from edgecompress.core import catalog, output_place, registry
from edgecompress.core.errors import InputError, NotFound, StageFailed, did_you_mean, edge_errors
from edgecompress.core.json import Json
from edgecompress.core.model import Outcome, Stage
from edgecompress.core.plain_text import fitted, printed
from edgecompress.core.settings import SPLITS, Variant
from edgecompress.core.source import ResolvedSource
from edgecompress.pipeline import diagnosis, plan, verification
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.diagnosis import DiagnosisSubject
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import PlanRun
from edgecompress.stages.diagnose import advice

NAME = "diagnosis"
GIVEN = "artifact"  # the stage that an artifact from outside stands for
Quantizer = tuple[Variant, Stage]  # a variant, and the stage that compresses it last
KEPT = ("keep", "overflow")  # advice whose remedy is `skip`
HEAD = ("  layer", "operator", "held as", "own", "so far", "growth", "effect", "source", "artifact", "outlier", "cut")


@dataclass(frozen=True)
class DiagnosisRequest:
    """What to diagnose: a variant of the target (empty: the first that compresses), or an existing artifact.

    `artifact`: a folder that a deploy wrote, or a model file. `out`: where diagnosis.json and its pages go.
    """

    variant: str = ""
    artifact: Name | None = None
    items: int = diagnosis.ITEMS
    split: str = diagnosis.SPLIT
    out: Name | None = None

    def __post_init__(self) -> None:
        if self.items < 1:
            raise InputError(f"--items {self.items}: must be at least 1")
        if self.split not in SPLITS:
            raise InputError(f"--split {self.split}: must be one of {', '.join(SPLITS)}")


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What was found, as JSON, and the folder that it was written to."""

    facts: Mapping[str, Any]
    out: Path | None = None
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Diagnosis({text(self, brief=True)})"

    def __str__(self) -> str:
        return printed(lambda columns: text(self, width=columns))


@keywords
@edge_errors
def diagnose(
    model: Model | None = None,
    request: DiagnosisRequest | None = None,
    *,
    variant: str = "",
    artifact: Name | None = None,
    items: int = diagnosis.ITEMS,
    split: str = diagnosis.SPLIT,
    out: Name | None = None,
    target: Name | None = None,
    options: Options | None = None,
    **how: Unpack[How],
) -> Diagnosis:
    """Finds the layers whose outputs differ from the source's, and the remedy. Raises EdgeError.

    variant, artifact, items, split, out: see DiagnosisRequest, which may be given in their place. target: by default
    that of the artifact's deploy, else x86. The other keywords are those of `deploy`.
    """
    if request is not None and not isinstance(request, DiagnosisRequest):
        raise InputError(f"request: is a {type(request).__name__}; give a DiagnosisRequest, and the target as target=")
    own = DiagnosisRequest(variant, artifact, items, split, out)
    if request and own != DiagnosisRequest():
        raise InputError("request: give a DiagnosisRequest, or variant, artifact, items, split and out, not both")
    request, options = request or own, options or Options()
    folder = Path(request.out) if request.out else None
    if folder:
        output_place.check_folder(folder, "--out")
    asked = objects.written(model, how, options)
    asked |= JobRequest(target=target) if target else JobRequest()
    job, walk, subject, quantizer = (_of_file if request.artifact else _of_variant)(asked, request, options)
    stages = diagnosis.stages(job, NAME, subject, request.items, request.split)
    if not stages:
        raise InputError(f"diagnose: runtime {subject.runtime} does not return the outputs of its layers")
    walk.stages(stages)
    found = _facts(walk, NAME)
    if request.artifact and found["advice"]:  # whether an operator computes something else is `diff`'s to tell
        how = {**how, "data": job.source.value.data}
        pair = (job.source.given, request.artifact)
        told = diff(*pair, items=request.items, split=request.split, options=options, **how).facts
        found["kind"] = told["kind"]
        found["says"] = f"{found['says']} {told['kind']}: {told['says']}" if told["kind"] else found["says"]
    facts = {
        "source": job.source.value.title,
        "target": job.target.name,
        "variant": request.variant,
        **found,
        "keep": _keep(*quantizer, found) if quantizer else "",
    }
    return Diagnosis(facts, _written(walk, facts, folder) if folder else None, walk.outcomes)


def _facts(walk: PlanRun, name: str) -> dict[str, Json]:
    outcome = walk.outcomes[name]
    if outcome.artifact is None:
        raise outcome.error or StageFailed(f"{name}: {outcome.reason}")
    return dict(outcome.facts)


def _written(walk: PlanRun, facts: Mapping[str, Json], out: Path) -> Path:
    """diagnosis.json, and the pages that a worker draws from it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{NAME}.json").write_text(json.dumps(facts, indent=1, allow_nan=False), encoding="utf-8")
    page = walk.stage(Stage("page", "stages.diagnose.page:draw", options=dict(facts), context=()))
    assert page.artifact  # or it had raised
    for suffix in (".html", ".md"):
        shutil.copyfile(page.artifact.file(suffix), out / f"{NAME}{suffix}")
    return out


def _keep(variant: Variant, quantizer: Stage, facts: Mapping[str, Any]) -> str:
    """The `--set` with which a deploy keeps the layers at fault in higher precision; "" where that is no remedy."""
    kept = registry.technique(quantizer.call.split(":")[0].partition(".")[2]).kept
    rows = [row for row in facts["layers"] if row["name"] in facts["culprits"] and row["operator"]]
    if not kept or not rows or facts["advice"] not in KEPT:
        return ""
    step = f"{variant.compress[-1]['use']}." if len(variant.compress) > 1 else ""
    after = kept(quantizer.options, rows)
    option = next(name for name, value in after.items() if value != quantizer.options.get(name))
    names = json.dumps(after[option], ensure_ascii=False)
    return f"--set {shlex.quote(f'variant.{variant.name}.{step}{option}={names}')}"


# --------------------------------------------------------------------------- a variant of a target


def _of_variant(
    asked: JobRequest, request: DiagnosisRequest, options: Options
) -> tuple[Job, PlanRun, DiagnosisSubject, Quantizer | None]:
    """The walk up to the variant's artifact, and the stage that compresses it last."""
    whole = job(**asked)
    compressed = [v.name for v in whole.target.value.variant if v.compress]
    if request.variant and request.variant not in (known := [v.name for v in whole.target.value.variant]):
        raise NotFound(
            f"--variant {request.variant}: {whole.target.path} has no such "
            f"variant{did_you_mean(request.variant, known)}"
        )
    name = request.variant or next(iter(compressed), whole.target.value.variant[0].name)
    variant_job = job(**asked | JobRequest(only=[name]))
    steps = plan.deploy(variant_job)
    candidate = steps.candidates[0]
    walk = job_run.begin(variant_job, options, f"diagnose>{variant_job.source.given}>{variant_job.target.path}")
    walk.stages([step for step in steps.stages if step.name in _needed(steps, candidate.verdict or candidate.artifact)])
    _facts(walk, candidate.artifact)
    refused = verification.refused(walk.outcomes[candidate.verdict]) if candidate.verdict else ""
    stages, at = _by_name(steps), candidate.artifact
    while at in stages and not stages[at].call.startswith("techniques."):
        at = stages[at].inputs.get("model", "")
    quantizer = (candidate.variant, stages[at]) if at in stages else None
    return variant_job, walk, replace(subject(candidate, steps), refused=refused), quantizer


def subject(candidate: Candidate, steps: Plan) -> DiagnosisSubject:
    """The diagnosis of a candidate: its artifact against the last float program on the way to it."""
    stages = _by_name(steps)
    last, at = stages[candidate.artifact], diagnosis.float_source(stages, candidate.artifact)
    before = last.inputs["model"] if last.call.endswith(":export") else ""
    kind, reader = ("program", "") if at != "source" else _kind(steps.source)
    export = tuple(candidate.variant.export.items()) if before else ()
    return DiagnosisSubject(candidate.runtime, candidate.artifact, at, kind, before, reader, export)


def _by_name(steps: Plan) -> dict[str, Stage]:
    return {step.name: step if isinstance(step, Stage) else step.stage for step in steps.stages}


def _needed(steps: Plan, name: str) -> set[str]:
    """The steps that lead to one, and the data."""
    stages, needed, queue = _by_name(steps), set[str](), [name, "data"]
    while queue:
        at = queue.pop()
        if at in stages and at not in needed:
            needed.add(at)
            queue += stages[at].inputs.values()
    return needed


def _kind(source: ResolvedSource) -> tuple[str, str]:
    """The kind of the source, and the runtime that runs it where it is no torch net."""
    if source.torch:
        return source.kind, ""
    if not registry.runtime(source.runtime).tapped:
        raise InputError(
            f"diagnose: runtime {source.runtime}, which runs the source, does not return the outputs of its layers; "
            "export it first: `edgecompress deploy MODEL --only fp32`, then diagnose the "
            "artifact/model.onnx of what ships for x86"
        )
    return "file", source.runtime


# --------------------------------------------------------------------------- an artifact from outside


def _of_file(
    asked: JobRequest, request: DiagnosisRequest, options: Options
) -> tuple[Job, PlanRun, DiagnosisSubject, Quantizer | None]:
    """The walk up to an artifact that is there already; its source is the one it was deployed from unless given."""
    assert request.artifact
    place = Path(request.artifact).resolve()
    deployed = shipped(place) if place.is_dir() else None
    origin = deployed[2] if deployed else Origin()
    asked = JobRequest(target=origin.target) | asked
    file_job = job(**(shipped_with(origin, asked) if asked.get("model") is None else asked))
    walk = job_run.begin(file_job, options, f"diagnose>{place}")
    front = [stage for stage in plan.front(file_job) if stage.name in ("data", "source", plan.ITEMS)]
    if deployed:
        walk.outcomes[GIVEN] = Outcome(GIVEN, "ok", deployed[0])
        runtime, reading = runtime_of(deployed[0], origin.runtime), []
    else:
        runtime = _reader(place)
        reading = [Stage(GIVEN, f"runtimes.{runtime}:read", {}, {"path": str(place)}, user_files=(str(place),))]
    walk.stages([*front, *reading])
    kind, reader = _kind(file_job.resolved)
    return file_job, walk, DiagnosisSubject(runtime, GIVEN, "source", kind, "", reader), None


def _reader(file: Path) -> str:
    """The runtime that reads such a file and tells what its layers answer."""
    catalog.check_file(file, "model file")
    known = {r.suffix: r.name for r in registry.runtimes() if r.suffix and r.tapped}
    if file.suffix not in known:
        raise InputError(f"{file}: diagnose reads {', '.join(sorted(known))} files, or a folder that a deploy wrote")
    return known[file.suffix]


# --------------------------------------------------------------------------- text


def text(diagnosis: Diagnosis, brief: bool = False, width: int = sys.maxsize) -> str:
    """The layers in computing order, those at fault marked, and the conclusion. `brief`: the conclusion only."""
    facts = diagnosis.facts
    if brief:
        return " ".join(str(facts["says"]).split())
    next_step = [f"next: the same deploy with {facts['keep']}"] if facts.get("keep") else []
    parts = ["\n".join(_lines(facts, width)), "\n".join([str(facts["says"]), *next_step])]
    return "\n\n".join([*parts, *([f"written: {diagnosis.out}"] if diagnosis.out else [])])


def _lines(facts: Mapping[str, Any], width: int) -> list[str]:
    read = [row for row in facts["layers"] if row["output"]]
    rest = len(facts["layers"]) - len(read)
    same = "nothing" if not facts["same"] else f"{100 * facts['same']:.2g} %"
    title = f"{facts['source']}, {facts['runtime']}, {facts['items']} items of {facts['split']}; SQNR in dB"
    lines = fitted([HEAD, *(_cells(row, facts["culprits"]) for row in read)], width)
    ends = [f"  output {o['name']}: {_number(o['sqnr_db'], 'identical')} dB" for o in facts["outputs"]]
    notes = [f"  {rest} layers have no output of their own in the artifact"] if rest else []
    notes += [f"  of no layer of the source: {_few(facts['unmatched'])}"] if facts["unmatched"] else []
    return [title, *lines, *ends, *notes, f"  reading its layer outputs changes its results by {same}"]


def _few(names: Sequence[str], limit: int = 4) -> str:
    """The first names, and how many there are more."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(advice.short(name, 30) for name in names[:limit]) + more


def _cells(row: Mapping[str, Any], culprits: Sequence[str]) -> tuple[str, ...]:
    own = (
        "exact"
        if row["own_sqnr_db"] is None and "own error: identical" in row["reason"]
        else _number(row["own_sqnr_db"])
    )
    return (
        f"{'→' if row['name'] in culprits else ' '} {row['name']}",
        advice.short(str(row["operator"]), 30),
        str(row["dtype"]),
        own,
        _number(row["sqnr_db"], "exact" if row["reason"].startswith("identical") else "–"),
        _number(row["growth_db"]),
        "–" if row["effect"] is None else f"{row['effect']:.2g}",
        _range(row["range"]),
        f"{row['not_finite']} not finite" if row["not_finite"] else _range(row["found"]),
        _number(row["outlier"]),
        "–" if not row["clipped"] else f"{row['clipped']:.2%}" if row["clipped"] >= 1e-4 else "<0.01%",
    )


def _number(value: float | None, missing: str = "–") -> str:
    return missing if value is None else f"{value:.1f}"


def _range(ends: Sequence[float]) -> str:
    return f"{ends[0]:.3g} .. {ends[1]:.3g}"
