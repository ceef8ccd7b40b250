"""What each command does: arguments to functions of `commands`, their results to `console`. Returns the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from edgecompress.core.errors import CheckFailed, EdgeError, InputError
from edgecompress.core.json import Json

if TYPE_CHECKING:
    from edgecompress.commands.pack_file import PackedFile


def request_of(args: argparse.Namespace) -> dict[str, Any]:
    """What `edgecompress.pipeline.job.job` takes, from the arguments."""
    names = ("data", "metric", "samples", "device", "profile", "threads", "batch", "seed", "target", "untrusted")
    request = {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    if hasattr(args, "only"):
        request["only"] = ",".join(args.only)
    request["settings"] = _settings(args.set, "limits.items_lost=2")
    if getattr(args, "strict", False):
        request["settings"]["limits.strict"] = True
    return request


def _settings(texts: Sequence[str], example: str, option: str = "--set") -> dict[str, Json]:
    """KEY=VALUE texts as a table; raises InputError."""
    from edgecompress.core import config

    return {key: config.from_text(value) for key, value in _pairs(texts, example, option).items()}


def _pairs(texts: Sequence[str], example: str, option: str = "--set") -> dict[str, str]:
    """KEY=VALUE texts, the values as they are written; raises InputError."""
    if bad := [text for text in texts if "=" not in text]:
        raise InputError(f"{option} {bad[0]}: write {option} KEY=VALUE, for example {option} {example}")
    return {key.strip(): value for key, _, value in (text.partition("=") for text in texts)}


def options_of(args: argparse.Namespace, listener: Any) -> Any:
    import shlex

    from edgecompress.commands import job_run

    names = ("out", "until", "offline", "untrusted", "remeasure", "require_measured", "store", "jobs")
    chosen = {name: getattr(args, name) for name in names if hasattr(args, name)}
    return job_run.Options(**chosen, command=shlex.join(["edgecompress", *args.words]), listener=listener)


def _plans(args: argparse.Namespace) -> tuple[list[tuple[Any, Any]], Mapping[str, EdgeError]]:
    """The job and the plan of each target that is asked for, before anything runs; and why others are refused."""
    from edgecompress.pipeline import plan
    from edgecompress.pipeline.job import job

    request = request_of(args)
    if getattr(args, "from_search", ""):
        from edgecompress.commands import search

        own = {**request, **({"model": args.model} if args.model else {})}
        del own["target"]
        return plan.deploy_all([args.from_search], lambda name: search.found_job(str(name), args.store, own))
    return plan.deploy_all(args.target.split(","), lambda name: job(args.model, **request | {"target": name}))


def plan(args: argparse.Namespace) -> int:
    """Prints the plan of a deploy."""
    from edgecompress.cli import console
    from edgecompress.commands import deploy

    plans, refused = _plans(args)
    for job, steps in plans:
        deploy.check(job, steps, options_of(args, print))
    code = max((error.exit_code for error in refused.values()), default=0)
    if args.json:
        tables = [console.plan_data(job, steps) for job, steps in plans]
        tables += [{"target": name, "refused": str(error)} for name, error in refused.items()]
        console.print_json(tables if len(tables) > 1 else tables[0])
        return code
    screen = console.open(args)
    if args.quiet:
        console.line(screen, "; ".join([console.plan_time(plans), *(f"{n}: {e}" for n, e in refused.items())]))
        return code
    for job, steps in plans:
        console.plan(screen, job, steps)
        console.settings(screen, job, everything=bool(args.verbose))
    console.lines(screen, [f"{name}: refused: {error}" for name, error in refused.items()])
    return code


def check(args: argparse.Namespace) -> int:
    """Tells what targets make of a model, before anything is built; 2 where none is reached."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import check

    screen = console.open(args)
    with Progress(screen, args) as progress:
        request = request_of(args)
        found = check.check(args.model, request.pop("target").split(","), options=options_of(args, progress), **request)
    console.say(args, {"source": found.source, "targets": found.targets}, check.text(found, brief=args.quiet))
    return 0 if found.reached else InputError.exit_code


