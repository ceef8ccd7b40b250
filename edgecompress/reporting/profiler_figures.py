"""The figures of the profilers: the long run, the memory, the fixed rate, the batches and the cold starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    also,
    axis,
    colour,
    dash,
    labels,
    paint,
    quantity,
    ticks,
)
from edgecompress.reporting.formatting import plain, plural, scaled, significant
from edgecompress.reporting.model import Report, Table
from edgecompress.reporting.profilers import answers
from edgecompress.reporting.vega import Spec, described, layer, unit

BUCKETS = 180  # of responses in a picture
BESIDE = (("cpu_mhz", "MHz", "clock"), ("temperature_c", "°C", "temperature"), ("power_w", "W", "power"))
_SUSTAINED = (
    "Items per second, window by window. Shaded left: the first windows (burst); shaded right: the last quarter "
    "(sustained); the lines are their rates. A curve that falls throttles: then no one rate stands for the whole."
)
_MEMORY = "Resident memory, sampled, over what the process held before the model came (dashed). Shaded by phase."
_PERIODIC = (
    "Each inference from the moment it was due, in order: the line is the median of neighbours, the band reaches from "
    "the fastest to the slowest. Above the dashed line it ends after the next is due."
)
_THROUGHPUT = (
    "Items per second by batch, both axes logarithmic. The large dot is the knee: beyond it a batch gains little."
)
_COLD = "Import, load, first inference, left to right and pale to dark: medians of the starts."


def every(report: Report) -> list[Figure]:
    """All of them; one without panels was not asked for."""
    return [sustained(report), timeline(report), periodic(report), throughput(report), cold(report)]


def _figure(name: str, title: str, caption: str, panels: Sequence[Panel]) -> Figure:
    return Figure(name, title, caption if panels else "", tuple(panels))


# ------------------------------------------------------------------ minutes on end


def sustained(report: Report) -> Figure:
    """The rate of each variant over minutes, and below it what the device told of itself meanwhile."""
    answered = [(v, a) for v, a in answers(report, "sustained").items() if a["series"]]
    panels = [panel for v, a in answered for panel in _sustained(v, a, colour(report, v))]
    return _figure("sustained", "Over minutes: does the rate hold", _SUSTAINED, panels)


def _sustained(name: str, answer: Table, stroke: str) -> Iterator[Panel]:
    flagged = answer["throttling"]["flagged"]
    ratio = f", {significant(answer['ratio'], 3)} of it at last" if answer["ratio"] else ""
    first = plain((answer["burst"] or answer["series"][0])["items_per_s"], "/s")
    yield Panel(f"{'throttled: ' if flagged else ''}{first}{ratio}", _rate(name, answer, stroke), name)
    for key, shown, word in BESIDE:
        rows = [row for row in answer["series"] if row[key] is not None]
        if key == "power_w" and answer["power"]["status"] != "measured":
            word = f"power, {answer['power']['status']}"
        if len(rows) > 1:
            yield Panel(f"{word}, {shown}", _beside(name, rows, (key, shown, word), stroke), name)


def _rate(name: str, answer: Table, stroke: str) -> Spec:
    series = answer["series"]
    end = series[-1]["t_s"] + series[-1]["seconds"]
    says = f"{name}: {plural(len(series), 'window')}, from {plain(series[0]['items_per_s'], '/s')}"
    says += f" to {plain(series[-1]['items_per_s'], '/s')}"
    values = [{"a": r["t_s"] + r["seconds"] / 2, "w": r["items_per_s"], "says": says} for r in series]
    top = 1.1 * max(v["w"] for v in values) or 1.0
    x, y = _time(end), quantity("w", axis("items/s", grid=True, tickCount=3), domain=[0, top])
    line = described(values, {"type": "line", "stroke": stroke, "strokeWidth": 2}, "sustained curve", x=x, y=y)
    parts = _parts(answer, end)
    shades = described(parts, {"type": "rect", "strokeWidth": 0}, "stretch", x=x, x2={"field": "b"}, **paint())
    rates = layer(parts, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2}, x=x, x2={"field": "b"}, y=y)
    return unit(120, [shades, line, rates] if parts else [line])


def _time(end: float) -> dict[str, Json]:
    return quantity("a", axis("s"), domain=[0, end])


def _parts(answer: Table, end: float) -> Values:
    """Burst and sustained as stretches of time, each with its rate."""
    series, parts = answer["series"], []
    for key, fill in (("burst", "var(--c0)"), ("sustained", "var(--worse)" if _throttled(answer) else "var(--c0)")):
        if not answer[key]:
            continue
        n = max(1, min(int(answer[key]["windows"]), len(series)))
        rows = series[:n] if key == "burst" else series[-n:]
        ends = {"a": rows[0]["t_s"], "b": min(rows[-1]["t_s"] + rows[-1]["seconds"], end)}
        rate = answer[key]["items_per_s"]
        parts.append({**ends, "w": rate, "fill": fill, "opacity": 0.16, "says": f"{key}: {plain(rate, '/s')}"})
    return parts


def _throttled(answer: Table) -> bool:
    return bool(answer["throttling"]["flagged"])


def _beside(name: str, rows: Sequence[Table], what: tuple[str, str, str], stroke: str) -> Spec:
    key, shown, word = what
    end = rows[-1]["t_s"] + rows[-1]["seconds"]
    ends = [plain(rows[i][key], shown) for i in (0, -1)]
    says = f"{name}, {word}: from {ends[0]} to {ends[1]}"
    values = [{"a": r["t_s"] + r["seconds"] / 2, "w": r[key], "says": says} for r in rows]
    y = quantity("w", axis(shown, grid=True, tickCount=2), nice=True)
    return unit(
        84, [described(values, {"type": "line", "stroke": stroke, "strokeWidth": 1.5}, word, x=_time(end), y=y)]
    )


# ------------------------------------------------------------------ memory


def timeline(report: Report) -> Figure:
    """Resident memory of each variant from before its load to its steady state."""
    answered = [(v, a) for v, a in answers(report, "memory").items() if a["timeline"] and a["phases"]]
    panels = [Panel(_over(a), _timeline(v, a, colour(report, v)), v) for v, a in answered]
    return _figure("timeline", "Memory over time: where it peaks", _MEMORY, panels)


def _over(answer: Table) -> str:
    return f"{plain(answer['peak_over_bytes'], 'bytes')} at most over {plain(answer['baseline_bytes'], 'bytes')}"


def _timeline(name: str, answer: Table, stroke: str) -> Spec:
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


# ------------------------------------------------------------------ a fixed rate


def periodic(report: Report) -> Figure:
    """The responses of each variant in order, beside the period."""
    answered = [(v, a) for v, a in answers(report, "periodic").items() if a["responses_ms"]]
    panels = [Panel(_late(a), _periodic(v, a, colour(report, v)), v) for v, a in answered]
    return _figure("periodic", "At a fixed rate: does it answer before the next is due", _PERIODIC, panels)


def _late(answer: Table) -> str:
    worst = f"p99 {plain(answer['response_ms']['p99'], 'ms')}, " if answer["response_ms"]["p99"] is not None else ""
    kept = "cannot keep up, " if answer["saturated"] else ""
    return f"every {plain(answer['period_ms'], 'ms')}: {kept}{worst}{answer['missed']:,} of {answer['due']:,} late"


def _periodic(name: str, answer: Table, stroke: str) -> Spec:
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


# ------------------------------------------------------------------ batches


def throughput(report: Report) -> Figure:
    """Items per second over the batch, all variants on one axis."""
    answered = {v: a for v, a in answers(report, "throughput").items() if len(a["rows"]) > 1}
    if not answered:
        return Figure("throughput", "Throughput by batch", "")
    batches = sorted({row["batch"] for a in answered.values() for row in a["rows"]})
    rates = [row["items_per_s"] for a in answered.values() for row in a["rows"]]
    wide = axis("batch", values=batches, format="~g")
    x = quantity("a", wide, type="log", base=2, domain=[batches[0] / 1.2, batches[-1] * 1.2])
    low, top = min(rates) / 1.3, max(rates) * 1.3
    high = axis("items per second", values=ticks(low, top, "log"), grid=True, format="~s")
    y = quantity("w", high, type="log", domain=[low, top])
    layers = [part for v, a in answered.items() for part in _batches(v, a, _stroke(report, v), (x, y))]
    key = tuple((v, f"{v}: {_best(a)}") for v, a in answered.items())
    title = "Throughput by batch: where a larger one stops to help"
    return Figure("throughput", title, _THROUGHPUT, (Panel("", unit(220, layers)),), key)


def _stroke(report: Report, name: str) -> dict[str, Json]:
    return {"stroke": colour(report, name), "strokeDash": dash(report, name)}


def _best(answer: Table) -> str:
    return f"knee at batch {answer['knee']['batch']:g}, most {plain(answer['best']['items_per_s'], '/s')}"


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


# ------------------------------------------------------------------ cold starts


def cold(report: Report) -> Figure:
    """Import, load and first inference end to end, of each variant and of each way its files were."""
    bars = [bar for v, a in answers(report, "cold").items() for bar in _starts(v, a, colour(report, v))]
    spec = [Panel("", _cold(bars))] if bars else []
    return _figure("cold", "From a cold start: what the first answer waits for", _COLD, spec)


def _starts(name: str, answer: Table, fill: str) -> Values:
    bars: Values = []
    for cache, word in (("warm", ""), ("dropped", ", from disk")):
        begin = 0.0
        for key, opacity in (("import_ms", 0.15), ("load_ms", 0.45), ("first_ms", 0.85)):
            ms = (answer["summary"][cache] or {}).get(key, {}).get("median")
            if ms is None:
                continue
            says = f"{name}{word}, {key.removesuffix('_ms')}: {plain(ms, 'ms')}"
            ends = {"label": f"{name}{word}", "a": begin, "b": begin + ms}
            bars.append({**ends, "fill": fill, "opacity": opacity, "says": says})
            begin += ms
    return bars


def _cold(bars: Values) -> Spec:
    y, x = labels(), quantity("a", axis("ms", grid=True), zero=True)
    spans = described(
        bars, {"type": "bar", "height": 18, "strokeWidth": 0.8}, "start", x=x, x2={"field": "b"}, y=y, **paint()
    )
    return unit(46 + 28 * len({b["label"] for b in bars}), [spans])
