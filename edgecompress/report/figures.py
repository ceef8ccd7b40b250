"""The figures: each a set of small panels, drawn from report.json alone, or the reason why it cannot be drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.report import deltas, vega
from edgecompress.report.numbers import guessed, interval, known, plural, provenance, scaled, significant, text
from edgecompress.report.vega import Spec, layer, told, unit

Report = Mapping[str, Any]
Values = list[dict[str, Any]]
COLOURS = 6  # --c1 .. --c6 in the page's style
DASHES = ([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])
TOP = 10  # operators in a panel
BUCKETS = 300  # of a strip, over all sessions of a variant


@dataclass(frozen=True)
class Panel:
    """One picture. `variant` is the one it shows, if it shows one."""

    heading: str
    spec: Spec
    variant: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels with a caption that says what is seen; without panels, `caption` says why there are none."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...] = ()
    key: tuple[tuple[str, str], ...] = ()  # of the legend: variant, words


def every(report: Report) -> list[Figure]:
    """All figures, in the order of the page."""
    makers: tuple[Callable[[Report], Figure], ...] = (changes, tradeoff, histogram, ecdf, strip, operators, energy)
    return [make(report) for make in makers]


def colour(report: Report, name: str) -> str:
    """The subject is blue, the one to beat grey, the others the rest of the palette in the target's order."""
    if name == report["subject"]:
        return "var(--c1)"
    if name == report["baseline"]:
        return "var(--c0)"
    return f"var(--c{2 + _place(report, name) % (COLOURS - 1)})"


def dash(report: Report, name: str) -> list[int]:
    """A line is told apart without its colour too."""
    return DASHES[0] if name == report["subject"] else DASHES[1 + _place(report, name) % (len(DASHES) - 1)]


def _place(report: Report, name: str) -> int:
    rest = [v["name"] for v in report["variants"] if v["name"] not in (report["subject"], report["baseline"])]
    return rest.index(name) if name in rest else 0


def _axis(title: str, **rest: Any) -> dict[str, Any]:
    return {"title": title, "grid": False, "tickCount": 5, **rest}


def _q(field: str, axis: Mapping[str, Any] | None, **scale: Any) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "axis": axis, "scale": {"zero": False, "nice": False, **scale}}


def _shaped(report: Report) -> list[Mapping[str, Any]]:
    return [v for v in report["variants"] if v["distribution"]]


# ------------------------------------------------------------------ before and after


def changes(report: Report) -> Figure:
    """How many times better or worse each quantity became, on a log axis about 1."""
    rows = [r for r in report["deltas"] if r["change"]]
    if not rows:
        return Figure("changes", "Change", "Nothing to compare with: no change to draw.")
    values = [_change(r) for r in rows]
    caption = f"{report['subject']} against {report['baseline']}: bars to the right are better. "
    caption += "Thin lines are intervals; hollow bars are estimates; grey bars are changes that cannot be called."
    return Figure("changes", "Change", caption, (Panel("", _changes_spec(values)),))


def _change(row: Mapping[str, Any]) -> dict[str, Any]:
    change = row["change"]
    called = change["called"] in ("better", "worse")
    fill = f"var(--{change['called']})" if called else "var(--c0)"
    hollow = bool(change.get("guessed"))
    return {
        "label": row["label"],
        "one": 1,
        **{key: change[key] for key in ("factor", "low", "high")},
        "fill": fill,
        "opacity": 0.12 if hollow else 0.9,
        "says": f"{row['label']}: {row['says']}",
    }


def _changes_spec(values: Values) -> Spec:
    ends = [v[k] for v in values for k in ("factor", "low", "high") if v[k]]
    reach = max(1.5, *(max(e, 1 / e) for e in ends)) * 1.05
    low = 1 / reach if min(ends) < 0.98 else 0.9
    ticks = [t for t in (0.1, 0.2, 0.5, 1, 2, 3, 5, 10, 20, 50, 100) if low <= t <= reach]
    x = _q("one", _axis("times better", values=ticks, grid=True, format="~g"), type="log", domain=[low, reach])
    y = {"field": "label", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 150, "ticks": False}}
    bars = told(values, {"type": "bar", "height": 13}, "change", x=x, x2={"field": "factor"}, y=y, **_paint())
    spans = [v for v in values if v["low"] and v["high"]]
    rule = layer(spans, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}, x=_q("low", None), x2={"field": "high"}, y=y)
    one = layer([{"one": 1}], {"type": "rule", "color": "var(--ink)"}, x=_q("one", None))
    return unit(46 + 24 * len(values), [bars, rule, one])


