"""What the command line prints: the plan and the result. (cli/progress.py has what is shown in between.)"""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.cli.streams import OutputStream
from edgecompress.commands.job_run import Result
from edgecompress.core import environments, extras, plain_text, registry
from edgecompress.core.errors import BROKE, GRAVITY, UNDECIDED, brief
from edgecompress.core.json import Json
from edgecompress.core.model import CARD, Artifact, Stage, Substitute
from edgecompress.core.plain_text import escaped, fitted, folded, one_line, wrapped
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.plan import Plan

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 60  # characters of a setting, and of what a stage does


def open(args: argparse.Namespace) -> Console:
    """The console of a command: stdout, or stderr if stdout is for JSON. Colour follows NO_COLOR and the terminal.

    Whatever it prints is escaped: only its own styles and movements reach the terminal.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Screen(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=escaped(segment.text))

    stream = sys.stderr if args.json else sys.stdout
    file: Any = stream.styled if isinstance(stream, OutputStream) else stream
    return Screen(file=file, highlight=False)


def line(screen: Console, text: str, style: str = "") -> None:
    """Prints one line literally: markup is not interpreted, and control characters are escaped."""
    lines(screen, [text], style)


def lines(screen: Console, texts: Iterable[str], style: str = "") -> None:
    """Prints lines, as `line` prints each. In a terminal they break between words; elsewhere each stays one line."""
    text = "\n".join(map(one_line, texts))
    shown = folded(text, screen.width) if screen.is_terminal else text
    screen.print(shown, markup=False, soft_wrap=True, style=style or None)


def print_json(data: object) -> None:
    """Data on stdout."""
    print(json.dumps(data, indent=1, ensure_ascii=False, default=str))


def width() -> int:
    """The columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size().columns


def room() -> int:
    """The columns of stdout where it is a terminal; elsewhere no line is broken."""
    return plain_text.room(sys.stdout)


def say(args: argparse.Namespace, data: object, text: str) -> None:
    """Prints the result of a command: JSON if asked for, else text."""
    if args.json:
        print_json(data)
    else:
        print(folded(text, room()))


def steps(args: argparse.Namespace) -> Callable[[str], None]:
    """Tells the steps of a long job on stderr, unless it is to be quiet."""

    def says(line: str) -> None:
        if not args.quiet:
            print(one_line(line), file=sys.stderr, flush=True)

    return says


