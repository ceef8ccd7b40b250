"""The checks of a section of the report: it is told by one key, and says nothing of a report without it."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core import registry
from edgecompress.core.model import Context, Request
from edgecompress.core.plugins import SectionPlugin
from edgecompress.testing.conformance.common import check_described

PLACES = ("", "memory", "operators")


def check_section(name: str, tmp_path: Path) -> None:
    """A section has data of its own with their class, a profiler's with their shape, or none; a report that knows
    nothing of it has no rows of it, and its data survive a reader."""
    from edgecompress.reporting import model
    from edgecompress.reporting.figure_style import Figure
    from edgecompress.reporting.request import ReportRequest
    from edgecompress.reporting.tables import TextTable

    module = registry.load("sections", name)
    says = f"section {name}"
    check_described(module, SectionPlugin, says)
    section = next((each for each in model.sections() if each.name == name), None)
    assert section, (
        f"{says}: its KEY, {getattr(module, 'KEY', '')}, is taken, or its constants are not what they are to be"
    )
    same = [each.name for each in registry.sections() if section.key and each.key == section.key]
    assert same in ([], [name]), f"{says}: KEY {section.key} is that of {', '.join(same)}"
    assert bool(section.key) == bool(section.found) == (section.data is not None), (
        f"{says}: KEY, Data and found belong together"
    )
    assert bool(section.shape) <= bool(section.profiler), f"{says}: SHAPE is of what a PROFILER answers"
    assert section.place in PLACES, f"{says}: PLACE is one of {', '.join(PLACES[1:])}"
    empty = model.Report(schema=model.SCHEMA, variants=[])
    tables = section.tables(empty)
    assert tables and all(isinstance(table, TextTable) for table in tables), f"{says}: tables gives a TextTable or more"
    assert not any(table.rows for table in tables), f"{says}: has rows of a report that knows nothing of it"
    figures = section.figures(empty) if section.figures else ()
    assert all(isinstance(figure, Figure) and not figure.panels for figure in figures), f"{says}: draws nothing known"
    if section.found:
        empty.rest = {section.key: section.found(Request({}, tmp_path, {}, Context()), ReportRequest(), empty)}
        assert model.to_json(model.of(model.to_json(empty))) == model.to_json(empty), f"{says}: its data change as read"
