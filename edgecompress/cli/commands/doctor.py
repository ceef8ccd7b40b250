"""`edgecompress doctor`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import argument

HELP = "say what this machine can do; paste it into a bug report"
PURPOSE = "set up"
ORDER = 3
EXAMPLES = "doctor\ndoctor --json"
ARGUMENTS = (argument("--device", default="", help="device to inspect (default: host, this machine)"),)


def run(args: argparse.Namespace) -> int:
    """Prints what a machine can do."""
    from edgecompress.cli import console
    from edgecompress.commands import doctor

    report = doctor.report(args.device)
    console.say(args, report, doctor.text(report))
    return 0