def advise(args: argparse.Namespace) -> int:
    """Ranks what fits a model and a target, before anything is built; 2 where nothing does."""
    from dataclasses import asdict

    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import advise

    _one_target(args)
    screen = console.open(args)
    with Progress(screen, args) as progress:
        named = {"objective": args.objective, "options": options_of(args, progress)}
        advised = advise.advise(args.model, **named, **request_of(args))
    console.say(args, asdict(advised), advise.text(advised, brief=args.quiet))
    return 0 if any(row.rank for row in advised.rows) else InputError.exit_code


def deploy(args: argparse.Namespace) -> int:
    """Takes the model to each target."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Phases
    from edgecompress.commands import deploy

    screen = console.open(args)
    if given := getattr(args, "train", ""):
        return _trained(screen, args, given)
    plans, refused = _plans(args)
    for job, steps in plans if args.verbose and not args.quiet else ():
        console.plan(screen, job, steps)
        console.settings(screen, job, everything=True)
    if len(plans) + len(refused) > 1:
        with Phases(screen, args, plans) as phases:
            results = deploy.run_all(plans, options_of(args, phases), refused)
        return console.all_ended(screen, args, results)
    job, steps = plans[0]
    with Phases(screen, args, plans) as progress:
        result = deploy.run(job, steps, options_of(args, progress))
    return console.ended(screen, args, result)


def _trained(screen: Any, args: argparse.Namespace, given: str) -> int:
    """Takes the model to a target, without training and then with it."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Phases
    from edgecompress.commands import train

    minutes = train.minutes_of(given)
    _one_target(args)
    plans, _ = _plans(args)
    with Phases(screen, args, plans) as phases:
        result = train.run(
            *plans[0], options_of(args, phases), minutes, lambda words: console.said(screen, args, words)
        )
    return console.ended(screen, args, result)


def search(args: argparse.Namespace) -> int:
    """Searches recipes for a target, and ships the best."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import search
    from edgecompress.pipeline.job import job

    names = ("minutes", "trials", "patience", "sampler")
    told = {f"search.{name}": value for name in names if (value := getattr(args, name)) is not None}
    if args.objectives:
        told["search.objectives"] = args.objectives.split(",")
    if args.train:
        told["search.train"] = True
    limits = _settings(args.limit, "size=0.3", "--limit")
    request: Any = request_of(args)
    request["settings"] |= told | {f"search.limits.{name}": value for name, value in limits.items()}
    search.require()
    _one_target(args)
    screen = console.open(args)
    with Progress(screen, args) as progress:
        made = job(args.model, **request)
        found = search.run(made, request, options_of(args, progress), lambda row: console.trial(screen, args, row))
    return console.searched(screen, args, found)


def _one_target(args: argparse.Namespace) -> None:
    if "," in args.target:
        who = "--train" if args.words[0] == "deploy" else args.words[0]
        raise InputError(f"--target {args.target}: {who} takes one target; run it once for each")


def guard(args: argparse.Namespace) -> int:
    """Deploys with the guard on, under a budget."""
    args.set = [*args.set, "guard.on=true", *(f"limits.{text}" for text in args.budget)]
    return deploy(args)


def trim(args: argparse.Namespace) -> int:
    """Writes a Hugging Face folder with fewer tokens."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import trim

    screen = console.open(args)
    more = {"data": args.data, "least": args.least, "settings": _settings(args.set, "source.length=64")}
    with Progress(screen, args) as progress:
        made = trim.trim(args.model, args.out, options=options_of(args, progress), **more)
    console.say(args, {"out": str(made.out), **made.facts}, str(made.out) if args.quiet else trim.text(made))
    return 0


