"""`edgecompress profile`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import RUNNING, SHIPPED, SHIPPED_THREADS, asked, measuring, options_of, request_of

HELP = "measure a shipped artifact on a device"
PURPOSE = "use what was shipped"
ORDER = 2
EXAMPLES = "profile dist/x86 --profile quick\nprofile dist/x86 --threads 2 --batch 8 --json"
ARGUMENTS = (SHIPPED, *measuring(SHIPPED_THREADS), *RUNNING, asked("require_measured"))


def run(args: argparse.Namespace) -> int:
    """Measures a shipped artifact on a device."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import profile

    with Progress(console.open(args), args) as progress:
        how = request_of(args)
        result = profile.profile(args.artifact, options=options_of(args, progress), **how)  # type: ignore[misc]
    return console.ended(progress.screen, args, result)
