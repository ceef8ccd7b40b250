"""The report as GitHub-flavoured Markdown: every name in it is text, whatever it holds."""

from __future__ import annotations

import re

from edgecompress.reporting import (
    bottleneck,
    compression,
    compression_gains,
    environment,
    estimates,
    external_section,
    instructions,
    pareto,
    plugin_sections,
    power,
    profilers,
    strength_search,
    tables,
    training,
)
from edgecompress.reporting.model import Report, sections
from edgecompress.reporting.tables import TextTable

# The tables in their order; one with nothing to tell is left out.
MEASURED = (
    tables.before_after,
    tables.variants,
    tables.slow,
    bottleneck.table,
    instructions.table,
    estimates.table,
    tables.latencies,
    tables.memory,
    tables.energy,
    power.table,
    tables.sensors,
    external_section.table,
    external_section.places,
)
COMPRESSED = (
    compression_gains.table,
    compression.table,
    compression.channels,
    compression.low_rank,
    compression.sparsity,
    compression.storage,
    compression.left,
    strength_search.table,
    strength_search.neighbours,
    strength_search.trials,
    strength_search.saved,
    training.table,
    training.epochs,
)
PROOF = (
    environment.agreed,
    tables.precisions,
    tables.metrics,
    tables.outputs,
    tables.checks,
    tables.fallback,
    estimates.left,
    tables.operators,
    tables.sessions,
    external_section.sessions,
)
REST = (
    tables.configuration,
    tables.stages,
    tables.files,
)


SIGNS = {"shipped": "✅", "undecided": "❔", "measured": "✅", "nothing": "❌", "failed": "❌"}
_SPECIAL = re.compile(r"([\\`*_\[\]#~|!])")


def page(report: Report) -> str:
    """The whole of report.md."""
    summary = report.summary
    head = [
        f"# {text(report.title or 'edgecompress report')}",
        f"{SIGNS[summary.outcome]} **{text(summary.sentence)}**",
        text("; ".join(summary.remarks)),
    ]
    notes = [f"> {'**Warning:** ' if n.level == 'warning' else ''}{text(n.text)}" for n in report.notes]
    facts = " · ".join(text(part) for part in (report.command, report.date) if part)
    parts = [*head, facts, "\n>\n".join(notes), *(section(t) for t in _tables(report))]
    return "\n\n".join(filter(None, parts)) + "\n"


def _tables(report: Report) -> list[TextTable]:
    facts = (tables.data(report), environment.table(report), environment.runtimes(report))
    own = [table for each in sections() if not each.profiler for table in plugin_sections.tables(each, report)]
    looks = [plugin_sections.tables(each, report)[0] for each in sections() if each.profiler]
    first = [*(make(report) for make in (*MEASURED, *COMPRESSED)), *own, profilers.findings(report), *looks]
    first += [make(report) for make in PROOF]
    first += [pareto.table(report.pareto)] if len(report.pareto) > 1 else []
    return [*first, *facts, *(make(report) for make in REST)]


def section(table: TextTable) -> str:
    """A table below its title, or why it is empty."""
    if not table.rows:
        return f"## {table.title}\n\n{text(table.empty)}" if table.empty else ""
    rule = "|".join([" --- "] * len(table.head))
    rows = [_row(row, bold=i == table.marked) for i, row in enumerate(table.rows)]
    return "\n".join([f"## {table.title}\n", _row(table.head), f"|{rule}|", *rows])


def _row(cells: tuple[str, ...], bold: bool = False) -> str:
    shown = [f"**{text(c)}**" if bold and i == 0 else text(c) for i, c in enumerate(cells)]
    return f"| {' | '.join(shown)} |"


def text(value: str) -> str:
    """`value` with all that Markdown or HTML would act on made inert, on one line."""
    plain = " ".join(str(value).split("\n")).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", plain)
