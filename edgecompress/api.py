"""What a notebook calls, and the command line with it: deploy, verify, profile; a Result says how it ended."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgecompress import (
    __version__,
    catalog,
    elsewhere,
    envs,
    guard,
    history,
    judge,
    listing,
    measured,
    plan,
    registry,
    routes,
)
from edgecompress.count import Count
from edgecompress.errors import CheckFailed, EdgeError, InputError, StageFailed, did_you_mean
from edgecompress.job import Job, job
from edgecompress.judge import RUN_CONTEXT
from edgecompress.model import Artifact, Choice, Outcome, Stage
from edgecompress.packaging.card import Shipped
from edgecompress.plan import Plan
from edgecompress.race import Entrant, Race
from edgecompress.run import Listener, Run
from edgecompress.settings import Source, Target
from edgecompress.store import Store

ORIGIN = "deploy.json"  # beside the artifact: what it was made from


@dataclass(frozen=True)
class Options:
    """How a job is run; nothing here changes a result."""

    store: Path = Path(".edgecompress")
    out: Path | None = None  # where it ships; None: dist/TARGET
    until: str = ""  # stop after this stage
    offline: bool = False
    untrusted: bool = False  # refuse a source that runs its author's code
    remeasure: bool = False
    require_measured: bool = False  # energy that no sensor measured is a failed check
    command: str = "edgecompress.deploy(...)"  # for the report
    listener: Listener = lambda event: None


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    exit_code: int
    message: str
    out: Path | None = None  # where it shipped; None: nothing did
    report: Path | None = None  # the folder with report.json, report.md, report.html
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    def read_report(self) -> dict[str, Any]:
        """The content of report.json; empty when there is none."""
        return json.loads((self.report / "report.json").read_text(encoding="utf-8")) if self.report else {}


def deploy(model: str | None = None, target: str = "x86", *, options: Options | None = None, **asked: Any) -> Result:
    """Compresses, exports, verifies, measures and ships `model` (None: the embedded demo) for `target`.

    `asked` is what `edgecompress.job.job` takes: data, metric, device, profile, only, threads, batch, seed, settings.
    Raises EdgeError: InputError (exit code 2) or StageFailed (3). A check that failed is a Result with exit code 1.
    """
    wanted = job(model, target, **asked)
    return run(wanted, plan.deploy(wanted), options or Options())


def run(wanted: Job, steps: Plan, options: Options) -> Result:
    """Walks a plan made by `plan.deploy`."""
    if options.untrusted and (code := steps.user_code()):
        raise InputError(
            f"--untrusted: {code} runs its author's code; give an .onnx file and data in .npy, .npz or images"
        )
    names = {s.name for s in steps.stages}
    if options.until and options.until not in names:
        raise InputError(f"--until {options.until}: no such stage{did_you_mean(options.until, names)}")
    _check_sensors(wanted, steps.race, options)
    walk = begin(wanted, options, f"{wanted.source.path}>{wanted.target.path}")
    walk.ahead_s = 0.0 if options.until else steps.race.estimate_s()
    if walk.stages(steps.stages, options.until):
        return Result(0, f"stopped after {options.until}", outcomes=walk.outcomes)
    walk.ahead_s = 0.0
    choice = walk.search(steps.race)
    _raise_if_all_broke(walk, steps.race, choice)
    report = walk.stage(_report(wanted, walk, steps.race, choice, options))
    if report.artifact is None:
        raise StageFailed(report.reason)
    _remember(walk, report.artifact.path)
    if not choice.stage:
        said = "; ".join([choice.reason, *_nearest(walk, steps.race)])
        return Result(CheckFailed.exit_code, said, None, report.artifact.path, walk.outcomes)
    if why := _not_measured(walk, choice, options):
        return Result(CheckFailed.exit_code, why, None, report.artifact.path, walk.outcomes)
    out = _ship(wanted, walk, steps.race, choice, options)
    return Result(0, f"{choice.stage}: {choice.reason}", out, out, walk.outcomes)


def _nearest(walk: Run, race: Race | Count) -> Iterator[str]:
    """How near each guarded variant came, and how much of what it lost at first that mends."""
    for entrant in race.entrants:
        found = walk.choices.get(entrant.artifact)
        if found and "ladder" in found.table:
            yield f"{entrant.name} {guard.told(found, walk.outcomes[entrant.verdict].facts.get('metric'))}"


def _check_sensors(wanted: Job, race: Race | Count, options: Options) -> None:
    """Raises CheckFailed before anything runs, where it is known already that no sensor will measure energy."""
    if not options.require_measured:
        return
    device, why = wanted.device, ""
    if isinstance(race, Count):
        why = f"{race.simulated} stands in for the device"
    elif race.unmeasured:
        why = f"nothing is measured: {race.unmeasured}"
    elif race.estimated_energy:
        why = plan.no_sensor(device.value) or "it has no sensor, only models"
    if why:
        raise CheckFailed(f"--require-measured: device {device.name} cannot measure energy: {why}")


def _not_measured(walk: Run, choice: Choice, options: Options) -> str:
    """Why the energy of the chosen variant is not a measured one, where that was asked for."""
    if not options.require_measured:
        return ""
    energy = walk.outcomes["energy"].facts
    gross = energy["variants"][choice.stage][0]
    if gross["status"] == "measured":
        return ""
    reasons = "; ".join(f"{name}: {why}" for name, why in energy["why_not"].items()) or gross["reason"]
    return f"--require-measured: energy of {choice.stage} is {gross['status']}, not measured ({reasons})"


def run_all(plans: Sequence[tuple[Job, Plan]], options: Options) -> dict[str, Result]:
    """Walks the plans of several targets in turn; what they share is made once, and one that breaks ends only itself.

    Each ships into its own folder of `options.out`.
    """
    results = {}
    for wanted, steps in plans:
        name = wanted.target.name
        own = dataclasses.replace(options, out=options.out / name) if options.out else options
        try:
            results[name] = run(wanted, steps, own)
        except EdgeError as error:
            results[name] = Result(error.exit_code, str(error))
    return results


def begin(wanted: Job, options: Options, scope: str) -> Run:
    """A walk of a job's stages; `scope` says whose they are."""
    return Run(
        Store(options.store.resolve()),
        wanted.context,
        path=wanted.path,
        scope=scope,
        offline=options.offline,
        remeasure=options.remeasure,
        listener=options.listener,
    )


