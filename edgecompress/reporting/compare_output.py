"""A comparison of reports as data, in one line, and on a console."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from edgecompress.core.json import Json
from edgecompress.reporting.compare import VERDICTS, ReportComparison, head, rendering, table
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.terminal import Columns

if TYPE_CHECKING:
    from rich.console import Group

STYLES = {"better": "green", "worse": "red"}
SIGNS = {"kept": ("✔", "green"), "undecided": ("?", "yellow"), "broken": ("✘", "red"), "not judged": ("✘", "red")}


def data(comparison: ReportComparison) -> dict[str, Json]:
    """The comparison as JSON. Raises InputError as `compare.of`."""
    with rendering(comparison.entries):
        entries = [
            {
                "label": e.label,
                "variant": e.variant.name,
                "runtime": e.variant.runtime,
                "device": e.device_name,
                "date": e.report.date,
                "artifact_sha256": e.artifact,
            }
            for e in comparison.entries
        ]
        rows = [
            {
                "metric": row.metric.gate,
                "better": row.metric.better,
                "numbers": row.numbers,
                "changes": [dataclasses.asdict(c) for c in row.changes],
            }
            for row in comparison.rows
        ]
        document: dict[str, Any] = {
            "entries": entries,
            "rows": rows,
            "sentences": comparison.sentences,
            "warnings": comparison.warnings,
            "gates": [dataclasses.asdict(g) for g in comparison.gates],
            "verdict": comparison.verdict,
            "exit_code": comparison.exit_code,
        }
        return document


def outcome(comparison: ReportComparison) -> str:
    """In one line: the verdict, and how the gates ended, the broken ones first; without gates what changed."""
    worst_first = list(VERDICTS)
    verdicts = sorted(comparison.gates, key=lambda g: worst_first.index(g.ended))
    gates = "; ".join(g.sentence for g in verdicts)
    return f"{comparison.verdict}: {gates}" if gates else "; ".join(comparison.sentences)


def render(comparison: ReportComparison, terminal: bool = False) -> Group:
    """What a console prints of it; its lines are wrapped in a terminal alone. Raises InputError as `compare.of`."""
    with rendering(comparison.entries):
        return _rendered(comparison, terminal)


def _rendered(comparison: ReportComparison, terminal: bool) -> Group:
    from rich.console import Group
    from rich.text import Text

    signs = [(*SIGNS[g.ended], f" {g.sentence}") for g in comparison.gates]
    lines = [*((line, "") for line in comparison.sentences), *((f"! {w}", "yellow") for w in comparison.warnings)]
    texts = [Text(line, style) for line, style in lines] + [Text.assemble((s, style), line) for s, style, line in signs]
    if comparison.verdict:
        texts.append(Text(f"{comparison.verdict} (exit code {comparison.exit_code})", "bold"))
    for line in () if terminal else texts:
        line.no_wrap, line.overflow = True, "ignore"
    return Group(_table(comparison), "", *texts)


def _table(comparison: ReportComparison) -> Columns:
    lines = [*table(comparison)]
    rows = tuple(tuple(words for words, _ in line) for line in lines)
    styles = {(i, at): STYLES.get(called, "") for i, line in enumerate(lines) for at, (_, called) in enumerate(line)}
    return Columns(TextTable("", head(comparison), rows), styles)
