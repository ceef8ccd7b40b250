"""The page of a diagnosis says what diagnosis.json says, whatever names are in it and whatever is missing."""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from report_diagnosis import HOSTILE, diagnosis, nothing, row

from edgecompress.stages.diagnose import figures, page

FACTS = diagnosis()


def table(facts: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The rows of the full table by the layer's name."""
    found = page.layers(facts)
    cells = [dict(zip(found.head, cells, strict=True)) for cells in found.rows]
    return {layer["name"]: row for layer, row in zip(facts["layers"], cells, strict=True)}


def number(text: str) -> float:
    return float(text.replace("−", "-").removesuffix(" dB").removesuffix(" %"))


def test_the_table_holds_the_numbers_of_the_facts() -> None:
    shown = table(FACTS)
    for layer in (found for found in FACTS["layers"] if found["output"]):
        cells = shown[layer["name"]]
        for head, key in (("own SQNR", "own_sqnr_db"), ("so far", "sqnr_db"), ("growth", "growth_db")):
            if layer[key] is not None:
                assert number(cells[head]) == pytest.approx(layer[key], abs=0.06)
        assert number(cells["effect"]) == pytest.approx(layer["effect"], rel=0.05)
        ends = [number(end) for end in cells["artifact"].split(f"{figures.GAP}..{figures.GAP}")]
        assert ends == pytest.approx(layer["found"], rel=5e-3)
    assert number(shown["blocks.0.depth"]["cut off"]) == 1.25
    assert shown["blocks.0.depth"]["outlier"] == f"172.5,{figures.GAP}channel{figures.GAP}3"


def test_what_is_missing_is_a_dash_with_its_reason_and_what_is_exact_is_called_so() -> None:
    shown = table(FACTS)
    assert set(shown["blocks.0.relu"].values()) == {"3 blocks.0.relu", "conv2d", "–", "no tap"}
    assert (shown["pool"]["own SQNR"], shown["pool"]["so far"], shown["pool"]["effect"]) == ("exact", "4.0 dB", "0")
    assert figures.near(row("x", None, None, reason="identical; first"), "sqnr_db") == "exact"


def test_the_first_layer_is_marked() -> None:
    found = page.layers(FACTS)
    assert (found.marked, found.rows[1][0]) == (1, "→ 2 blocks.0.depth")
    assert page.layers(nothing()).marked == -1


def marks(text: str, what: str) -> list[str]:
    """What the marks of a kind say."""
    return [html.unescape(s) for s in re.findall(rf'aria-label="([^"]*)"[^>]*aria-roledescription="{what}"', text)]


def test_every_mark_says_a_number_of_the_facts() -> None:
    text = page.page(FACTS)
    own, whole = marks(text, "own noise"), marks(text, "noise so far")
    assert own[:3] == ["stem: own 42.0 dB", "blocks.0.depth: own 23.9 dB", "pool: own exact"]
    assert (len(own), len(whole), whole[-1][-7:]) == (5, 5, "−0.5 dB")
    assert [said.rsplit(": ", 1)[1] for said in marks(text, "effect")] == ["1.2", "0.034", "2e-05", "2e-05"]
    assert "blocks.0.depth: artifact 0 .. 560, 1.25% cut off".replace(" .. ", "\xa0..\xa0") in marks(
        text, "artifact range"
    )
    assert marks(text, "outlier")[1] == "blocks.0.depth: channel 3 is 172 times as large as the median one"
    assert marks(text, "channels")[0] == "blocks.0.depth: channels from 2 to 564, a step is 2.2"
    assert marks(text, "values")[:3] == ["0 to 141: 9,000 values", "141 to 282: 40 values", "423 to 564: 1 value"]


def test_a_step_is_told_only_where_the_artifact_holds_integers() -> None:
    assert figures.step(row("x", 1.0, 1.0, found=[-1.0, 1.55])) == pytest.approx(0.01)
    assert figures.step(row("x", 1.0, 1.0, dtype="float16")) is None


@pytest.mark.parametrize("facts", [diagnosis(), nothing()], ids=["all", "nothing"])
def test_the_page_is_whole_and_holds_no_strangers_markup(facts: dict[str, Any]) -> None:
    text = page.page(facts)
    body = text.removeprefix("<!doctype html>\n")
    ElementTree.fromstring(re.sub(r"<(meta|link|br)([^>]*)>", r"<\1\2/>", body))
    assert "<script" not in text and "\u202e" not in text
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert html.escape(HOSTILE.replace("\u202e", "\\u202e")) in text


def test_nothing_to_draw_is_no_empty_picture() -> None:
    text = page.page(nothing())
    assert "<svg" not in text and "What the values are" not in text
    assert "Nothing stands out" in text and "verdict ok" in text


def test_a_file_without_own_errors_or_a_closer_look_has_a_page_too() -> None:
    layers = [row("a", None, 20.0, effect=None, reason="own error needs a torch source"), row("b", None, 10.0)]
    facts = {**diagnosis(), "layers": layers, "first": None, "culprits": []}
    del facts["closer"]
    text = page.page(facts)
    assert (marks(text, "own noise"), len(marks(text, "noise so far"))) == ([], 2)
    assert "figure-channels" not in text


def test_many_layers_are_drawn_closer_together() -> None:
    assert figures.drawn_height(200) < 4 * figures.drawn_height(30)
    facts = {**diagnosis(), "layers": [row(f"layer.{i}", 40.0, 30.0) for i in range(120)], "culprits": []}
    text = page.page(facts)
    assert (len(marks(text, "own noise")), len(marks(text, "effect"))) == (120, figures.TOP)


def test_markdown_tells_the_same_and_nothing_in_it_acts() -> None:
    text = page.written(FACTS)
    assert text.startswith("# A net &lt;script&gt;") and "**Equalize.**" in text
    assert "<script" not in text and "\u202e" not in text
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert any("| 23.9 dB | 23.8 dB |" in line for line in lines)
    widths = {len(re.findall(r"(?<!\\)\|", line)) for line in lines if line.startswith("| layer") or "Conv\\_" in line}
    assert widths == {len(page.HEAD) + 1}
    assert "Nothing stands out" in page.written(nothing())


def test_every_word_of_advice_has_its_remedy() -> None:
    for word in page.DO:
        title, how = page.advice({**FACTS, "advice": word})
        assert title and bool(how) == bool(word)
    assert page.advice({**FACTS, "advice": "pray"}) == ("pray", "")
