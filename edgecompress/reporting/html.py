"""The report as one HTML file: no script, no request, light and dark, readable on a phone and on paper."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from edgecompress.core.plugins import SectionPlugin
from edgecompress.core.quantities import CYCLES
from edgecompress.reporting import (
    before_after,
    bottleneck,
    compression,
    compression_gains,
    environment,
    estimates,
    external_section,
    figures,
    graph_view,
    instructions,
    net_graph,
    pareto,
    plugin_sections,
    power,
    profilers,
    strength_search,
    tables,
    training,
)
from edgecompress.reporting.figure_style import Figure, Panel, colour, dash
from edgecompress.reporting.formatting import interval, known, provenance, text
from edgecompress.reporting.html_tags import Raw, bdi, tag, void
from edgecompress.reporting.model import SCHEMA, Report, sections
from edgecompress.reporting.model_numbers import Delta
from edgecompress.reporting.tables import TextTable

Make: TypeAlias = Callable[[Report], TextTable]
Show: TypeAlias = Callable[[Make], Raw]  # the table that it makes of the report
Draw: TypeAlias = Callable[..., Raw]  # figures of the report, by their names
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
TILES = (
    "latency",
    "instructions",
    "cycles",
    "npu_time",
    "sram",
    "flash",
    "size",
    "accuracy",
    "peak_rss",
    "energy_gross",
    "inferences_per_joule",
    "throughput",
)
SHOWN_TILES = 6
GAINED = {True: "better", False: "warning", None: ""}  # the class of a gain
NO_VARIANT = Report(schema=SCHEMA, variants=[])  # of a page whose tables and figures name none
SIGNS = {"shipped": "✓", "undecided": "?", "measured": "✓", "nothing": "✕", "failed": "✕"}
SIGNS_USED = (
    "≈ estimated: two digits at most, (a – b) its band. [a, b] interval of the median over sessions. – not available."
)
WORDS = {"shipped": "Ships", "undecided": "Undecided", "measured": "Measured", "nothing": "Nothing ships"}
WORDS["failed"] = "Failed"


def page(report: Report) -> str:
    """The whole of report.html."""
    title = report.title or "edgecompress report"
    told = notes([(note.level, note.text) for note in report.notes])
    main = tag("main", _header(report, title), _verdict(report), told, *_sections(report))
    made = f"Made by edgecompress {report.versions.get('edgecompress', '')} from report.json ({report.schema})."
    style = graph_view.style() if report.graph and report.graph.ops else ""
    return document(title, main, tag("footer", tag("p", SIGNS_USED), tag("p", made)), style=style)


def document(title: str, *body: Raw, style: str = "") -> str:
    """A page that loads nothing and runs nothing, in the report's style, and `style` behind it."""
    whole = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        void("meta", charset="utf-8"),
        void("meta", name="viewport", content="width=device-width, initial-scale=1"),
        void("meta", name="color-scheme", content="light dark"),
        void("meta", http_equiv="Content-Security-Policy", content=POLICY),
        void("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Raw(whole + style)),
    )
    return f"<!doctype html>\n{tag('html', head, tag('body', *body), lang='en')}\n"


def _header(report: Report, title: str) -> Raw:
    facts = [("target", report.target.get("name")), ("device", report.device.get("name"))]
    facts += [("profile", report.profile.get("name")), ("model", report.source.get("model"))]
    facts += [
        ("batch", str(report.run.batch)),
        ("threads", str(report.run.threads)),
        ("date", report.date[:16].replace("T", " ")),
    ]
    chips = [tag("li", tag("span", label), " ", bdi(str(value))) for label, value in facts if value]
    command = tag("p", tag("code", report.command), class_="command") if report.command else Raw("")
    return tag(
        "header",
        tag("p", "edgecompress report", class_="kicker"),
        tag("h1", bdi(title)),
        command,
        tag("ul", chips, class_="chips"),
    )


