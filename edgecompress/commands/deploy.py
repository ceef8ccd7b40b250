"""`edgecompress deploy`: makes the job and its plan, runs the plan's stages, and ships the result."""

from __future__ import annotations

import dataclasses
import html
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Unpack, overload

from edgecompress.commands import objects, report_request
from edgecompress.commands.job_run import (
    Result,
    all_broke,
    artifact_of,
    asks,
    begin,
    check_sensors,
    no_proof,
    not_measured,
    out_folder,
    remember,
)
from edgecompress.commands.shipped_folder import Called, Origin
from edgecompress.core import catalog
from edgecompress.core.errors import (
    UNDECIDED,
    CheckFailed,
    EdgeError,
    InputError,
    StageFailed,
    did_you_mean,
    edge_errors,
)
from edgecompress.core.json import Json
from edgecompress.core.model import CARD, Artifact, Choice, Stage
from edgecompress.core.plain_text import printed
from edgecompress.pipeline import plan, shipping, verification
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import Job, job
from edgecompress.pipeline.job_request import How, JobRequest, Model, Name, Options, device_of, keywords
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import Event, PlanRun
from edgecompress.pipeline.searches import accuracy_guard
from edgecompress.reporting import external_results, formatting


class Results(dict[str, Result]):
    """How the deploys to several targets ended, by the targets' names; a notebook shows their reports."""

    def __str__(self) -> str:
        return printed(lambda _: "\n".join(f"{name}: {result!r}" for name, result in self.items()))

    def _repr_html_(self) -> str:
        return "\n".join(f"<h3>{html.escape(name)}</h3>{result._repr_html_()}" for name, result in self.items())


Targets = list[str] | list[Path] | list[Name] | tuple[Name, ...]
MOST = sys.float_info.max  # JSON knows no infinity


@overload
def deploy(
    model: Model | None = None, target: Name = "x86", *, options: Options | None = None, **how: Unpack[How]
) -> Result: ...


@overload
def deploy(
    model: Model | None, target: Targets, *, options: Options | None = None, **how: Unpack[How]
) -> dict[str, Result]: ...


@keywords
@edge_errors
def deploy(
    model: Model | None = None,
    target: Name | Targets = "x86",
    *,
    options: Options | None = None,
    **how: Unpack[How],
) -> Result | dict[str, Result]:
    """Compresses, exports, verifies, measures and ships a model for a target.

    model: a factory "pkg.mod:fn" or the path of a file, as on the command line; a torch.nn.Module, a function that
        returns one, a Keras model, an onnx.ModelProto; None is the embedded demo.
    target: a name, or the path of a TOML file. A list of them gives a dictionary of results by the targets' names.
    data: a reference or a path, as on the command line; an array, a dictionary of arrays by input name, or
        (inputs, labels); a DataLoader or a Dataset of torch; or a dictionary of these by split: "calibrate", "select",
        "test", "train". Without splits it is divided by the seed.
    metric: "top1" by default; samples: at most so many items per split.
    device, profile: where and how it is measured; only: the variants to build.
    threads: per inference; of several, [1, 2, "all"], the fastest is found for each variant.
    settings: the values of --set, {"limits.items_lost": 2}.
    options: the folders, and whatever else changes no result.

    Raises EdgeError: InputError (exit code 2) or StageFailed (3). A check that failed is a Result with exit code 1, an
    accuracy that is not above chance one with 4 (it shipped all the same), and one with the code of the first error
    tells that every variant broke; all have a report.
    """
    options = options or Options()
    targets = target if isinstance(target, (list, tuple)) else [target]
    if not targets:
        raise InputError("target: the list is empty; name at least one")
    request = objects.written(model, how, options)
    devices = {each: device_of(request.get("device"), str(each), map(str, targets)) for each in targets}
    ask = asks(options)
    plans, refused = plan.deploy_all(
        targets,
        lambda each: job(
            **request | JobRequest(target=each, device=devices[each]), untrusted=options.untrusted, ask=ask
        ),
    )
    return run(*plans[0], options) if targets is not target else run_all(plans, options, refused)


