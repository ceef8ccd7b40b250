"""The analysis as one HTML file, like the report: no script, no request, light and dark; and as tables of text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress.formats import sparsity
from edgecompress.reporting import html, vega
from edgecompress.reporting.figure_style import axis, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, plain, plural, significant
from edgecompress.reporting.html_tags import Raw, bdi, tag
from edgecompress.reporting.tables import TextTable

FILE = "analysis.html"
NAMED = 3  # tensors of unknown sizes
BARS = 90  # pixels of a histogram
ROW, AXIS = 18, 48  # pixels of a layer, and of the axis below them
Facts = Mapping[str, Any]
NAMES = ("dense", "bitmask", "csr", "zstd", "bitmask+zstd", "codebook", "packed")
FORMS = {form: "CSR" if form == "csr" else form for form in NAMES}
ZEROS = ("Cols (%)", "Rows (%)", "Ch (%)", "2D (%)", "3D (%)", "Fine (%)")
_CAPTION = (
    "One line per layer, the most sensitive at the top; a dot for each level, the stronger the darker, all other "
    "layers untouched. The upright line is the net as it is. A layer whose dots stay at the line can give most."
)

# --------------------------------------------------------------------------- tables


def sentence(analysis: Facts) -> str:
    """The totals in one line."""
    total = analysis["total"]
    macs = f"{total['macs']:,} MACs" if total["macs"] is not None else f"MACs not known ({', '.join(total['unknown'])})"
    sizes = f"{plain(total['activation_bytes'], 'bytes')} of activations, {plain(total['bytes'], 'bytes')} moved"
    counts = f"{total['parameters']:,} parameters, {macs}, {sizes}, {_intensity(total)} FLOP/byte"
    more = f" and {len(unsized) - NAMED} more" if len(unsized := total["unsized"]) > NAMED else ""
    left = f"; without {', '.join(unsized[:NAMED])}{more}, of sizes known only at run time" if unsized else ""
    return f"{counts} (batch {analysis['batch']}){left}"


def _intensity(row: Facts) -> str:
    return DASH if row["flops_per_byte"] is None else significant(row["flops_per_byte"], 3)


def costs(analysis: Facts) -> TextTable:
    """A row for each layer."""
    head = ("layer", "type", "parameters", "MACs", "activations", "moved", "FLOP/byte")
    rows = []
    for row in analysis["layers"]:
        macs = "not known" if row["macs"] is None else f"{row['macs']:,}"
        sizes = (plain(row["activation_bytes"], "bytes"), plain(row["bytes"], "bytes"))
        named = row["name"] or "(the net itself)"
        rows.append((named, row["type"], f"{row['parameters']:,}", macs, *sizes, _intensity(row)))
    return TextTable("Layers", head, tuple(rows))


def devices(facts: Sequence[Facts]) -> TextTable:
    """Which layers wait for memory, on each device."""
    head = ("device", "memory-bound below", "layers", "of the MACs", "which")
    return TextTable("Memory-bound layers", head, tuple(_device(device) for device in facts))


def _device(device: Facts) -> tuple[str, ...]:
    if device["why"]:
        return device["name"], DASH, DASH, DASH, device["why"]
    corner = f"{significant(device['ridge_flops_per_byte'], 3)} FLOP/byte"
    bound, share = device["memory_bound"], plain(device["share_of_macs"], "fraction")
    return device["name"], corner, f"{len(bound)} of {device['layers']}", share, ", ".join(bound) or "none"


def zeros(analysis: Facts) -> TextTable:
    """Distiller's table of sparsity."""
    head = ("Name", "Shape", "NNZ (dense)", "NNZ (sparse)", *ZEROS, "Std", "Mean", "Abs-Mean")
    whole = analysis["sparsity"]["total"]
    rows = []
    for row in analysis["sparsity"]["rows"]:
        shape = f"({', '.join(map(str, row['shape']))})"
        shares = [_number(row[key]) for key in (*sparsity.SHARES, "std", "mean", "abs_mean")]
        rows.append((row["name"], shape, f"{row['dense']:,}", f"{row['sparse']:,}", *shares))
    counts = (f"{whole['dense']:,}", f"{whole['sparse']:,}")
    last = ("Total sparsity:", "", *counts, *[""] * 5, _number(whole["fine_pct"]), "", "", "")
    return TextTable("Sparsity", head, (*rows, last), empty="No weight of two or more axes.")


