"""What the profiler `memory` found: where resident memory peaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    axis,
    colour,
    paint,
    quantity,
)
from edgecompress.reporting.formatting import plain, scaled, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.profilers import (
    NULLABLE,
    NUMBER,
    TEXT,
    answers,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "Memory over time"
PROFILER = "memory"
ORDER = 50
PLACE = "memory"
BUCKETS = 180  # of responses in a picture
_MEMORY = "Resident memory, sampled, above the process's memory before the model was loaded (dashed). Shaded by phase."
SHAPE: Mapping[str, Json] = {
    "timeline": [{"t_s": NUMBER, "rss_bytes": NUMBER, "phase": TEXT}],
    "phases": [
        {"name": TEXT, "begin_s": NUMBER, "end_s": NUMBER, "runs": NULLABLE, "end_bytes": NULLABLE}
        | {"anon_bytes": NULLABLE, "file_bytes": NULLABLE, "peak_bytes": NULLABLE}
    ],
    "baseline_bytes": NULLABLE,
    "peak_over_bytes": NULLABLE,
    "reason": TEXT,
    "split_reason": TEXT,
}


def tables(report: Report) -> list[TextTable]:
    """Resident memory, phase by phase."""
    head = ("variant", "phase", "from", "to", "at its end", "of it anonymous", "of it file-backed", "highest sample")
    rows = []
    for name, phase in ((v, phase) for v, a in answers(report, "memory").items() for phase in a["phases"]):
        ends = (f"{significant(phase[key], 3)} s" for key in ("begin_s", "end_s"))
        sizes = (plain(phase[key], "bytes") for key in ("end_bytes", "anon_bytes", "file_bytes", "peak_bytes"))
        rows.append((name, phase["name"], *ends, *sizes))
    return [TextTable("Memory by phase", head, tuple(rows))]


def figures(report: Report) -> list[Figure]:
    """Resident memory of each variant from before its load to its steady state."""
    answered = [(v, a) for v, a in answers(report, "memory").items() if a["timeline"] and a["phases"]]
    panels = [Panel(_over(a), _spec(v, a, colour(report, v)), v) for v, a in answered]
    return [Figure("timeline", "Memory over time: where it peaks", _MEMORY if panels else "", tuple(panels))]


def _over(answer: Table) -> str:
    return f"{plain(answer['peak_over_bytes'], 'bytes')} at most over {plain(answer['baseline_bytes'], 'bytes')}"


def _spec(name: str, answer: Table, stroke: str) -> Spec:
    points, phases, base = answer["timeline"], answer["phases"], answer["baseline_bytes"] or 0
    by, shown = scaled(max(abs(p["rss_bytes"] - base) for p in points), "bytes")
    every = -(-len(points) // (2 * BUCKETS))
    says = f"{name}: {_over(answer)}"
    values = [{"a": p["t_s"], "w": (p["rss_bytes"] - base) / by, "says": says} for p in _peaks(points, every)]
    x = quantity("a", axis("s"), domain=[phases[0]["begin_s"], max(phases[-1]["end_s"], points[-1]["t_s"])])
    y = quantity("w", axis(f"{shown} over it", grid=True, tickCount=3), zero=True)
    shades = described(
        _shades(phases, stroke), {"type": "rect", "strokeWidth": 0}, "phase", x=x, x2={"field": "b"}, **paint()
    )
    line = described(values, {"type": "line", "stroke": stroke, "interpolate": "step-after"}, "memory curve", x=x, y=y)
    zero = layer([{"w": 0}], {"type": "rule", "color": "var(--ink)", "strokeDash": [4, 3]}, y=y)
    return unit(130, [shades, line, zero, _named(phases, x)])


def _named(phases: Sequence[Table], x: Table) -> Spec:
    """The names of the phases that are wide enough for them."""
    least = 0.16 * (phases[-1]["end_s"] - phases[0]["begin_s"])
    wide = [{"a": p["begin_s"], "name": p["name"]} for p in phases if p["end_s"] - p["begin_s"] > least]
    words = {"type": "text", "align": "left", "dx": 3, "y": 0, "dy": 8, "fontSize": 10, "color": "var(--ink)"}
    return layer(wide, words, x=x, text={"field": "name", "type": "nominal"})


def _peaks(points: Sequence[Table], every: int) -> list[Table]:
    """The highest sample of each `every` neighbours: a peak is not thinned away."""
    return [max(points[i : i + every], key=lambda p: float(p["rss_bytes"])) for i in range(0, len(points), every)]


def _shades(phases: Sequence[Table], fill: str) -> Values:
    return [
        {"a": p["begin_s"], "b": p["end_s"], "fill": fill, "opacity": 0.06 + 0.1 * (i % 2)}
        | {"says": f"{p['name']}: {plain(p['end_bytes'], 'bytes')}, {plain(p['peak_bytes'], 'bytes')} at most"}
        for i, p in enumerate(phases)
    ]
