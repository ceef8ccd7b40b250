"""What each command does: arguments to functions of `commands`, their results to `console`. Returns the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core.errors import CheckFailed, InputError


def _request(args: argparse.Namespace) -> dict[str, Any]:
    """What `edgecompress.pipeline.job.job` takes, from the arguments."""
    names = ("data", "metric", "samples", "device", "profile", "threads", "batch", "seed", "target")
    asked = {name: getattr(args, name) for name in names if getattr(args, name, None) is not None}
    asked["only"] = [v for text in getattr(args, "only", []) for v in text.split(",")]
    asked["settings"] = _settings(args.set, "limits.items_lost=2")
    return asked


def _settings(texts: Sequence[str], example: str) -> dict[str, Any]:
    """KEY=VALUE texts as a table; raises InputError."""
    from edgecompress.core import config

    return {key: config.from_text(value) for key, value in _pairs(texts, example).items()}


def _pairs(texts: Sequence[str], example: str) -> dict[str, str]:
    """KEY=VALUE texts, the values as they are written; raises InputError."""
    if bad := [text for text in texts if "=" not in text]:
        raise InputError(f"--set {bad[0]}: write --set KEY=VALUE, for example --set {example}")
    return {key.strip(): value for key, _, value in (text.partition("=") for text in texts)}


def _options(args: argparse.Namespace, listener: Any) -> Any:
    import shlex

    from edgecompress.commands import result

    names = ("out", "until", "offline", "untrusted", "remeasure", "require_measured", "store")
    given = {name: getattr(args, name) for name in names if hasattr(args, name)}
    return result.Options(**given, command=shlex.join(["edgecompress", *args.words]), listener=listener)


def _plans(args: argparse.Namespace) -> list[tuple[Any, Any]]:
    """The job and the plan of each target that is asked for: all of them are decided before anything runs."""
    from edgecompress.pipeline import plan
    from edgecompress.pipeline.job import job

    asked = _request(args)
    jobs = [job(args.model, **{**asked, "target": name}) for name in dict.fromkeys(args.target.split(","))]
    return [(wanted, plan.deploy(wanted)) for wanted in jobs]


def plan(args: argparse.Namespace) -> int:
    """Prints what a deploy would do."""
    from edgecompress.cli import console

    plans = _plans(args)
    if args.json:
        told = [console.plan_data(wanted, steps) for wanted, steps in plans]
        console.print_json(told if len(told) > 1 else told[0])
        return 0
    screen = console.open(args)
    for wanted, steps in plans:
        console.plan(screen, wanted, steps)
        if not args.quiet:
            console.settings(screen, wanted, everything=bool(args.verbose))
    return 0


def deploy(args: argparse.Namespace) -> int:
    """Takes the model to each target."""
    from edgecompress.cli import console
    from edgecompress.commands import deploy as api

    screen = console.open(args)
    plans = _plans(args)
    for wanted, steps in plans if not args.quiet else ():
        console.plan(screen, wanted, steps)
        if args.verbose:
            console.settings(screen, wanted, everything=True)
    if len(plans) > 1:
        with console.Progress(screen, args) as progress:
            results = api.run_all(plans, _options(args, progress))
        return console.all_ended(screen, args, results)
    wanted, steps = plans[0]
    with console.Progress(screen, args) as progress:
        result = api.run(wanted, steps, _options(args, progress))
    return console.ended(screen, args, result)


def guard(args: argparse.Namespace) -> int:
    """Deploys with the guard on, under a budget."""
    args.set = [*args.set, "guard.on=true", *(f"limits.{text}" for text in args.budget)]
    return deploy(args)


def analyze(args: argparse.Namespace) -> int:
    """Counts what a model costs, and tries what its layers mind."""
    from edgecompress.cli import console
    from edgecompress.commands import analyze as analysis

    screen = console.open(args)
    more = {key: value for key, value in _request(args).items() if key not in ("device", "only")}
    asked = analysis.Asked(tuple(args.device.split(",")), _sensitivity(args), args.html, args.storage)
    with console.Progress(screen, args) as progress:
        found = analysis.analyze(args.model, asked, options=_options(args, progress), **more)
    page = str(found.page) if found.page else None
    console.say(args, {**found.facts, "page": page}, analysis.text(found, brief=args.quiet))
    return 0


def _sensitivity(args: argparse.Namespace) -> Any:
    """What is done to the layers, or None; raises InputError for levels that are no numbers."""
    from edgecompress.commands import analyze as analysis

    if not args.sensitivity:
        if args.layers or args.levels:
            raise InputError("--layers and --levels are of the sensitivity; add --sensitivity ratio or bits")
        return None
    layers = tuple(filter(None, args.layers.split(",")))
    try:
        levels = tuple(float(text) for text in args.levels.split(",") if text)
    except ValueError as error:
        raise InputError(f"--levels {args.levels}: write numbers with commas, for example 0.25,0.5,0.75") from error
    return analysis.Sensitivity(args.sensitivity, args.structure, layers, levels, args.items)


def diagnose(args: argparse.Namespace) -> int:
    """Finds the layer at which an artifact leaves its source."""
    from edgecompress.cli import console
    from edgecompress.commands import diagnose as findings

    screen = console.open(args)
    more = {key: value for key, value in _request(args).items() if key != "only"}
    asked = findings.Asked(args.variant, args.artifact, args.items, args.split, args.out)
    with console.Progress(screen, args) as progress:
        found = findings.diagnose(args.model, asked, options=_options(args, progress), **more)
    console.say(args, {**found.facts, "out": str(found.out) if found.out else None}, findings.text(found, args.quiet))
    return 0


def verify(args: argparse.Namespace) -> int:
    """Checks a shipped artifact again."""
    from edgecompress.cli import console
    from edgecompress.commands import verify

    screen = console.open(args)
    with console.Progress(screen, args) as progress:
        result = verify.verify(args.artifact, args.model, options=_options(args, progress), **_request(args))
    return console.verified(screen, args, result)


def profile(args: argparse.Namespace) -> int:
    """Measures a shipped artifact on a device."""
    from edgecompress.cli import console
    from edgecompress.commands import profile

    screen = console.open(args)
    with console.Progress(screen, args) as progress:
        result = profile.profile(args.artifact, options=_options(args, progress), **_request(args))
    return console.ended(screen, args, result)


def report(args: argparse.Namespace) -> int:
    """Shows the report of a deploy, with what was measured elsewhere."""
    from edgecompress.cli import console
    from edgecompress.commands import report as reporting

    screen = console.open(args)
    if args.add:
        with console.Progress(screen, args) as progress:
            told = reporting.add(args.artifact, args.add, _options(args, progress))
    else:
        told = reporting.report(args.artifact)
    if args.json:
        console.print_json(told)
    else:
        console.report(screen, told)
    return 0


def compare(args: argparse.Namespace) -> int:
    """Holds results against each other; 1 when a gate fails."""
    from edgecompress.cli import console
    from edgecompress.commands import compare, compare_page

    screen = console.open(args)
    if args.html:
        compare_page.check(args.html)
    with console.Progress(screen, args) as progress:
        options = _options(args, progress)
        if args.remeasure:
            found = compare.remeasured(args.reports, args.fail_if, options=options, **_request(args))
        else:
            found = compare.compare(args.reports, args.fail_if)
        page = compare_page.write(found, args.html, options) if args.html else None
    console.compared(screen, args, found, page)
    return found.exit_code


def history(args: argparse.Namespace) -> int:
    """Lists what was measured before."""
    from edgecompress.cli import console
    from edgecompress.core import text
    from edgecompress.reporting import history

    found = history.rows(args.store, args.source, args.target, args.limit)
    console.say(args, found, text.columns(history.shown(found)) or f"{args.store}: no result yet")
    return 0


def package(args: argparse.Namespace) -> int:
    """Wraps what was shipped."""
    from edgecompress.cli import console
    from edgecompress.commands import package

    made = package.package(args.artifact, args.packager, args.out, _pairs(args.set, "version=1.0.0"), args.sign)
    signature = f"{made}.minisig" if args.sign else None
    told = {"package": str(made), "size_bytes": made.stat().st_size, "signature": signature}
    console.say(args, told, "\n".join(filter(None, (str(made), signature))))
    return 0


def package_verify(args: argparse.Namespace) -> int:
    """Checks a package; 1 when a check fails."""
    import dataclasses

    from edgecompress.cli import console
    from edgecompress.core import text
    from edgecompress.packaging import verify

    found = [dataclasses.asdict(check) for check in verify.verify(args.package, args.key)]
    failed = [check["name"] for check in found if check["status"] == "fail"]
    rows = [{key: console.clean(text) for key, text in check.items()} for check in found]
    console.say(args, {"package": str(args.package), "ok": not failed, "checks": found}, text.columns(rows))
    return CheckFailed.exit_code if failed else 0


def list_all(args: argparse.Namespace) -> int:
    """Lists a kind, or shows one of it."""
    from edgecompress.cli import console
    from edgecompress.commands import listing

    found = listing.one(args.kind, args.name) if args.name else listing.all_of(args.kind)
    console.say(args, found, listing.text(found))
    return 0


def cache_ls(args: argparse.Namespace) -> int:
    """Lists what is stored."""
    from edgecompress.cli import console
    from edgecompress.commands import cache
    from edgecompress.core import text

    found = cache.stored(args.store)
    console.say(args, found, text.columns(found) or f"{args.store}: nothing is stored")
    return 0


def cache_why(args: argparse.Namespace) -> int:
    """Says what a stage depends on."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    found = cache.reasons(args.store, args.stage)
    console.say(args, found, cache.reasons_text(found))
    return 0


