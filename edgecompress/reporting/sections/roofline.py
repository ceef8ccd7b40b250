"""What the profiler `roofline` found: the roofs of the machine, and the operators below them."""

from __future__ import annotations

from collections.abc import Mapping

from edgecompress.core.json import Json
from edgecompress.reporting import roofline
from edgecompress.reporting.figure_style import Figure
from edgecompress.reporting.model import Report
from edgecompress.reporting.profilers import NULLABLE, NUMBER, TEXT
from edgecompress.reporting.tables import TextTable

TITLE = "Roofline"
PROFILER = "roofline"
PLACE = "operators"
ORDER = 60
SHAPE: Mapping[str, Json] = {
    "compute": {"gflops": NULLABLE, "reason": TEXT},
    "bandwidth": {"gb_per_s": NULLABLE, "reason": TEXT},
    "ops": [{"name": TEXT, "type": TEXT, "ms": NUMBER}],
    "why": TEXT,
}


def tables(report: Report) -> list[TextTable]:
    """The roofs, and the operators."""
    return [roofline.table(report), roofline.operators(report)]


def figures(report: Report) -> list[Figure]:
    """The operators below the roofs."""
    return [roofline.figure(report)]
