"""Shows the bytes of each variant: a section of the report in one file, in a distribution of its own."""

from __future__ import annotations

from edgecompress.reporting.model import Report
from edgecompress.reporting.tables import TextTable

TITLE = "Sizes"

# Data of its own in report.json takes a KEY, a class Data and a function found(request, job, report);
# edgecompress-capability-levels has them.


def tables(report: Report) -> list[TextTable]:
    """A row for each variant whose size is known; none of a report without any."""
    known = ((each.name, each.numbers.get("size")) for each in report.variants)
    rows = tuple((name, f"{size.value:,.0f}") for name, size in known if size and size.value is not None)
    return [TextTable(TITLE, ("variant", "bytes"), rows)]