def analyze(args: argparse.Namespace) -> int:
    """Counts the cost of each layer, and measures its sensitivity if asked for."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import analyze

    screen = console.open(args)
    more = {key: value for key, value in request_of(args).items() if key != "device"}
    request = analyze.AnalysisRequest(args.device, _sensitivity(args), args.html, args.storage)
    with Progress(screen, args) as progress:
        analysis = analyze.analyze(args.model, request, options=options_of(args, progress), **more)
    page = str(analysis.page) if analysis.page else None
    console.say(args, {**analysis.facts, "page": page}, analyze.text(analysis, brief=args.quiet))
    return 0


def _sensitivity(args: argparse.Namespace) -> Any:
    """What is done to the layers, or None; raises InputError for levels that are no numbers."""
    from edgecompress.commands import analyze

    if not args.sensitivity:
        if args.layers or args.levels:
            raise InputError("--layers and --levels need --sensitivity; add --sensitivity ratio or --sensitivity bits")
        return None
    layers = tuple(filter(None, args.layers.split(",")))
    try:
        levels = tuple(float(text) for text in args.levels.split(",") if text)
    except ValueError as error:
        raise InputError(f"--levels {args.levels}: write numbers with commas, for example 0.25,0.5,0.75") from error
    return analyze.SensitivityRequest(args.sensitivity, args.structure, layers, levels, args.items)


def diagnose(args: argparse.Namespace) -> int:
    """Finds the layer at which an artifact departs from its source."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import diagnose

    screen = console.open(args)
    request = diagnose.DiagnosisRequest(args.variant, args.artifact, args.items, args.split, args.out)
    with Progress(screen, args) as progress:
        diagnosis = diagnose.diagnose(args.model, request, options=options_of(args, progress), **request_of(args))
    console.say(
        args,
        {**diagnosis.facts, "out": str(diagnosis.out) if diagnosis.out else None},
        diagnose.text(diagnosis, args.quiet),
    )
    return 0


def verify(args: argparse.Namespace) -> int:
    """Checks a shipped artifact again."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import verify

    screen = console.open(args)
    with Progress(screen, args) as progress:
        result = verify.verify(args.artifact, args.model, options=options_of(args, progress), **request_of(args))
    return console.verified(screen, args, result)


def profile(args: argparse.Namespace) -> int:
    """Measures a shipped artifact on a device."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import profile

    screen = console.open(args)
    with Progress(screen, args) as progress:
        result = profile.profile(args.artifact, options=options_of(args, progress), **request_of(args))
    return console.ended(screen, args, result)


def report(args: argparse.Namespace) -> int:
    """Shows the report of a deploy, with what was measured elsewhere."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import report
    from edgecompress.reporting import read

    screen = console.open(args)
    if args.add:
        with Progress(screen, args) as progress:
            facts = report.add(args.artifact, args.add, options_of(args, progress))
    else:
        facts = report.report(args.artifact)
    with read.rendering(args.artifact):
        if args.json:
            console.print_json(facts)
        elif args.quiet:
            console.line(screen, facts["summary"]["sentence"])
        else:
            console.report(screen, facts, bool(args.verbose))
    return 0


def compare(args: argparse.Namespace) -> int:
    """Compares reports; returns 1 when a gate fails, 4 when one is undecided."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import compare, compare_page

    screen = console.open(args)
    if args.html:
        compare_page.check(args.html)
    request = compare.ComparisonRequest(tuple(args.fail_if), args.strict, args.across_models)
    with Progress(screen, args) as progress:
        options = options_of(args, progress)
        if args.remeasure:
            comparison = compare.remeasured(args.reports, request, options=options, **request_of(args))
        else:
            comparison = compare.compare(args.reports, request)
        page = compare_page.write(comparison, args.html, options) if args.html else None
    console.compared(screen, args, comparison, page)
    return comparison.exit_code


def history(args: argparse.Namespace) -> int:
    """Lists what was measured before."""
    from edgecompress.cli import console
    from edgecompress.core import plain_text
    from edgecompress.pipeline import store_place
    from edgecompress.reporting import history

    root = store_place.root(args.store)
    rows = history.rows(root, args.source, args.target, args.limit)
    console.say(args, rows, plain_text.columns(history.shown(rows)) or f"{root}: no result yet")
    return 0


def package(args: argparse.Namespace) -> int:
    """Packages a shipped artifact for an app."""
    from edgecompress.cli import console
    from edgecompress.commands import package
    from edgecompress.packaging import download

    made = package.packaged(args.artifact, args.packager, args.out, _pairs(args.set, "version=1.0.0"), args.sign)
    signature = f"{made.file}.minisig" if args.sign else None
    size = made.file.stat().st_size
    facts = {
        "package": str(made.file),
        "size_bytes": size,
        "download_s": download.seconds(size),
        "warning": made.warning or None,
        "signature": signature,
    }
    more = [signature, download.line(size), made.warning and f"warning: {made.warning}"]
    console.say(args, facts, "\n".join(filter(None, [str(made.file), *([] if args.quiet else more)])))
    return 0