def duration(seconds: float) -> str:
    """Seconds in words, such as `2 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds > 600 else f"{seconds / 60:.1f} min"


# --------------------------------------------------------------------------- plan


def plan_data(job: Job, steps: Plan) -> dict[str, Json]:
    """A plan as JSON."""
    how = ("runtime", "artifact", "verdict", "also", "agrees", "made")  # a variant is reached
    return {
        "source": job.source.value.model,
        "target": job.target.name,
        "device": job.device.name,
        "profile": job.profile.name,
        "stages": [dataclasses.asdict(s) for s in steps.stages if isinstance(s, Stage)],
        "searches": [{"name": f.name, "bound": f.bound(), "estimate_s": f.estimate_s()} for f in searches(steps)],
        "routes": [
            {"variant": dataclasses.asdict(c.variant), **{name: getattr(c, name) for name in how}}
            for c in steps.candidates
        ],
        "left_out": dict(steps.race.left_out),
        "search": {"name": steps.race.name, "bound": steps.race.bound(), "estimate_s": steps.race.estimate_s()},
        "estimate_s": steps.estimate_s(),
        "settings": [dataclasses.asdict(s) for s in job.settings()],
    }


def plan_time(plans: Sequence[tuple[Job, Plan]]) -> str:
    """The expected time of each plan, in one line."""
    return "; ".join(f"{job.target.name}: {_took(steps)}" for job, steps in plans)


def plan(screen: Console, job: Job, steps: Plan) -> None:
    """A plan as text: the stages, the bound of the search, the expected time."""
    lines(screen, _plan_lines(job, steps))


def settings(screen: Console, job: Job, everything: bool) -> None:
    """The effective configuration, and where each value came from; without `everything`, the defaults are left out."""
    shown = [s for s in job.settings() if everything or s.origin != "default"]
    rows = [(f"  {s.key}", brief(s.origin, SHOWN), brief(json.dumps(s.value, default=str), SHOWN)) for s in shown]
    lines(screen, fitted(rows, width()), "dim")


def _plan_lines(job: Job, steps: Plan) -> Iterable[str]:
    names = (job.target.name, job.device.name, job.profile.name)
    yield f"{job.source.value.model} → target {names[0]}, device {names[1]}, profile {names[2]}"
    stages = (s if isinstance(s, Stage) else s.stage for s in steps.stages)
    rows = []
    for stage in stages:  # with those before it, those of its own variant without the variant
        own = f"{stage.name.rpartition('/')[0]}/"
        before = ", ".join(each.removeprefix(own) for each in stage.inputs.values())
        rows.append((f"  {stage.name}", f"~{duration(stage.estimate_s)}", f"from {before}" if before else ""))
    yield from fitted(rows, width())
    told = [f"{f.name}: {f.bound()}, about {duration(f.estimate_s())}" for f in searches(steps)]
    told += [f"without {name}: {why}" for name, why in steps.race.left_out.items()]
    for text in (*told, f"{steps.race.name}: {steps.race.bound()}"):
        yield from wrapped(text, width(), margin=4, first=2)
    yield from wrapped(f"{_took(steps)}; the remaining time also depends on stored results and earlier runs", width())


def _took(steps: Plan) -> str:
    return f"about {duration(steps.estimate_s())} by the stages' own estimates, when nothing is stored"


def searches(steps: Plan) -> list[Substitute]:
    """The steps of a plan that search: the compression strength, and repairs of an artifact."""
    return [s for s in steps.stages if not isinstance(s, Stage)]


# --------------------------------------------------------------------------- results


def report(screen: Console, facts: Mapping[str, Any], verbose: bool) -> None:
    """What a report.json tells; verbose, with all its tables."""
    from edgecompress.reporting import model, terminal

    screen.print()
    screen.print(terminal.render(model.of(facts), verbose), crop=False)


def ended(screen: Console, args: argparse.Namespace, result: Result) -> int:
    """How a deploy or a profile ended; returns its exit code."""
    facts = result.read_report()
    if result.exit_code in BROKE:
        print(folded(f"edgecompress: error: {one_line(result.message)}", plain_text.room(sys.stderr)), file=sys.stderr)
    if args.json:
        print_json({**result_data(result), "summary": facts.get("summary")})
        return result.exit_code
    if args.quiet:
        if result.exit_code not in BROKE:  # else the error has told it
            line(screen, facts["summary"]["sentence"] if facts else result.message)
        return result.exit_code
    if facts:
        report(screen, facts, bool(args.verbose))
    else:
        line(screen, result.message)
    lines(screen, _places(result))
    return result.exit_code


def said(screen: Console, args: argparse.Namespace, words: str) -> None:
    """A line of what goes on, unless nothing is to be told."""
    if not args.quiet:
        line(screen, words)


def _places(result: Result) -> Iterable[str]:
    """Where it lies, and what one does with it next."""
    if result.out:
        folder = short(result.out)
        artifact = Artifact.read(result.out / "artifact")
        unsent = {CARD, *artifact.facts.get("here", ())}
        files = [file for file in artifact.path.rglob("*") if file.is_file() and file.name not in unsent]
        largest = max(files, key=lambda file: file.stat().st_size, default=artifact.path)
        model = Path("artifact", *largest.relative_to(artifact.path).parts[:1])  # a .mlpackage, not what lies in it
        yield f"   {folder}/  report.html  deploy.json  {model}"
        if extras.is_here("apps"):
            yield f"   next: {_packaging(result)}edgecompress package {shlex.quote(folder)}"
    elif result.report:
        yield f"   report: {short(result.report / 'report.html')}"


def _packaging(result: Result) -> str:
    """What installs the packager of the target, where that is missing."""
    packager = registry.load("packagers", str(result.read_report()["target"].get("package") or "tar"))
    return f"{environments.install_command(packager)}; " if environments.missing(packager) else ""


def short(path: Path) -> str:
    """A path as it is written from the working folder."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def all_ended(screen: Console, args: argparse.Namespace, results: Mapping[str, Result]) -> int:
    """How a deploy to several targets ended, those that did not ship last; returns the gravest exit code."""
    from edgecompress.reporting import model, shipped_headline, tables

    results = dict(sorted(results.items(), key=lambda each: GRAVITY.index(each[1].exit_code)))
    code = [*results.values()][-1].exit_code
    lost = {name: result.message for name, result in results.items() if result.exit_code and not result.out}
    cost = _cost(args.began)
    if args.json:
        facts = {name: {**result_data(r), "summary": r.read_report().get("summary")} for name, r in results.items()}
        print_json({"exit_code": code, **cost, "targets": facts, "not_shipped": lost})
        return code
    if args.quiet:
        line(
            screen,
            "; ".join(f"{name}: {'shipped' if r.out else 'nothing'}: {r.message}" for name, r in results.items()),
        )
        return code
    for name, result in results.items() if args.verbose else ():
        if facts := result.read_report():
            line(screen, f"\n{name}", "bold")
            report(screen, facts, verbose=True)
    hits = sum(o.why_run == "hit" for r in results.values() for o in r.outcomes.values())
    stages = sum(len(r.outcomes) for r in results.values())
    peak = f"{cost['peak_rss_bytes'] / 2**20:,.0f} MiB at most in one process"
    told = f"{len(results)} targets in {duration(cost['wall_s'])}: {hits} of {stages} stages were hits; {peak}"
    reports = {name: model.of(facts) for name, result in results.items() if (facts := result.read_report())}
    caveat = shipped_headline.ONE_SESSION if any(map(shipped_headline.one_session, reports.values())) else ""
    lines(screen, ["", told, *filter(None, [caveat])])
    for name, result in results.items():
        found = reports.get(name)
        says = found.summary.sentence if found and result.exit_code not in BROKE else result.message
        sign, style = {0: ("OK", ""), UNDECIDED: ("? ", "yellow")}.get(result.exit_code, ("✘ ", "red"))
        line(screen, f"{sign} {name}: {says}", style)
        others = [v for v in found.variants if v.verdict not in ("shipped", "passed")] if found else []
        rows = [(f"     {v.name}:", tables.why_not(found, v)) for v in others if found]
        more = ["   did not ship:", *fitted(rows, width())] if rows else []
        for text in (*more, *(() if result.exit_code in BROKE else _places(result))):
            line(screen, text)
    if code:
        of = ", ".join(name for name, result in results.items() if result.exit_code == code)
        shipped = ", ".join(name for name, result in results.items() if result.out) or "nothing"
        line(screen, f"exit code {code}, the gravest of all targets, is that of {of}; shipped: {shipped}")
    return code


def _cost(began: float) -> dict[str, float]:
    """Seconds since `began`, and the largest peak of memory of a process that we started."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit
    return {"wall_s": time.monotonic() - began, "peak_rss_bytes": peak}


def verified(screen: Console, args: argparse.Namespace, result: Result) -> int:
    """How a verification ended; returns its exit code."""
    facts = result.outcomes["verify"].facts
    if args.json:
        print_json({**result_data(result), "verify": facts})
        return result.exit_code
    for check in () if args.quiet else facts.get("checks", []):
        mark = {True: "kept  ", False: "BROKEN", None: "not judged"}[check["ok"]]
        mark = "undecided" if check["ok"] and check["decision"] == "undecided" else mark
        line(screen, f"{mark} {check['name']}: {check['says']}")
    line(screen, result.message)
    return result.exit_code


def result_data(result: Result) -> dict[str, Any]:
    """How a run ended, as JSON."""
    names = ("stage", "status", "reason", "why_run", "wall_s", "log")
    stages = [{name: getattr(outcome, name) for name in names} for outcome in result.outcomes.values()]
    places = {"out": result.out and str(result.out), "report": result.report and str(result.report)}
    return {"exit_code": result.exit_code, "message": result.message, **places, "stages": stages}