def _number(value: float | None) -> str:
    return DASH if value is None else f"{value:.5f}"


def compute(analysis: Facts) -> TextTable:
    """Distiller's table of what is computed where."""
    head = ("Name", "Type", "Attrs", "IFM", "IFM volume", "OFM", "OFM volume", "Weights volume", "MACs")
    rows = []
    for row in analysis["summary"]["compute"]:
        ends = [(f"({', '.join(map(str, row[e]))})", f"{math.prod(row[e]):,}") for e in ("ifm", "ofm")]
        numbers = (f"{row['weights']:,}", f"{row['macs']:,}")
        rows.append((row["name"], row["type"], row["attrs"], *ends[0], *ends[1], *numbers))
    whole = sum(row["macs"] for row in analysis["summary"]["compute"])
    last = ("Total MACs:", *[""] * 7, f"{whole:,}")
    return TextTable("Compute", head, (*rows, last))


def modules(analysis: Facts) -> TextTable:
    """The modules without modules inside."""
    rows = tuple((row["name"], row["type"]) for row in analysis["summary"]["modules"])
    return TextTable("Modules", ("Name", "Type"), rows)


def percentile(analysis: Facts) -> TextTable:
    """Of each weight a magnitude."""
    rows = tuple((name, significant(q, 4)) for name, q in analysis["summary"]["percentile"].items())
    return TextTable("Percentiles of the magnitudes", ("parameter", "q"), rows)


def stored(storage: Facts) -> TextTable:
    """What each weight takes as it is, and in its best form."""
    rows = [(r["name"], *_stored(r, r["bytes"][r["best"]]), FORMS[r["best"]]) for r in storage["rows"]]
    packed = [(name, *[DASH] * 4, "packed already") for name in storage["packed"]]
    whole = storage["total"]
    last = ("All weights", *_stored(whole, whole["best_bytes"]), "")
    return TextTable("Storage", ("weight", "elements", "zeros", "dense", "best", "form"), (*rows, *packed, last))


def _stored(row: Facts, best: int) -> tuple[str, ...]:
    zeros = plain(row["zeros"] / row["elements"] if row["elements"] else None, "fraction")
    return f"{row['elements']:,}", zeros, plain(row["bytes"]["dense"], "bytes"), plain(best, "bytes")


def forms(storage: Facts) -> TextTable:
    """What all weights take in each form, and the files themselves as they are and compressed."""
    sizes, files = storage["total"]["bytes"], storage["files"]
    whole = {"dense": files["bytes"], "zstd": files["zstd"], "packed": files["packed"]}
    rows = []
    for form, name in FORMS.items():
        share = significant(sizes[form] / sizes["dense"], 3) if sizes["dense"] else DASH
        rows.append((name, plain(sizes[form], "bytes"), share, plain(whole.get(form), "bytes")))
    bound = storage["total"]["entropy_bytes"]
    share = significant(bound / sizes["dense"], 3) if sizes["dense"] else DASH
    rows.append(("entropy bound", plain(bound, "bytes"), share, DASH))
    return TextTable("Storage of all weights", ("form", "all weights", "share", "the files themselves"), tuple(rows))


def sensitivity(facts: Facts) -> TextTable:
    """The layers, the most sensitive first, with what is left at each level."""
    title = f"Sensitivity to {_what(facts)}, the most sensitive layer first"
    first = next(iter(facts["layers"].values()))
    head = ("layer", *(level(facts, point) for point in first))
    rows = tuple((name, *(_left(facts, p) for p in facts["layers"][name])) for name in facts["order"])
    return TextTable(title, head, rows)


