"""`edgecompress diagnose`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import DATA, THREADS, argument, asked, options_of, request_of

HELP = "name the layer at which an artifact departs from its source, and the remedy"
PURPOSE = "look into a model"
EXAMPLES = (
    "diagnose --target x86 --variant int8\n"
    "diagnose my_pkg.nets:build --data my_pkg.nets:data --target ios --variant fp16 --out why\n"
    "diagnose --artifact dist/x86\n"
    "diagnose my_pkg.nets:build --data my_pkg.nets:data --artifact theirs.tflite --json"
)
ARGUMENTS = (
    asked("model"),
    asked("target", default=None),
    argument("--variant", default="", help="variant of the target (default: the first that compresses)"),
    argument(
        "--artifact", type=Path, metavar="PATH", help="folder that deploy wrote, or a model file, in place of a variant"
    ),
    DATA,
    asked("metric"),
    asked("samples"),
    argument("--items", type=int, default=16, metavar="N", help="number of items to run (default: 16)"),
    argument(
        "--split",
        choices=("calibrate", "select", "test"),
        default="calibrate",
        help="split the items come from (default: calibrate)",
    ),
    THREADS,
    asked("batch"),
    asked("seed"),
    asked("settings"),
    asked("out", metavar="DIR", help="also write diagnosis.json and its HTML page into this folder"),
    asked("offline"),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Finds the layer at which an artifact departs from its source."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import diagnose

    subject = diagnose.DiagnosisRequest(args.variant, args.artifact, args.items, args.split, args.out)
    with Progress(console.open(args), args) as progress:
        diagnosis = diagnose.diagnose(request=subject, options=options_of(args, progress), **request_of(args))
    facts = {**diagnosis.facts, "out": str(diagnosis.out) if diagnosis.out else None}
    console.say(args, facts, diagnose.text(diagnosis, args.quiet, console.room()))
    return 0
