"""`edgecompress verify`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import RUNNING, SHIPPED, STRICT, THREADS, asked, options_of, request_of, sampled

HELP = "compare a shipped artifact with its source again"
PURPOSE = "use what was shipped"
ORDER = 1
EXAMPLES = "verify dist/x86\nverify dist/x86 my_pkg.nets:build --data my_pkg.nets:data"
ARGUMENTS = (
    SHIPPED,
    asked("model", help="source model (default: the one in the report)"),
    asked("target", default=None, help="target whose limits apply (default: the one it was deployed for)"),
    *sampled(THREADS),
    STRICT,
    *RUNNING,
)


def run(args: argparse.Namespace) -> int:
    """Checks a shipped artifact again."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import verify

    with Progress(console.open(args), args) as progress:
        result = verify.verify(args.artifact, options=options_of(args, progress), **request_of(args))
    return console.verified(progress.screen, args, result)
