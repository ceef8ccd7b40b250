"""The pictures of a diagnosis: noise, its effect, ranges, channels and values, drawn from diagnosis.json alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import Figure, Panel, Values, also, axis, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, plural
from edgecompress.reporting.vega import CONFIG, Spec, described, layer, unit
from edgecompress.stages.diagnose import advice

Facts = Mapping[str, Any]
TOP = 15  # layers in the picture of effects
AXIS, ROWS, DENSE = 46, (18, 13, 7), (40, 90)  # pixels of the axis, and of a layer: less where they are many
NAME = 22  # characters of a layer's name
DECADES = 8  # of an axis in powers of ten
FARTHEST = 3.0  # times the source's largest magnitude: what a range's axis shows
INTEGERS = ("int8", "uint8")
PADDING = {"left": 14, "right": 8, "top": 4, "bottom": 2}  # Vega takes → for narrower than it is
MARGIN = {"config": {**CONFIG, "padding": PADDING}}
STEPS = 255
GAP = "\N{NO-BREAK SPACE}"
SOURCE, ARTIFACT, CULPRIT = "var(--c0)", "var(--c1)", "var(--c4)"

_SQNR = (
    "From top to bottom as they are computed. Bar: a layer's own error, given the inputs that the artifact gave it; "
    "the shorter, the worse. Tick: all noise so far, own and inherited. Hollow: exact. "
    "Orange and →: what the advice is about."
)
_EFFECTS = (
    "What the own error of one layer does to the net's output, all others exact: noise over signal there, on a log "
    f"axis, the largest first. From the line on the output is less than {advice.FINE_DB:.0f} dB from the source's."
)
_RANGES = (
    "First: all values of a layer, as a share of the source's largest magnitude: grey what the source computes, the "
    "thin bar what the artifact does. One that ends before the grey cuts values off, one beyond it wastes steps. "
    "Then: the largest channel's maximum over that of the median one; beyond the line one scale is too coarse for most."
)
_CHANNELS = (
    "The largest magnitude in each channel of the source, the largest first, on a log axis (of more than 512 channels "
    "so many, evenly spaced); above: which channel is how many times the median one. Dashed: one step of eight bits "
    "over the artifact's range: a channel near it has a few steps to itself, one below half of it none."
)
_VALUES = "The source's values at a few places, counted on a log axis. Above and dashed: the artifact's extremes."


def every(facts: Facts) -> list[Figure]:
    """All pictures that the facts hold something for."""
    return [make(facts) for make in (sqnr, effects, ranges, channels, values)]


def measured(facts: Facts) -> list[Facts]:
    """The layers that the artifact has an output of."""
    return [row for row in facts["layers"] if row["output"]]


def drawn_height(count: int) -> int:
    """Of a picture with a line for each of `count` layers; where they are many not every name has room."""
    size = next((size for size, most in zip(ROWS, DENSE, strict=False) if count <= most), ROWS[-1])
    return AXIS + size * count


def decibels(value: float | None, missing: str = DASH) -> str:
    """`23.9 dB`."""
    return missing if value is None else f"{value:.1f} dB".replace("-", "−")


def near(row: Facts, key: str) -> str:
    """A layer's SQNR in words; "exact" of one without any noise."""
    return decibels(row[key], "exact" if is_exact(row, key) else DASH)


def is_exact(row: Facts, key: str) -> bool:
    """Whether there is no SQNR because there is no noise: "own_sqnr_db", or "sqnr_db"."""
    reasons = str(row["reason"]).split("; ")
    return row[key] is None and ("own error: identical" in str(row["reason"]) if key[0] == "o" else reasons[0] == EXACT)


EXACT = "identical"


def span(ends: Sequence[float] | None) -> str:
    """`0 .. 3.83`."""
    return DASH if ends is None else f"{ends[0]:.3g}{GAP}..{GAP}{ends[1]:.3g}".replace("-", "−")


# --------------------------------------------------------------------------- lines of layers


def _lines(facts: Facts, rows: Sequence[Facts]) -> Values:
    """What every mark of a layer has: its name, its number in the order of computing and its colour."""
    place, lines = {id(row): i for i, row in enumerate(facts["layers"], 1)}, []
    for row in rows:
        guilty = row["name"] in facts["culprits"]
        label = f"{'→ ' if guilty else ''}{place[id(row)]} {advice.short(str(row['name']), NAME)}"
        lines.append({"label": label, "fill": CULPRIT if guilty else ARTIFACT, "opacity": 0.85})
    return lines


