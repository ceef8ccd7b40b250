"""`edgecompress guard`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import argument
from edgecompress.cli.commands._deploying import DEPLOYED, deployed

HELP = "deploy, and repair each variant that loses more accuracy than the budget allows"
PURPOSE = "take a model to a device"
ORDER = 3
EXAMPLES = (
    "guard my_pkg.nets:build --data my_pkg.nets:data --budget items_lost=1\n"
    "guard source.toml --target x86 --only int8,fp32 --budget metric_ratio=1.01\n"
    'guard source.toml --only int8,fp32 --set \'guard.rungs=["calibrate", "keep"]\''
)
ARGUMENTS = (
    argument(
        "--budget",
        action="append",
        default=[],
        metavar="LIMIT=VALUE",
        help="accuracy budget, the same as --set limits.LIMIT=VALUE; may repeat",
    ),
    *DEPLOYED,
)


def run(args: argparse.Namespace) -> int:
    """Deploys with the guard on, under a budget."""
    args.settings = [*args.settings, "guard.on=true", *(f"limits.{text}" for text in args.budget)]
    return deployed(args)