def _raise_if_all_broke(walk: Run, race: Race | Count, choice: Choice) -> None:
    """When no variant was even lost, and all broke, the first breakage is the error of the whole run."""
    table = choice.table.values()
    if choice.stage or any(row["verdict"] == "lost" for row in table):
        return
    broken = next((o for o in walk.outcomes.values() if o.status == "failed"), None)
    if broken and broken.error:
        raise broken.error


# --------------------------------------------------------------------------- report


def _report(wanted: Job, walk: Run, race: Race | Count, choice: Choice, options: Options) -> Stage:
    """The stage that writes the report, of whatever there is by now."""
    alone = ("source", "golden", "energy", "ops", "count")
    passes = [name for name in walk.outcomes if name.startswith("pass/")]
    inputs = {role: role for role in (*alone, *passes) if _there(walk, role)}
    inputs["samples"] = "data" if _there(walk, "data") else race.samples
    rounds = [name for name in walk.outcomes if name.startswith("race/") and _there(walk, name)]
    inputs |= {name.removeprefix("race/"): name for name in rounds}
    for entrant in race.entrants:
        made = {"artifact": entrant.artifact, "verdict": entrant.verdict, "agree": entrant.agrees}
        inputs |= {f"{entrant.name}/{role}": stage for role, stage in made.items() if _there(walk, stage)}
    return Stage("report", "stages.report:run", inputs, _said(wanted, walk, race, choice, options), context=RUN_CONTEXT)


def _there(walk: Run, name: str) -> bool:
    outcome = walk.outcomes.get(name)
    return outcome is not None and outcome.artifact is not None