def _names() -> Spec:
    drawn = labels()
    return {**drawn, "axis": {**drawn["axis"], "grid": False}}


def _bars(count: int) -> dict[str, str | int]:
    return {"type": "bar", "height": max(3, round(0.6 * (drawn_height(count) - AXIS) / max(count, 1)))}


# --------------------------------------------------------------------------- noise


def sqnr(facts: Facts) -> Figure:
    """Own noise as bars, all noise so far as ticks."""
    rows = measured(facts)
    known = [row[key] for row in rows for key in ("own_sqnr_db", "sqnr_db") if row[key] is not None]
    if not known:
        return Figure("sqnr", "Noise, layer by layer", "No layer has any noise: nothing to draw." if rows else "")
    return Figure("sqnr", "Noise, layer by layer", _SQNR, (Panel("", _sqnr_spec(facts, rows, known)),))


def _sqnr_spec(facts: Facts, rows: Sequence[Facts], known: Sequence[float]) -> Spec:
    low, high = min(0.0, *known), max(10.0, *known)
    room = 0.04 * (high - low)
    lines = [{**line, **_noise(row, high)} for row, line in zip(rows, _lines(facts, rows), strict=True)]
    x = quantity("zero", axis("SQNR, dB", grid=True), domain=[low - (room if low else 0.0), high + room])
    y = _names()
    own = [line for line in lines if line["own"] is not None]
    whole = [line for line in lines if line["whole"] is not None]
    bars = described(own, _bars(len(rows)), "own noise", x=x, x2={"field": "own"}, y=y, **paint())
    mark = {"type": "tick", "color": "var(--ink)", "thickness": 2.5, "opacity": 1, "size": 0.75 * _size(len(rows))}
    ticks = described([{**line, "says": line["sums"]} for line in whole], mark, "noise so far", x=also(x, "whole"), y=y)
    return unit(drawn_height(len(rows)), [_placed(lines), bars, ticks], **MARGIN)


def _size(count: int) -> float:
    return (drawn_height(count) - AXIS) / max(count, 1)


def _placed(lines: Values) -> Spec:
    """Gives each layer its place, also the ones without a mark."""
    return layer(lines, {"type": "rule", "opacity": 0}, y=_names())


def _noise(row: Facts, farthest: float) -> dict[str, str | float]:
    """What is exact goes to the end of the axis, and is hollow."""
    exact = is_exact(row, "own_sqnr_db")
    line: dict[str, str | float] = {
        "zero": 0.0,
        "own": farthest if exact else row["own_sqnr_db"],
        "whole": farthest if is_exact(row, "sqnr_db") else row["sqnr_db"],
        "says": f"{row['name']}: own {near(row, 'own_sqnr_db')}",
        "sums": f"{row['name']}: so far {near(row, 'sqnr_db')}",
    }
    return {**line, "opacity": 0.0} if exact else line


def effects(facts: Facts) -> Figure:
    """What each layer alone does to the output, the largest first."""
    title = "What each does to the output"
    rows = sorted((r for r in measured(facts) if r["effect"]), key=lambda r: -r["effect"])[:TOP]
    if not rows:
        return Figure("effects", title, "What a layer does at the output is not known, or nothing.")
    return Figure("effects", title, _EFFECTS, (Panel("", _effects_spec(facts, rows)),))


def _effects_spec(facts: Facts, rows: Sequence[Facts]) -> Spec:
    most = math.ceil(math.log10(rows[0]["effect"]) + 1e-9)
    least = max(math.floor(math.log10(rows[-1]["effect"]) - 1e-9), most - DECADES)
    low = 10.0**least
    lines = [
        {**line, "low": low, "effect": max(row["effect"], low), "says": f"{row['name']}: {row['effect']:.2g}"}
        for row, line in zip(rows, _lines(facts, rows), strict=True)
    ]
    powers = [10.0**power for power in range(least, most + 1, 1 if most - least < 5 else 2)]
    drawn = axis("noise over signal at the output", values=powers, grid=True, format="~e")
    x = quantity("low", drawn, type="log", domain=[low, 10.0**most])
    bars = described(lines, _bars(len(rows)), "effect", x=x, x2={"field": "effect"}, y=_names(), **paint())
    return unit(drawn_height(len(rows)), [bars, *_limit(10 ** (-advice.FINE_DB / 10), x)], **MARGIN)


