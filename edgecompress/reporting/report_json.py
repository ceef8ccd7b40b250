"""Artifacts and outcomes into report.json: one dictionary that every rendering reads."""

from __future__ import annotations

import dataclasses
from typing import Any

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import (
    before_after,
    environment,
    gains,
    guard,
    pareto,
    profilers,
    roofline,
    slowdown,
    strength,
    summary,
    variants,
)
from edgecompress.reporting.formatting import cleaned
from edgecompress.reporting.request import DeclaredSource, ReportRequest

SCHEMA = "edgecompress/stages/report/1"
Report = dict[str, Any]


def report(request: Request) -> Report:
    """Everything that is known, as plain JSON; report.schema.json describes it."""
    job, inputs = ReportRequest.from_json(request.options), request.inputs
    found: Report = {
        "schema": SCHEMA,
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
        "data": dict(inputs["samples"].facts) if "samples" in inputs else None,
        "energy": _energy(inputs.get("energy")),
        "simulated": environment.simulated(job.device),
        "not_measured": job.not_measured,
        "environment": environment.environment(request),
        "configuration": list(job.config),
        "stages": list(job.outcomes),
        "passes": profilers.table(inputs),
        "variants": variants.table(request, job),
        "fits": strength.of_request(job),
        "elsewhere": list(job.elsewhere),
    }
    found["ladders"] = guard.of_request(job, found["variants"])
    roofs = profilers.answers(found, "roofline")
    for v in found["variants"]:
        v["roofline"] = roofline.joined(inputs.get(f"{v['name']}/artifact"), roofs.get(v["name"]))
    return _concluded(found)


def _concluded(found: Report) -> Report:
    """With what follows from the rest: the comparison, the notes and the verdict."""
    found["subject"] = before_after.subject(found)
    found["baseline"] = before_after.baseline(found)
    found["deltas"] = before_after.table(found)
    slow = slowdown.sentences(found["variants"])
    found["variants"] = [{**v, "evidence": slow.get(v["name"], "")} for v in found["variants"]]
    found["pareto"] = pareto.of_report(found)
    found["gains"] = gains.of_report(found)
    found["notes"] = summary.notes(found)
    found["summary"] = summary.summary(found)
    clean: Report = cleaned(found)
    return clean


def _source(declared: DeclaredSource, artifact: Artifact | None) -> dict[str, Any]:
    if artifact is None:
        return {**declared, "artifact": None}
    specs = {side: [dataclasses.asdict(s) for s in getattr(artifact, side)] for side in ("inputs", "outputs")}
    facts = {"kind": artifact.kind, "sha256": artifact.sha256, "size_bytes": artifact.size_bytes}
    return {**declared, "artifact": {**facts, **specs}}


def _energy(artifact: Artifact | None) -> dict[str, Any]:
    facts = artifact.facts if artifact else {}
    return {"sensor": facts.get("sensor") or "", "why_not": dict(facts.get("why_not") or {})}
