"""Artifacts and outcomes into report.json: one dictionary that every rendering reads."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from edgecompress.core.model import Artifact, Request
from edgecompress.formats.precision import facts
from edgecompress.reporting import (
    before_after,
    compression_gains,
    environment,
    guard,
    model,
    pareto,
    profilers,
    roofline,
    slowdown,
    strength_search,
    summary,
    variants,
)
from edgecompress.reporting.formatting import cleaned
from edgecompress.reporting.request import DeclaredSource, ReportRequest

Report = dict[str, Any]


def report(request: Request) -> Report:
    """Everything that is known, as plain JSON; the model describes it."""
    job, inputs = ReportRequest.from_json(request.options), request.inputs
    report: Report = {
        "schema": model.SCHEMA,
        "title": job.title,
        "command": job.command,
        "date": job.date,
        "exit_code": job.exit_code,
        "versions": job.versions,
        "run": {"batch": request.context.batch, "threads": request.context.threads},
        "choice": {key: job.choice.get(key) or "" for key in ("variant", "reason", "unmeasured")},
        "source": _source(job.source, inputs.get("source")),
        "target": job.target,
        "device": job.device,
        "profile": job.profile,
        "data": {**inputs["samples"].facts, "sha256": inputs["samples"].sha256} if "samples" in inputs else None,
        "energy": _energy(inputs.get("energy")),
        "simulated": environment.simulated(job.device),
        "not_measured": job.not_measured,
        "environment": environment.environment(request),
        "configuration": list(job.config),
        "stages": list(job.outcomes),
        "passes": profilers.table(inputs),
        "variants": variants.table(request, job),
        "fits": strength_search.of_request(job),
        "elsewhere": list(job.elsewhere),
    }
    report["ladders"] = guard.of_request(job, report["variants"])
    roofs = profilers.answers(report, "roofline")
    for v in report["variants"]:
        v["roofline"] = roofline.joined(inputs.get(f"{v['name']}/artifact"), roofs.get(v["name"]))
    return _concluded(report)


def _concluded(report: Report) -> Report:
    """With what follows from the rest: the comparison, the notes and the verdict."""
    report["subject"] = before_after.subject(report)
    report["baseline"] = before_after.baseline(report)
    report["deltas"] = before_after.table(report)
    slow = slowdown.sentences(report["variants"])
    report["variants"] = [{**v, "evidence": slow.get(v["name"], "")} for v in report["variants"]]
    report["pareto"] = pareto.of_report(report)
    report["gains"] = compression_gains.of_report(report)
    report["notes"] = summary.notes(report)
    report["summary"] = summary.summary(report)
    written: Report = msgspec.to_builtins(model.of(cleaned(report)))
    return written


def _source(declared: DeclaredSource, artifact: Artifact | None) -> dict[str, Any]:
    if artifact is None:
        return {**declared, "artifact": None}
    specs = {side: [dataclasses.asdict(s) for s in getattr(artifact, side)] for side in ("inputs", "outputs")}
    about = {"kind": artifact.kind, "sha256": artifact.sha256, "size_bytes": artifact.size_bytes}
    return {**declared, "artifact": {**about, "precision": facts.of(artifact), **specs}}


def _energy(artifact: Artifact | None) -> dict[str, Any]:
    facts = artifact.facts if artifact else {}
    return {"sensor": facts.get("sensor") or "", "why_not": dict(facts.get("why_not") or {})}
