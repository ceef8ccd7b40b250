"""`edgecompress history`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument, asked

HELP = "list all results, each with its change from the previous one of its kind"
PURPOSE = "compare results"
EXAMPLES = (
    "history\nhistory --source net.onnx --target x86 --limit 5\nhistory --merge /mnt/bench-2/.edgecompress\n"
    "history --json"
)
ARGUMENTS = (
    argument("--source", default="", help="only results of this model (part of its name is enough)"),
    argument("--target", default="", help="only results of this target"),
    argument("--limit", type=int, default=20, metavar="N", help="number of results, newest first (default: 20)"),
    argument(
        "--merge",
        action="append",
        default=[],
        type=Path,
        metavar="STORE",
        help="first take in the results of another machine's store, or of its history.sqlite; may repeat",
    ),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Lists what was measured before."""
    import sys

    from edgecompress.cli import console
    from edgecompress.core import plain_text
    from edgecompress.pipeline import store_place
    from edgecompress.reporting import history

    root = store_place.root(args.store)
    for other in args.merge:
        taken = history.merge(root, other)
        print(f"{other}: {plain_text.plural(taken, 'new result')}", file=sys.stderr)
    rows = history.rows(root, args.source, args.target, args.limit)
    console.say(args, rows, plain_text.columns(history.shown(rows), console.room()) or f"{root}: no result yet")
    return 0
