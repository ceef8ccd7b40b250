"""Tells of each variant how far its scale was moved."""

from __future__ import annotations

from edgecompress.core.model import Request
from edgecompress.reporting.model import Part, Report
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.tables import TextTable

TITLE = "Levels"
KEY = "levels"


class Moved(Part):
    """How far the scale of a variant was moved, of so many levels."""

    variant: str
    levels: int
    moved: float


Data = list[Moved]


def found(request: Request, job: ReportRequest, report: Report) -> list[Moved]:
    """By the facts of each variant's artifact."""
    facts = {v.name: request.inputs[f"{v.name}/artifact"].facts for v in report.variants if v.artifact}
    return [Moved(name, told["levels"], told["moved"]) for name, told in facts.items() if "levels" in told]


def tables(report: Report) -> list[TextTable]:
    """A row for each variant that has levels."""
    rows = tuple((each.variant, str(each.levels), f"{each.moved:.3g}") for each in report.rest.get(KEY) or ())
    return [TextTable(TITLE, ("variant", "levels", "moved by"), rows)]
