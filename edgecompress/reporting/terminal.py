"""The report in a terminal: the variants in order, what must not be overlooked, the headline; verbose, all tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.plain_text import aligned, laid_out, wrapped
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
from edgecompress.reporting.before_after import shown
from edgecompress.reporting.formatting import clean
from edgecompress.reporting.model import Report, sections
from edgecompress.reporting.tables import TextTable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType
    from rich.text import Text

SIGNS = {"shipped": ("OK", "green"), "undecided": ("?", "yellow"), "measured": ("OK", "green")}
SIGNS |= dict.fromkeys(("nothing", "failed"), ("✘", "red"))
CALLED = {"better": "green", "worse": "red"}
RUNTIME = 1  # the column of the standings that a narrow terminal goes without


def render(report: Report, verbose: bool = False) -> Group:
    """What a console prints of report.json; every name in it is shown as text, never as markup or control codes."""
    from rich.console import Group

    told = clean(report)
    parts: list[RenderableType] = [*_all_tables(told)] if verbose else [_Standings(told)]
    parts += [part for table in _elsewhere(told, verbose) for part in ("", table)]
    return Group(*parts, *_notes(told, verbose), *_headline(told))


class _Standings:
    """The variants in a line each. In a terminal that is too narrow, why one was lost stands below the table."""

    def __init__(self, told: Report) -> None:
        self.table = tables.standings(told)
        ended = {precision.called(told, v.name): v.verdict for v in told.variants}
        self.lost = {name: verdict for name, verdict in ended.items() if verdict in ("lost", "failed")}

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        rows, below = [self.table.head, *self.table.rows], []
        width = options.max_width if options.is_terminal else sys.maxsize
        if max(map(len, aligned(rows))) > width:
            below = [f"{row[0]}: {row[-1]}" for row in self.table.rows if row[0] in self.lost]
            rows = [(*row[:-1], self.lost.get(row[0], row[-1])) for row in rows]
        if max(map(len, aligned(rows))) > width:
            rows = [(*row[:RUNTIME], *row[RUNTIME + 1 :]) for row in rows]
        for line in laid_out(rows, width):
            yield _whole(line.text, "bold" if line.row in (0, self.table.marked + 1) else "")
        yield from (_whole(line, "dim") for words in below for line in wrapped(words, width, 2, 0))


def _elsewhere(told: Report, verbose: bool) -> list[RenderableType]:
    """What was measured on other devices; verbose, in all its columns."""
    if not external_section.rows(told):
        return []
    if verbose:
        return [Columns(make(told)) for make in (external_section.table, external_section.places)]
    return [Columns(make(told), rule=False) for make in (external_section.short, external_section.short_places)]


class Columns:
    """A table as wide as the terminal. `styles`: (row, column) -> the colour of a cell."""

    def __init__(
        self, table: TextTable, styles: Mapping[tuple[int, int], str] | None = None, rule: bool = True
    ) -> None:
        self.table, self.styles, self.rule = table, styles or {}, rule

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        lines = laid_out([self.table.head, *self.table.rows], options.max_width)
        rule = "─" * min(options.max_width, max(len(line.text) for line in lines))
        for line, following in zip(lines, [*lines[1:], None], strict=True):
            row = line.row - 1
            text = _whole(line.text, "bold" if not line.row or line.row == self.table.marked + 1 else "")
            ends = [*(begin for _, begin in line.begins[1:]), len(line.text)]
            for (column, begin), end in zip(line.begins, ends if line.begins else (), strict=True):
                text.stylize(self.styles.get((row, column), ""), begin, end)
            yield text
            if self.rule and not line.row and following and following.row:
                yield _whole(rule)


def _whole(line: str, style: str = "") -> Text:
    from rich.text import Text

    return Text(line, style, no_wrap=True, overflow="ignore")


class _Remarks:
    """Words below the headline, as wide as the terminal."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        yield from (_whole(line, "dim") for line in wrapped(self.words, options.max_width, 3))


def _all_tables(told: Report) -> Iterator[RenderableType]:
    if told.deltas:
        called = enumerate(row.change.called if row.change else "" for row in shown(told))
        table = tables.before_after(told)
        yield Columns(table, {(i, len(table.head) - 1): CALLED[c] for i, c in called if c in CALLED})
    if len(told.variants) > 1 or not told.deltas:
        yield from ("", Columns(tables.variants(told)))
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
    every = [*(make(told) for make in own), *(t for s in others for t in plugin_sections.tables(s, told)[: s.opened])]
    for table in (table for table in every if table.rows):
        yield from ("", Columns(table))


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
