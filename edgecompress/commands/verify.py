"""`edgecompress verify`: a shipped artifact against its source again."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from edgecompress.commands.job_run import Options, Result, begin
from edgecompress.commands.shipped_folder import runtime_of, shipped
from edgecompress.core.errors import CheckFailed
from edgecompress.core.model import Outcome
from edgecompress.pipeline import plan, shipping, verification
from edgecompress.pipeline.job import job


def verify(path: Path, model: str | None = None, *, options: Options | None = None, **more: Any) -> Result:
    """Checks a shipped artifact against its source again, and against what it answered when it was verified before it
    shipped (`limits.as_shipped`); the Result has exit code 1 when a check fails.

    The model, data, metric, target and limits are those it was deployed with unless given; another target has its own
    limits. Raises EdgeError.
    """
    options = options or Options()
    artifact, _, origin = shipped(path)
    runtime = runtime_of(artifact, origin.get("runtime", ""))
    if model is None:
        model, more = origin.get("model"), {**{k: origin[k] for k in ("data", "metric") if k in origin}, **more}
    if "target" not in more:
        limits = {f"limits.{name}": value for name, value in origin.get("limits", {}).items()}
        more = {**more, "settings": {**limits, **(more.get("settings") or {})}}
    verify_job = job(model, **{"target": origin.get("target", "x86"), **more})
    walk = begin(verify_job, options, f"verify>{path}")
    walk.outcomes["artifact"] = Outcome("artifact", "ok", artifact)
    variant = next((v for v in verify_job.target.value.variant if v.name == origin.get("variant")), None)
    along = {role: folder for role in ("excerpt", "verdict") if (folder := artifact.path.parent / role).is_dir()}
    walk.outcomes |= {f"shipped/{role}": Outcome(role, "ok", shipping.sound(folder)) for role, folder in along.items()}
    judging = verification.verify(verify_job, "verify", runtime, "artifact", variant)
    inputs = {**judging.inputs, **{role: f"shipped/{role}" for role in along}}
    walk.stages([*plan.front(verify_job), dataclasses.replace(judging, inputs=inputs)])
    judged = walk.outcomes["verify"]
    code = CheckFailed.exit_code if judged.status == "lost" else 0
    undecided = [check["says"] for check in judged.facts.get("checks", ()) if check["decision"] == "undecided"]
    kept = "; ".join(["equal to its source within the limits", *undecided])
    return Result(code, judged.reason or kept, outcomes=walk.outcomes)
