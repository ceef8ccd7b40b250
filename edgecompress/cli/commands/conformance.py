"""`edgecompress conformance`."""

from __future__ import annotations

import argparse
import sys

from edgecompress.cli.arguments import argument
from edgecompress.core.errors import CheckFailed

HELP = "check that a plug-in or a target keeps what its kind promises"
PURPOSE = "set up"
ORDER = 5
EXAMPLES = "conformance ptq_int8\nconformance mine --kind engine --json"
ARGUMENTS = (
    argument("name", metavar="NAME", help="name of an installed plug-in, or of a target"),
    argument(
        "--kind",
        choices=(
            "technique",
            "engine",
            "runtime",
            "sensor",
            "profiler",
            "transport",
            "packager",
            "command",
            "section",
            "target",
        ),
        default="",
        help="kind of plug-in; an engine is a runtime (default: all that have this name)",
    ),
)


def run(args: argparse.Namespace) -> int:
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
    said = {f: f.finding.removeprefix(f"{f.kind} {f.name}: ") for f in findings if f.finding}
    wrong = [f"{f.kind} {f.name}: {finding}" for f, finding in said.items()]
    traces = [f.trace for f in findings if f.trace and args.verbose]
    shown = wrong or ["conforms"] if args.quiet else ["", *wrong] if wrong else []
    console.say(
        args, rows, "\n".join([*([] if args.quiet else [plain_text.columns(table, console.room())]), *shown, *traces])
    )
    return CheckFailed.exit_code if wrong else 0
