"""What the sections that are plug-ins show of a report; one of another distribution that raises shows nothing."""

from __future__ import annotations

from edgecompress.core.plugins import SectionPlugin
from edgecompress.reporting.figure_style import Figure
from edgecompress.reporting.model import Report, safely
from edgecompress.reporting.tables import TextTable


def tables(section: SectionPlugin, report: Report) -> list[TextTable]:
    """Its tables, one at least."""
    return safely(section, lambda: [*section.tables(report)], []) or [TextTable(section.title, (), ())]


def figures(section: SectionPlugin, report: Report) -> list[Figure]:
    """Its figures."""
    draw = section.figures
    return safely(section, lambda: [*draw(report)], []) if draw else []
