"""`edgecompress report`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import SHIPPED, argument, asked, options_of

HELP = "show the report of a deploy, or add measurements of its package from other devices"
PURPOSE = "use what was shipped"
ORDER = 3
EXAMPLES = "report dist/x86\nreport dist/x86 --json\nreport dist/android --add pixel8.json pixel8-again.json"
ARGUMENTS = (
    SHIPPED,
    argument(
        "--add",
        nargs="+",
        type=Path,
        default=[],
        metavar="FILE",
        help="JSON of a package's benchmark; copied into FOLDER/measured and shown in the report",
    ),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
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
