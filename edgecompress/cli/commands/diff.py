"""`edgecompress diff`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edgecompress.cli.arguments import DATA, THREADS, argument, asked, options_of, request_of

HELP = "compare two models of any formats: which operator departs first, by how much, and why"
PURPOSE = "look into a model"
EXAMPLES = (
    "diff my_pkg.nets:build theirs.tflite --data my_pkg.nets:data\n"
    "diff old.onnx new.onnx --data items.npz --html diff.html\n"
    "diff net.keras net.tflite --map input_1=x --json\n"
    "diff dist/x86 net.onnx"
)
ARGUMENTS = (
    argument("a", metavar="A", help="the model that is right: factory pkg.mod:fn, file of any format, shipped folder"),
    argument("b", metavar="B", help="the model that is held against it"),
    DATA,
    argument(
        "--map",
        action="append",
        default=[],
        metavar="NAME=NAME",
        help="an input or output of A, and what it is in B (repeatable)",
    ),
    argument("--items", type=int, default=8, metavar="N", help="number of items to run (default: 8)"),
    argument(
        "--split",
        choices=("calibrate", "select", "test"),
        default="calibrate",
        help="split the items come from (default: calibrate)",
    ),
    argument("--html", type=Path, metavar="PAGE", help="also write a page with both graphs"),
    asked("samples"),
    THREADS,
    asked("batch"),
    asked("seed"),
    asked("settings"),
    asked("offline"),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Compares two models; 0 equal, 1 differ, 4 undecided."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import diff
    from edgecompress.core.errors import InputError

    pairs = [each.partition("=") for each in args.map]
    if wrong := next((name + mark + other for name, mark, other in pairs if not (name and other)), ""):
        raise InputError(f"--map {wrong}: give NAME=NAME, A's name first")
    how: Any = request_of(args)
    with Progress(console.open(args), args) as progress:
        found = diff.diff(
            args.a,
            args.b,
            map={name: other for name, _, other in pairs},
            items=args.items,
            split=args.split,
            html=args.html,
            options=options_of(args, progress),
            **how,
        )
    console.say(args, dict(found.facts), diff.text(found, args.quiet, console.room()))
    return found.exit_code