def _what(facts: Facts) -> str:
    """What was done to the layers, in words."""
    pruned = {
        "element": "weights pruned by magnitude",
        "filter": "filters pruned by L1",
        "channel": "channels pruned by L1",
    }
    return "weights in fewer bits" if facts["by"] == "bits" else pruned[facts["structure"]]


def level(facts: Facts, point: Facts) -> str:
    """`4 bits`, `75 %`."""
    return f"{point['level']:g} bits" if facts["by"] == "bits" else f"{100 * point['level']:g} %"


def _left(facts: Facts, point: Facts) -> str:
    noise = "identical" if point["reason"] == "identical" else "no number"
    noise = noise if point["sqnr_db"] is None else f"{point['sqnr_db']:.1f} dB".replace("-", "−")
    return noise if facts["metric"] is None else f"{_metric(facts, point['metric'])} ({noise})"


def _metric(facts: Facts, value: float | None) -> str:
    if value is None:
        return "infinite"
    return f"{100 * value:.1f} %" if facts["unit"] == "fraction" else significant(value, 4)


def scored_on(facts: Facts) -> str:
    """On what the sensitivity was measured, and where the net is without any change."""
    where = f"{plural(facts['items'], 'item')} of split '{facts['split']}'"
    if facts["metric"] is None:
        return f"SQNR of the outputs on {where}; no labels or no metric: nothing is said of accuracy"
    return (
        f"{facts['metric']} on {where}: {_metric(facts, facts['baseline'])} with nothing changed; SQNR of the outputs"
    )


def activations(facts: Facts) -> TextTable:
    """What each layer gives, in the order of computing."""
    head = ("layer", "type", "zeros", "dead channels", "mean", "std", "min", "1 %", "median", "99 %", "max")
    rows = []
    for row in facts["layers"]:
        numbers = (row["mean"], row["std"], row["min"], *(row["percentiles"] or [None] * 3), row["max"])
        dead = f"{row['dead']} of {row['channels']}"
        told = [DASH if n is None else significant(n, 3) for n in numbers]
        rows.append((row["name"], row["type"], plain(row["zeros"], "fraction"), dead, *told))
    return TextTable("Activations", head, tuple(rows))


def seen_on(facts: Facts) -> str:
    """Of which items the activations are; a number that is none is told."""
    broken = [row["name"] for row in facts["layers"] if row["not_finite"]]
    odd = f"; not finite: {', '.join(broken[:NAMED])}" if broken else ""
    return f"{plural(facts['items'], 'item')} of split '{facts['split']}'{odd}"


# --------------------------------------------------------------------------- picture


def histogram(row: Facts, name: str) -> str:
    """What a layer gives and is not zero, as SVG."""
    counts, low, width = row["histogram"], row["min"], (row["max"] - row["min"]) / len(row["histogram"])
    bars = [
        {"x": low + i * width, "x2": low + (i + 1) * width, "count": n, "says": f"{low + i * width:.3g}: {n:,}"}
        for i, n in enumerate(counts)
        if n
    ]
    x, y = quantity("x", axis("", grid=False)), quantity("count", axis("numbers", grid=True), zero=True)
    mark = {"type": "bar", "color": "var(--c1)"}
    return vega.svg(
        vega.unit(BARS, [vega.described(bars, mark, "bin", x=x, x2={"field": "x2"}, y=y, y2={"datum": 0})]), name
    )


def _ranged(row: Facts) -> str:
    return f"{row['name']}: {plain(row['zeros'], 'fraction')} zeros, which are left out; {row['elements']:,} numbers"


