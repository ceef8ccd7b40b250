"""`edgecompress deploy`: makes the job and its plan, runs the plan's stages, and ships the result."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.commands import report_request
from edgecompress.commands.job_run import (
    Options,
    Result,
    all_broke,
    artifact_of,
    begin,
    check_sensors,
    not_measured,
    out_folder,
    remember,
)
from edgecompress.core import catalog
from edgecompress.core.errors import CheckFailed, EdgeError, InputError, StageFailed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import CARD, Choice
from edgecompress.pipeline import plan, shipping
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.searches import accuracy_guard
from edgecompress.pipeline.shipping import ORIGIN
from edgecompress.reporting import external_results

MOST = sys.float_info.max  # JSON knows no infinity


def deploy(model: str | None = None, target: str = "x86", *, options: Options | None = None, **settings: Any) -> Result:
    """Compresses, exports, verifies, measures and ships `model` (None: the embedded demo) for `target`.

    `settings` is what `pipeline.job.job` takes: data, metric, device, profile, only, threads, batch, seed, settings.
    Raises EdgeError: InputError (exit code 2) or StageFailed (3). A check that failed is a Result with exit code 1, and
    one with the code of the first error tells that every variant broke; both have a report.
    """
    options = options or Options()
    resolved = job(model, target, untrusted=options.untrusted, **settings)
    return run(resolved, plan.deploy(resolved), options)


def run(job: Job, steps: Plan, options: Options, later_s: float = 0.0) -> Result:
    """Runs a plan made by `plan.deploy`, and ships the variant that its search chose.

    `later_s` is how many seconds the plans after it may take: they belong to the time left.
    """
    _check(job, steps, options)
    walk = begin(job, options, f"{job.source.given}>{job.target.path}")
    out = out_folder(job, options)
    if not options.until:
        with walk.store.locked(external_results.lock(out)):  # nobody waits for minutes to be refused
            shipping.check(out, walk.store.root)
    walk.ahead_s = later_s + (0.0 if options.until else walk.expected_s(steps.race))
    if walk.stages(steps.stages, options.until):
        return Result(0, f"stopped after {options.until}", outcomes=walk.outcomes)
    walk.ahead_s = later_s
    choice = walk.search(steps.race)
    report = walk.stage(report_request.stage(job, walk, steps.race, choice, options))
    if report.artifact is None:
        raise StageFailed(report.reason)
    remember(walk, report.artifact)
    if error := all_broke(walk, choice):
        return _held(walk, out, error.exit_code, str(error))
    if why := _held_back(walk, steps.candidates, choice, options):
        return _held(walk, out, CheckFailed.exit_code, why)
    _ship(job, walk, steps, choice, out)
    return Result(0, f"{choice.stage}: {choice.reason}", out, out, walk.outcomes)


def run_all(plans: Sequence[tuple[Job, Plan]], options: Options) -> dict[str, Result]:
    """Runs the plans of several targets in turn; shared stages run once, and a failed target does not stop the others.

    Each ships into its own folder of `options.out`.
    """
    results = {}
    later_s = sum(steps.estimate_s() for _, steps in plans)
    for each, steps in plans:
        later_s -= steps.estimate_s()
        name = each.target.name
        own = dataclasses.replace(options, out=options.out / name) if options.out else options
        try:
            results[name] = run(each, steps, own, later_s)
        except EdgeError as error:
            results[name] = Result(error.exit_code, str(error))
    return results


def _check(job: Job, steps: Plan, options: Options) -> None:
    """Raises InputError, CheckFailed for options that the plan cannot be walked with."""
    if options.untrusted and (code := steps.user_code()):
        raise InputError(
            f"--untrusted: {code} runs its author's code; give an .onnx file and data in .npy, .npz or images"
        )
    names = {s.name for s in steps.stages}
    if options.until and options.until not in names:
        raise InputError(f"--until {options.until}: no such stage{did_you_mean(options.until, names)}")
    check_sensors(job, steps.race, options)


def _held_back(walk: PlanRun, candidates: Sequence[Candidate], choice: Choice, options: Options) -> str:
    """Why nothing ships, or ""."""
    if not choice.stage:
        return "; ".join([choice.reason, *_nearest(walk, candidates)])
    return not_measured(walk, choice, options)


def _nearest(walk: PlanRun, candidates: Sequence[Candidate]) -> Iterator[str]:
    """How near each guarded variant came, and how much of what it lost at first that mends."""
    for candidate in candidates:
        guarded = walk.choices.get(candidate.artifact)
        if guarded and "ladder" in guarded.table:
            metric = walk.outcomes[candidate.verdict].facts.get("metric")
            yield f"{candidate.name} {accuracy_guard.ending(guarded, metric)}"


# --------------------------------------------------------------------------- ship


def _ship(job: Job, walk: PlanRun, steps: Plan, choice: Choice, out: Path) -> None:
    """Puts artifact, excerpt and report into the output folder: written beside it, then renamed, under a lock."""
    candidate = next(c for c in steps.candidates if c.name == choice.stage)
    limits = walk.outcomes[candidate.verdict].facts["limits"]
    names = {"artifact": candidate.artifact, "excerpt": steps.race.samples, "verdict": candidate.verdict}
    with walk.store.locked(external_results.lock(out)):
        shipping.check(out, walk.store.root)
        try:
            shipping.ship(out, lambda part: _fill(part, out, walk, names, _origin(job, candidate, limits)))
        except StageFailed:  # what was copied may not be what was stored
            walk.store.distrust()
            raise


def _held(walk: PlanRun, out: Path, code: int, why: str) -> Result:
    """Where nothing ships, the report goes into the output folder alone; what an earlier deploy shipped there stays."""
    with walk.store.locked(external_results.lock(out)):
        shipping.check(out, walk.store.root)
        if (out / "artifact").is_dir():
            return Result(code, why, None, artifact_of(walk, "report").path, walk.outcomes)
        shipping.ship(out, lambda part: _put_report(part, walk))
    return Result(code, why, None, out, walk.outcomes)


def _put_report(part: Path, walk: PlanRun) -> None:
    shipping.copied(artifact_of(walk, "report"), part)
    (part / CARD).unlink()


def _fill(part: Path, out: Path, walk: PlanRun, names: Mapping[str, str], origin: Mapping[str, Json]) -> None:
    """Writes what ships, and what was measured of it before, into a folder that takes the place of `out`."""
    _put_report(part, walk)
    for name, stage in names.items():
        shipping.copied(artifact_of(walk, stage), part / name)
    content = {**origin, shipping.SHA256: artifact_of(walk, names["artifact"]).sha256}
    (part / ORIGIN).write_text(json.dumps(content, indent=1), encoding="utf-8")
    if left_behind := external_results.carry(out, part, external_results.digest(artifact_of(walk, names["artifact"]))):
        print(
            f"edgecompress: warning: {left_behind} measurements of the previously shipped model were removed",
            file=sys.stderr,
        )


def _origin(job: Job, candidate: Candidate, limits: Mapping[str, Any]) -> dict[str, Json]:
    """What `verify` needs to check the artifact again: within which limits, too."""
    source, toml = job.source, job.source.toml
    return {
        "variant": candidate.name,
        "runtime": candidate.runtime,
        "model": str(toml.resolve()) if toml else source.value.model,
        "target": catalog.reference("targets", job.target),
        **({} if toml else {"data": source.value.data, "metric": source.value.metric}),
        "source": {"name": source.value.name, "model": source.value.model},
        "limits": {name: min(value, MOST) for name, value in limits.items() if value is not None},
    }