def _remember(walk: Run, folder: Path) -> None:
    """Adds the report to the history; what goes wrong there is a warning, and nothing more."""
    report = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    if said := history.add(walk.store.root, report, folder):
        print(f"edgecompress: warning: {said}", file=sys.stderr)


def _said(wanted: Job, walk: Run, race: Race | Count, choice: Choice, options: Options) -> dict[str, Any]:
    unmeasured = {"unmeasured": race.unmeasured}
    made = max((o.made for o in walk.outcomes.values()), default=0.0) or time.time()
    return {
        "title": f"{wanted.source.value.name or Path(wanted.source.value.model).name} on {wanted.target.name}",
        "command": options.command,
        "source": dataclasses.asdict(wanted.source.value),
        "target": {"name": wanted.target.name, **_raced(wanted.target.value, race)},
        "device": {"name": wanted.device.name, **dataclasses.asdict(wanted.device.value)},
        "profile": {"name": wanted.profile.name, **dataclasses.asdict(wanted.profile.value)},
        "config": [dataclasses.asdict(s) for s in wanted.settings()],
        "choice": {"variant": choice.stage, "reason": choice.reason, "table": choice.table, **unmeasured},
        "fits": _choices(walk, lambda table: "ladder" not in table),
        "guards": _choices(walk, lambda table: "ladder" in table),
        "made": {e.name: [_made(walk.outcomes[s]) for s in e.made if s in walk.outcomes] for e in race.entrants},
        "elsewhere": _elsewhere(wanted, walk, race, choice, options),
        "outcomes": [_line(o) for o in walk.outcomes.values()],
        "exit_code": 0 if choice.stage or not race.judged else CheckFailed.exit_code,
        "not_measured": _not_measured(walk, choice, options) if choice.stage else "",
        "versions": _versions(wanted),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)),
    }


def _choices(walk: Run, which: Callable[[Mapping[str, Any]], bool]) -> dict[str, Any]:
    """How the searches in the place of a stage ended, of one kind."""
    chosen = {name: choice for name, choice in walk.choices.items() if which(choice.table)}
    return {name: {"chosen": c.stage, "reason": c.reason, **c.table} for name, c in chosen.items()}


def _raced(target: Target, race: Race | Count) -> dict[str, Any]:
    """The target as plain data, with the variants of this run."""
    names = {*(e.name for e in race.entrants), *race.left_out}
    plain = dataclasses.asdict(target)
    return {**plain, "variant": [v for v in plain["variant"] if v["name"] in names]}


def _made(outcome: Outcome) -> dict[str, Any]:
    """What a technique tells of what it did for a variant; a second use of it in a recipe is called technique-2."""
    name = outcome.stage.rpartition("/")[2]
    return {"technique": name, "status": outcome.status, "reason": outcome.reason, "facts": dict(outcome.facts)}


def _line(outcome: Outcome) -> dict[str, Any]:
    return {
        "stage": outcome.stage,
        "status": outcome.status,
        "reason": outcome.reason,
        "wall_s": round(outcome.wall_s, 3),
        "log": Path(outcome.log).name,
    }


def _versions(wanted: Job) -> dict[str, str]:
    modules = routes.plugins(wanted.target.value)
    return {"edgecompress": __version__, **{k: v for m in modules for k, v in envs.versions(m).items()}}


# --------------------------------------------------------------------------- ship


def _ship(wanted: Job, walk: Run, race: Race | Count, choice: Choice, options: Options) -> Path:
    """Puts artifact, excerpt and report into the output folder: written beside it, then renamed, under a lock."""
    out = _out(wanted, options)
    entrant = next(e for e in race.entrants if e.name == choice.stage)
    with walk.store.locked(measured.lock(out)):
        part, old = (out.with_name(f".{out.name}.{word}") for word in ("part", "old"))
        for left in (part, old):
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir(parents=True)
        shutil.copytree(_artifact(walk, "report").path, part, dirs_exist_ok=True)
        (part / "artifact.json").unlink()
        shutil.copytree(_artifact(walk, entrant.artifact).path, part / "artifact")
        shutil.copytree(_artifact(walk, race.samples).path, part / "excerpt")
        shutil.copytree(_artifact(walk, entrant.verdict).path, part / "verdict")
        (part / ORIGIN).write_text(json.dumps(_origin(wanted, entrant), indent=1), encoding="utf-8")
        if left_behind := measured.carry(out, part, measured.digest(_artifact(walk, entrant.artifact))):
            print(f"edgecompress: warning: {left_behind} measurements of what shipped before are gone", file=sys.stderr)
        _swap(part, out, old)
    return out