def _verdict(report: Report) -> Raw:
    outcome = report.summary.outcome
    good = "ok" if outcome in ("shipped", "measured") else "bad"
    sign = tag("span", SIGNS[outcome], class_="sign", aria_hidden="true")
    more = tag("p", bdi("; ".join(report.summary.remarks)), class_="how") if report.summary.remarks else Raw("")
    sentence = tag("p", report.summary.sentence, class_="sentence")
    words = tag("div", tag("p", WORDS[outcome], class_="kicker"), sentence, more)
    rows = {row.metric: row for row in report.deltas}
    shown = [rows[m] for m in TILES if m in rows and known(rows[m].after)][:SHOWN_TILES]
    tiles = tag("div", [_tile(row) for row in shown], class_="tiles") if shown else Raw("")
    return tag("section", tag("div", sign, words, class_="says"), tiles, class_=f"verdict {good}", aria_label="Verdict")


def _tile(row: Delta) -> Raw:
    n = row.after
    before = f"{text(row.before)} in {row.before_of}" if known(row.before) else ""
    behind = "" if n.status == "measured" else provenance(n, brief=True)
    small = [tag("span", bdi(words)) for words in (interval(n), before and f"was {before}", behind) if words]
    called = row.change.called if row.change else "none"
    pill = tag("p", row.short, class_=f"pill {called}") if row.short else Raw("")
    value = tag("p", text(n), class_="value")
    return tag(
        "div",
        tag("p", row.label, class_="label"),
        value,
        pill,
        tag("p", small, class_="small"),
        class_="tile",
        data_metric=row.metric,
    )


def notes(told: Sequence[tuple[str, str]]) -> Raw:
    """What must not be overlooked: "warning" or "note", and the words."""
    lines = [tag("li", bdi(words), class_=level) for level, words in told]
    return tag("ul", lines, class_="notes") if lines else Raw("")


def _sections(report: Report) -> list[Raw]:
    """In the order in which a reader asks: what changed, why this one, how fast, is it right, what it costs."""
    drawn = {f.name: f for f in figures.every(report)}

    def fig(*names: str) -> Raw:
        shown = [drawn[name] for name in names if drawn[name].panels or drawn[name].caption]
        return tag("div", [as_figure(report, one) for one in shown], class_="figures") if shown else Raw("")

    def rows(make: Make) -> Raw:
        return as_table(report, make(report))

    return [
        section("Before and after", tag("div", rows(tables.before_after), fig("changes"), class_="split")),
        section("Variants", rows(tables.variants), *_titled(report, tables.slow), fig("tradeoff")),
        *_smaller(report, fig),
        _speed(report, rows, fig),
        *_profilers(report, fig),
        section(
            "Operators",
            rows(tables.operators),
            *_titled(report, tables.fallback, estimates.left, bottleneck.table),
            fig("operators"),
            *_inside(report, "operators", fig),
        ),
        *_graph(report),
        section(
            "Accuracy and outputs",
            *_titled(report, environment.agreed, tables.precisions, tables.metrics, tables.outputs),
            more("Every check", rows(tables.checks)),
        ),
        section("Memory", rows(tables.memory), *_inside(report, "memory", fig)),
        section(
            "Energy",
            rows(tables.energy),
            fig("energy", "power"),
            *_folded(report, power.table),
            *_tradeoffs(report, fig),
            *_folded(report, tables.sensors),
        ),
        *_elsewhere(report, fig),
        tag("div", *_around(report), class_="columns"),
        section(
            "How it was made",
            more("Stages", rows(tables.stages)),
            more("Effective configuration", rows(tables.configuration)),
            more("Files and their sha256", rows(tables.files)),
        ),
    ]


