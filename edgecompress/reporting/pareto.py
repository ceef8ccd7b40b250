"""Accuracy, latency and energy together: the variants, by device, that no other beats in all three."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from edgecompress.core.json import Json
from edgecompress.core.quantities import QUANTITIES, direction
from edgecompress.reporting import before_after
from edgecompress.reporting.figure_style import Figure, Panel, Values, axis, colour, paint, quantity, ticks
from edgecompress.reporting.formatting import guessed, known, scaled, text
from edgecompress.reporting.model import Point, Report
from edgecompress.reporting.model_numbers import Number
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

AXES = ("accuracy", "latency", "energy")
MARKERS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "triangle-down": "▼", "cross": "✚"}
_TITLE = "Accuracy, latency, energy: what no other beats"
_CAPTION = (
    "Left costs less. Full: no other variant is as good in all three and better in one. Pale: beaten. "
    "Dashed and hollow: its energy is not measured. Only energies of one status and one scope are held "
    "against each other."
)


def of_report(report: Report) -> list[Point]:
    """The variants of one report that have all three numbers."""
    device = str(report.device.get("name") or "")
    every = [
        (v.name, (v.numbers["accuracy"], v.numbers["latency"], v.numbers["energy_gross"])) for v in report.variants
    ]
    return ranked([Point(name, device, *three) for name, three in every if all(map(known, three))])


def ranked(rows: Sequence[Point]) -> list[Point]:
    """The rows, each with the first other one that beats it: on its own device where there is one."""
    beaten = []
    for row in rows:
        near = sorted(rows, key=lambda other: other.device != row.device)
        by = next((name(other) for other in near if _beats(other, row)), "")
        beaten.append(msgspec.structs.replace(row, beaten_by=by))
    return beaten


def numbers(row: Point) -> tuple[Number, Number, Number]:
    """Those of the axes."""
    return row.accuracy, row.latency, row.energy


def markers(rows: Sequence[Point]) -> dict[str, str]:
    """A marker for each device, in the order given."""
    return dict(zip(dict.fromkeys(row.device for row in rows), itertools.cycle(MARKERS), strict=False))


def name(row: Point) -> str:
    """`int8 on rpi5`."""
    return f"{row.variant} on {row.device}" if row.device else str(row.variant)


def _beats(a: Point, b: Point) -> bool:
    """Whether `a` is as good in all three and better in one; never where one of them may not be compared."""
    if (
        any(before_after.incomparable(*pair) for pair in zip(numbers(a), numbers(b), strict=True))
        or a.accuracy.metric != b.accuracy.metric
    ):
        return False
    pairs = list(zip(map(_cost, numbers(a)), map(_cost, numbers(b)), strict=True))
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def _cost(number: Number) -> float:
    accuracy = number.metric not in QUANTITIES
    return -number.known if accuracy and direction(number.metric) == "higher" else number.known


def table(rows: Sequence[Point]) -> TextTable:
    """The three numbers of each, and what beats it."""
    shown = []
    for row in rows:
        behind = ", ".join(filter(None, (row.energy.status, row.energy.scope)))
        beaten = row.beaten_by or "nothing: on the front"
        shown.append((row.variant, row.device, *map(text, numbers(row)), behind, beaten))
    head = ("variant", "device", *AXES, "energy is", "beaten by")
    return TextTable("Accuracy, latency, energy", head, tuple(shown))


def figure(report: Report, rows: Sequence[Point]) -> Figure:
    """Accuracy over latency and over energy, each row with the same number in both."""
    if len(rows) < 2:
        return Figure("pareto", _TITLE, "")
    energies = max(row.energy.known for row in rows)
    by, shown = scaled(energies, rows[0].energy.unit)
    panels = (
        Panel("accuracy over latency", _spec(report, rows, ("latency", 1.0, "latency, ms"))),
        Panel("accuracy over energy", _spec(report, rows, ("energy", by, f"energy per inference, {shown}"))),
    )
    key = tuple((row.variant, f"{i} {name(row)}: {_says(row)}") for i, row in enumerate(rows, 1))
    caption = _CAPTION
    if len(devices := markers(rows)) > 1:
        whose = ", ".join(f"{MARKERS[marker]} {device}" for device, marker in devices.items())
        caption = f"{whose}. Beaten by a variant on another device is a comparison of the devices, too. {_CAPTION}"
    return Figure("pareto", _TITLE, caption, panels, key)


def _says(row: Point) -> str:
    beaten = f"beaten by {row.beaten_by}" if row.beaten_by else "on the front"
    return f"{text(row.accuracy)}, {text(row.latency)}, {text(row.energy)}, {beaten}"


def _spec(report: Report, rows: Sequence[Point], across: tuple[str, float, str]) -> Spec:
    axis_, by, title = across
    shapes = markers(rows)
    points: Values = []
    for i, row in enumerate(rows, 1):
        hollow, at = guessed(row.energy), {"a": getattr(row, axis_).known / by, "w": row.accuracy.value}
        fill = {"fill": colour(report, row.variant), "opacity": 0.0 if hollow else 0.25 if row.beaten_by else 0.9}
        told = {"hollow": hollow, "front": not row.beaten_by, "says": f"{name(row)}: {_says(row)}"}
        points.append({**at, "number": str(i), **fill, **told, "shape": shapes[row.device]})
    low, high = min(p["a"] for p in points) / 1.25, max(p["a"] for p in points) * 1.25
    heights = [p["w"] for p in points]
    pad = 0.25 * (max(heights) - min(heights)) or 0.01 * abs(max(heights)) or 1.0
    percent = rows[0].accuracy.unit == "fraction"
    wide = axis(title, values=ticks(low, high, "log"), grid=True, format="~g")
    x = quantity("a", wide, type="log", domain=[low, high])
    tall = axis("accuracy", grid=True, format=".3~%" if percent else "~g")
    y = quantity("w", tall, domain=[min(heights) - pad, max(heights) + pad])
    beaten_below = sorted(points, key=lambda p: bool(p["front"]))
    return unit(190, [mark for p in beaten_below for mark in _dot(p, x, y)])


def _dot(p: dict[str, Json], x: Mapping[str, Json], y: Mapping[str, Json]) -> tuple[Spec, ...]:
    """Hides what is below it; a hollow one is dashed, one on the front is drawn with a thicker line."""
    dashes = {"strokeDash": [3, 2]} if p["hollow"] else {}
    mark = {"type": "point", "shape": p["shape"], "size": 300}
    back = layer([p], {**mark, "fill": "var(--card)", "stroke": None}, x=x, y=y)
    line = {**mark, "strokeWidth": 2.4 if p["front"] else 1.2, **dashes}
    words = {"type": "text", "fontSize": 11, "fontWeight": "bold", "color": "var(--ink)", "dy": 1}
    number = layer([p], words, x=x, y=y, text={"field": "number", "type": "nominal"})
    return back, described([p], line, "pareto", x=x, y=y, **paint()), number
