"""The matrix as one HTML file: models by targets, devices and profiles; no script, for screens of any width."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgecompress.core.plain_text import plural
from edgecompress.core.version import __version__
from edgecompress.extras.fleet.matrix import Row
from edgecompress.reporting import html
from edgecompress.reporting.html_tags import Raw, bdi, tag, void

VIEWS = {"verdict": "Verdict", "latency": "Latency", "size": "Size", "loss": "Loss", "energy_gross": "Energy"}
SIGNS = {"shipped": "✓", "undecided": "?", "lost": "✕", "refused": "–", "failed": "!", "running": "…", "waiting": "…"}
WARM = 4  # of the colours of a row, from the best to the worst
FILTERED = {"source": "Models", "target": "Targets", "device": "Devices", "profile": "Profiles"}


def of(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """The whole of matrix.html; it links to the report of each cell beside it."""
    count = {state: sum(row["state"] == state for row in rows) for state in SIGNS}
    title = f"{plural(len(rows), 'cell')}: " + ", ".join(f"{n} {state}" for state, n in count.items() if n)
    top = tag("header", tag("p", "edgecompress sweep", class_="kicker"), tag("h1", bdi(title)))
    told = [("note", note) for note in notes]
    told += [
        ("warning", f"{row['cell']}: {row['state']}: {row['says']}")
        for row in rows
        if row["state"] in ("failed", "refused", "lost")
    ]
    values = {key: list(dict.fromkeys(row[key] for row in rows)) for key in FILTERED}  # type: ignore[literal-required]
    filters = [_filter(key, values[key]) for key in FILTERED if len(values[key]) > 1]
    choice = tag("fieldset", tag("legend", "Show"), [_view(name) for name in VIEWS], class_="choice")
    main = tag("main", top, html.notes(told), html.section("The matrix", choice, *filters, _heat(rows)), _table(rows))
    style = (Path(__file__).parent / "matrix.css").read_text(encoding="utf-8")
    made = f"Made by edgecompress {__version__} on {time.strftime('%Y-%m-%d at %H:%M')} from matrix.json."
    footer = tag("footer", tag("p", html.SIGNS_USED), tag("p", made))
    return html.document(title, main, footer, style=style + "".join(_rules(values)))


def _rules(values: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What a choice shows and a filter hides: no script is needed."""
    for name in VIEWS:
        yield f"main:has(#view-{name}:checked) .heat .of-{name} {{ display: block; }}\n"
    for key, names in values.items():
        for number in range(len(names)):
            yield f"main:has(#{key}-{number}:not(:checked)) .{key}-{number} {{ display: none; }}\n"


def _view(name: str) -> Raw:
    checked = {"checked": ""} if name == "verdict" else {}
    box = Raw(void("input", type="radio", name="view", id=f"view-{name}", **checked))
    return tag("label", box, VIEWS[name], for_=f"view-{name}")


def _filter(key: str, names: Sequence[str]) -> Raw:
    boxes = []
    for number, name in enumerate(names):
        box = Raw(void("input", type="checkbox", id=f"{key}-{number}", checked=""))
        boxes.append(tag("label", box, bdi(name), for_=f"{key}-{number}"))
    return tag("fieldset", tag("legend", FILTERED[key]), boxes, class_="choice")


def _heat(rows: Sequence[Row]) -> Raw:
    """A line per model, a column per target, device and profile."""
    sources = list(dict.fromkeys(row["source"] for row in rows))
    places = list(dict.fromkeys((row["target"], row["device"], row["profile"]) for row in rows))
    known = {(row["source"], (row["target"], row["device"], row["profile"])): row for row in rows}
    order = {key: list(dict.fromkeys(row[key] for row in rows)) for key in FILTERED}  # type: ignore[literal-required]

    def classes(place: tuple[str, str, str]) -> str:
        keys = ("target", "device", "profile")
        return " ".join(f"{key}-{order[key].index(name)}" for key, name in zip(keys, place, strict=True))

    head = [tag("th", "model", scope="col")]
    for place in places:
        parts = [tag("span", bdi(part)) for part in place]
        head.append(tag("th", parts, scope="col", class_=classes(place)))
    lines = []
    for source in sources:
        cells, best = [], _best([known[source, place] for place in places if (source, place) in known])
        for place in places:
            row = known.get((source, place))
            cells.append(
                tag("td", *_cell(row, best), class_=classes(place)) if row else tag("td", class_=classes(place))
            )
        lines.append(
            tag("tr", tag("th", bdi(source), scope="row"), cells, class_=f"source-{order['source'].index(source)}")
        )
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", lines), class_="heat")
    legend = tag(
        "p",
        "✓ shipped, ? undecided, ✕ lost, – refused or no number, ! failed. The darker a number, the further it is from "
        "the best of its line. A cell leads to its report.",
        class_="empty",
    )
    return Raw(tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="The matrix") + legend)


def _best(rows: Sequence[Row]) -> dict[str, float]:
    """The least of each number of a line."""
    found: dict[str, float] = {}
    for row in rows:
        for name, number in row["numbers"].items():
            value = number["value"]
            if isinstance(value, int | float):
                found[name] = min(found.get(name, math.inf), value)
    return found


def _cell(row: Row, best: Mapping[str, float]) -> Iterator[Raw]:
    """What each view shows of a cell."""
    verdict = f"{SIGNS[row['state']]} {row['variant'] or row['state']}"
    yield _shown(row, "verdict", verdict, row["state"])
    for name in VIEWS:
        if name in ("verdict", "loss"):
            continue
        number = row["numbers"].get(name)
        value = number["value"] if number else None
        level = 0
        if isinstance(value, int | float) and value > 0 and best.get(name, 0) > 0:
            level = min(WARM, round(math.log2(value / best[name])))
        yield _shown(row, name, str(number["text"]) if number else "–", f"warm-{level}" if number else "")
    loss = row["loss"]
    level = 0 if loss is None or loss <= 0 else min(WARM, 1 + int(100 * loss))
    yield _shown(row, "loss", "–" if loss is None else f"{loss:+.4g}", f"warm-{level}" if loss is not None else "")


def _shown(row: Row, view: str, words: str, how: str) -> Raw:
    inner = bdi(words)
    if row["report"]:
        inner = tag("a", inner, href=row["report"])
    return tag("span", inner, class_=f"of-{view} {how}".strip())


def _table(rows: Sequence[Row]) -> Raw:
    """Everything once more, line by line: for who reads or searches."""
    head = ("cell", "verdict", "ships", "latency", "size", "loss", "took")
    lines = []
    for row in rows:
        numbers = [str(row["numbers"].get(name, {}).get("text", "–")) for name in ("latency", "size")]
        loss = "–" if row["loss"] is None else f"{row['loss']:+.4g}"
        link = tag("a", bdi(row["cell"]), href=row["report"]) if row["report"] else bdi(row["cell"])
        cells = [
            tag("td", bdi(text))
            for text in (row["state"], row["variant"] or "–", *numbers, loss, f"{row['wall_s']:.0f} s")
        ]
        lines.append(tag("tr", tag("th", link, scope="row"), cells))
    return html.section("Cell by cell", html.grid("Cell by cell", head, lines))