def _out(wanted: Job, options: Options) -> Path:
    """Where it ships."""
    return (options.out or Path("dist") / wanted.target.name).resolve()


def _elsewhere(wanted: Job, walk: Run, race: Race | Count, choice: Choice, options: Options) -> list[Any]:
    """What packages' benchmarks measured of these very bytes since they shipped the last time."""
    chosen = next((e.artifact for e in race.entrants if e.name == choice.stage), "")
    out = _out(wanted, options)
    if not chosen or not measured.files(out):
        return []
    return elsewhere.rows(measured.of_model(out, measured.digest(_artifact(walk, chosen))))


def _origin(wanted: Job, entrant: Entrant) -> dict[str, Any]:
    """What `verify` needs to check the artifact again."""
    source = wanted.source
    model = str(source.path.resolve()) if source.path.suffix == ".toml" else source.value.model
    data = {} if source.path.suffix == ".toml" else {"data": source.value.data, "metric": source.value.metric}
    target = catalog.reference("targets", wanted.target)
    said = {"name": source.value.name, "model": source.value.model}
    ran = {"variant": entrant.name, "runtime": entrant.runtime}
    return {**ran, "model": model, "target": target, **data, "source": said}


def _swap(part: Path, out: Path, old: Path) -> None:
    """Replaces `out` by `part`; only a folder that a deploy wrote is replaced."""
    if out.exists():
        if not (out / "report.json").is_file() and any(out.iterdir()):
            shutil.rmtree(part)
            raise InputError(f"{out}: is not empty and was not written by edgecompress; give another --out")
        out.rename(old)
    part.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _artifact(walk: Run, stage: str) -> Artifact:
    artifact = walk.outcomes[stage].artifact
    if artifact is None:
        raise StageFailed(f"{stage}: has no result")
    return artifact


# --------------------------------------------------------------------------- an artifact that is there already


def shipped(path: Path) -> tuple[Artifact, Artifact | None, dict[str, Any]]:
    """The artifact in a folder that a deploy wrote (or in its `artifact`), its excerpt, and its origin."""
    inner = path / "artifact" if (path / "artifact").is_dir() else path
    found = _sound(inner)
    excerpt = inner.parent / "excerpt"
    origin = inner.parent / ORIGIN
    said = _origin_in(origin) if origin.is_file() else {}
    return found, _sound(excerpt) if excerpt.is_dir() else None, said


def _origin_in(file: Path) -> dict[str, Any]:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: damaged: {error}; deploy again") from error
    texts = (said.get(key, "") for key in ("variant", "runtime", "model", "target")) if isinstance(said, dict) else [{}]
    if not all(isinstance(text, str) for text in texts):
        raise InputError(f"{file}: damaged: not what a deploy wrote; deploy again")
    return dict(said)


def _sound(folder: Path) -> Artifact:
    found = Artifact.read(folder)
    if found.digest() != found.sha256:
        raise InputError(f"{folder}: its bytes are not those that were shipped (sha256 differs); deploy again")
    return found


def runtime_of(artifact: Artifact, shipped_for: str = "") -> str:
    """The runtime that it was shipped for, or the first that runs this kind; raises InputError when there is none."""
    for name, module in sorted(registry.every("runtimes"), key=lambda found: found[0] != shipped_for):
        if artifact.kind == module.FORMAT:
            envs.require(module, f"runtime '{name}'")
            return name
    raise InputError(f"{artifact.path}: no runtime here runs the format '{artifact.kind}'")


