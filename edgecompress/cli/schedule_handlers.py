"""What each command of `schedule` does; see handlers."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edgecompress.cli.handlers import options_of, request_of
from edgecompress.core.errors import CheckFailed, InputError

GIVEN = ("epochs", "lr", "batch_size", "momentum", "weight_decay", "distill", "teacher", "temperature")


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The options of the technique that the command line names."""
    return {name: getattr(args, name) for name in GIVEN if getattr(args, name) is not None}


def _shape(text: str) -> list[int] | None:
    """3,32,32 as numbers; raises InputError."""
    try:
        sizes = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise InputError(f"--shape {text}: write the sizes of an item with commas, for example 3,32,32")
    return sizes or None


def check(args: argparse.Namespace) -> int:
    """Tells what a schedule does; 2 where it does not fit the net, 1 for a warning if asked to be strict."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        found = schedule.read(args.file, args.model, shape=_shape(args.shape), options=options_of(args, progress))
    facts = {"file": str(args.file), **{k: v for k, v in found.facts.items() if k not in ("epochs", "flags")}}
    console.say(args, facts, schedule.checked(found, args.quiet, console.width()))
    if found.facts["problems"]:
        return InputError.exit_code
    return CheckFailed.exit_code if args.strict and found.facts["warnings"] else 0


def show(args: argparse.Namespace) -> int:
    """Shows the course of a schedule; 2 where it does not fit the net."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import schedule

    screen = console.open(args)
    pictures = schedule.Pictures(args.html, args.png)
    with Progress(screen, args) as progress:
        found = schedule.read(
            args.file, args.model, epochs=args.epochs, lr=args.lr, pictures=pictures, options=options_of(args, progress)
        )
    drawn = [str(place) for place in found.drawn]
    console.say(args, {"file": str(args.file), **found.facts, "drawn": drawn}, schedule.shown(found, args.quiet))
    return InputError.exit_code if found.facts["problems"] else 0


def run(args: argparse.Namespace) -> int:
    """Trains a net under a schedule."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        trained = schedule.run(
            args.file, args.model, given=_given(args), options=options_of(args, progress), **request_of(args)
        )
    words = f"{trained.out}" if args.quiet else f"{trained}\n{_next(args, trained.target)}"
    console.say(args, {"out": str(trained.out), **trained.facts}, words)
    return 0


def _next(args: argparse.Namespace, target: Path) -> str:
    import shlex

    given = [word for name in ("data", "metric") if (value := getattr(args, name)) for word in (f"--{name}", value)]
    return f"next: {shlex.join(['edgecompress', 'deploy', args.model, *given, '--target', str(target)])}"


def convert(args: argparse.Namespace) -> int:
    """Prints a target that trains under a schedule."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        found = schedule.read(args.file, options=options_of(args, progress))
    text = schedule.converted(found, args.target, Path.cwd(), _given(args))
    console.say(args, {"target": text}, text.rstrip("\n"))
    return 0