def _smaller(report: Report, fig: Draw) -> Iterator[Raw]:
    """What was taken out of the nets, what it bought, how the strength was found, and how they were trained."""
    parts = (compression.channels, compression.low_rank, compression.sparsity, compression.storage, compression.left)
    if report.gains:
        sentences = tag("ul", [tag("li", bdi(g.says), class_=GAINED[g.gained]) for g in report.gains], class_="said")
        words = tag("div", sentences, more("In numbers", as_table(report, compression_gains.table(report))))
        yield section("Gains of compression", tag("div", words, fig("gains"), class_="split"))
    for title, table, drawn, folded in (
        ("What was compressed", compression.table, ("compressed",), parts),
        (
            "How the strength was found",
            strength_search.table,
            ("fits",),
            (strength_search.trials, strength_search.saved),
        ),
        ("Training", training.table, ("training",), (training.epochs,)),
    ):
        if table(report).rows:
            near = _titled(report, strength_search.neighbours) if table is strength_search.table else []
            yield section(title, as_table(report, table(report)), *near, fig(*drawn), *_folded(report, *folded))
    for each in sections():
        if not (each.profiler or each.place) and plugin_sections.tables(each, report)[0].rows:
            yield section(each.title, *_own(report, each, fig))


def _speed(report: Report, rows: Show, fig: Draw) -> Raw:
    """Latency; on a simulated device instructions, on one that is not at hand estimates: there nothing is timed."""
    if before_after.ranked_by(report) == CYCLES:
        return section("Estimates", rows(estimates.table))
    if any(variant.estimate for variant in report.variants):  # of a compiler that estimates no time
        return section(estimates.table(report).title, rows(estimates.table))
    if before_after.ranked_by(report) != "latency":
        kernels = [tag("li", bdi(line)) for line in instructions.kernels(report)]
        return section("Instructions", rows(instructions.table), tag("ul", kernels, class_="said"), fig("instructions"))
    every = more("Every session", rows(tables.sessions))
    return section("Latency", rows(tables.latencies), fig("ecdf", "histogram", "strip"), every)


def _graph(report: Report) -> Iterator[Raw]:
    """The operators of what ships, drawn, or why they are not."""
    if report.graph:
        drawn = [net_graph.drawn(report)] if report.graph.ops else []
        yield section("Graph", tag("p", bdi(net_graph.words(report.graph)), class_="empty"), *drawn)


def _profilers(report: Report, fig: Draw) -> Iterator[Raw]:
    """A section for each profiler that ran; of one that no section shows, its own words."""
    known_ = {section.profiler: section for section in sections() if section.profiler}
    for name in (look.profiler for look in report.passes):
        if name not in known_:
            yield section(name, as_table(report, profilers.findings(report, name)))
        elif not known_[name].place:
            yield section(known_[name].title, *_own(report, known_[name], fig))


def _own(report: Report, told: SectionPlugin, fig: Draw) -> list[Raw]:
    """The tables and figures of a section that is a plug-in."""
    made = plugin_sections.tables(told, report)
    first, rest = made[: told.opened], made[told.opened :]
    shown = [as_table(report, table) for table in first if table.rows or table.empty]
    drawn = [figure.name for figure in plugin_sections.figures(told, report)]
    return [*shown, *([fig(*drawn)] if drawn else []), *(more(t.title, as_table(report, t)) for t in rest if t.rows)]


def _inside(report: Report, place: str, fig: Draw) -> list[Raw]:
    """The sections that stand in one of ours."""
    inside = [each for each in sections() if each.place == place]
    return [part for each in inside for part in _own(report, each, fig)]


def _elsewhere(report: Report, fig: Draw) -> Iterator[Raw]:
    """Where packages' benchmarks ran."""
    if external_section.rows(report):
        first = as_table(report, external_section.table(report))
        folded = _folded(report, external_section.places, external_section.sessions)
        yield section(external_section.TITLE, first, fig("elsewhere"), *folded)


def _tradeoffs(report: Report, fig: Draw) -> list[Raw]:
    """Where there are at least two points to hold against each other."""
    rows = report.pareto
    return (
        [fig("pareto"), more("Accuracy, latency, energy", as_table(report, pareto.table(rows)))]
        if len(rows) > 1
        else []
    )


def _folded(report: Report, *makes: Make) -> list[Raw]:
    """Tables behind their titles, where there is something in them."""
    shown = (make(report) for make in makes)
    return [more(table.title, as_table(report, table)) for table in shown if table.rows]