def _paint() -> dict[str, Any]:
    """Fill, and an outline of the same colour so that a hollow mark is seen."""
    plain = {"type": "nominal", "scale": None, "legend": None}
    return {
        "fill": {"field": "fill", **plain},
        "stroke": {"field": "fill", **plain},
        "fillOpacity": {"field": "opacity", "type": "quantitative", "scale": None, "legend": None},
    }


# ------------------------------------------------------------------ accuracy, latency, size


def tradeoff(report: Report) -> Figure:
    """Latency across, accuracy up, size as area; what was never raced stands in a lane of its own at the right."""
    shown = [v for v in report["variants"] if known(v["numbers"]["accuracy"])]
    if not shown:
        return Figure("tradeoff", "Accuracy, latency, size", "No variant has an accuracy: nothing to draw.")
    points, edge, scale = _points(report, shown)
    key = tuple((p["name"], f"{p['number']} {p['says']}") for p in points)
    caption = "Left is faster, up is more accurate" if _higher(shown) else "Left is faster, down is more accurate"
    caption += "; the area is the artifact's size. Filled: shipped. Pale: it lost the race or is the one to beat. "
    caption += "Hollow: it failed a check; without a latency it was never raced and stands right of the line."
    return Figure("tradeoff", "Accuracy, latency, size", caption, (Panel("", _tradeoff_spec(points, edge, scale)),), key)


def _higher(shown: Sequence[Mapping[str, Any]]) -> bool:
    return shown[0]["numbers"]["accuracy"]["metric"] not in deltas.LOWER_IS_BETTER


def _points(report: Report, shown: Sequence[Mapping[str, Any]]) -> tuple[Values, float | None, str]:
    """The points, where the lane of those without a latency begins (None: nowhere), and the x scale."""
    times = [v["numbers"]["latency"]["value"] for v in shown if known(v["numbers"]["latency"])] or [1.0]
    scale = "log" if max(times) > 4 * min(times) else "linear"
    ratio = max(max(times) / min(times), 1.5)
    edge, lane = max(times) * ratio**0.12, max(times) * ratio**0.25
    if scale == "linear":
        edge, lane = (max(times) + share * (max(times) - min(times) or max(times)) for share in (0.12, 0.25))
    points = [_point(report, v, lane) for v in shown]
    for number, point in enumerate(points, 1):
        point["number"] = str(number)
    return points, edge if any(not known(v["numbers"]["latency"]) for v in shown) else None, scale


def _point(report: Report, variant: Mapping[str, Any], lane: float) -> dict[str, Any]:
    n = variant["numbers"]
    raced = known(n["latency"])
    opacity = {"shipped": 0.95, "measured": 0.95, "lost": 0.0, "failed": 0.0}.get(variant["verdict"], 0.3)
    words = f"{variant['name']}: {text(n['latency']) if raced else 'not raced'}, {text(n['accuracy'])}, {text(n['size'])}"
    why = ": ".join(filter(None, (variant["verdict"], variant["reason"])))
    return {
        "name": variant["name"],
        "x": n["latency"]["value"] if raced else lane,
        "y": n["accuracy"]["value"],
        "bytes": n["size"]["value"] or 0,
        "fill": colour(report, variant["name"]),
        "opacity": opacity,
        "says": f"{words} ({why})",
    }


def _tradeoff_spec(points: Values, edge: float | None, scale: str) -> Spec:
    xs, ys = [p["x"] for p in points], [p["y"] for p in points]
    pad = (max(ys) - min(ys)) * 0.25 or abs(max(ys)) * 0.05 or 1.0
    domain = [min(xs) / 1.25, max(xs) * 1.12] if scale == "log" else [min(xs) - 0.25 * (max(xs) - min(xs) or 1), max(xs) * 1.1]
    ticks = [t for t in _ticks(domain[0], edge or domain[1], scale)]
    percent = ".3~%" if points and max(ys) <= 1 and min(ys) >= 0 else "~g"
    x = _q("x", _axis("latency, ms", values=ticks, grid=True, format="~g"), type=scale, domain=domain)
    y = _q("y", _axis("accuracy", grid=True, format=percent), domain=[min(ys) - pad, max(ys) + pad])
    size = {"field": "bytes", "type": "quantitative", "legend": None, "scale": {"type": "linear", "zero": True, "range": [40, 900]}}
    circles = told(points, {"type": "point", "strokeWidth": 2}, "variant", x=x, y=y, size=size, **_paint())
    label = {"type": "text", "fontSize": 11, "fontWeight": "bold", "color": "var(--ink)", "dy": -1}
    layers = [circles, layer(points, label, x=_q("x", None), y=_q("y", None), text={"field": "number", "type": "nominal"})]
    return unit(250, [*layers, *_lane(edge, domain)])