def _limit(at: float, x: Spec) -> list[Spec]:
    """A line at a limit, where the axis shows it."""
    low, high = x["scale"]["domain"]
    rule = {"type": "rule", "color": "var(--ink)", "strokeDash": [3, 2]}
    return [layer([{"at": at}], rule, x=also(x, "at"))] if low <= at <= high else []


# --------------------------------------------------------------------------- ranges


def ranges(facts: Facts) -> Figure:
    """Source against artifact, and how unlike the channels are."""
    rows = [row for row in measured(facts) if row["range"] and row["found"]]
    if not rows:
        return Figure("ranges", "Ranges", "")
    unlike = [row for row in rows if row["outlier"]]
    panels = [Panel("values, source's largest magnitude = 1", _ranges_spec(facts, rows))]
    panels += [Panel("largest channel over the median one", _unlike_spec(facts, rows))] if unlike else []
    return Figure("ranges", "Ranges", _RANGES, tuple(panels))


def _ranges_spec(facts: Facts, rows: Sequence[Facts]) -> Spec:
    lines = [{**line, **_span(row)} for row, line in zip(rows, _lines(facts, rows), strict=True)]
    low, high = min(0.0, *(line["a"] for line in lines)), max(1.0, *(line["b"] for line in lines))
    low, high = min(low, *(line["c"] for line in lines)), max(high, *(line["d"] for line in lines))
    room = 0.03 * (high - low)
    drawn = axis("of the source's largest magnitude", grid=True)
    x, y = quantity("a", drawn, domain=[low - room, high + room]), _names()
    size = _size(len(rows))
    wide = {"type": "bar", "height": 0.72 * size, "color": SOURCE, "fillOpacity": 0.4}
    thin = {"type": "bar", "height": max(2.0, 0.26 * size)}
    source = described([{**n, "says": n["ours"]} for n in lines], wide, "source range", x=x, x2={"field": "b"}, y=y)
    artifact = described(lines, thin, "artifact range", x=also(x, "c"), x2={"field": "d"}, y=y, **paint())
    return unit(drawn_height(len(rows)), [source, artifact], **MARGIN)


def _span(row: Facts) -> dict[str, Json]:
    """Both ranges as shares, no farther out than the axis shows; the numbers themselves in words."""
    largest = max(map(abs, row["range"])) or 1.0
    a, b = (end / largest for end in row["range"])
    c, d = (max(-FARTHEST, min(FARTHEST, end / largest)) for end in row["found"])
    broken = f", {plural(row['not_finite'], 'item')} not finite" if row["not_finite"] else ""
    cut = f", {row['clipped']:.2%} cut off" if row["clipped"] else ""
    return {
        "a": a,
        "b": b,
        "c": c,
        "d": d,
        "ours": f"{row['name']}: source {span(row['range'])}",
        "says": f"{row['name']}: artifact {span(row['found'])}{cut}{broken}",
    }


def _unlike_spec(facts: Facts, rows: Sequence[Facts]) -> Spec:
    lines: list[dict[str, Any]] = []
    for row, drawn_line in zip(rows, _lines(facts, rows), strict=True):
        unlike: dict[str, Json] = {"outlier": None}
        if times := row["outlier"]:
            says = f"{row['name']}: channel {row['channel']} is {times:.3g} times as large as the median one"
            unlike = {"outlier": max(1.0, times), "which": f"ch. {row['channel']}", "says": says}
        lines.append({**drawn_line, "one": 1.0, **unlike})
    known = [line for line in lines if line["outlier"]]
    most = max(2 * advice.UNLIKE, *(line["outlier"] for line in known))
    powers = [10.0**power for power in range(math.ceil(math.log10(most)) + 1)]
    drawn = axis("times, log scale", values=powers, grid=True, format="~s")
    x = quantity("one", drawn, type="log", domain=[1, 1.6 * most])
    bars = described(known, _bars(len(rows)), "outlier", x=x, x2={"field": "outlier"}, y=_names(), **paint())
    beyond = [line for line in known if line["outlier"] >= advice.UNLIKE and len(rows) <= DENSE[-1]]
    mark = {"type": "text", "align": "left", "dx": 3, "fontSize": 10, "color": "var(--ink)"}
    which = {"field": "which", "type": "nominal"}
    text = layer(beyond, mark, x=also(x, "outlier"), y=_names(), text=which)
    return unit(drawn_height(len(rows)), [_placed(lines), bars, *_limit(advice.UNLIKE, x), text], **MARGIN)


# --------------------------------------------------------------------------- the worst layers


