"""`edgecompress check`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import BEFOREHAND, asked, options_of, request_of
from edgecompress.core.errors import InputError

HELP = "say which variants of targets a model reaches and where its operators run, before anything is built"
PURPOSE = "take a model to a device"
ORDER = 4
EXAMPLES = (
    "check net.onnx --target android,ios,arm64\n"
    "check my_pkg.nets:build --data my_pkg.nets:data --target ethos-u55 --json\n"
    "check net.onnx --target snapdragon --device snapdragon-888"
)
ARGUMENTS = (
    asked("model"),
    asked("data", help="samples, as for deploy; files need none"),
    asked("target", help="targets: names or TOML files, comma-separated (default: x86)"),
    asked("only"),
    asked("device"),
    *BEFOREHAND,
)


def run(args: argparse.Namespace) -> int:
    """Tells what targets make of a model, before anything is built; 2 where none is reached."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import check

    how = {**request_of(args), "target": args.target.split(",")}
    with Progress(console.open(args), args) as progress:
        found = check.check(**how, options=options_of(args, progress))
    console.say(args, {"source": found.source, "targets": found.targets}, check.text(found, brief=args.quiet))
    return 0 if found.reached else InputError.exit_code
