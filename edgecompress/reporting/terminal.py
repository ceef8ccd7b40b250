"""The report in a terminal: before and after, the variants and why each lost, the verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgecompress.reporting import (
    compression_gains,
    estimates,
    external_section,
    guard,
    profiler_tables,
    strength_search,
    tables,
)
from edgecompress.reporting.formatting import clean
from edgecompress.reporting.model import Report
from edgecompress.reporting.tables import TextTable

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable
    from rich.text import Text

SIGNS = {"shipped": ("✔", "green"), "measured": ("✔", "green"), "nothing": ("✘", "red"), "failed": ("✘", "red")}
CALLED = {"better": "green", "worse": "red"}


def render(report: Report) -> Group:
    """What a console prints of report.json; every name in it is shown as text, never as markup or control codes."""
    from rich.console import Group

    told = clean(report)
    parts: list[Any] = [_table(tables.before_after(told), _change_styles(told))] if told.deltas else []
    if len(told.variants) > 1 or not parts:
        parts += ["", _table(tables.variants(told), {})]
    own = (
        tables.precisions,
        estimates.table,
        compression_gains.table,
        strength_search.table,
        guard.table,
        guard.rungs,
        tables.slow,
        profiler_tables.findings,
    )
    more = (make(told) for make in (*own, external_section.table, external_section.places))
    for table in (table for table in more if table.rows):
        parts += ["", _table(table, {})]
    return Group(*parts, *_notes(told), _verdict(told))


def _change_styles(report: Report) -> dict[int, str]:
    """Row -> colour of its last cell, where a change is called."""
    called = enumerate(row.change.called if row.change else "" for row in report.deltas)
    return {i: CALLED[c] for i, c in called if c in CALLED}


def _table(table: TextTable, styles: Mapping[int, str]) -> RichTable:
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title_justify="left", header_style="bold")
    for i, head in enumerate(table.head):
        shown.add_column(Text(head), overflow="fold", ratio=None, min_width=6 if i else None)
    for i, row in enumerate(table.rows):
        cells = [Text(cell) for cell in row]
        cells[-1].stylize(styles.get(i, ""))
        shown.add_row(*cells, style="bold" if i == table.marked else None)
    return shown


def _notes(report: Report) -> list[Text]:
    from rich.text import Text

    colour = {"warning": "yellow", "note": "dim"}
    lines = [Text(f"{'!' if n.level == 'warning' else '·'} {n.text}", style=colour[n.level]) for n in report.notes]
    return [Text(""), *lines] if lines else []


def _verdict(report: Report) -> Text:
    from rich.text import Text

    sign, colour = SIGNS[report.summary.outcome]
    return Text.assemble("\n", (f"{sign} ", f"bold {colour}"), (report.summary.sentence, "bold"))
