"""The diagnosis as one HTML file, like the report: no script, no request, light and dark; and as Markdown."""

from __future__ import annotations

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import html, markdown
from edgecompress.reporting.figure_style import Figure
from edgecompress.reporting.formatting import DASH, cleaned, plural
from edgecompress.reporting.html_tags import Raw, bdi, tag
from edgecompress.reporting.tables import TextTable
from edgecompress.stages.diagnose import figures
from edgecompress.stages.diagnose.figures import GAP, Facts, decibels, near, span

FILES = ("diagnosis.md", "diagnosis.html")
DO = {  # the word of the advice -> its title, how it is done here
    "": ("Nothing stands out", ""),
    "calibrate": ("Calibrate", "The option `calibrator` of its technique: percentile, entropy or mse."),
    "equalize": ("Equalize", "The technique `equalize`, before the quantization."),
    "smooth": ("Smooth", "The technique `smooth`, before the quantization."),
    "keep": ("Keep in higher precision", "The option `skip` of its technique, with the marked layers."),
    "train": ("Train", "The technique `qat`, before the quantization."),
    "overflow": ("Overflow", "The option `skip` of its technique, with the marked layer."),
    "fault": ("Fault", "Hold the marked layer against the source: another opset, export or runtime shows whose it is."),
}
GUARDED = ("calibrate", "equalize", "smooth", "keep", "train")
GUARD = "`edgecompress guard` finds by itself which of these remedies are needed."
HEAD = (
    *("layer", "operator", "type", "held as", "own SQNR", "so far", "growth", "effect", "source", "artifact"),
    *("outlier", "cut off", "not finite", "note"),
)


def draw(request: Request) -> Artifact:
    """The stage: options are diagnosis.json -> "page": diagnosis.html and diagnosis.md."""
    for name, text in zip(FILES, (written(request.options), page(request.options)), strict=True):
        (request.out / name).write_text(text, encoding="utf-8")
    return Artifact(request.out, "page").write()


# --------------------------------------------------------------------------- tables


def layers(facts: Facts) -> TextTable:
    """A row for each layer in the order of computing, the first that the advice is about marked."""
    names = [row["name"] for row in facts["layers"]]
    rows = tuple(_layer(row, i, row["name"] in facts["culprits"]) for i, row in enumerate(facts["layers"], 1))
    marked = names.index(facts["first"]) if facts["first"] in names else -1
    return TextTable("Every layer", HEAD, rows, marked, "The artifact has no output of any layer.")


def _layer(row: Facts, place: int, guilty: bool) -> tuple[str, ...]:
    outlier = DASH if row["outlier"] is None else f"{row['outlier']:.1f},{GAP}channel{GAP}{row['channel']}"
    part = row["clipped"]
    clipped = DASH if not part else f"{100 * part:.2f} %" if part >= 1e-4 else "< 0.01 %"
    return (
        f"{'→ ' if guilty else ''}{place} {row['name']}",
        *(str(row[key] or DASH) for key in ("operator", "type", "dtype")),
        *(near(row, key) for key in ("own_sqnr_db", "sqnr_db")),
        decibels(row["growth_db"]),
        DASH if row["effect"] is None else f"{row['effect']:.2g}",
        *(span(row[key]) for key in ("range", "found")),
        outlier,
        clipped,
        str(row["not_finite"] or DASH),
        str(row["reason"]),
    )


def outputs(facts: Facts) -> TextTable:
    """How near the net's own outputs are."""
    rows = tuple((str(o["name"]), decibels(o["sqnr_db"], "identical")) for o in facts["outputs"])
    return TextTable("Outputs", ("output", "SQNR"), rows, empty="No output is a float.")


def about(facts: Facts) -> TextTable:
    """What was run, and what was left out."""
    rest = len(facts["layers"]) - len(figures.measured(facts))
    lines = {
        "target": facts.get("target"),
        "variant": facts.get("variant"),
        "runtime": facts["runtime"],
        "items": f"{facts['items']} of split '{facts['split']}'",
        "tapping it changes its answers by": f"{100 * facts['same']:.2g} %" if facts["same"] else "nothing",
        "without an output of their own": plural(rest, "layer") if rest else "",
        "of no layer of the source": ", ".join(map(str, facts["unmatched"])),
    }
    return TextTable("What was run", ("", ""), tuple((key, str(value)) for key, value in lines.items() if value))


def advice(facts: Facts) -> tuple[str, str]:
    """Its title, and how that is done."""
    title, how = DO.get(facts["advice"], (str(facts["advice"]), ""))
    return title, f"{how} {GUARD}" if facts["advice"] in GUARDED else how


def _title(facts: Facts) -> str:
    return str(facts.get("source") or "edgecompress diagnosis")


# --------------------------------------------------------------------------- faces


def written(facts: Facts) -> str:
    """The whole of diagnosis.md."""
    facts = cleaned(facts)
    title, how = advice(facts)
    says = f"**{markdown.text(title)}.** {markdown.text(facts['says'])}"
    parts = [f"# {markdown.text(_title(facts))}", says, how]
    parts += [markdown.section(make(facts)) for make in (outputs, layers, about)]
    return "\n\n".join(filter(None, parts)) + "\n"


def page(facts: Facts) -> str:
    """The whole of diagnosis.html."""
    facts = cleaned(facts)
    drawn = {figure.name: figure for figure in figures.every(facts)}
    top = tag("header", tag("p", "edgecompress diagnosis", class_="kicker"), tag("h1", bdi(_title(facts))))
    pictures = _figures("beside", drawn["sqnr"], drawn["effects"])
    values = _figures("", drawn["ranges"], drawn["channels"], drawn["values"])
    parts = (
        html.section("Where the noise comes from", pictures, html.as_table(html.NO_VARIANT, outputs(facts))),
        *([html.section("What the values are", values)] if values else []),
        html.section("Every layer", html.as_table(html.NO_VARIANT, layers(facts))),
        html.section("What was run", html.as_table(html.NO_VARIANT, about(facts))),
    )
    return html.document(_title(facts), tag("main", top, _verdict(facts), *parts))


def _verdict(facts: Facts) -> Raw:
    title, how = advice(facts)
    good = not facts["advice"]
    sign = tag("span", "✓" if good else "→", class_="sign", aria_hidden="true")
    marked = [tag("code", part) if i % 2 else part for i, part in enumerate(how.split("`"))]
    sentences = [tag("p", title, class_="kicker"), tag("p", bdi(facts["says"]), class_="sentence")]
    sentences.append(tag("p", marked, class_="how") if how else Raw(""))
    section = {"class_": f"verdict {'ok' if good else 'bad'}", "aria_label": "Verdict"}
    return tag("section", tag("div", sign, tag("div", sentences), class_="says"), **section)


def _figures(shape: str, *shown: Figure) -> Raw:
    drawn = [html.as_figure(html.NO_VARIANT, figure) for figure in shown if figure.caption]
    return tag("div", drawn, class_=f"figures {shape}".strip()) if drawn else Raw("")