def cache_gc(args: argparse.Namespace) -> int:
    """Removes old results."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    freed = cache.opened(args.store).collect(args.older_than * 86400)
    console.say(args, {"freed_bytes": freed}, f"{freed / 2**20:.1f} MiB freed")
    return 0


def cache_verify(args: argparse.Namespace) -> int:
    """Compares every stored byte with its sha256; 1 on damage."""
    from edgecompress.cli import console
    from edgecompress.commands import cache

    store = cache.opened(args.store)
    damaged = [{"key": folder.name, "path": str(folder)} for folder in store.damaged()]
    words = [f"{d['path']}: damaged: the next deploy that needs it makes it again" for d in damaged]
    told = {"checked": len(list((store.root / "store").iterdir())), "damaged": damaged}
    console.say(args, told, "\n".join(words) or "every result is whole")
    return 1 if damaged else 0


def _steps(args: argparse.Namespace) -> Callable[[str], None]:
    """Tells the steps of a long job on stderr, unless it is to be quiet."""
    from edgecompress.cli import console

    def says(line: str) -> None:
        if not args.quiet:
            print(console.clean(line), file=sys.stderr, flush=True)

    return says


def energy_calibrate(args: argparse.Namespace) -> int:
    """Learns energy on a device that has a sensor."""
    from edgecompress.cli import console
    from edgecompress.commands import energy_calibrate as calibrate
    from edgecompress.core import config

    file = calibrate.run(args.device, args.out, args.profile, args.threads, _steps(args))
    told = config.read_toml(file)
    error = told["error"]
    words = (
        f"held-out error {error['rms']:.1%} (RMS); an estimate is within ±{error['band']:.1%} for {error['covers']:.0%}"
    )
    console.say(args, {"file": str(file), **told}, f"{file}: {words} of nets like these")
    return 0


def device_add(args: argparse.Namespace) -> int:
    """Probes a board and writes its file."""
    from edgecompress.cli import console
    from edgecompress.commands import device_add as probe

    added = probe.add(args.ssh, args.name, args.output, _settings(args.set, "port=2222"))
    told = {"file": str(added.file), "found": list(added.found), "missing": list(added.missing)}
    console.say(args, told, probe.text(added))
    return 0


def device_build(args: argparse.Namespace) -> int:
    """Makes an emulated device."""
    from edgecompress.cli import console
    from edgecompress.device.emulation import build

    place = build.build(_steps(args))
    console.say(args, {"name": args.name, "path": str(place)}, f"{args.name}: ready in {place}")
    return 0


def _device_settings(texts: Sequence[str]) -> dict[str, Any]:
    """--set values of a device, with or without the word that they begin with where there is more than a device."""
    laid = _settings(texts, "options.host=user@board")
    return {key.removeprefix("device."): value for key, value in laid.items()}


def device_blocks(args: argparse.Namespace) -> int:
    """Finds the channel block of a device and writes it into its file."""
    from edgecompress.cli import console
    from edgecompress.commands import device_blocks as staircase
    from edgecompress.core import catalog

    screen = console.open(args)
    with console.Progress(screen, args) as progress:
        device = catalog.device(args.device, _device_settings(args.set))
        found = staircase.measure(device, args.runtime, args.precision, _options(args, progress))
    file = staircase.write(found)
    console.say(args, {"file": str(file), **found.facts}, staircase.text(found, file, brief=args.quiet))
    return 0


def doctor(args: argparse.Namespace) -> int:
    """Says what a machine can do."""
    from edgecompress.cli import console
    from edgecompress.commands import doctor

    told = doctor.report(args.device)
    console.say(args, told, doctor.text(told))
    return 0


def init(args: argparse.Namespace) -> int:
    """Writes a commented TOML file."""
    from edgecompress.cli import console
    from edgecompress.commands import init as scaffold

    folder = Path() if args.kind == "source" else Path(f"{args.kind}s")
    file = scaffold.write(args.output or folder / f"{args.name}.toml", scaffold.text(args.kind, vars(args)))
    console.say(args, {"written": str(file)}, f"{file}\nnext: {scaffold.next_step(args.kind, file)}")
    return 0