def run(
    job: Job, steps: Plan, options: Options, later_s: float = 0.0, search: Mapping[str, Json] | None = None
) -> Result:
    """Runs a plan made by `plan.deploy`, and ships the variant that its search chose.

    `later_s` is how many seconds the plans after it may take: they belong to the time left. `search`: how the variants
    were found, for the report.
    """
    check(job, steps, options)
    walk = begin(job, options, f"{job.source.given}>{job.target.path}")
    _check_room(steps, walk.store.root)
    out = out_folder(job, options)
    if not options.until:
        with walk.store.locked(external_results.lock(out)):  # nobody waits for minutes to be refused
            shipping.check(out, walk.store.root)
    walk.ahead_s = later_s + (0.0 if options.until else walk.expected_s(steps.race))
    if walk.stages(steps.stages, options.until):
        last = walk.outcomes[options.until]
        if last.artifact is None:
            raise last.error or StageFailed(f"{options.until}: {last.reason}")
        return Result(0, f"stopped after {options.until}", outcomes=walk.outcomes)
    walk.ahead_s = later_s
    choice = walk.search(steps.race)
    report = walk.stage(report_request.stage(job, walk, steps.race, choice, options, search))
    if report.artifact is None:
        raise StageFailed(report.reason)
    remember(walk, report.artifact)
    if error := all_broke(walk, choice):
        return _held(walk, out, error.exit_code, str(error))
    if not choice.stage:
        why = "; ".join([choice.reason, *_nearest(walk, steps.candidates)])
        return _held(walk, out, CheckFailed.exit_code, why)
    if why := not_measured(walk, choice, options):
        return _held(walk, out, CheckFailed.exit_code, why)
    shipped = next(c for c in steps.candidates if c.name == choice.stage)
    if why := shipped.unsettled(walk.outcomes):
        return _held(walk, out, UNDECIDED, f"undecided: {choice.stage} is right in its own runtime; {why}")
    _ship(job, walk, steps, choice, out)
    doubt = no_proof(walk, shipped.verdict, verification.is_trained(shipped.variant))
    why = f"{choice.stage} is undecided: {doubt}" if doubt else f"{choice.stage}: {choice.reason}"
    return Result(UNDECIDED if doubt else 0, why, out, out, walk.outcomes)


def run_all(
    plans: Sequence[tuple[Job, Plan]], options: Options, refused: Mapping[str, EdgeError] | None = None
) -> dict[str, Result]:
    """Runs the plans of several targets in turn; shared stages run once, and a failed target does not stop the others.

    Each ships into its own folder of `options.out`. `refused`: targets without a plan, of `plan.deploy_all`.
    Raises InputError for a source or data that is at fault for all of them.
    """
    results, fallen, hears = dict[str, Result](), list[Stage](), options.hears

    def heard(event: Event) -> None:
        if event.outcome and event.outcome.error and not event.stage.variants:
            fallen.append(event.stage)
        hears(event)

    later_s = sum(steps.estimate_s() for _, steps in plans)
    for each, steps in plans:
        later_s -= steps.estimate_s()
        name = each.target.name
        own = dataclasses.replace(options, out=options.out and Path(options.out) / name, listener=heard)
        try:
            results[name] = run(each, steps, own, later_s)
        except EdgeError as error:
            if isinstance(error, InputError) and fallen and all(fallen[-1] in steps.stages for _, steps in plans):
                raise
            results[name] = Result(error.exit_code, str(error))
    return Results(results | {name: Result(error.exit_code, str(error)) for name, error in (refused or {}).items()})


def check(job: Job, steps: Plan, options: Options) -> None:
    """Raises InputError, CheckFailed for options that the plan cannot be walked with."""
    if options.untrusted and (code := steps.user_code()):
        raise InputError(
            f"--untrusted: {code} runs its author's code; give an .onnx file and data in .npy, .npz or images"
        )
    names = {s.name for s in steps.stages}
    if options.until and options.until not in names:
        raise InputError(f"--until {options.until}: no such stage{did_you_mean(options.until, names)}")
    check_sensors(job, steps.race, options)