def _lane(edge: float | None, domain: Sequence[float]) -> list[Spec]:
    if edge is None:
        return []
    rule = {"type": "rule", "strokeDash": [3, 3], "color": "var(--line)"}
    words = {"type": "text", "align": "left", "dx": 4, "dy": 8, "y": 0, "fontSize": 10, "color": "var(--muted)", "text": "not raced"}
    at = [{"x": edge}]
    return [layer(at, rule, x=_q("x", None)), layer(at, words, x=_q("x", None))]


def _ticks(low: float, high: float, scale: str) -> list[float]:
    """1, 2, 5 steps between two ends."""
    if scale == "log":
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
    raw = (high - low) / 4
    step = next(m * 10 ** math.floor(math.log10(raw)) for m in (1, 2, 5, 10) if m * 10 ** math.floor(math.log10(raw)) >= raw)
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


# ------------------------------------------------------------------ the latencies


def histogram(report: Report) -> Figure:
    """One panel per variant: all runs of all sessions."""
    shown = _shaped(report)
    if not shown:
        return Figure("histogram", "Latency, histogram", "No raw latencies were kept: nothing to draw.")
    panels = tuple(Panel(_histogram_heading(v), _histogram_spec(v, colour(report, v["name"])), v["name"]) for v in shown)
    caption = f"All runs of all sessions, each variant on an axis of its own. {_BEYOND} The line is the median of session medians."
    return Figure("histogram", "Latency, histogram", caption, panels)


_BEYOND = "The hollow bar at the right counts the runs above the 99th percentile: none is dropped."


def _histogram_heading(variant: Mapping[str, Any]) -> str:
    shape = variant["distribution"]
    return f"{text(variant['numbers']['latency'])} · {plural(shape['runs'], 'run')}"


def _bins(variant: Mapping[str, Any], fill: str) -> Values:
    """The bins that hold runs, and the one for all that lies beyond."""
    h = variant["distribution"]["histogram"]
    edges, width = h["edges_ms"], h["edges_ms"][1] - h["edges_ms"][0]
    spans = [(a, b, n, 0.85) for a, b, n in zip(edges, edges[1:], h["counts"], strict=False)]
    spans.append((edges[-1] + width, edges[-1] + 2 * width, h["over"], 0.0))
    return [{"a": a, "b": b, "n": n, "fill": fill, "opacity": o, "says": _bin(a, b, n, o)} for a, b, n, o in spans if n]


def _bin(low: float, high: float, count: int, opacity: float) -> str:
    span = f"{low:.4g} to {high:.4g} ms" if opacity else f"above {low:.4g} ms"
    return f"{span}: {plural(count, 'run')}"


def _histogram_spec(variant: Mapping[str, Any], fill: str) -> Spec:
    values = _bins(variant, fill)
    x = _q("a", _axis("ms"))
    y = _q("n", _axis("runs", tickCount=3), zero=True)
    bars = told(values, {"type": "bar", "binSpacing": 1}, "histogram bin", x={**x, "bin": {"binned": True}}, x2={"field": "b"}, y=y, **_paint())
    rule = layer([{"a": variant["numbers"]["latency"]["value"]}], {"type": "rule", "color": "var(--ink)"}, x=_q("a", None))
    return unit(104, [bars, rule])


