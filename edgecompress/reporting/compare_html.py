"""The comparison as one HTML file, like the report: no script, no request, light and dark, readable on a phone."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import html, pareto
from edgecompress.reporting.formatting import plural
from edgecompress.reporting.html_tags import Raw, bdi, tag, void
from edgecompress.reporting.model import SCHEMA, Point, Report
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.tables import TextTable

FILE = "comparison.html"
Facts = Mapping[str, Any]  # what compare_page.page_data makes


def draw(request: Request) -> Artifact:
    """The stage: options are what `compare_page.page_data` makes -> "page": comparison.html."""
    (request.out / FILE).write_text(page(request.options), encoding="utf-8")
    return Artifact(request.out, "page").write()


def page(facts: Facts) -> str:
    """The whole of comparison.html."""
    first, *rest = (entry["label"] for entry in facts["entries"])
    title = f"{rest[0] if len(rest) == 1 else plural(len(rest), 'report')} against {first}"
    top = tag("header", tag("p", "edgecompress comparison", class_="kicker"), tag("h1", bdi(title)))
    gates = [(g["ended"], f"{g['words']}: {g['ended']}: {g['entry']} {g['says']}") for g in facts["gates"]]
    notes = [("note" if ended == "kept" else "warning", words) for ended, words in gates]
    notes += [("note", warning) for warning in facts["warnings"]]
    said = tag("ul", [tag("li", bdi(line)) for line in facts["sentences"]], class_="said")
    compared = html.section("Side by side", _table(facts["table"]), said)
    keys = ("label", "variant", "runtime", "device")
    rows = tuple((*(e[key] for key in keys), e["date"][:16].replace("T", " ")) for e in facts["entries"])
    entries = TextTable("What is compared", ("report", *keys[1:], "date"), rows)
    told = html.section(entries.title, html.as_table(html.NO_VARIANT, entries))
    main = tag("main", top, html.notes(notes), compared, _fronts(facts), told)
    return html.document(title, main, tag("footer", tag("p", html.SIGNS_USED)))


def _table(facts: Facts) -> Raw:
    """As the terminal shows it: a change that is called has its colour."""
    rows = []
    for row in facts["rows"]:
        cells = [
            [tag("span", bdi(words), class_=called or "number") for words, called in cell] for cell in row["cells"]
        ]
        lines = [tag("td", Raw(void("br").join(cell))) for cell in cells]
        rows.append(tag("tr", tag("th", row["label"], scope="row"), lines))
    return html.grid("Side by side", facts["head"], rows)


# --------------------------------------------------------------------------- fronts


def _fronts(facts: Facts) -> Raw:
    """Of all variants of all reports; and which have no place there."""
    drawn = [part for i, front in enumerate(facts["fronts"]) for part in _front(front, i)]
    none = [] if drawn else [tag("p", "No variant has all three numbers.", class_="empty")]
    head = ("variant", "device", "report", "why")
    left = TextTable("Variants without all three numbers", head, tuple(map(tuple, facts["missing"])))
    inks = _inks(row[0] for row in left.rows)
    more = [html.more(left.title, html.as_table(inks, left))] if left.rows else []
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
    yield html.more("As a table", table)


def _inks(names: Iterable[str]) -> Report:
    """What decides the colours: a variant has the same on every device."""
    variants = [Variant(name, runtime=name) for name in dict.fromkeys(names)]
    return Report(schema=SCHEMA, subject=variants[0].name if variants else "", variants=variants)
