"""What the command line prints of a search: a line for each trial, and what was found."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgecompress.cli.console import ended, line, lines, print_json, result_data, short, width
from edgecompress.core.errors import brief
from edgecompress.core.plain_text import fitted, plural
from edgecompress.extras.search.search import SearchResult

if TYPE_CHECKING:
    from rich.console import Console


def trial(screen: Console, args: argparse.Namespace, row: Mapping[str, Any]) -> None:
    """A line for a trial of a search: number, recipe, change of the accuracy, share of the baseline, state."""
    if args.quiet:
        return
    values, first = row["values"], next((n for n in ("latency", "instructions", "size") if n in row["values"]), "")
    share = f"{values[first]:.0%}" if first else ""
    state = "ok" if row["inside"] else "lost" if row["change"] else "not built"
    known = ", stored" if row.get("stored") else ""
    line(screen, f"{row['number']:>4}  {brief(row['words'], 44):<44} {row['change']:>10} {share:>6}  {state}{known}")
    if row["reason"]:
        line(screen, f"      {row['reason'] if args.verbose else brief(row['reason'], width() - 6)}", "dim")


def searched(screen: Console, args: argparse.Namespace, found: SearchResult) -> int:
    """What a search found: the front, the knobs that mattered, the target to keep; then how its deploy ended."""
    if args.json:
        told = {**found.facts(), "target": str(found.target) if found.target else None}
        print_json(
            {"search": told, **result_data(found.shipped), "summary": found.shipped.read_report().get("summary")}
        )
        return found.shipped.exit_code
    if args.quiet:
        return ended(screen, args, found.shipped)
    built = sum(row["inside"] for row in found.rows)
    tried = f"{plural(len(found.rows), 'trial')}, {built} inside the limits; ended: {found.why}"
    line(screen, f"search {found.id}: {tried}")
    line(screen, f"all but change and loss: share of what {found.baseline} takes, less is better", "dim")
    rows = [("", "recipe", "change", *("loss" if name == "accuracy" else name for name in found.objectives))]
    for row in found.front:
        each = ((name, row["values"][name]) for name in found.objectives)
        values = (f"{value:.3g}" if name == "accuracy" else f"{value:.1%}" for name, value in each)
        rows.append((str(row["number"]), row["words"], row["change"], *values))
    if found.front:
        lines(screen, fitted([(*row[:1], *row[2:], row[1]) for row in rows], width()))
    if found.importances:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in [*found.importances.items()][:5])
        line(screen, f"most important: {shares}")
    if found.target:
        lines(
            screen, [f"kept as {short(found.target)}; ship it again: edgecompress deploy --from-search {found.id}", ""]
        )
        best = found.target.read_text(encoding="utf-8").split("[[variant]]\n")[1]
        lines(screen, ["# the best by the first objective", "[[variant]]", *best.rstrip().splitlines(), ""])
    return ended(screen, args, found.shipped)
