"""`edgecompress levels`: what a number of levels would move."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import argument

HELP = "say how far levels are apart"
PURPOSE = "look into a model"
STABILITY = "experimental"
EXAMPLES = "levels 16\nlevels 4 --json"
ARGUMENTS = (argument("levels", type=int, metavar="N", help="number of levels between 0 and 1"),)


def run(args: argparse.Namespace) -> int:
    """Prints the step between two levels."""
    from edgecompress.cli import console
    from edgecompress.core.errors import InputError

    if args.levels < 2:
        raise InputError(f"levels {args.levels}: give at least 2")
    step = 1 / (args.levels - 1)
    console.say(args, {"levels": args.levels, "step": step}, f"{args.levels} levels are {step:.3g} apart")
    return 0