def verify(path: Path, model: str | None = None, *, options: Options | None = None, **asked: Any) -> Result:
    """Checks a shipped artifact against its source again, and against what it answered when it was verified before it
    shipped (`limits.as_shipped`); the Result has exit code 1 when a check fails.

    The model, data, metric and target are those it was deployed with unless given. Raises EdgeError.
    """
    options = options or Options()
    artifact, _, origin = shipped(path)
    runtime = runtime_of(artifact, origin.get("runtime", ""))
    if model is None:
        model, asked = origin.get("model"), {**{k: origin[k] for k in ("data", "metric") if k in origin}, **asked}
    wanted = job(model, **{"target": origin.get("target", "x86"), **asked})
    walk = begin(wanted, options, f"verify>{path}")
    walk.outcomes["artifact"] = Outcome("artifact", "ok", artifact)
    variant = next((v for v in wanted.target.value.variant if v.name == origin.get("variant")), None)
    along = {role: folder for role in ("excerpt", "verdict") if (folder := artifact.path.parent / role).is_dir()}
    walk.outcomes |= {f"shipped/{role}": Outcome(role, "ok", _sound(folder)) for role, folder in along.items()}
    judging = judge.verify(wanted, "verify", runtime, "artifact", variant)
    inputs = {**judging.inputs, **{role: f"shipped/{role}" for role in along}}
    walk.stages([*plan.front(wanted), dataclasses.replace(judging, inputs=inputs)])
    judged = walk.outcomes["verify"]
    code = CheckFailed.exit_code if judged.status == "lost" else 0
    return Result(code, judged.reason or "equal to its source within the limits", outcomes=walk.outcomes)


def profile(path: Path, *, options: Options | None = None, **asked: Any) -> Result:
    """Measures a shipped artifact on a device; its report has one variant and no accuracy. Raises EdgeError."""
    return _profiled({"": path}, options or Options(), asked)


def profile_in_turns(named: Mapping[str, Path], *, options: Options | None = None, **asked: Any) -> Result:
    """Measures several shipped artifacts in turns, all on the first one's excerpt of inputs.

    The variants of its report are called by the names given. Raises EdgeError.
    """
    artifacts = {name: shipped(path)[0] for name, path in named.items()}
    first, *others = artifacts.values()
    takes = [{s.name: s.concrete() for s in artifact.inputs} for artifact in (first, *others)]
    if other := next((a for a, inputs in zip(others, takes[1:], strict=True) if inputs != takes[0]), None):
        raise InputError(f"{other.path}: takes other inputs than {first.path}: nothing runs both")
    return _profiled(named, options or Options(), asked)


def _profiled(named: Mapping[str, Path], options: Options, asked: Mapping[str, Any]) -> Result:
    first = next(iter(named.values()))
    origin = shipped(first)[2]
    wanted = job(**{"target": origin.get("target", "x86"), **asked})
    wanted = dataclasses.replace(wanted, source=_shipped_source(first, origin))
    alone = plan.ranking(wanted, ())
    if alone.unmeasured:
        raise InputError(f"{first}: nothing can be measured: {alone.unmeasured}; name another with --device")
    _check_sensors(wanted, alone, options)
    walk = begin(wanted, options, f"profile>{','.join(map(str, named.values()))}")
    entrants = [_brought(wanted, walk, path, name) for name, path in named.items()]
    samples = f"{next(iter(named))}/excerpt".lstrip("/")
    race = dataclasses.replace(alone, entrants=tuple(entrants), samples=samples)
    choice = walk.search(race)
    _raise_if_all_broke(walk, race, choice)
    measured = dataclasses.replace(choice, stage="")  # nothing ships: it is shipped already
    report = walk.stage(_report(wanted, walk, race, measured, options))
    folder = report.artifact.path if report.artifact else None
    if folder:
        _remember(walk, folder)
    if choice.stage and (why := _not_measured(walk, choice, options)):
        return Result(CheckFailed.exit_code, why, None, folder, walk.outcomes)
    if choice.stage:
        return Result(0, choice.reason, None, folder, walk.outcomes)
    lost = next((row["reason"] for row in choice.table.values() if row["verdict"] == "lost"), "")
    code = CheckFailed.exit_code if lost else StageFailed.exit_code
    return Result(code, lost or choice.reason, None, folder, walk.outcomes)


