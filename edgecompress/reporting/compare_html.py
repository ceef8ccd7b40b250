"""The comparison as one HTML file, like the report: no script, no request, light and dark, readable on a phone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import html, pareto
from edgecompress.reporting.formatting import plural
from edgecompress.reporting.html_tags import Raw, bdi, tag, void
from edgecompress.reporting.model import SCHEMA, Point, Report, Variant
from edgecompress.reporting.tables import TextTable

FILE = "comparison.html"
Facts = Mapping[str, Any]  # what compare_page.page_data makes


def draw(request: Request) -> Artifact:
    """The stage: options are what `compare_page.page_data` makes -> "page": comparison.html."""
    (request.out / FILE).write_text(page(request.options), encoding="utf-8")
    return Artifact(request.out, "page").write()


def page(facts: Facts) -> str:
    """The whole of comparison.html."""
    title = _title(facts["entries"])
    top = tag("header", tag("p", "edgecompress comparison", class_="kicker"), tag("h1", bdi(title)))
    compared = html.section("Side by side", _table(facts["table"]), _list(facts["sentences"]))
    entries = html.section("What is compared", html.as_table(html.NO_VARIANT, _entries(facts["entries"])))
    main = tag("main", top, _notes(facts), compared, _fronts(facts), entries)
    return html.document(title, main, tag("footer", tag("p", html.SIGNS_USED)))


def _title(entries: Sequence[Facts]) -> str:
    first, *rest = (entry["label"] for entry in entries)
    return f"{rest[0] if len(rest) == 1 else plural(len(rest), 'report')} against {first}"


def _notes(facts: Facts) -> Raw:
    """How the gates ended, and what else is different."""
    gates = [(f"{g['words']}: {g['ended']}: {g['entry']} {g['says']}", g["ended"] == "kept") for g in facts["gates"]]
    lines = [*gates, *((warning, True) for warning in facts["warnings"])]
    notes = [tag("li", bdi(words), class_="note" if good else "warning") for words, good in lines]
    return tag("ul", notes, class_="notes") if notes else Raw("")


def _list(lines: Sequence[str]) -> Raw:
    return tag("ul", [tag("li", bdi(line)) for line in lines], class_="said")


def _table(facts: Facts) -> Raw:
    """As the terminal shows it: a change that is called has its colour."""
    head = tag("thead", tag("tr", [tag("th", bdi(words), scope="col") for words in facts["head"]]))
    rows = [
        tag("tr", tag("th", row["label"], scope="row"), [tag("td", _lines(cell)) for cell in row["cells"]])
        for row in facts["rows"]
    ]
    body = tag("table", head, tag("tbody", rows), class_="rows")
    return tag("div", body, class_="scroll", tabindex="0", role="region", aria_label="Side by side")


def _lines(cell: Sequence[Sequence[str]]) -> Iterator[Raw]:
    for i, (words, called) in enumerate(cell):
        yield Raw(f"{void('br') if i else ''}{tag('span', bdi(words), class_=called or 'number')}")


def _entries(entries: Sequence[Facts]) -> TextTable:
    keys = ("label", "variant", "runtime", "device")
    rows = tuple((*(e[key] for key in keys), e["date"][:16].replace("T", " ")) for e in entries)
    return TextTable("What is compared", ("report", *keys[1:], "date"), rows)


# --------------------------------------------------------------------------- fronts


def _fronts(facts: Facts) -> Raw:
    """Of all variants of all reports; and which have no place there."""
    drawn = [part for i, front in enumerate(facts["fronts"]) for part in _front(front, i)]
    none = [] if drawn else [tag("p", "No variant has all three numbers.", class_="empty")]
    head = ("variant", "device", "report", "why")
    left = TextTable("Variants without all three numbers", head, tuple(map(tuple, facts["missing"])))
    inks = _inks(row[0] for row in left.rows)
    more = [tag("details", tag("summary", left.title), html.as_table(inks, left))] if left.rows else []
    return html.section("Accuracy, latency, energy: every variant of every report", *drawn, *none, *more)


def _front(front: Facts, place: int) -> Iterator[Raw]:
    rows = msgspec.convert(front["rows"], list[Point])
    inks = _inks(row.variant for row in rows)
    figure = dataclasses.replace(pareto.figure(inks, rows), name=f"pareto-{place}", title=front["title"])
    table = html.as_table(inks, pareto.table(rows))
    if not figure.panels:
        yield from (tag("h3", bdi(front["title"])), table)
        return
    yield tag("div", html.as_figure(inks, figure), class_="figures")
    yield tag("details", tag("summary", "As a table"), table)


def _inks(names: Iterable[str]) -> Report:
    """What decides the colours: a variant has the same on every device."""
    variants = [Variant(name, runtime=name) for name in dict.fromkeys(names)]
    return Report(schema=SCHEMA, subject=variants[0].name if variants else "", variants=variants)
