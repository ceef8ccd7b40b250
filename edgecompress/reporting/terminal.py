"""The report in a terminal: the variants in order, what must not be overlooked, the headline; verbose, all tables."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edgecompress.core.plain_text import aligned, fitted
from edgecompress.reporting import (
    bottleneck,
    compression_gains,
    estimates,
    external_section,
    plugin_sections,
    precision,
    profilers,
    strength_search,
    tables,
)
from edgecompress.reporting.formatting import clean
from edgecompress.reporting.model import Report, sections
from edgecompress.reporting.tables import TextTable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.table import Table as RichTable
    from rich.text import Text

SIGNS = {"shipped": ("OK", "green"), "undecided": ("?", "yellow"), "measured": ("OK", "green")}
SIGNS |= dict.fromkeys(("nothing", "failed"), ("✘", "red"))
CALLED = {"better": "green", "worse": "red"}
SENTENCE, GAP = 30, 2  # letters of a column that is of sentences, and between two columns
LEAST = 12  # letters of the last column that are shown in a narrow terminal


def render(report: Report, verbose: bool = False) -> Group:
    """What a console prints of report.json; every name in it is shown as text, never as markup or control codes."""
    from rich.console import Group

    told = clean(report)
    parts: list[RenderableType] = [*_all_tables(told)] if verbose else [_Standings(told)]
    parts += [part for table in _elsewhere(told, verbose) for part in ("", table)]
    return Group(*parts, *_notes(told, verbose), *_headline(told))


class _Standings:
    """A table whose names are never split: in a terminal its last column is cut, and why one was lost stands below."""

    def __init__(self, told: Report) -> None:
        self.table = tables.standings(told)
        self.lost = {precision.called(told, v.name) for v in told.variants if v.verdict in ("lost", "failed")}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        rows = [self.table.head, *self.table.rows]
        names = max(map(len, aligned([row[:-1] for row in rows]))) + 2
        room = max(options.max_width, names + LEAST) if options.is_terminal else sys.maxsize
        for i, line in enumerate(aligned(rows)):
            shown = line if len(line) <= room else f"{line[: room - 1]}…"
            yield Text(shown, "bold" if i in (0, self.table.marked + 1) else "", no_wrap=True, overflow="ignore")
        for line, row in zip(aligned(rows)[1:], self.table.rows, strict=True):
            if len(line) > room and row[0] in self.lost:
                words = textwrap.wrap(f"{row[0]}: {row[-1]}", options.max_width, subsequent_indent="  ")
                yield from (Text(each, "dim") for each in words)


def _elsewhere(told: Report, verbose: bool) -> list[RenderableType]:
    """What was measured on other devices; verbose, in all its columns."""
    if not external_section.rows(told):
        return []
    if verbose:
        return [_table(make(told), {}) for make in (external_section.table, external_section.places)]
    return [_Fitted(make(told)) for make in (external_section.short, external_section.short_places)]


class _Fitted:
    """A table as wide as the terminal, whose last column alone is wrapped."""

    def __init__(self, table: TextTable) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        lines = fitted([self.table.head, *self.table.rows], options.max_width)
        yield from (Text(line, "" if i else "bold", no_wrap=True, overflow="ignore") for i, line in enumerate(lines))


class _Remarks:
    """Words below the headline, as wide as the terminal."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.text import Text

        margin = 3 * " "
        wrapped = textwrap.wrap(self.words, options.max_width, initial_indent=margin, subsequent_indent=margin)
        yield from (Text(line, "dim") for line in wrapped)


def _all_tables(told: Report) -> Iterator[RenderableType]:
    if told.deltas:
        called = enumerate(row.change.called if row.change else "" for row in told.deltas)
        yield _table(tables.before_after(told), {i: CALLED[c] for i, c in called if c in CALLED})
    if len(told.variants) > 1 or not told.deltas:
        yield from ("", _Verdicts(tables.variants(told)))
    own = (
        tables.precisions,
        estimates.table,
        compression_gains.table,
        strength_search.table,
        tables.slow,
        bottleneck.table,
        profilers.findings,
    )
    others = [each for each in sections() if not each.profiler]
    shown = [*(make(told) for make in own), *(t for s in others for t in plugin_sections.tables(s, told)[: s.opened])]
    for table in (table for table in shown if table.rows):
        yield from ("", _table(table, {}))


class _Verdicts:
    """A table whose last column is of sentences: they stand below it where they have no room beside the others."""

    def __init__(self, table: TextTable) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.padding import Padding
        from rich.text import Text

        rows = self.table.rows
        *others, last = (max(map(len, column)) for column in zip(self.table.head, *rows, strict=True))
        if last <= SENTENCE or sum(others) + GAP * len(others) + SENTENCE <= options.max_width:
            yield _table(self.table, {})
            return
        shorter = tuple(row[:-1] for row in rows)
        yield _table(replace(self.table, head=self.table.head[:-1], rows=shorter), {})
        yield ""
        yield from (Padding(Text(f"{name}: {last}"), (0, 0, 0, 1)) for name, *_, last in rows)


def _table(table: TextTable, styles: Mapping[int, str]) -> RichTable:
    """`styles`: row -> the colour of its last cell."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    shown.padding = (0, GAP - 1, 0, 0)  # beside the letter between two columns
    for i, head in enumerate(table.head):
        shown.add_column(Text(head), overflow="fold", ratio=None, min_width=6 if i else None, no_wrap=not i)
    for i, row in enumerate(table.rows):
        cells = [Text(cell) for cell in row]
        cells[-1].stylize(styles.get(i, ""))
        shown.add_row(*cells, style="bold" if i == table.marked else None)
    return shown


def _notes(report: Report, verbose: bool) -> Iterable[Text]:
    from rich.text import Text

    colour = {"warning": "yellow", "note": "dim"}
    told = [n for n in report.notes if verbose or n.level == "warning"]
    lines = [Text(f"{'!' if n.level == 'warning' else '·'} {n.text}", style=colour[n.level]) for n in told]
    return [Text(""), *lines] if lines else []


def _headline(report: Report) -> Iterator[RenderableType]:
    from rich.text import Text

    sign, colour = SIGNS[report.summary.outcome]
    yield Text.assemble("\n", (f"{sign} ", f"bold {colour}"), (report.summary.sentence, "bold"))
    if report.summary.remarks:
        yield _Remarks("; ".join(report.summary.remarks))