def _shipped_source(path: Path, origin: Mapping[str, Any]) -> catalog.Found[Source]:
    """The source as far as what shipped tells of it: nothing of it is loaded."""
    told = origin.get("source") or {}
    model = str(told.get("model") or origin.get("model") or path)
    return catalog.Found(model, Path(model), Source(model, name=str(told.get("name") or "")), ())


def _brought(wanted: Job, walk: Run, path: Path, name: str) -> Entrant:
    """A shipped artifact as an entrant without a verdict; away from here it must agree with what it answered here."""
    artifact, excerpt, origin = shipped(path)
    if excerpt is None:
        raise InputError(f"{path}: has no excerpt of inputs to run on; give the folder that a deploy wrote")
    runtime = runtime_of(artifact, origin.get("runtime", ""))
    if simulated := getattr(registry.load("runtimes", runtime), "SIMULATED", ""):
        raise InputError(f"{path}: runtime {runtime} does not run here, {simulated} stands in: nothing to measure")
    own = {role: f"{name}/{role}".lstrip("/") for role in ("artifact", "excerpt", "verdict", "agree")}
    walk.outcomes |= {own["artifact"]: Outcome("artifact", "ok", artifact)}
    walk.outcomes |= {own["excerpt"]: Outcome("excerpt", "ok", excerpt)}
    entrant = Entrant(name or origin.get("variant", artifact.kind), runtime, own["artifact"])
    verdict = artifact.path.parent / "verdict"
    if not verdict.is_dir() or wanted.context.device["here"]:
        return entrant
    walk.outcomes[own["verdict"]] = Outcome("verdict", "ok", _sound(verdict))
    entrant = dataclasses.replace(entrant, agrees=own["agree"])
    stage = judge.agree(wanted, entrant, own["verdict"], wanted.target.value.limits.on_device)
    walk.stage(dataclasses.replace(stage, inputs={**stage.inputs, "excerpt": own["excerpt"]}))
    return entrant


def package(
    path: Path,
    packager: str = "",
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
    sign: Path | None = None,
) -> Path:
    """Packs what a deploy shipped for an app; returns the file (by default beside the folder). Raises EdgeError.

    `packager`: empty, the target's. `settings`: "name", "version", and the packager's own options. `sign`: a secret
    key of minisign; the signature lies beside the package then.
    """
    from edgecompress.packaging import pack, signing

    given = _to_pack(path)
    packager = packager or str(given.report["target"].get("package") or "tar")
    module = registry.load("packages", packager)
    envs.require(module, f"packager '{packager}'")
    key = signing.secret(sign) if sign else None
    folder = path.resolve()
    place = (out or folder.with_name(f"{folder.name}-{packager}{module.SUFFIX}")).resolve()
    made = pack.pack(given, packager, place, settings)
    if key is not None:
        signing.sign(made, key)
    return made


def _to_pack(path: Path) -> Shipped:
    """What a package is made of; raises InputError for a folder that holds less than a deploy shipped."""
    artifact, excerpt, origin = shipped(path)
    if excerpt is None:
        raise InputError(f"{path}: has no excerpt of test items; give the folder that a deploy wrote")
    report = listing.report(artifact.path.parent)
    tables = [report.get(key) or {} for key in ("source", "target", "data", "device", "versions")]
    if not all(isinstance(table, Mapping) for table in [*tables, *(report.get("variants") or ())]):
        raise InputError(f"{path}: report.json is not what a deploy wrote; deploy again")
    verdict = artifact.path.parent / "verdict"
    runtime = origin.get("runtime") or runtime_of(artifact)
    return Shipped(artifact, excerpt, _sound(verdict) if verdict.is_dir() else None, report, origin, runtime)
