"""Artifacts and outcomes into report.json: one dictionary that every rendering reads."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from edgecompress.model import Artifact, Request
from edgecompress.stages.report import (
    deltas,
    evidence,
    fits,
    gains,
    ladders,
    pareto,
    passes,
    place,
    roofline,
    variants,
    words,
)
from edgecompress.stages.report.numbers import cleaned

SCHEMA = "edgecompress/stages/report/1"
Report = dict[str, Any]


def report(request: Request) -> Report:
    """Everything that is known, as plain JSON; report.schema.json describes it."""
    options, inputs = request.options, request.inputs
    choice = options.get("choice") or {}
    found: Report = {
        "schema": SCHEMA,
        **{key: str(options.get(key) or "") for key in ("title", "command", "date")},
        "exit_code": options.get("exit_code", 0),
        "versions": options.get("versions") or {},
        "run": {"batch": request.context.batch, "threads": request.context.threads},
        "choice": {key: choice.get(key) or "" for key in ("variant", "reason", "unmeasured")},
        "source": _source(options.get("source") or {}, inputs.get("source")),
        **{key: options.get(key) or {} for key in ("target", "device", "profile")},
        "data": dict(inputs["samples"].facts) if "samples" in inputs else None,
        "energy": _energy(inputs.get("energy")),
        "simulated": place.simulated(options.get("device") or {}),
        "not_measured": str(options.get("not_measured") or ""),
        "environment": place.environment(request),
        "configuration": list(options.get("config") or ()),
        "stages": list(options.get("outcomes") or ()),
        "passes": passes.table(inputs),
        "variants": variants.table(request),
        "fits": fits.of_options(options),
        "elsewhere": list(options.get("elsewhere") or ()),
    }
    found["ladders"] = ladders.of_options(options, found["variants"])
    roofs = passes.answers(found, "roofline")
    for v in found["variants"]:
        v["roofline"] = roofline.joined(inputs.get(f"{v['name']}/artifact"), roofs.get(v["name"]))
    return _concluded(found)


def _concluded(found: Report) -> Report:
    """With what follows from the rest: the comparison, the notes and the verdict."""
    found["subject"] = deltas.subject(found)
    found["baseline"] = deltas.baseline(found)
    found["deltas"] = deltas.table(found)
    slow = evidence.sentences(found["variants"])
    found["variants"] = [{**v, "evidence": slow.get(v["name"], "")} for v in found["variants"]]
    found["pareto"] = pareto.of_report(found)
    found["gains"] = gains.of_report(found)
    found["notes"] = words.notes(found)
    found["summary"] = words.summary(found)
    clean: Report = cleaned(found)
    return clean


def _source(given: Mapping[str, Any], artifact: Artifact | None) -> dict[str, Any]:
    if artifact is None:
        return {**given, "artifact": None}
    specs = {side: [dataclasses.asdict(s) for s in getattr(artifact, side)] for side in ("inputs", "outputs")}
    facts = {"kind": artifact.kind, "sha256": artifact.sha256, "size_bytes": artifact.size_bytes}
    return {**given, "artifact": {**facts, **specs}}


def _energy(artifact: Artifact | None) -> dict[str, Any]:
    facts = artifact.facts if artifact else {}
    return {"sensor": facts.get("sensor") or "", "why_not": dict(facts.get("why_not") or {})}
