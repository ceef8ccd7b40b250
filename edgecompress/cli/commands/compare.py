"""`edgecompress compare`."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

from edgecompress.cli.arguments import SHIPPED_THREADS, argument, asked, measuring, options_of, request_of

HELP = "compare reports with the first one: ratios with intervals, gates for CI"
PURPOSE = "compare results"
EXAMPLES = (
    "compare before/report.json dist/x86\n"
    "compare dist/x86@fp32 dist/x86 --json\n"
    'compare before dist/x86 --fail-if "latency_ms > 1.05x" --fail-if "accuracy_drop > 0.01"\n'
    'compare before dist/x86 --fail-if "metric_loss > 0.01"\n'
    "compare before dist/x86 --remeasure --profile strict\n"
    "compare dist/x86 dist/arm64 --html comparison.html\n"
    'compare sweeps/monday dist/sweep --fail-if "latency_ms > 1.1x"'
)
SIGNS = {0: "ok", 4: "undecided", 1: "broken", 2: "not judged", 3: "not judged"}  # of a cell
ARGUMENTS = (
    argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="report.json or its folder; REPORT@VARIANT selects a variant; or two folders of sweeps, cell by cell",
    ),
    argument(
        "--fail-if",
        action="append",
        default=[],
        metavar="GATE",
        help='"latency_ms > 1.05x" (of the first report) or "size_bytes > 500000": fail (exit 1) if the '
        "whole interval is beyond the limit, exit 4 if only part of it is; accuracy_drop is what the metric "
        "lost in its own unit (0.01 of top1: a point), metric_loss what it lost relative to the first report "
        "(for mse, psnr, ...)",
    ),
    argument("--strict", action="store_true", help="a gate that is undecided fails (exit 1)"),
    argument("--across-models", action="store_true", help="compare reports of different models, too"),
    *measuring(SHIPPED_THREADS),
    asked("remeasure", help="measure the artifacts of all folders again, interleaved"),
    argument(
        "--html", type=Path, metavar="FILE", help="also write an HTML page with the Pareto fronts of all variants"
    ),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Compares reports; returns 1 when a gate fails, 4 when one is undecided."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import compare, compare_page
    from edgecompress.core import extras
    from edgecompress.core.errors import InputError
    from edgecompress.core.plain_text import fitted, one_line
    from edgecompress.reporting import compare_output

    screen = console.open(args)
    request = compare.ComparisonRequest(tuple(args.fail_if), args.strict, args.across_models)
    if extras.is_here("fleet") and (gate := extras.part("fleet", "gate")).is_matrix(args.reports):
        if args.html or args.remeasure:
            raise InputError(
                "--html and --remeasure are of reports: give the folders of a cell, SWEEP/SOURCE/TARGET/..."
            )
        judged = gate.judge(*map(Path, args.reports), request)
        if args.json:
            cells = [dataclasses.asdict(cell) for cell in judged.cells]
            console.print_json({"cells": cells, "exit_code": judged.exit_code})
        else:
            rows = [(cell.cell, SIGNS[cell.exit_code], cell.says) for cell in judged.cells]
            console.lines(
                screen, fitted(rows if not args.quiet else [r for r in rows if r[1] != "ok"], console.width())
            )
        return int(judged.exit_code)
    if args.html:
        compare_page.check(args.html)
    with Progress(screen, args) as progress:
        options = options_of(args, progress)
        if args.remeasure:
            comparison = compare.remeasured(args.reports, request, options=options, **request_of(args))
        else:
            comparison = compare.compare(args.reports, request)
        page = compare_page.write(comparison, args.html, options) if args.html else None
    if args.json:
        console.print_json({**compare_output.data(comparison), "page": str(page) if page else None})
    elif args.quiet:
        console.line(screen, compare_output.outcome(comparison))
    else:
        screen.print(compare_output.render(comparison, screen.is_terminal), crop=False)
        if page:
            screen.print(f"page: {one_line(str(page))}", markup=False, highlight=False, soft_wrap=True)
    return comparison.exit_code
