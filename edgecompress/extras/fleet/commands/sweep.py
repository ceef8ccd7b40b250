"""`edgecompress sweep`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import RUNNING, argument, asked, options_of

HELP = "deploy many models to many targets, devices and profiles: the cells of a matrix, here or on a cluster"
PURPOSE = "take a model to a device"
ORDER = 3
STABILITY = "experimental"
EXAMPLES = (
    "sweep matrix.toml --dry-run\n"
    "sweep matrix.toml --out dist/sweep\n"
    'sweep matrix.toml --cells "*/arm64/*" --json\n'
    "sweep matrix.toml --on ray://head:10001 --store /shared/store --out /shared/sweep"
)
ARGUMENTS = (
    argument("matrix", type=Path, metavar="MATRIX", help="a TOML file with sources, targets, devices and profiles"),
    argument(
        "--cells",
        action="append",
        default=[],
        metavar="PATTERN",
        help='only cells called so, SOURCE/TARGET/DEVICE/PROFILE with * ("resnet/*"); may repeat',
    ),
    argument("--dry-run", action="store_true", help="print the cells and the expected minutes; run nothing"),
    asked("on"),
    asked("out", help="output folder (default: dist/sweep)"),
    asked("untrusted"),
    *RUNNING,
    asked("jobs"),
    asked("require_measured"),
)


def run(args: argparse.Namespace) -> int:
    """Deploys the cells of a matrix; returns 0 where each shipped, else the gravest exit code of a cell."""
    from edgecompress.cli import console
    from edgecompress.extras.fleet import matrix, screen, sweep

    every, left = matrix.read(args.matrix)
    cells = matrix.named(every, args.cells)
    beside = [cell for cell in every if cell not in cells]
    notes = [f"no cells: {why}" for why in left]
    shown = console.open(args)
    if args.dry_run:
        made, refused = sweep.planned(cells, options_of(args, None))
        estimates = {cell.name: steps.estimate_s() for cell, _, steps in made}
        if args.json:
            told = {name: {"estimate_s": s, "refused": ""} for name, s in estimates.items()}
            told |= {name: {"estimate_s": 0.0, "refused": str(error)} for name, error in refused.items()}
            console.print_json({"cells": told, "notes": notes, "estimate_s": sum(estimates.values())})
            return 0
        rows = [
            (cell.name, _minutes(estimates.get(cell.name)), str(refused[cell.name]) if cell.name in refused else "")
            for cell in cells
        ]
        whole = f"{len(made)} of {len(cells)} cells, {console.duration(sum(estimates.values()))} at most, one by one"
        console.lines(
            shown, [*screen.listed(rows, notes), f"{whole}, by the stages' own estimates when nothing is stored"]
        )
        return 0
    with screen.Screen(shown, args) as live:
        swept = sweep.run(cells, options_of(args, None), notes, live, beside)
    if args.json:
        told_rows = {
            "rows": list(swept.rows),
            "out": str(swept.out),
            "wall_s": swept.wall_s,
            "notes": list(swept.notes),
        }
        console.print_json({**told_rows, "exit_code": swept.exit_code})
    else:
        screen.ended(shown, swept, args.quiet)
    return swept.exit_code


def _minutes(estimate_s: float | None) -> str:
    from edgecompress.cli.console import duration

    return "refused" if estimate_s is None else f"~{duration(estimate_s)}"
