"""The figures: each a set of small panels, drawn from report.json alone, or the reason why it cannot be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from edgecompress.core.json import Json
from edgecompress.core.quantities import COUNTED, CYCLES, QUANTITIES, direction
from edgecompress.core.quantities import unit as unit_of
from edgecompress.reporting import (
    before_after,
    compression,
    compression_gains,
    external_section,
    instructions,
    pareto,
    plugin_sections,
    power,
    strength_search,
    training,
    vega,
)
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
    ticks,
)
from edgecompress.reporting.formatting import ended, guessed, known, plain, plural, significant, text
from edgecompress.reporting.latency_figures import ecdf, histogram, strip
from edgecompress.reporting.model import Report, sections
from edgecompress.reporting.model_variant import Operator, Variant
from edgecompress.reporting.vega import Spec, described, layer, unit

TOP = 10  # operators in a panel
LEFT = {"latency": "is faster", COUNTED: "takes fewer instructions", CYCLES: "takes fewer cycles"}
FILLED = {
    "latency": "Filled: shipped. Pale: slower, or the baseline. Hollow: it failed a check",
    COUNTED: "Dashed and hollow: simulated, and faintly filled: shipped",
    CYCLES: "Dashed and hollow: estimated, and faintly filled: shipped",
}
NOT_RANKED = {"latency": "not raced", COUNTED: "not counted", CYCLES: "not estimated"}


def every(report: Report) -> list[Figure]:
    """All figures, in the order of the page."""
    own: tuple[Callable[[Report], Figure], ...] = (changes, tradeoff, histogram, ecdf, strip, operators)
    others = (instructions.figure, power.energy, power.traces, external_section.figure)
    smaller = (compression.figure, compression_gains.figure, strength_search.figure, training.figure)
    return [
        *(make(report) for make in (*own, *smaller, *others)),
        pareto.figure(report, report.pareto),
        *(figure for each in sections() for figure in plugin_sections.figures(each, report)),
    ]


# ------------------------------------------------------------------ before and after


def changes(report: Report) -> Figure:
    """How many times better or worse each quantity became, on a log axis about 1."""
    rows = [(r, r.change) for r in report.deltas if r.change]
    if not rows:
        return Figure("changes", "Change", "Nothing to compare with: no change to draw.")
    values: Values = []
    for row, change in rows:
        fill = f"var(--{change.called})" if change.called in ("better", "worse") else "var(--c0)"
        ends = {"label": row.label, "one": 1, "factor": change.factor, "low": change.low, "high": change.high}
        opacity, head = (0.12, "var(--card)") if change.guessed else (0.9, fill)
        values.append({**ends, "fill": fill, "opacity": opacity, "says": f"{row.label}: {row.says}", "head": head})
    caption = f"{report.subject} against {report.baseline}: right of 1 is better. "
    caption += "Thin lines are intervals; hollow is estimated or simulated; grey is a change that cannot be called."
    return Figure("changes", "Change", caption, (Panel("", _changes_spec(values)),))


def _changes_spec(values: Values) -> Spec:
    ends = [v[k] for v in values for k in ("factor", "low", "high") if v[k]]
    reach = max(1.5, *(max(e, 1 / e) for e in ends)) * 1.05
    low = 1 / reach if min(ends) < 0.98 else 0.9
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100) if low <= t <= reach]
    x = quantity("one", axis("times better", values=ticks, grid=True, format="~g"), type="log", domain=[low, reach])
    y = labels()
    stems = layer(values, {"type": "bar", "height": 7}, x=x, x2={"field": "factor"}, y=y, **paint())
    head = {"fill": {**paint()["fill"], "field": "head"}, "stroke": paint()["stroke"]}
    mark = {"type": "point", "size": 80, "strokeWidth": 1.5, "opacity": 1}
    heads = described(values, mark, "change", x=also(x, "factor"), y=y, **head)
    spans = [v for v in values if v["low"] and v["high"]]
    rule = layer(
        spans, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}, x=also(x, "low"), x2={"field": "high"}, y=y
    )
    one = layer([{"one": 1}], {"type": "rule", "color": "var(--ink)"}, x=x)
    return unit(46 + 24 * len(values), [one, stems, rule, heads])


# ------------------------------------------------------------------ accuracy, latency, size


WIDE, TALL = 220, 250  # pixels: about the width of the drawing, and its height
APART, STEP = 15, 14  # pixels between two numbers, across and down


def tradeoff(report: Report) -> Figure:
    """Latency (or instructions) across, accuracy up, size as area; what has none stands in a lane of its own."""
    shown = [v for v in before_after.ordered(report) if known(v.numbers["accuracy"])]
    if not shown:
        return Figure("tradeoff", "Accuracy, latency, size", "No variant has an accuracy: nothing to draw.")
    by = before_after.ranked_by(report)
    points, edge, scale = _points(report, shown, by)
    key = tuple((p["name"], f"{p['number']} {p['words']}") for p in points)
    higher = direction(shown[0].numbers["accuracy"].metric) == "higher"
    caption = f"Left {LEFT[by]}, {'up' if higher else 'down'} is more accurate"
    caption += f"; the area is the artifact's size. {FILLED[by]}; what was {NOT_RANKED[by]} stands right of the line."
    title = f"Accuracy, {by}, size"
    return Figure("tradeoff", title, caption, (Panel("", _tradeoff_spec(points, edge, (by, scale))),), key)


def _points(report: Report, shown: Sequence[Variant], by: str) -> tuple[Values, float | None, str]:
    """The points, where the lane of those without a latency begins (None: nowhere), and the x scale."""
    times = [v.numbers[by].known for v in shown if known(v.numbers.get(by))] or [1.0]
    scale = "log" if max(times) > 4 * min(times) else "linear"
    ratio = max(max(times) / min(times), 1.5)
    edge, lane = max(times) * ratio**0.12, max(times) * ratio**0.25
    if scale == "linear":
        edge, lane = (max(times) + share * (max(times) - min(times) or max(times)) for share in (0.12, 0.25))
    points = [_point(report, v, lane, by) for v in shown]
    for number, point in enumerate(points, 1):
        point["number"] = str(number)
    return points, edge if any(not known(v.numbers.get(by)) for v in shown) else None, scale


def _dodge(points: Values, scale: str, heights: Sequence[float]) -> None:
    """A number that would lie on another one stands below or above its point, at the end of a line to it."""
    at = {p["number"]: math.log(p["x"]) if scale == "log" else p["x"] for p in points}
    spread = (max(at.values()) - min(at.values())) or 1.0
    pixel = (heights[1] - heights[0]) / TALL
    placed: list[tuple[float, float]] = []  # pixels across and down of each number
    for p in sorted(points, key=lambda p: at[p["number"]]):
        across, down = WIDE * (at[p["number"]] - min(at.values())) / spread, (heights[1] - p["y"]) / pixel
        step, moved = STEP if down < TALL / 2 else -STEP, 0
        while any(abs(x - across) < APART and abs(y - down - moved) < STEP for x, y in placed):
            moved += step
        placed.append((across, down + moved))
        p["down"], p["foot"] = moved, p["y"] - (moved - step / 2 if moved else 0) * pixel


def _point(report: Report, variant: Variant, lane: float, by: str) -> dict[str, Json]:
    n = variant.numbers
    raced = known(n.get(by))
    rank = f"{text(n[by])}{'' if by == 'latency' else f' {by}'}" if raced else NOT_RANKED[by]
    opacity = {"shipped": 0.95, "measured": 0.95, "lost": 0.0, "failed": 0.0, "unreached": 0.0}.get(
        variant.verdict, 0.3
    )
    words = f"{variant.name}: {rank}, {text(n['accuracy'])}, {text(n['size'])}"
    why = ended(variant)
    return {
        "name": variant.name,
        "x": n[by].value if raced else lane,
        "y": n["accuracy"].value,
        "bytes": n["size"].value or 0,
        "fill": colour(report, variant.name),
        "opacity": min(opacity, 0.15) if raced and guessed(n[by]) else opacity,
        "words": words,
        "says": f"{words} ({why})",
    }


def _tradeoff_spec(points: Values, edge: float | None, across: tuple[str, str]) -> Spec:
    by, scale = across
    xs, ys = [p["x"] for p in points], [p["y"] for p in points]
    share = max(ys) <= 1 and min(ys) >= 0
    pad = max((max(ys) - min(ys)) * 0.25, 0.01 if share else abs(max(ys)) * 0.02) or 1.0
    heights = [min(ys) - pad, min(max(ys) + pad, 1.0) if share else max(ys) + pad]
    domain = (
        [min(xs) / 1.25, max(xs) * 1.12]
        if scale == "log"
        else [min(xs) - 0.25 * (max(xs) - min(xs) or 1), max(xs) * 1.1]
    )
    _dodge(points, scale, heights)
    title = f"latency, {unit_of(by)}" if by == "latency" else QUANTITIES[by].label.lower()
    short = {} if by == "latency" else {"format": "~s"}
    wide = axis(title, values=ticks(domain[0], edge or domain[1], scale), grid=True, **short)
    x = quantity("x", wide, type=scale, domain=domain)
    y = quantity("y", axis("accuracy", grid=True, format=".3~%" if share else "~g"), domain=heights)
    size = {
        "field": "bytes",
        "type": "quantitative",
        "legend": None,
        "scale": {"type": "linear", "zero": True, "range": [40, 900]},
    }
    dashed = {} if by == "latency" else {"strokeDash": [4, 2]}
    circles = described(
        points, {"type": "point", "strokeWidth": 2, **dashed}, "variant", x=x, y=y, size=size, **paint()
    )
    label = {"type": "text", "fontSize": 11, "fontWeight": "bold", "color": "var(--ink)"}
    number = {"field": "number", "type": "nominal"}
    numbers = [layer([p], {**label, "dy": p["down"] - 1}, x=x, y=y, text=number) for p in points]
    line = {"type": "rule", "color": "var(--muted)"}
    led = [layer(moved, line, x=x, y=y, y2={"field": "foot"})] if (moved := [p for p in points if p["down"]]) else []
    return unit(TALL, [circles, *led, *numbers, *_lane(edge, x, NOT_RANKED[by])])


def _lane(edge: float | None, x: Mapping[str, Json], text: str) -> list[Spec]:
    if edge is None:
        return []
    rule = {"type": "rule", "strokeDash": [3, 3], "color": "var(--line)"}
    words = {
        "type": "text",
        "align": "left",
        "dx": 4,
        "dy": 8,
        "y": 0,
        "fontSize": 10,
        "color": "var(--muted)",
        "text": text,
    }
    at = [{"x": edge}]
    return [layer(at, rule, x=x), layer(at, words, x=x)]


# ------------------------------------------------------------------ operators


def operators(report: Report) -> Figure:
    """The slowest operators of each profiled variant."""
    shown = [(v.name, v.ops.ops) for v in report.variants if v.ops and v.ops.ops]
    if not shown:
        why = [f"{v.name}: {v.ops.why}" for v in report.variants if v.ops and v.ops.why]
        return Figure(
            "operators", "Time per operator", f"No per-operator times: {'; '.join(why) or 'no pass was run'}."
        )
    panels = tuple(_operators(name, ops, colour(report, name)) for name, ops in shown)
    caption = f"The {TOP} slowest operators of a run of its own (profiling slows it, so the sum is not the latency)."
    return Figure("operators", "Time per operator", caption, panels)


def slowest(ops: Sequence[Operator]) -> list[Operator]:
    """The operators that the panel shows."""
    return sorted(ops, key=lambda op: -op.ms)[:TOP]


def _operators(name: str, ops: Sequence[Operator], fill: str) -> Panel:
    values = [
        {"label": f"{i}. {op.name or op.type}", "ms": op.ms, "fill": fill, "opacity": 0.85}
        | {"says": f"{op.name} ({op.type}, {op.where}): {plain(op.ms, 'ms')}"}
        for i, op in enumerate(slowest(ops), 1)
    ]
    y = labels()
    x = quantity("ms", axis("ms", grid=True), zero=True)
    bars = described(values, {"type": "bar", "height": 12}, "operator", x=x, y=y, **paint())
    total = sum(op.ms for op in ops)
    return Panel(
        f"{plural(len(ops), 'operator')}, {significant(total, 3)} ms in all",
        unit(42 + 20 * len(values), [bars]),
        name,
    )


def drawn(figure: Figure) -> list[str]:
    """The panels of a figure as <svg> elements."""
    return [vega.svg(panel.spec, f"{figure.name}-{i}") for i, panel in enumerate(figure.panels)]
