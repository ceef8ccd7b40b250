"""Artifacts and outcomes into the report that every rendering reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial

import msgspec

from edgecompress.core.model import WARNINGS, Artifact, Request
from edgecompress.core.plain_text import one_line
from edgecompress.core.plugins import SectionPlugin
from edgecompress.formats.precision import facts
from edgecompress.reporting import (
    before_after,
    bottleneck,
    compression_gains,
    environment,
    model,
    net_graph,
    pareto,
    profilers,
    roofline,
    slowdown,
    strength_search,
    summary,
    variants,
)
from edgecompress.reporting.formatting import clean
from edgecompress.reporting.model import Choice, Energy, ExternalRow, Note, Report, Run, Setting, StageRow
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.model_variant import SourceArtifact
from edgecompress.reporting.request import DeclaredSource, ReportRequest


def report(request: Request) -> Report:
    """Everything that is known."""
    job, inputs = ReportRequest.from_json(request.options), request.inputs
    measured = inputs["energy"].facts if "energy" in inputs else {}
    report = Report(
        schema=model.SCHEMA,
        title=job.title,
        command=job.command,
        date=job.date,
        exit_code=job.exit_code,
        versions=dict(job.versions),
        run=Run(request.context.batch, request.context.threads),
        choice=Choice(*(str(job.choice.get(key) or "") for key in ("variant", "reason", "unmeasured"))),
        source=_source(job.source, inputs.get("source")),
        target=dict(job.target),
        device=dict(job.device),
        profile=dict(job.profile),
        data=_data(inputs),
        energy=Energy(measured.get("sensor") or "", dict(measured.get("why_not") or {})),
        simulated=environment.simulated(job.device),
        not_measured=job.not_measured,
        environment=environment.environment(request),
        configuration=msgspec.convert(job.config, list[Setting]),
        stages=msgspec.convert(job.outcomes, list[StageRow]),
        passes=profilers.table(inputs),
        variants=variants.table(request, job),
        fits=strength_search.of_request(job),
        elsewhere=msgspec.convert(job.elsewhere, list[ExternalRow]),
    )
    roofs = profilers.answers(report, "roofline")
    for v in report.variants:
        artifact = inputs.get(f"{v.name}/artifact")
        v.roofline = roofline.joined(artifact, roofs.get(v.name))
        v.bottleneck = bottleneck.of_variant(report, v, artifact)
    report.graph = net_graph.of_report(report, inputs)
    broken = list[str]()
    for section in model.sections():
        if section.found:
            report.rest[section.key] = model.safely(
                section, partial(_found, section, request, job, report), None, broken
            )
    concluded = _concluded(report)
    for section in model.sections():  # what cannot be shown is told where all read it
        if not model.is_ours(section):
            model.safely(section, lambda each=section: bool(each.tables(concluded)), False, broken)  # type: ignore[misc]
    concluded.notes += [Note("warning", one_line(line)) for line in broken]
    return concluded


def _found(section: SectionPlugin, request: Request, job: ReportRequest, report: Report) -> object:
    """The data of a section, as its class."""
    assert section.found
    told = msgspec.to_builtins(section.found(request, job, report))
    return msgspec.convert(told, section.data | None)


def _concluded(report: Report) -> Report:
    """With what follows from the rest: the comparison, the notes and the verdict; no name in it drives a terminal."""
    report.subject = before_after.subject(report)
    report.baseline = before_after.baseline(report)
    report.deltas = before_after.table(report)
    slow = slowdown.sentences(report.variants)
    for variant in report.variants:
        variant.evidence = slow.get(variant.name, "")
    report.pareto = pareto.of_report(report)
    report.gains = compression_gains.of_report(report)
    report.notes = summary.notes(report)
    report.summary = summary.summary(report)
    return clean(report)


def _source(declared: DeclaredSource, artifact: Artifact | None) -> Table:
    if artifact is None:
        return {**declared, "artifact": None}
    specs = ([dataclasses.asdict(spec) for spec in side] for side in (artifact.inputs, artifact.outputs))
    read = SourceArtifact(artifact.kind, artifact.sha256, artifact.size_bytes, facts.of(artifact), *specs)
    return {**declared, "artifact": msgspec.to_builtins(read)}


def _data(inputs: Mapping[str, Artifact]) -> Table | None:
    """The facts of the samples, with what is doubtful about them, the source, and what it answers to them."""
    if (samples := inputs.get("samples")) is None:
        return None
    told = [
        text
        for name in ("source", "samples", "golden")
        if name in inputs
        for text in inputs[name].facts.get(WARNINGS, ())
    ]
    return {**samples.facts, "sha256": samples.sha256, **({WARNINGS: told} if told else {})}