def _check_room(steps: Plan, store: Path) -> None:
    """Raises InputError where a large model does not fit on the disk of the store."""
    needs = steps.large_needs()
    if needs and (free := shutil.disk_usage(store).free) < needs[1]:
        asked, left = (formatting.plain(size, "bytes") for size in (needs[1], free))
        raise InputError(f"{store}: {asked} of disk are needed, {left} are free; free some, or name another --store")


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
        if _is_there(out, walk, names):
            return
        if faster := _faster_before(walk, steps.candidates, choice, out):
            print(f"edgecompress: warning: {faster}", file=sys.stderr)
        try:
            shipping.ship(out, lambda part: _fill(part, out, walk, names, _origin(job, candidate, limits)))
        except StageFailed:  # what was copied may not be what was stored
            walk.store.distrust()
            raise


def _is_there(out: Path, walk: PlanRun, names: Mapping[str, str]) -> bool:
    """Whether the output folder holds just this report and these artifacts, whole: nothing ships twice."""
    report = artifact_of(walk, "report").path
    parts = {name: artifact_of(walk, stage) for name, stage in names.items()}
    files = {f"{name}/{file}" for name, part in parts.items() for file in shipping.files(part.path)}
    if set(shipping.files(out)) != {shipping.ORIGIN, *shipping.REPORT, *files}:
        return False
    same = all((out / name).read_bytes() == (report / name).read_bytes() for name in shipping.REPORT)
    return same and all(Artifact.read(out / name).digest() == part.sha256 for name, part in parts.items())


def _faster_before(walk: PlanRun, candidates: Sequence[Candidate], choice: Choice, out: Path) -> str:
    """What lies in the output folder, where it is no variant of this run, and by its report better than what ships."""
    from edgecompress.reporting import before_after, read  # a plan reads no report

    try:
        old, new = (read.report(folder) for folder in (out, artifact_of(walk, "report").path))
    except EdgeError:  # there is none, or one of an older version
        return ""
    before, after = old.variant(old.choice.variant), new.variant(choice.stage)
    around = [(report.source.get("model"), report.device.get("name")) for report in (old, new)]
    if before is None or after is None or before.name in {c.name for c in candidates} or around[0] != around[1]:
        return ""
    was, now = (variant.numbers.get(before_after.ranked_by(new)) for variant in (before, after))
    if was is None or now is None or was.value is None or now.value is None or now.value <= was.value:
        return ""
    return (
        f"{after.name} ({formatting.text(now)}) takes the place of {before.name} ({formatting.text(was)}) in {out}, "
        "which is no variant of this run; deploy without --only to race both, or keep both with --out"
    )


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


def _fill(part: Path, out: Path, walk: PlanRun, names: Mapping[str, str], origin: Origin) -> None:
    """Writes what ships, and what was measured of it before, into a folder that takes the place of `out`."""
    _put_report(part, walk)
    for name, stage in names.items():
        shipping.copied(artifact_of(walk, stage), part / name)
    dataclasses.replace(origin, sha256=artifact_of(walk, names["artifact"]).sha256).write(part)
    if left_behind := external_results.carry(out, part, external_results.digest(artifact_of(walk, names["artifact"]))):
        print(
            f"edgecompress: warning: {left_behind} measurements of the previously shipped model were removed",
            file=sys.stderr,
        )


def _origin(job: Job, candidate: Candidate, limits: Mapping[str, float | None]) -> Origin:
    """What `verify` needs to check the artifact again: within which limits, too."""
    source, toml = job.source, job.source.toml
    return Origin(
        variant=candidate.name,
        runtime=candidate.runtime,
        model=str(toml.resolve()) if toml else source.value.model,
        target=catalog.reference("targets", job.target),
        data=None if toml else source.value.data,
        metric=None if toml else source.value.metric,
        source=Called(source.value.name, source.value.model),
        threads=candidate.variant.threads or job.context.threads,
        limits={name: min(value, MOST) for name, value in limits.items() if value is not None},
    )
