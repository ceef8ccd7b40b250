"""The figures of latency: histogram, cumulative curve, and the runs in their order."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from edgecompress.core.json import Json
from edgecompress.reporting import before_after
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    also,
    axis,
    colour,
    dash,
    paint,
    quantity,
    ticks,
)
from edgecompress.reporting.formatting import plain, plural, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Distribution, Histogram, Session
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.vega import Spec, described, layer, unit

BUCKETS = 180  # of a strip, over all sessions of a variant
_HISTOGRAM = (
    "All runs of all sessions, each variant on an axis of its own. The line is the median of session medians. "
    "The hollow bar at the right counts the runs beyond the frame (at most the 99th percentile): none is dropped."
)
_ECDF = "The share of runs that are done within a time, up to the slowest variant's 99th percentile. Steep is steady."
_STRIP = (
    "Left to right as they ran, one stretch per session (a fresh process each): the line is the median of neighbouring "
    "runs, the pale band reaches from their fastest to their slowest, beyond the frame where it is cut. "
    "Flat is steady, a slope is drift or throttling."
)


def _shaped(report: Report) -> list[tuple[Variant, Distribution]]:
    return [(v, v.distribution) for v in before_after.ordered(report) if v.distribution]


def histogram(report: Report) -> Figure:
    """One panel per variant: all runs of all sessions."""
    shown = _shaped(report)
    if not shown:
        return Figure("histogram", "Latency, histogram", "No raw latencies were kept: nothing to draw.")
    panels = tuple(
        Panel(
            f"{text(v.numbers['latency'])} · {plural(shape.runs, 'run')}",
            _histogram_spec(shape.histogram, v.numbers["latency"].value, colour(report, v.name)),
            v.name,
        )
        for v, shape in shown
    )
    return Figure("histogram", "Latency, histogram", _HISTOGRAM, panels)


def _histogram_spec(shape: Histogram, middle: float | None, fill: str) -> Spec:
    edges, width = shape.edges_ms, shape.edges_ms[1] - shape.edges_ms[0]
    spans = [(a, b, n, 0.85, f"{a:.4g} to {b:.4g} ms") for a, b, n in zip(edges, edges[1:], shape.counts, strict=False)]
    begin, end = (edges[-1] + n * width for n in (1, 2))  # of the bin for all that lies beyond
    spans.append((begin, end, shape.over, 0.0, f"above {begin:.4g} ms"))
    values = [
        {"a": a, "b": b, "n": n, "fill": fill, "opacity": opacity, "says": f"{span}: {plural(n, 'run')}"}
        for a, b, n, opacity, span in spans
        if n
    ]
    x = quantity("a", axis("ms"))
    y = quantity("n", axis("runs", tickCount=3), zero=True)
    bars = described(
        values,
        {"type": "bar", "binSpacing": 1},
        "histogram bin",
        x={**x, "bin": {"binned": True}},
        x2={"field": "b"},
        y=y,
        **paint(),
    )
    rule = layer([{"a": middle}], {"type": "rule", "color": "var(--ink)"}, x=x)
    return unit(104, [bars, rule])


def ecdf(report: Report) -> Figure:
    """All variants on one axis: the share of runs that are done within a time."""
    shown = _shaped(report)
    if not shown:
        return Figure("ecdf", "Latency, cumulative", "No raw latencies were kept: nothing to draw.")
    ends = [shape.quantiles_ms for _, shape in shown]
    low, high = min(q[0] for q in ends), max(q[99] for q in ends)
    scale = "log" if high > 4 * low else "linear"
    x = quantity(
        "x",
        axis("ms, log scale" if scale == "log" else "ms", values=ticks(low, high, scale), grid=True, format="~g"),
        type=scale,
        domain=[low, high],
    )
    y = quantity("y", axis("share of runs", grid=True, format="%"), domain=[0, 1])
    layers = []
    for v, shape in shown:
        quantiles = shape.quantiles_ms
        says = f"{v.name}: half of the runs within {quantiles[50]:.4g} ms, 90 % within {quantiles[90]:.4g} ms"
        steps = [{"x": min(q, high), "y": i / 100, "says": says} for i, q in enumerate(quantiles)]  # within the frame
        layers.append(described(steps, _line(report, v.name), "cumulative curve", x=x, y=y))
    key = tuple((v.name, f"{v.name}: {text(v.numbers['latency'])}") for v, _ in shown)
    return Figure(
        "ecdf",
        "Latency, cumulative",
        _ECDF,
        (Panel("", unit(220, layers)),),
        key,
    )


def _line(report: Report, name: str) -> dict[str, Json]:
    return {
        "type": "line",
        "stroke": colour(report, name),
        "strokeDash": dash(report, name),
        "strokeWidth": 3 if name == report.subject else 2,
        "interpolate": "step-after",
    }


def strip(report: Report) -> Figure:
    """Latency against run order, session after session: drift, throttling and spikes are seen here."""
    shown = [(v, shape) for v, shape in _shaped(report) if any(s.latencies_ms for s in v.sessions)]
    if not shown:
        return Figure("strip", "Latency in run order", "No raw latencies were kept: nothing to draw.")
    panels = tuple(_strip(v, shape.histogram.edges_ms, colour(report, v.name)) for v, shape in shown)
    return Figure("strip", "Latency in run order", _STRIP, panels)


def _strip(variant: Variant, edges: Sequence[float], stroke: str) -> Panel:
    kept = [s for s in variant.sessions if s.latencies_ms]
    lines = [_stretch(s, i, max(16, BUCKETS // len(kept)), variant.name) for i, s in enumerate(kept)]
    middles = [i + 0.5 for i in range(len(kept))]
    sessions = axis("session", values=middles, labelExpr="floor(datum.value) + 1")
    x = quantity("x", sessions, domain=[0, len(kept)])
    y = quantity(
        "y",
        axis("ms", tickCount=3, grid=True),
        domain=[edges[0], max(edges[-1], *(p["y"] for line in lines for p in line))],
    )
    band = {"type": "area", "clip": True, "fill": stroke, "fillOpacity": 0.25}
    mark = {"type": "line", "clip": True, "stroke": stroke, "strokeWidth": 1.5, "strokeJoin": "round"}
    bands = [layer(line, band, x=x, y=also(y, "low"), y2={"field": "high"}) for line in lines]
    medians = [described(line, mark, "session", x=x, y=y) for line in lines]
    slowest = max(s.max_ms or 0 for s in kept)
    heading = f"{plural(len(kept), 'session')} · slowest {plain(slowest, 'ms')}"
    return Panel(heading, unit(110, [*bands, *medians]), variant.name)


def _stretch(session: Session, place: int, buckets: int, name: str) -> Values:
    """Each bucket of neighbouring runs as its median, its fastest and its slowest: no spike is lost."""
    times = session.latencies_ms
    width = max(1, -(-len(times) // buckets))
    says = f"{name}, session {place + 1}: median {session.median_ms:.4g} ms of {plural(session.n or 0, 'run')}"
    points = []
    for begin in range(0, len(times), width):
        bucket = times[begin : begin + width]
        at = place + 0.03 + 0.94 * (begin + len(bucket) / 2) / len(times)
        points.append({"x": at, "y": median(bucket), "low": min(bucket), "high": max(bucket), "says": says})
    return points
