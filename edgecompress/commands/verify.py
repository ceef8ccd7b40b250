"""`edgecompress verify`: a shipped artifact against its source again."""

from __future__ import annotations

import dataclasses
from typing import Unpack

from edgecompress.commands import objects
from edgecompress.commands.job_run import Result, begin, no_proof
from edgecompress.commands.shipped_folder import Origin, folder_named, runtime_of, shipped, shipped_with
from edgecompress.core.errors import UNDECIDED, CheckFailed, InputError, edge_errors
from edgecompress.core.model import Artifact, Outcome
from edgecompress.pipeline import plan, shipping, verification
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, keywords
from edgecompress.pipeline.runner import PlanRun


@keywords
@edge_errors
def verify(
    path: Name,
    model: Model | None = None,
    *,
    target: Name | None = None,
    options: Options | None = None,
    **how: Unpack[How],
) -> Result:
    """Checks a shipped artifact against its source again, and against what it answered when it was verified before it
    shipped (`limits.as_shipped`); the Result has exit code 1 when a check fails, and 4 when the accuracy is not above
    chance.

    The model, data, metric, target and limits are those it was deployed with unless given; another target has its own
    limits. The keywords are those of `deploy`. Raises EdgeError.
    """
    options = options or Options()
    artifact, _, origin = shipped(folder_named(path))
    runtime = runtime_of(artifact, origin.runtime)
    request = objects.written(model, how, options) | JobRequest(target=target or origin.target)
    if request["model"] is None:
        request = shipped_with(origin, request)
    if target is None:
        limits = {f"limits.{name}": value for name, value in origin.limits.items()}
        request["settings"] = {**limits, **(request.get("settings") or {})}
    verify_job = job(**request)
    own = verify_job.device.value.export.get(runtime, {})
    if other := next((f"{v} = {artifact.facts[v]}" for v in own if artifact.facts.get(v, own[v]) != own[v]), ""):
        raise InputError(
            f"{path}: was compiled for {other}, not for {verify_job.device.name}; deploy it for that device"
        )
    return _judged(verify_job, begin(verify_job, options, f"verify>{path}"), artifact, origin, runtime)


def _judged(verify_job: Job, walk: PlanRun, artifact: Artifact, origin: Origin, runtime: str) -> Result:
    """Runs the source and the artifact, with what it shipped with as far as that is there; how they compare."""
    walk.outcomes["artifact"] = Outcome("artifact", "ok", artifact)
    variant = next((v for v in verify_job.target.value.variant if v.name == origin.variant), None)
    along = {role: folder for role in ("excerpt", "verdict") if (folder := artifact.path.parent / role).is_dir()}
    walk.outcomes |= {f"shipped/{role}": Outcome(role, "ok", shipping.sound(folder)) for role, folder in along.items()}
    judging = verification.verify(verify_job, "verify", runtime, "artifact", variant)
    inputs = {**judging.inputs, **{role: f"shipped/{role}" for role in along}}
    walk.stages([*plan.front(verify_job), dataclasses.replace(judging, inputs=inputs)])
    judged = walk.outcomes["verify"]
    code = CheckFailed.exit_code if judged.status == "lost" else 0
    undecided = [check["says"] for check in judged.facts.get("checks", ()) if check["decision"] == "undecided"]
    trained = variant is not None and verification.is_trained(variant)
    doubt = no_proof(walk, "verify", trained)
    held = "within the limits, trained further than its source" if trained else "equal to its source within the limits"
    kept = "; ".join([held, *undecided, *([f"undecided: {doubt}"] if doubt else [])])
    return Result(code or (UNDECIDED if doubt else 0), judged.reason or kept, outcomes=walk.outcomes)