def _closer(facts: Facts, key: str) -> list[tuple[Facts, Facts]]:
    """(its row, what is known of it more closely) of each layer that has `key`."""
    rows = {row["name"]: row for row in measured(facts)}
    return [(rows[f["name"]], f) for f in facts.get("closer", ()) if f["name"] in rows and f[key]]


def channels(facts: Facts) -> Figure:
    """The sorted maxima of the channels beside a step of eight bits."""
    shown = [(row, sorted(filter(None, f["channels"]), reverse=True)) for row, f in _closer(facts, "channels")]
    panels = []
    for row, sizes in shown:
        unlike = "" if row["outlier"] is None else f": channel {row['channel']}, {row['outlier']:.3g}×"
        if sizes:
            panels.append(Panel(f"{advice.short(str(row['name']), NAME)}{unlike}", _channels_spec(row, sizes)))
    return Figure("channels", "Channels of the layers that harm most", _CHANNELS if panels else "", tuple(panels))


def step(row: Facts) -> float | None:
    """One step of eight bits over the artifact's range; None where it holds no integers."""
    extremes = row["found"]
    return (extremes[1] - extremes[0]) / STEPS or None if row["dtype"] in INTEGERS and extremes else None


def _channels_spec(row: Facts, sizes: Sequence[float]) -> Spec:
    coarse = step(row)
    ends = [*sizes, *([coarse] if coarse else [])]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    says = f"{row['name']}: channels from {sizes[-1]:.3g} to {sizes[0]:.3g}"
    says += f", a step is {coarse:.3g}" if coarse else ""
    points = [{"x": i, "y": size, "low": low, "says": says} for i, size in enumerate([*sizes, sizes[-1]])]
    x = quantity("x", axis("channels, the largest first", format="~d"), domain=[0, len(sizes)])
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [times * 10.0**power for power in powers for times in ((1, 2, 5) if len(powers) < 4 else (1,))]
    tall = axis("magnitude, log", values=[at for at in ticks if low <= at <= high], grid=True, format="~g")
    y = quantity("y", tall, type="log", domain=[low, high])
    area = {"type": "area", "interpolate": "step-after", "fill": ARTIFACT, "fillOpacity": 0.2}
    line = {"type": "line", "interpolate": "step-after", "stroke": ARTIFACT, "strokeWidth": 1.8}
    marks = [layer(points, area, x=x, y=y, y2={"field": "low"}), described(points, line, "channels", x=x, y=y)]
    rule = {"type": "rule", "color": CULPRIT, "strokeDash": [4, 3], "strokeWidth": 1.5}
    return unit(130, [*marks, *([layer([{"y": coarse}], rule, y=y)] if coarse else [])])


def values(facts: Facts) -> Figure:
    """How the values are spread, beside the artifact's extremes."""
    shown = [(row, f["histogram"]) for row, f in _closer(facts, "histogram") if f["histogram"]["counts"]]
    panels = tuple(
        Panel(f"{advice.short(str(row['name']), NAME)}: {span(row['found'])}", _values_spec(row, h)) for row, h in shown
    )
    return Figure("values", "Values of the layers that harm most", _VALUES if panels else "", panels)


def _values_spec(row: Facts, histogram: Facts) -> Spec:
    counts, edges = histogram["counts"], histogram["edges"]
    spans = zip(edges, edges[1:], counts, strict=False)
    bars = [
        {"a": a, "b": b, "n": n, "low": 0.5, "fill": ARTIFACT, "opacity": 0.85}
        | {"says": f"{a:.3g} to {b:.3g}: {plural(n, 'value')}".replace("-", "−")}
        for a, b, n in spans
        if n
    ]
    ends = [{"a": end} for end in row["found"]]
    reach = [*edges, *row["found"]]
    room = 0.02 * (max(reach) - min(reach))
    x = quantity("a", axis("value"), domain=[min(reach) - room, max(reach) + room])
    y = quantity("low", axis("values, log", tickCount=3, format="~s"), type="log", domain=[0.5, 2 * max(counts)])
    binned = {**x, "bin": {"binned": True}}
    mark = {"type": "bar", "binSpacing": 0.5}
    shown = described(bars, mark, "values", x=binned, x2={"field": "b"}, y=y, y2={"field": "n"}, **paint())
    rule = {"type": "rule", "color": CULPRIT, "strokeDash": [4, 3], "strokeWidth": 1.5}
    return unit(116, [shown, layer(ends, rule, x=x)])