def ecdf(report: Report) -> Figure:
    """All variants on one axis: the share of runs that are done within a time."""
    shown = _shaped(report)
    if not shown:
        return Figure("ecdf", "Latency, cumulative", "No raw latencies were kept: nothing to draw.")
    ends = [v["distribution"]["quantiles_ms"] for v in shown]
    low, high = min(q[0] for q in ends), max(q[99] for q in ends)
    scale = "log" if high > 4 * low else "linear"
    x = _q("x", _axis("ms, log scale" if scale == "log" else "ms", values=_ticks(low, high, scale), grid=True, format="~g"), type=scale, domain=[low, high])
    y = _q("y", _axis("share of runs", grid=True, format="%"), domain=[0, 1])
    layers = [told(_steps(v), _line(report, v["name"]), "cumulative curve", x=x, y=y) for v in shown]
    caption = "The share of runs done within a time, from the slowest-is-last 0 to the 99th percentile of the slowest variant. Steep is steady."
    key = tuple((v["name"], f"{v['name']}: {text(v['numbers']['latency'])}") for v in shown)
    return Figure("ecdf", "Latency, cumulative", caption.replace("slowest-is-last 0", "fastest run"), (Panel("", unit(220, layers)),), key)


def _line(report: Report, name: str) -> dict[str, Any]:
    return {"type": "line", "clip": True, "stroke": colour(report, name), "strokeDash": dash(report, name), "strokeWidth": 2, "interpolate": "step-after"}


def _steps(variant: Mapping[str, Any]) -> Values:
    quantiles = variant["distribution"]["quantiles_ms"]
    said = f"{variant['name']}: half of the runs within {quantiles[50]:.4g} ms, 90 % within {quantiles[90]:.4g} ms"
    return [{"x": q, "y": i / 100, "says": said} for i, q in enumerate(quantiles)]


def strip(report: Report) -> Figure:
    """Latency against run order, session after session: drift, throttling and spikes are seen here."""
    shown = [v for v in report["variants"] if any(s["latencies_ms"] for s in v["sessions"])]
    if not shown:
        return Figure("strip", "Latency in run order", "No raw latencies were kept: nothing to draw.")
    panels = tuple(_strip(v, colour(report, v["name"])) for v in shown)
    caption = "Left to right as they ran, one stretch per session (a fresh process each); each stretch is the band from the fastest to the slowest of neighbouring runs. "
    caption += "▲ stands for runs above the frame. Flat is steady, a slope is drift or throttling."
    return Figure("strip", "Latency in run order", caption, panels)


