"""Energy: per inference of each finalist, and the power while it was measured, idle and at work."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Literal

from edgecompress.core.errors import StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    also,
    axis,
    colour,
    labels,
    paint,
    quantity,
)
from edgecompress.reporting.formatting import (
    DASH,
    guessed,
    interval,
    known,
    number,
    plain,
    plural,
    provenance,
    scaled,
    significant,
    text,
)
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Number, Phase, PowerTrace, Table
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

Point = tuple[float, float, float, float]  # second, lowest, mean and highest watts of a bucket of samples
KEPT = 1000  # buckets of a trace in report.json: two numbers of each make the band
DRAWN = 240  # and in the picture

# ------------------------------------------------------------------ what report.json keeps of a trace


def trace(energy: Artifact | None, name: str) -> PowerTrace | None:
    """The idle times and windows of a variant under the sensor that was used, and the power that it sampled.

    None where no agent measured it: a model has no trace.
    """
    gross = next(iter(energy.facts["variants"].get(name) or ()), None) if energy else None
    file = energy.path / f"{name}.json" if energy else None
    if not gross or gross["value"] is None or file is None or not file.is_file():
        return None
    try:
        answer = json.loads(file.read_text(encoding="utf-8"))
        # A sensor that read at first may have failed later: then this is of another than the figures are.
        same = answer.get("windows") and answer["windows"][0]["energy"]["source"] == gross["source"]
        return _trace(answer, gross) if same else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise StageFailed(f"{file}: the energy windows cannot be read: {error!r}; measure again") from error


def _trace(answer: Table, gross: Table) -> PowerTrace:
    start = min(float(span["begin_s"]) for span in (*answer["idle"], *answer["windows"]))
    idle = [_phase("idle", span, start) for span in answer["idle"]]
    phases = sorted([*idle, *(_phase("window", span, start) for span in answer["windows"])], key=lambda p: p.begin_s)
    points, longest = _samples(answer.get("trace") or {}, start, phases[-1].begin_s + phases[-1].seconds)
    kept = [[float(f"{v:.6g}") for v in column] for column in zip(*envelope(points, KEPT), strict=True)]
    behind = gross["status"], gross["source"], gross["scope"]
    return PowerTrace(*behind, phases, len(points), longest, *kept)


def _phase(kind: Literal["idle", "window"], span: Table, start: float) -> Phase:
    seconds, joules = float(span["seconds"]), span["energy"]["value"]
    power = number(
        "power",
        None if joules is None or seconds <= 0 else float(joules) / seconds,
        status=span["energy"]["status"],
        n=1,
        source=span["energy"]["source"],
        scope=span["energy"]["scope"],
        reason=span["energy"]["reason"],
    )
    begin = float(span["begin_s"]) - start
    return Phase(kind, begin, seconds, int(span["n"]), joules, power)


def _samples(sampled: Table, start: float, end_s: float) -> tuple[list[Point], float | None]:
    """What was sampled between the first moment and the last, and the longest time without a sample."""
    pairs = sorted(
        (float(t) - start, float(w)) for t, w in zip(sampled.get("t_s", ()), sampled.get("watts", ()), strict=True)
    )
    inside = [(t, w, w, w) for t, w in pairs if 0 <= t <= end_s and math.isfinite(w)]
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(inside)]
    return inside, max(gaps, default=None)


def envelope(points: Sequence[Point], limit: int) -> list[Point]:
    """At most `limit` buckets of neighbours: the lowest and the highest of each stay, so no spike is lost."""
    width = max(1, -(-len(points) // limit))
    buckets = []
    for near in (points[i : i + width] for i in range(0, len(points), width)):
        mean = sum(p[2] for p in near) / len(near)
        buckets.append((near[len(near) // 2][0], min(p[1] for p in near), mean, max(p[3] for p in near)))
    return buckets


# ------------------------------------------------------------------ the trace as table and figure

_TRACE = "Dark: windows of inference; pale: idle before and after. The short lines are the mean power of each"
_TITLE = "Power while it was measured: flat windows stand above idle"


def _traced(report: Report) -> list[tuple[Variant, PowerTrace]]:
    return [(v, v.power_trace) for v in report.variants if v.power_trace]


def table(report: Report) -> TextTable:
    """Each idle time and window."""
    head = ("variant", "phase", "from", "for", "inferences", "energy", "power", "status")
    rows = []
    for variant, phase in ((v, phase) for v, trace in _traced(report) for phase in trace.phases):
        joules = DASH if phase.joules is None else text(Number("", phase.joules, "J", phase.power.status))
        times = (f"{significant(s, 3)} s" for s in (phase.begin_s, phase.seconds))
        inferences = f"{phase.n:,}" if phase.phase == "window" else DASH
        power = text(phase.power), provenance(phase.power)
        rows.append((variant.name, phase.phase, *times, inferences, joules, *power))
    return TextTable("Windows of energy", head, tuple(rows))


def traces(report: Report) -> Figure:
    """A panel per variant: idle, windows, idle, and the power that the sensor sampled."""
    shown = _traced(report)
    if not shown:
        return Figure("power", _TITLE, "")
    panels = []
    for v, trace in shown:
        gap = f", longest gap {plain(trace.longest_gap_s, 's')}" if trace.longest_gap_s else ""
        windows = plural(sum(p.phase == "window" for p in trace.phases), "window")
        heading = f"{text(v.numbers['power'])} · {windows} · {plural(trace.samples, 'sample')}{gap}"
        panels.append(Panel(heading, _trace_spec(v, trace, colour(report, v.name)), v.name))
    sampled = "; the thin line is the mean of neighbouring samples, its band their lowest and highest"
    none = "; the sensor keeps no samples between them"
    behind = "; ".join(sorted({provenance(trace.phases[0].power) for _, trace in shown}))
    caption = f"{_TRACE}{sampled if any(trace.samples for _, trace in shown) else none}. Power is {behind}."
    hollow = any(guessed(trace) for _, trace in shown)
    return Figure(
        "power", _TITLE, f"{caption}{' Dashed and hollow is no measurement.' if hollow else ''}", tuple(panels)
    )


def _trace_spec(variant: Variant, trace: PowerTrace, stroke: str) -> Spec:
    spans = _spans(trace, stroke)
    points = envelope(list(zip(trace.t_s, trace.low_w, trace.mean_w, trace.high_w, strict=True)), DRAWN)
    top = max([s["w"] or 0.0 for s in spans] + [p[3] for p in points])
    x = quantity("a", axis("s", grid=False), domain=[0, max(s["b"] for s in spans)])
    y = quantity("w", axis("W", grid=True, tickCount=3), domain=[0, 1.08 * top or 1.0])
    hollow = {"strokeDash": [4, 2]} if guessed(trace) else {}
    shades = described(
        spans, {"type": "rect", "strokeWidth": 0.6, **hollow}, "phase", x=x, x2={"field": "b"}, **paint()
    )
    mean = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1, **hollow}
    means = layer([s for s in spans if s["w"] is not None], mean, x=x, x2={"field": "b"}, y=y)
    return unit(130, [shades, *_curve(variant.name, points, (x, y), {"stroke": stroke, **hollow}), means])


def _spans(trace: PowerTrace, fill: str) -> Values:
    spans = []
    for p in trace.phases:
        work = p.phase == "window"
        made = f", {plural(p.n, 'inference')}" if work else ""
        pale = 0.0 if guessed(trace) else 0.16 if work else 0.05
        says = f"{p.phase} of {significant(p.seconds, 3)} s: {text(p.power)}{made}"
        ends = {"a": p.begin_s, "b": p.begin_s + p.seconds, "w": p.power.value}
        spans.append({**ends, "fill": fill if work else "var(--c0)", "opacity": pale, "says": says})
    return spans


def _curve(name: str, points: Sequence[Point], axes: tuple[Spec, Spec], line: Mapping[str, Json]) -> list[Spec]:
    """The samples: a band and their mean, on the axes of the phases; nothing where none were kept."""
    if not points:
        return []
    says = f"{name}: between {plain(min(p[1] for p in points), 'W')} and {plain(max(p[3] for p in points), 'W')}"
    values = [{"a": t, "low": low, "w": mean, "high": high, "says": says} for t, low, mean, high in points]
    x, y = axes
    band = {"type": "area", "fill": line["stroke"], "fillOpacity": 0.3}
    mark = {"type": "line", "strokeWidth": 1, **line}
    return [
        layer(values, band, x=x, y=also(y, "low"), y2={"field": "high"}),
        described(values, mark, "power trace", x=x, y=y),
    ]


# ------------------------------------------------------------------ energy per inference


def energy(report: Report) -> Figure:
    """Energy per inference of the finalists, hollow where a model says so, each with its band."""
    shown = [v for v in report.variants if known(v.numbers["energy_gross"])]
    if not shown:
        reasons = {v.numbers["energy_gross"].reason for v in report.variants} or {"no variant"}
        return Figure("energy", "Energy per inference", f"No energy number: {'; '.join(sorted(reasons))}.")
    largest = max(v.numbers["energy_gross"].known for v in shown)
    factor, shown_unit = scaled(largest, shown[0].numbers["energy_gross"].unit)
    values: Values = []
    for v in shown:
        n = v.numbers["energy_gross"]
        ends = {"e": n.known / factor, "low": n.low and n.low / factor, "high": n.high and n.high / factor}
        fill = {"fill": colour(report, v.name), "opacity": 0.08 if guessed(n) else 0.85}
        says = f"{v.name}: {text(n)} {interval(n)} ({provenance(n)})"
        values.append({"label": v.name, **ends, **fill, "says": says})
    behind = sorted({provenance(v.numbers["energy_gross"]) for v in shown})
    caption = f"Gross, per inference: {'; '.join(behind)}. {_ESTIMATE}"
    key = tuple((v.name, f"{v.name}: {text(v.numbers['energy_gross'], spread=True)}") for v in shown)
    return Figure("energy", "Energy per inference", caption, (Panel("", _energy_spec(values, shown_unit)),), key)


_ESTIMATE = "Hollow bars are estimates, the line is their band; an estimate is never compared with a measurement."


def _energy_spec(values: Values, shown: str) -> Spec:
    y = labels()
    x = quantity("e", axis(shown, grid=True), zero=True)
    dashed = {"type": "bar", "height": 20, "strokeDash": [4, 2], "strokeWidth": 1.5}
    plain = {"type": "bar", "height": 20}
    hollow = [v for v in values if v["opacity"] < 0.5]
    layers = [described([v], dashed if v in hollow else plain, "energy", x=x, y=y, **paint()) for v in values]
    spans = [v for v in values if v["low"] is not None and v["high"] is not None]
    rule = layer(
        spans, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}, x=also(x, "low"), x2={"field": "high"}, y=y
    )
    return unit(46 + 34 * len(values), [*layers, rule])
