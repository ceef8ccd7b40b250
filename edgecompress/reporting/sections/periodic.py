"""What the profiler `periodic` found: whether it answers before the next is due."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    also,
    axis,
    colour,
    quantity,
)
from edgecompress.reporting.formatting import DASH, or_why, plain, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.profilers import (
    MEASURED,
    NULLABLE,
    NUMBER,
    TRUTH,
    answers,
    number,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "At a fixed rate"
PROFILER = "periodic"
ORDER = 20
PERCENTS = ("p50", "p95", "p99", "max")
BUCKETS = 180  # of responses in a picture
_PERIODIC = (
    "Each inference from the moment it was due, in order: the line is the median of neighbours, the band reaches from "
    "the fastest to the slowest. Above the dashed line it ends after the next is due."
)
TIMES = dict.fromkeys(("p50", "p95", "p99", "max"), NULLABLE)
SHAPE: Mapping[str, Json] = {
    "period_ms": NUMBER,
    "rate_hz": NUMBER,
    "n": NUMBER,
    "due": NUMBER,
    "response_ms": TIMES,
    "service_ms": TIMES,
    "wake_ms": TIMES,
    "floor": TRUTH,
    "saturated": TRUTH,
    "missed": NUMBER,
    "missed_share": NUMBER,
    "duty": NUMBER,
    "responses_ms": [NUMBER],
    "every": NUMBER,
    "energy_per_period": MEASURED,
    "power": MEASURED,
}


def tables(report: Report) -> list[TextTable]:
    """At a fixed rate: the response counts from when an inference was due, so waiting in line is in it."""
    head = ("variant", "time of", *PERCENTS, "late", "busy", "energy per period", "power")
    rows = [row for v, a in answers(report, "periodic").items() for row in _rows(v, a)]
    return [TextTable("At a fixed rate", head, tuple(rows))]


def _rows(name: str, answer: Table) -> list[tuple[str, ...]]:
    least = "≥ " if answer["floor"] else ""
    late = f"{answer['missed']:,} of {answer['due']:,} ({plain(answer['missed_share'], 'fraction')})"
    energy = (or_why(number(answer["energy_per_period"])), text(number(answer["power"]), spread=True))
    first = (late, plain(answer["duty"], "fraction"), *energy)
    rest = ("",) * len(first)
    period = f"response, due every {plain(answer['period_ms'], 'ms')}"
    return [
        (name, period, *_percents(answer["response_ms"], least), *first),
        (name, "the inference alone", *_percents(answer["service_ms"]), *rest),
        (name, "waking up", *_percents(answer["wake_ms"]), *rest),
    ]


def _percents(times: Table, least: str = "") -> list[str]:
    return [f"{least}{plain(times[p], 'ms')}" if times[p] is not None else DASH for p in PERCENTS]


def figures(report: Report) -> list[Figure]:
    """The responses of each variant in order, beside the period."""
    panels = []
    for name, answer in answers(report, "periodic").items():
        if answer["responses_ms"]:
            p99 = answer["response_ms"]["p99"]
            worst = f"p99 {plain(p99, 'ms')}, " if p99 is not None else ""
            kept = "cannot keep up, " if answer["saturated"] else ""
            late = f"{kept}{worst}{answer['missed']:,} of {answer['due']:,} late"
            heading = f"every {plain(answer['period_ms'], 'ms')}: {late}"
            panels.append(Panel(heading, _spec(name, answer, colour(report, name)), name))
    title = "At a fixed rate: does it answer before the next is due"
    return [Figure("periodic", title, _PERIODIC if panels else "", tuple(panels))]


def _spec(name: str, answer: Table, stroke: str) -> Spec:
    times, every = answer["responses_ms"], answer["every"]
    width = -(-len(times) // BUCKETS)
    middle = plain(answer["response_ms"]["p50"], "ms")
    says = f"{name}: half within {middle}, the slowest {plain(answer['response_ms']['max'], 'ms')}"
    values = []
    for begin in range(0, len(times), width):
        part = times[begin : begin + width]
        at = {"a": begin * every, "low": min(part), "w": median(part), "high": max(part)}
        values.append({**at, "says": says})
    x = quantity("a", axis("inference"))
    y = quantity("w", axis("ms", grid=True, tickCount=3), domain=[0, 1.05 * max(*times, answer["period_ms"])])
    band = layer(
        values, {"type": "area", "fill": stroke, "fillOpacity": 0.25}, x=x, y=also(y, "low"), y2={"field": "high"}
    )
    line = described(values, {"type": "line", "stroke": stroke, "strokeWidth": 1.5}, "responses", x=x, y=y)
    due = layer([{"w": answer["period_ms"]}], {"type": "rule", "color": "var(--ink)", "strokeDash": [4, 3]}, y=y)
    return unit(120, [band, line, due])