def package_verify(args: argparse.Namespace) -> int:
    """Checks a package; 1 when a check fails."""
    import dataclasses

    from edgecompress.cli import console
    from edgecompress.core import plain_text
    from edgecompress.packaging import verify

    checks = [dataclasses.asdict(check) for check in verify.verify(args.package, args.key, args.strict)]
    failed = [check["name"] for check in checks if check["status"] == "fail"]
    rows = [{key: plain_text.one_line(words) for key, words in check.items()} for check in checks]
    outcome = f"failed: {', '.join(failed)}" if failed else "no check failed"
    shown = plain_text.one_line(f"{args.package}: {outcome}") if args.quiet else plain_text.columns(rows)
    console.say(args, {"package": str(args.package), "ok": not failed, "checks": checks}, shown)
    return CheckFailed.exit_code if failed else 0


def pack(args: argparse.Namespace) -> int:
    """Packs a model's file."""
    from edgecompress.commands import pack_file

    return _packed(args, pack_file.pack(args.file, args.out))


def unpack(args: argparse.Namespace) -> int:
    """Unpacks one."""
    from edgecompress.commands import pack_file

    return _packed(args, pack_file.unpack(args.file, args.out))


def _packed(args: argparse.Namespace, done: PackedFile) -> int:
    from edgecompress.cli import console

    facts = {"out": str(done.out), "bytes": done.bytes, "packed_bytes": done.packed_bytes}
    sizes = f"{done.bytes:,} bytes, {done.packed_bytes:,} packed"
    console.say(args, facts, str(done.out) if args.quiet else f"{done.out}: {sizes}")
    return 0


def list_all(args: argparse.Namespace) -> int:
    """Lists a kind, or shows one of it."""
    from edgecompress.cli import console
    from edgecompress.commands import listing

    rows = listing.one(args.kind, args.name) if args.name else listing.all_of(args.kind)
    console.say(args, rows, listing.text(rows, console.width()))
    return 0


def cache_ls(args: argparse.Namespace) -> int:
    """Lists what is stored."""
    from edgecompress.cli import console
    from edgecompress.commands import cache
    from edgecompress.core import plain_text

    rows = cache.stored(args.store)
    console.say(args, rows, plain_text.columns(rows) or "nothing is stored")
    return 0


def cache_why(args: argparse.Namespace) -> int:
    """Prints what the result of a stage depends on."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    rows = cache.reasons(args.store, args.stage)
    console.say(args, rows, cache.reasons_text(rows))
    return 0


def cache_gc(args: argparse.Namespace) -> int:
    """Removes old results."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    if not args.older_than >= 0:
        raise InputError(f"--older-than {args.older_than:g}: must be a number of days, at least 0")
    freed = cache.opened(args.store).collect(args.older_than * 86400)
    console.say(args, {"freed_bytes": freed}, f"{freed / 2**20:.1f} MiB freed")
    return 0