def picture(facts: Facts) -> str:
    """A dot for each layer and level, as SVG."""
    key = "metric" if facts["metric"] is not None else "sqnr_db"
    # the stronger a level, the darker: they come from the weakest. What is no number has no dot
    layers = [(name, facts["layers"][name]) for name in facts["order"]]
    dots = [
        {
            "label": name,
            "x": point[key],
            "fill": "var(--c1)",
            "opacity": (1 + place) / (len(points) + 1),
            "says": f"{name} at {level(facts, point)}: {_left(facts, point)}",
        }
        for name, points in layers
        for place, point in enumerate(points)
        if point[key] is not None
    ]
    values = [dot["x"] for dot in dots] + ([facts["baseline"]] if key == "metric" else [])
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = (high - low or 1.0) * 0.04
    title = "SQNR, dB" if key == "sqnr_db" else facts["metric"]
    drawn = (
        axis(title, grid=True, format="%")
        if facts["unit"] == "fraction" and key == "metric"
        else axis(title, grid=True)
    )
    x = quantity("x", drawn, domain=[low - room, high + room])
    rule = (
        [vega.layer([{"x": facts["baseline"]}], {"type": "rule", "color": "var(--ink)"}, x=x)]
        if key == "metric"
        else []
    )
    plain_names = labels()  # here: every layer's name, whatever room there is, with a line through its dots
    names = {**plain_names, "axis": {**plain_names["axis"], "labelOverlap": False, "grid": True}}
    marks = vega.described(
        dots, {"type": "point", "size": 46, "strokeWidth": 1.2}, "layer at a level", x=x, y=names, **paint()
    )
    return vega.svg(vega.unit(AXIS + ROW * len(facts["order"]), [*rule, marks]), "sensitivity")


# --------------------------------------------------------------------------- page


def page(
    analysis: Facts,
    options: Facts,
    sensitivities: Facts | None = None,
    storage: Facts | None = None,
    seen: Facts | None = None,
) -> str:
    """The whole of analysis.html; `options` has the title and the devices."""
    kicker, title = tag("p", "edgecompress analysis", class_="kicker"), tag("h1", bdi(options["title"]))
    top = tag("header", kicker, title, tag("p", bdi(sentence(analysis))))
    parts = [_section(costs(analysis)), _section(devices(options["devices"])), _section(zeros(analysis))]
    parts += [_section(stored(storage)), _section(forms(storage))] if storage else []
    parts += [_watched(seen)] if seen else []
    parts += [tag("section", tag("h2", "Weights"), _histograms(analysis["weights"], "weight"))]
    body = tag("main", top, *([_sensitive(sensitivities)] if sensitivities else []), *parts)
    return html.document(options["title"], body)


def _sensitive(facts: Facts) -> Raw:
    figure = tag(
        "figure", Raw(picture(facts)), tag("figcaption", _CAPTION), class_="figure plain", id="figure-sensitivity"
    )
    table = sensitivity(facts)
    return tag("section", tag("h2", table.title), tag("p", bdi(scored_on(facts))), figure, _rows(table))


def _watched(facts: Facts) -> Raw:
    table = activations(facts)
    figures = _histograms(facts["layers"], "activation")
    return tag("section", tag("h2", table.title), tag("p", seen_on(facts)), _rows(table), figures)


def _histograms(rows: Sequence[Facts], what: str) -> Raw:
    """A figure for each row that has numbers other than zero."""
    figures = [
        tag("figure", Raw(histogram(row, f"{what}-{i}")), tag("figcaption", bdi(_ranged(row))), class_="figure plain")
        for i, row in enumerate(rows)
        if any(row["histogram"])
    ]
    return tag("div", *figures, class_="figures beside")


def _section(table: TextTable) -> Raw:
    return tag("section", tag("h2", table.title), _rows(table))


def _rows(table: TextTable) -> Raw:
    head = tag("thead", tag("tr", [tag("th", h, scope="col") for h in table.head]))
    rows = [
        tag("tr", tag("th", bdi(first), scope="row"), [tag("td", bdi(cell)) for cell in rest])
        for first, *rest in table.rows
    ]
    body = tag("table", head, tag("tbody", rows), class_="rows")
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=table.title)
