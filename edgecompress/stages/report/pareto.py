"""Accuracy, latency and energy together: which variants, on which devices, no other beats in all three."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress.stages.report import deltas
from edgecompress.stages.report.marks import Figure, Panel, Report, Values, axis, colour, paint, quantity, ticks
from edgecompress.stages.report.numbers import guessed, known, scaled, text
from edgecompress.stages.report.tables import Table
from edgecompress.stages.report.vega import Spec, layer, told, unit

Row = dict[str, Any]  # {"variant", "device", "accuracy", "latency", "energy": numbers, "beaten_by": "" on the front}
AXES = ("accuracy", "latency", "energy")
_TITLE = "Accuracy, latency, energy: what no other beats"
_CAPTION = (
    "Left costs less. Full: no other variant is as good in all three and better in one. Pale: beaten. "
    "Dashed and hollow: its energy is no measurement. Only energies of one status and one scope are held "
    "against each other."
)


def of_report(report: Report) -> list[Row]:
    """The variants of one report that have all three numbers."""
    device = str(report["device"].get("name") or "")
    named = {"accuracy": "accuracy", "latency": "latency", "energy": "energy_gross"}
    rows = [
        {"variant": v["name"], "device": device, **{axis: v["numbers"][metric] for axis, metric in named.items()}}
        for v in report["variants"]
    ]
    return ranked([row for row in rows if all(known(row[axis]) for axis in AXES)])


def ranked(rows: Sequence[Row]) -> list[Row]:
    """The rows, each with the first other one that beats it."""
    return [{**row, "beaten_by": next((name(o) for o in rows if _beats(o, row)), "")} for row in rows]


def name(row: Row) -> str:
    """`int8 on rpi5`."""
    return f"{row['variant']} on {row['device']}" if row["device"] else str(row["variant"])


def _beats(a: Row, b: Row) -> bool:
    """Whether `a` is as good in all three and better in one; never where one of them may not be compared."""
    if (
        any(deltas.incomparable(a[axis], b[axis]) for axis in AXES)
        or a["accuracy"]["metric"] != b["accuracy"]["metric"]
    ):
        return False
    pairs = [(_cost(a, axis), _cost(b, axis)) for axis in AXES]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)


def _cost(row: Row, axis: str) -> float:
    value = float(row[axis]["value"])
    return -value if axis == "accuracy" and row[axis]["metric"] not in deltas.LOWER_IS_BETTER else value


def table(rows: Sequence[Row]) -> Table:
    """The three numbers of each, and what beats it."""
    found = tuple((*_named(row), row["beaten_by"] or "nothing: on the front") for row in rows)
    return Table("Accuracy, latency, energy", ("variant", "device", *AXES, "energy is", "beaten by"), found)


def _named(row: Row) -> tuple[str, ...]:
    behind = ", ".join(filter(None, (row["energy"]["status"], row["energy"]["scope"])))
    return row["variant"], row["device"], *(text(row[axis]) for axis in AXES), behind


def figure(report: Report, rows: Sequence[Row]) -> Figure:
    """Accuracy over latency and over energy, each row with the same number in both."""
    if len(rows) < 2:
        return Figure("pareto", _TITLE, "")
    energies = max(row["energy"]["value"] for row in rows)
    by, shown = scaled(energies, rows[0]["energy"]["unit"])
    panels = (
        Panel("accuracy over latency", _spec(report, rows, ("latency", 1.0, "latency, ms"))),
        Panel("accuracy over energy", _spec(report, rows, ("energy", by, f"energy per inference, {shown}"))),
    )
    key = tuple((row["variant"], f"{i} {name(row)}: {_says(row)}") for i, row in enumerate(rows, 1))
    return Figure("pareto", _TITLE, _CAPTION, panels, key)


def _says(row: Row) -> str:
    beaten = f"beaten by {row['beaten_by']}" if row["beaten_by"] else "on the front"
    return f"{text(row['accuracy'])}, {text(row['latency'])}, {text(row['energy'])}, {beaten}"


def _spec(report: Report, rows: Sequence[Row], across: tuple[str, float, str]) -> Spec:
    axis_, by, title = across
    points = [_point(report, row, i, row[axis_]["value"] / by) for i, row in enumerate(rows, 1)]
    low, high = min(p["a"] for p in points) / 1.25, max(p["a"] for p in points) * 1.25
    heights = [p["w"] for p in points]
    pad = 0.25 * (max(heights) - min(heights)) or 0.01 * abs(max(heights)) or 1.0
    percent = rows[0]["accuracy"]["unit"] == "fraction"
    wide = axis(title, values=ticks(low, high, "log"), grid=True, format="~g")
    x = quantity("a", wide, type="log", domain=[low, high])
    tall = axis("accuracy", grid=True, format=".3~%" if percent else "~g")
    y = quantity("w", tall, domain=[min(heights) - pad, max(heights) + pad])
    return unit(190, [*_dots(points, x, y), _numbered(points, x, y)])


def _point(report: Report, row: Row, place: int, across: float) -> dict[str, Any]:
    hollow = guessed(row["energy"])
    fill = {"fill": colour(report, row["variant"]), "opacity": 0.0 if hollow else 0.25 if row["beaten_by"] else 0.9}
    at = {"a": across, "w": row["accuracy"]["value"], "number": str(place)}
    return {**at, **fill, "hollow": hollow, "front": not row["beaten_by"], "says": f"{name(row)}: {_says(row)}"}


def _dots(points: Values, x: Mapping[str, Any], y: Mapping[str, Any]) -> list[Spec]:
    """A hollow dot is dashed; one on the front is drawn with a thicker line."""
    dots = []
    for p in points:
        dashes = {"strokeDash": [3, 2]} if p["hollow"] else {}
        mark = {"type": "point", "size": 300, "strokeWidth": 2.4 if p["front"] else 1.2, **dashes}
        dots.append(told([p], mark, "pareto", x=x, y=y, **paint()))
    return dots


def _numbered(points: Values, x: Mapping[str, Any], y: Mapping[str, Any]) -> Spec:
    words = {"type": "text", "fontSize": 11, "fontWeight": "bold", "color": "var(--ink)", "dy": 1}
    return layer(points, words, x=x, y=y, text={"field": "number", "type": "nominal"})