def cache_verify(args: argparse.Namespace) -> int:
    """Compares every stored byte with its sha256; 1 on damage."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    store = cache.opened(args.store)
    damaged = [{"key": folder.name, "path": str(folder)} for folder in store.damaged()]
    words = [f"{d['path']}: damaged; the next deploy that needs it rebuilds it" for d in damaged]
    facts = {"checked": len(list((store.root / "store").iterdir())), "damaged": damaged}
    console.say(args, facts, "\n".join(words) or "every result is intact")
    return 1 if damaged else 0


def _steps(args: argparse.Namespace) -> Callable[[str], None]:
    """Tells the steps of a long job on stderr, unless it is to be quiet."""
    from edgecompress.core.plain_text import one_line

    def says(line: str) -> None:
        if not args.quiet:
            print(one_line(line), file=sys.stderr, flush=True)

    return says


def energy_calibrate(args: argparse.Namespace) -> int:
    """Calibrates a model of energy on a device that has a sensor."""
    from edgecompress.cli import console
    from edgecompress.commands import energy_calibrate
    from edgecompress.core import config

    file = energy_calibrate.run(args.device, args.out, args.profile, args.threads, _steps(args))
    table = config.read_toml(file)
    error = cast("Mapping[str, float]", table["error"])
    words = (
        f"held-out error {error['rms']:.1%} (RMS); an estimate is within ±{error['band']:.1%} for {error['covers']:.0%}"
    )
    console.say(args, {"file": str(file), **table}, f"{file}: {words} of nets like these")
    return 0


def device_add(args: argparse.Namespace) -> int:
    """Probes a board and writes its file."""
    from edgecompress.cli import console
    from edgecompress.commands import device_add

    added = device_add.add(args.ssh, args.name, args.output, _settings(args.set, "port=2222"))
    facts = {"file": str(added.file), "found": list(added.present), "missing": list(added.missing)}
    console.say(args, facts, str(added.file) if args.quiet else device_add.text(added))
    return 0


def device_build(args: argparse.Namespace) -> int:
    """Makes an emulated device."""
    from edgecompress.cli import console
    from edgecompress.device.emulation import build

    place = build.build(_steps(args))
    console.say(args, {"name": args.name, "path": str(place)}, f"{args.name}: ready in {place}")
    return 0


def _device_settings(texts: Sequence[str]) -> dict[str, Json]:
    """--set values of a device, with or without the word that they begin with where there is more than a device."""
    laid = _settings(texts, "options.host=user@board")
    return {key.removeprefix("device."): value for key, value in laid.items()}


def device_blocks(args: argparse.Namespace) -> int:
    """Finds the channel block of a device and writes it into its file."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import device_blocks
    from edgecompress.core import catalog

    screen = console.open(args)
    with Progress(screen, args) as progress:
        device = catalog.device(args.device, _device_settings(args.set))
        staircase = device_blocks.measure(device, args.runtime, args.precision, options_of(args, progress))
    file = device_blocks.write(staircase)
    console.say(args, {"file": str(file), **staircase.facts}, device_blocks.text(staircase, file, brief=args.quiet))
    return 0


def doctor(args: argparse.Namespace) -> int:
    """Prints what a machine can do."""
    from edgecompress.cli import console
    from edgecompress.commands import doctor

    report = doctor.report(args.device)
    console.say(args, report, doctor.text(report))
    return 0


def conformance(args: argparse.Namespace) -> int:
    """Runs the conformance suite on a plug-in or target; 1 where it does not conform."""
    import contextlib
    import dataclasses

    from edgecompress.cli import console
    from edgecompress.core import plain_text
    from edgecompress.testing.conformance import by_name

    with contextlib.redirect_stdout(sys.stderr):  # what a plug-in prints is no part of the table
        findings = by_name.check(args.name, args.kind)
    rows = [{key: value for key, value in dataclasses.asdict(f).items() if key != "trace"} for f in findings]
    table = [{**row, "conforms": "no" if row.pop("finding") else "yes"} for row in map(dict, rows)]
    wrong = [f"{f.kind} {f.name}: {f.finding}" for f in findings if f.finding]
    traces = [f.trace for f in findings if f.trace and args.verbose]
    shown = wrong or ["conforms"] if args.quiet else ["", *wrong] if wrong else []
    console.say(args, rows, "\n".join([*([] if args.quiet else [plain_text.columns(table)]), *shown, *traces]))
    return CheckFailed.exit_code if wrong else 0


def init(args: argparse.Namespace) -> int:
    """Writes a commented TOML file, or a plug-in to start from."""
    from edgecompress.cli import console
    from edgecompress.commands import init, init_plugin, init_source

    if not args.name and not args.source:
        raise InputError("init: give the NAME of the new file, or the model file with --source")
    if args.source:
        file, code = init_source.write(args.source, args.name, (args.output, args.data), options_of(args, None))
        step = f"fill in {code}, then {init.next_step('source', file)}" if code else init.next_step("source", file)
    elif args.kind in init_plugin.KINDS:
        file = init_plugin.write(args.kind, args.name, args.output)
        step = init_plugin.next_step(file, args.name)
    else:
        file = init.write(
            args.output or init.place(args.kind, args.name),
            init.text(args.kind, {**vars(args), "data": args.data or "my_package.nets:data"}),
        )
        step = init.next_step(args.kind, file)
    console.say(args, {"written": str(file)}, str(file) if args.quiet else f"{file}\nnext: {step}")
    return 0


def mcp(args: argparse.Namespace) -> int:
    """Serves the Model Context Protocol on stdin and stdout."""
    from edgecompress.cli import mcp_server

    mcp_server.serve()
    return 0
