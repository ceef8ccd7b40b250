"""What the profiler `throughput` found: items per second by the size of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    axis,
    colour,
    dash,
    paint,
    quantity,
    ticks,
)
from edgecompress.reporting.formatting import DASH, or_why, plain, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.profilers import (
    MEASURED,
    NULLABLE,
    NUMBER,
    TEXT,
    answers,
    number,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "Throughput by batch"
PROFILER = "throughput"
ORDER = 30
_THROUGHPUT = (
    "Items per second by batch, both axes logarithmic. The large dot is the knee: beyond it a batch gains little."
)
SHAPE: Mapping[str, Json] = {
    "rows": [
        {
            "batch": NUMBER,
            "runs": NUMBER,
            "items_per_s": NUMBER,
            "median_ms": NUMBER,
            "p95_ms": NULLABLE,
            "ms_per_item": NUMBER,
        }
        | {"energy_per_item": MEASURED}
    ],
    "knee": {"batch": NUMBER, "items_per_s": NUMBER, "reason": TEXT},
    "best": {"batch": NUMBER, "items_per_s": NUMBER},
    "left_out": {},
}


def tables(report: Report) -> list[TextTable]:
    """Items per second by the size of the batch."""
    head = ("variant", "batch", "items per second", "median of a run", "p95", "per item", "energy per item", "")
    rows = [row for v, a in answers(report, "throughput").items() for row in _rows(v, a)]
    return [TextTable("Throughput by batch", head, tuple(rows))]


def _rows(name: str, answer: Table) -> Iterator[tuple[str, ...]]:
    for i, row in enumerate(answer["rows"]):
        batch, per_item = row["batch"], number(row["energy_per_item"])
        times = (plain(row[key], "ms") for key in ("median_ms", "p95_ms", "ms_per_item"))
        energy = text(per_item, spread=True) if i else or_why(per_item)  # the first one tells for all why there is none
        marks = (word for key, word in (("knee", "knee"), ("best", "most")) if answer[key]["batch"] == batch)
        yield name, f"{batch:g}", plain(row["items_per_s"], "/s"), *times, energy, ", ".join(marks)
    for left, why in answer["left_out"].items():
        yield name, str(left), *[DASH] * 5, f"left out: {why}"


def figures(report: Report) -> list[Figure]:
    """Items per second over the batch, all variants on one axis."""
    answered = {v: a for v, a in answers(report, "throughput").items() if len(a["rows"]) > 1}
    if not answered:
        return [Figure("throughput", "Throughput by batch", "")]
    batches = sorted({row["batch"] for a in answered.values() for row in a["rows"]})
    rates = [row["items_per_s"] for a in answered.values() for row in a["rows"]]
    wide = axis("batch", values=batches, format="~g")
    x = quantity("a", wide, type="log", base=2, domain=[batches[0] / 1.2, batches[-1] * 1.2])
    low, top = min(rates) / 1.3, max(rates) * 1.3
    high = axis("items per second", values=ticks(low, top, "log"), grid=True, format="~s")
    y = quantity("w", high, type="log", domain=[low, top])
    layers: list[Spec] = []
    key = []
    for name, answer in answered.items():
        line = {"stroke": colour(report, name), "strokeDash": dash(report, name)}
        layers += _batches(name, answer, line, (x, y))
        most = plain(answer["best"]["items_per_s"], "/s")
        key.append((name, f"{name}: knee at batch {answer['knee']['batch']:g}, most {most}"))
    title = "Throughput by batch: where a larger one stops to help"
    return [Figure("throughput", title, _THROUGHPUT, (Panel("", unit(220, layers)),), tuple(key))]


def _batches(name: str, answer: Table, line: Table, axes: tuple[Spec, Spec]) -> list[Spec]:
    knee, (x, y) = answer["knee"]["batch"], axes
    values = [
        {"a": r["batch"], "w": r["items_per_s"], "size": 130 if r["batch"] == knee else 36, "fill": line["stroke"]}
        | {"opacity": 0.9, "says": f"{name}, batch {r['batch']:g}: {plain(r['items_per_s'], '/s')}"}
        for r in answer["rows"]
    ]
    size = {"field": "size", "type": "quantitative", "scale": None, "legend": None}
    curve = layer(values, {"type": "line", "strokeWidth": 2, **line}, x=x, y=y)
    return [curve, described(values, {"type": "point"}, "batch", x=x, y=y, size=size, **paint())]