def _strip(variant: Mapping[str, Any], stroke: str) -> Panel:
    kept = [s for s in variant["sessions"] if s["latencies_ms"]]
    pooled = sorted(v for s in kept for v in s["latencies_ms"])
    top = max(pooled[int(len(pooled) * 0.99)] * 1.05, pooled[len(pooled) // 2] * 1.02)
    lines = [_band(s, i, max(20, BUCKETS // len(kept)), variant["name"]) for i, s in enumerate(kept)]
    beyond = [{"x": p["x"], "y": top} for line in lines for p in line if p["y"] > top]
    x = _q("x", _axis("session", values=[i + 0.5 for i in range(len(kept))], labelExpr="floor(datum.value) + 1"), domain=[0, len(kept)])
    y = _q("y", _axis("ms", tickCount=3, grid=True), domain=[pooled[0], top])
    mark = {"type": "line", "clip": True, "stroke": stroke, "strokeWidth": 1, "strokeJoin": "round"}
    layers = [told(line, mark, "session", x=x, y=y) for line in lines]
    spikes = layer(beyond, {"type": "point", "shape": "triangle-up", "size": 18, "filled": True, "color": stroke, "yOffset": 4}, x=_q("x", None), y=_q("y", None))
    return Panel(f"{plural(len(kept), 'session')} · slowest {max(s['max_ms'] for s in kept):.4g} ms", unit(110, [*layers, spikes]), variant["name"])


def _band(session: Mapping[str, Any], place: int, buckets: int, name: str) -> Values:
    """Each bucket of neighbouring runs as its smallest and its largest, in the order they came: no spike is lost."""
    times = session["latencies_ms"]
    width = max(1, -(-len(times) // buckets))
    said = f"{name}, session {place + 1}: median {session['median_ms']:.4g} ms of {plural(session['n'], 'run')}"
    points = []
    for begin in range(0, len(times), width):
        bucket = times[begin : begin + width]
        ends = sorted({bucket.index(min(bucket)), bucket.index(max(bucket))})
        points += [{"x": place + 0.02 + 0.96 * (begin + i) / len(times), "y": bucket[i], "says": said} for i in ends]
    return points


# ------------------------------------------------------------------ operators and energy


def operators(report: Report) -> Figure:
    """The slowest operators of each profiled variant."""
    shown = [v for v in report["variants"] if v["ops"] and v["ops"].get("ops")]
    if not shown:
        why = [f"{v['name']}: {v['ops']['why']}" for v in report["variants"] if v["ops"] and v["ops"].get("why")]
        return Figure("operators", "Time per operator", f"No per-operator times: {'; '.join(why) or 'no pass was run'}.")
    panels = tuple(_operators(v, colour(report, v["name"])) for v in shown)
    caption = f"The {TOP} slowest operators of a run of its own (profiling slows it, so the sum is not the latency)."
    return Figure("operators", "Time per operator", caption, panels)


def slowest(variant: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The operators that the panel shows."""
    return sorted(variant["ops"]["ops"], key=lambda op: -op["ms"])[:TOP]


def _operators(variant: Mapping[str, Any], fill: str) -> Panel:
    values = [
        {"label": f"{i}. {op['name'] or op['type']}", "zero": 0, "ms": op["ms"], "fill": fill, "opacity": 0.85}
        | {"says": f"{op['name']} ({op['type']}, {op['where']}): {text({'value': op['ms'], 'unit': 'ms', 'status': 'measured'})}"}
        for i, op in enumerate(slowest(variant), 1)
    ]
    y = {"field": "label", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 150, "ticks": False}}
    x = _q("ms", _axis("ms", grid=True), zero=True)
    bars = told(values, {"type": "bar", "height": 12}, "operator", x=x, y=y, **_paint())
    total = sum(op["ms"] for op in variant["ops"]["ops"])
    return Panel(f"{plural(len(variant['ops']['ops']), 'operator')}, {significant(total, 3)} ms in all", unit(42 + 20 * len(values), [bars]), variant["name"])


def energy(report: Report) -> Figure:
    """Energy per inference of the finalists, hollow where a model says so, each with its band."""
    shown = [v for v in report["variants"] if known(v["numbers"]["energy_gross"])]
    if not shown:
        reasons = {v["numbers"]["energy_gross"]["reason"] for v in report["variants"]} or {"no variant"}
        return Figure("energy", "Energy per inference", f"No energy number: {'; '.join(sorted(reasons))}.")
    largest = max(v["numbers"]["energy_gross"]["value"] for v in shown)
    factor, shown_unit = scaled(largest, shown[0]["numbers"]["energy_gross"]["unit"])
    values = [_joules(v, factor, colour(report, v["name"])) for v in shown]
    behind = sorted({provenance(v["numbers"]["energy_gross"]) for v in shown})
    caption = f"Gross, per inference: {'; '.join(behind)}. Hollow bars are estimates, the line is their band; an estimate is never compared with a measurement."
    key = tuple((v["name"], f"{v['name']}: {text(v['numbers']['energy_gross'], spread=True)}") for v in shown)
    return Figure("energy", "Energy per inference", caption, (Panel("", _energy_spec(values, shown_unit)),), key)


def _joules(variant: Mapping[str, Any], factor: float, fill: str) -> dict[str, Any]:
    n = variant["numbers"]["energy_gross"]
    ends = {end: n[end] / factor if n[end] is not None else None for end in ("low", "high")}
    said = f"{variant['name']}: {text(n)} {interval(n)} ({provenance(n)})"
    return {"label": variant["name"], "e": n["value"] / factor, "fill": fill, "opacity": 0.08 if guessed(n) else 0.85, **ends, "says": said}


def _energy_spec(values: Values, shown: str) -> Spec:
    y = {"field": "label", "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 150, "ticks": False}}
    x = _q("e", _axis(shown, grid=True), zero=True)
    dashed = {"type": "bar", "height": 20, "strokeDash": [4, 2], "strokeWidth": 1.5}
    plain = {"type": "bar", "height": 20}
    hollow = [v for v in values if v["opacity"] < 0.5]
    layers = [told([v], dashed if v in hollow else plain, "energy", x=x, y=y, **_paint()) for v in values]
    spans = [v for v in values if v["low"] is not None and v["high"] is not None]
    rule = layer(spans, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}, x=_q("low", None), x2={"field": "high"}, y=y)
    return unit(46 + 34 * len(values), [*layers, rule])


def drawn(figure: Figure) -> list[str]:
    """The panels of a figure as <svg> elements."""
    return [vega.svg(panel.spec, f"{figure.name}-{i}") for i, panel in enumerate(figure.panels)]