def _titled(report: Report, *makes: Make) -> list[Raw]:
    """Tables with their titles above, where there is something to show."""
    shown = (table for table in (make(report) for make in makes) if table.rows or table.empty)
    return [part for table in shown for part in (tag("h3", table.title), as_table(report, table))]


def _around(report: Report) -> Iterator[Raw]:
    """What it was given, and where it ran."""
    source = tables.pairs("Source", {k: v for k, v in report.source.items() if k != "preprocess"})
    yield section("Data", as_table(report, tables.data(report)), more("Source", as_table(report, source)))
    installed = tables.pairs("Installed here", report.versions)
    yield section(
        "Environment",
        as_table(report, environment.table(report)),
        *_titled(report, environment.runtimes),
        more("Installed here", as_table(report, installed)),
    )


def section(title: str, *parts: Raw) -> Raw:
    """A card of the page."""
    return tag("section", tag("h2", title), *parts)


def more(title: str, *parts: Raw) -> Raw:
    """Parts behind a title that opens them."""
    return tag("details", tag("summary", title), *parts)


def as_table(report: Report, table: TextTable) -> Raw:
    """A table, or why it is empty; the names of variants with the colours of the figures."""
    if not table.rows:
        return tag("p", table.empty, class_="empty") if table.empty else Raw("")
    rows = []
    for i, (name, *cells) in enumerate(table.rows):
        first = [_swatch(report, name), " ", bdi(name)] if table.head[0] == "variant" else [bdi(name)]
        row = [tag("th", first, scope="row"), *map(_cell, cells)]
        rows.append(tag("tr", row, class_="marked") if i == table.marked else tag("tr", row))
    return grid(table.title, table.head, rows)


def grid(title: str, head: Sequence[str], rows: Sequence[Raw]) -> Raw:
    """The <table> of <tr>s; one that is wider than the page is scrolled alone."""
    named = tag("thead", tag("tr", [tag("th", bdi(h), scope="col") for h in head])) if any(head) else Raw("")
    body = tag("table", named, tag("tbody", rows), class_="rows" if named else "facts")
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label=title)


def _cell(cell: str) -> Raw:
    """Long hashes and paths may break anywhere; figures keep to one column."""
    return tag("td", bdi(cell), class_="long") if max(map(len, cell.split()), default=0) > 28 else tag("td", bdi(cell))


def _swatch(report: Report, name: str) -> Raw:
    """Colour and dash of a variant, as in every figure."""
    dashes = " ".join(map(str, dash(report, name)))
    line = f'<path d="M0 6H22" stroke="{colour(report, name)}" stroke-width="4" stroke-dasharray="{dashes}"/>'
    return Raw(f'<svg class="swatch" viewBox="0 0 22 12" aria-hidden="true">{line}</svg>')


def as_figure(report: Report, figure: Figure) -> Raw:
    """A figure, drawn, with its legend and its caption."""
    pictures = zip(figure.panels, figures.drawn(figure), strict=True)
    panels = [_panel(report, panel, Raw(svg)) for panel, svg in pictures]
    caption = tag("figcaption", bdi(figure.caption))
    key = [tag("li", _swatch(report, name), " ", bdi(words)) for name, words in figure.key]
    shape = "many" if len(panels) > 1 else "one" if figure.key else "plain"
    parts = (
        tag("h3", figure.title),
        tag("div", panels, class_="panels"),
        tag("div", tag("ul", key, class_="key") if key else Raw(""), caption, class_="words"),
    )
    return tag("figure", *parts, class_=f"figure {shape}", id=f"figure-{figure.name}")


def _panel(report: Report, panel: Panel, svg: Raw) -> Raw:
    if not panel.heading:
        return tag("div", svg, class_="panel")
    name = [_swatch(report, panel.variant), " ", tag("b", bdi(panel.variant)), " "] if panel.variant else []
    return tag(
        "div",
        tag("p", *name, tag("span", bdi(panel.heading)), class_="heading"),
        svg,
        class_="panel",
        data_variant=panel.variant,
    )
