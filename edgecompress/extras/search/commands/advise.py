"""`edgecompress advise`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import BEFOREHAND, argument, asked, one_target, options_of, request_of
from edgecompress.core.errors import InputError

HELP = "rank what fits a model, its data and a target by what it should gain, before anything is built"
PURPOSE = "take a model to a device"
ORDER = 5
STABILITY = "experimental"
EXAMPLES = (
    "advise net.onnx --data images/ --target x86\n"
    "advise my_pkg.nets:build --data my_pkg.nets:data --target arm64 --objective size --json"
)
ARGUMENTS = (
    asked("model"),
    asked("data", help="samples, as for deploy; files need none"),
    asked("target"),
    argument(
        "--objective",
        default="latency",
        choices=("latency", "size", "energy"),
        help="what the rows are ranked by (default: latency)",
    ),
    asked("profile", help="how a deploy would measure (default: standard)"),
    *BEFOREHAND,
)


def run(args: argparse.Namespace) -> int:
    """Ranks what fits a model and a target, before anything is built; 2 where nothing does."""
    from dataclasses import asdict

    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.search import advise

    one_target(args, "advise")
    with Progress(console.open(args), args) as progress:
        options = options_of(args, progress)
        advised = advise.advise(**request_of(args), objective=args.objective, options=options)
    console.say(args, asdict(advised), advise.text(advised, args.quiet, bool(args.verbose), console.width()))
    return 0 if any(row.rank for row in advised.rows) else InputError.exit_code
