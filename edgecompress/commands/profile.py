"""`edgecompress profile`: measures a shipped artifact."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Unpack

from edgecompress.commands import report_request
from edgecompress.commands.job_run import Result, all_broke, begin, check_sensors, not_measured, remember
from edgecompress.commands.shipped_folder import folder_named, runtime_of, shipped, shipped_source
from edgecompress.core import registry
from edgecompress.core.errors import CheckFailed, InputError, StageFailed, edge_errors
from edgecompress.core.model import Outcome
from edgecompress.core.settings import Variant
from edgecompress.pipeline import plan, shipping, verification
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Name, Options, keywords
from edgecompress.pipeline.runner import PlanRun


@keywords
@edge_errors
def profile(
    path: Name,
    *,
    target: Name | None = None,
    options: Options | None = None,
    **how: Unpack[How],
) -> Result:
    """Measures a shipped artifact on a device; its report has one variant and no accuracy. Raises EdgeError.

    `target`, `threads`: by default those of its deploy. The keywords are those of `deploy`.
    """
    request: JobRequest = {**how, **({"target": target} if target else {})}
    return _profile({"": folder_named(path)}, options or Options(), request)


def profile_in_turns(
    named: Mapping[str, Path], *, options: Options | None = None, **request: Unpack[JobRequest]
) -> Result:
    """Measures several shipped artifacts, interleaved, all on the first one's excerpt of inputs.

    The variants of its report have the names given. Raises EdgeError.
    """
    artifacts = {name: shipped(path)[0] for name, path in named.items()}
    first, *others = artifacts.values()
    takes = [{s.name: s.concrete() for s in artifact.inputs} for artifact in (first, *others)]
    if other := next((a for a, inputs in zip(others, takes[1:], strict=True) if inputs != takes[0]), None):
        raise InputError(
            f"{other.path}: its inputs differ from those of {first.path}; profile artifacts of one model together"
        )
    return _profile(named, options or Options(), request)


def _profile(named: Mapping[str, Path], options: Options, request: JobRequest) -> Result:
    first = next(iter(named.values()))
    origin = shipped(first)[2]
    if unused := {*request} & {"model", "data", "metric", "samples", "only"}:
        raise InputError(f"{sorted(unused)[0]}: what shipped is measured on the inputs that lie beside it")
    asked = request.get("threads") is not None
    own = JobRequest(target=origin.target, threads=origin.threads) | request
    resolved = job(**(own if asked else own | JobRequest(threads=origin.threads)))
    resolved = dataclasses.replace(resolved, source=shipped_source(first, origin))
    alone = plan.ranking(resolved, ())
    if alone.unmeasured:
        remedy = "" if resolved.at_hand else "; name another with --device"
        raise InputError(f"{first}: nothing can be measured: {alone.unmeasured}{remedy}")
    check_sensors(resolved, alone, options)
    walk = begin(resolved, options, f"profile>{','.join(map(str, named.values()))}")
    candidates = [_candidate(resolved, walk, path, name, asked) for name, path in named.items()]
    samples = f"{next(iter(named))}/excerpt".lstrip("/")
    race = dataclasses.replace(alone, entrants=tuple(candidates), samples=samples)
    choice = walk.search(race)
    if error := all_broke(walk, choice):
        raise error
    measured = dataclasses.replace(choice, stage="")  # nothing ships: it is shipped already
    report = walk.stage(report_request.stage(resolved, walk, race, measured, options))
    folder = report.artifact.path if report.artifact else None
    if report.artifact:
        remember(walk, report.artifact)
    if choice.stage and (why := not_measured(walk, choice, options)):
        return Result(CheckFailed.exit_code, why, None, folder, walk.outcomes)
    if choice.stage:
        return Result(0, choice.reason, None, folder, walk.outcomes)
    lost = next((row["reason"] for row in choice.table.values() if row["verdict"] == "lost"), "")
    code = CheckFailed.exit_code if lost else StageFailed.exit_code
    return Result(code, lost or choice.reason, None, folder, walk.outcomes)


def _candidate(job: Job, walk: PlanRun, path: Path, name: str, asked: bool) -> Candidate:
    """A shipped artifact as a candidate without a verdict; on an external device its outputs must be those of here.

    asked: a number of threads was given; else it has those that it shipped with.
    """
    artifact, excerpt, origin = shipped(path)
    if excerpt is None:
        raise InputError(f"{path}: contains no inputs to run on (excerpt); give the folder that a deploy wrote")
    runtime = runtime_of(artifact, origin.runtime)
    if simulated := registry.runtime(runtime).simulated:
        raise InputError(
            f"{path}: runtime {runtime} does not run on this machine, and {simulated}, which replaces it here, is "
            "not measured; give an artifact of another runtime"
        )
    own = {role: f"{name}/{role}".lstrip("/") for role in ("artifact", "excerpt", "verdict", "agree")}
    walk.outcomes |= {own["artifact"]: Outcome("artifact", "ok", artifact)}
    walk.outcomes |= {own["excerpt"]: Outcome("excerpt", "ok", excerpt)}
    threads = None if asked or origin.threads == job.context.threads else origin.threads
    variant = Variant(name or origin.variant or artifact.kind, threads=threads)
    candidate = Candidate(variant, runtime, own["artifact"])
    verdict = artifact.path.parent / "verdict"
    if not verdict.is_dir() or job.context.device["here"]:
        return candidate
    walk.outcomes[own["verdict"]] = Outcome("verdict", "ok", shipping.sound(verdict))
    candidate = dataclasses.replace(candidate, agrees=own["agree"])
    stage = verification.parity(job, candidate, own["verdict"], job.target.value.limits.on_device)
    walk.stage(dataclasses.replace(stage, inputs={**stage.inputs, "excerpt": own["excerpt"]}))
    return candidate
