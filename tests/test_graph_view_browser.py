"""The graph view in a real browser: what is chosen, opened and clicked shows what it should, without a script."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from report_browser import CONTRAST, MODES, View, needed, opened

from edgecompress.reporting import graph_view, html
from edgecompress.reporting.graph_view import GraphNode, Spread, view
from edgecompress.reporting.html_tags import tag

pytestmark = needed
SHOWN = """
return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility({visibilityProperty: true})).length
"""


def small(b: str = "") -> list[GraphNode]:
    """Five operators, the fourth with an error; with `b` those of another net, as they are aligned."""
    spread = Spread((0.0, 1.0, 2.0), (3, 9), (4, 8))
    told = [("conv", "Conv", "x", None, 2.0), ("relu", "Relu", "conv", None, 0.1), ("pool", "Pool", "relu", None, 0.1)]
    told += [("fc", "Gemm", "pool", 12.0, 1.0), ("soft", "Softmax", "fc", 35.0, 0.1)]
    return [
        GraphNode(
            *(b + name, kind, (b + read,), "", "int8" if kind == "Conv" else "float32", error, error is None, ms),
            values=spread,
            other=name if b else f"b.{name}",
            mark="departs first: scale" if error == 12.0 and not b else "",
        )
        for name, kind, read, error, ms in told
    ]


def large() -> list[GraphNode]:
    rng = random.Random(0)
    kinds = ("Conv", "Relu", "Add")
    reads = [(f"n{i - 1}", f"n{i - rng.randint(2, 6)}") if i % 5 == 0 else (f"n{i - 1}",) for i in range(1_000)]
    errors = [None if i < 300 else rng.uniform(5, 60) for i in range(1_000)]
    return [GraphNode(f"n{i}", kinds[i % 3], reads[i], "", "", e, e is None, 0.1) for i, e in enumerate(errors)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs")
    for name, drawn in (("small", view(small(), small("b."))), ("large", view(large()))):
        page = html.document(name, tag("main", html.section("Graph", drawn)), style=graph_view.style())
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
        (folder / f"{name}.json").write_text("{}", encoding="utf-8")
    return folder


def sound(shown: View) -> None:
    """Nothing is asked for, nothing scrolls sideways but the drawings, and each text can be read."""
    assert shown.console == [] and set(shown.requests) - {"data:,"} == {shown.url}
    assert shown.browser.execute_script("return document.documentElement.scrollWidth") <= shown.width
    for way in ("error", "time", "dtype"):
        for radio in shown.browser.find_elements("css selector", f".by-{way}"):
            radio.click()
        faint = [(round(ratio, 2), text) for ratio, text in shown.browser.execute_script(CONTRAST) if ratio < 4.5]
        assert faint == []


def fill(browser: Any, name: str) -> str:
    script = (
        "return getComputedStyle([...document.querySelectorAll('.op > summary')].find(s => s.title === arguments[0]))"
    )
    return str(browser.execute_script(f"{script}.backgroundColor", name))


@pytest.mark.parametrize("mode", MODES)
def test_a_small_graph_is_coloured_filtered_and_told(browser: Any, pages: Path, mode: str) -> None:
    shown = opened(browser, pages, mode, "small")
    one = lambda css: browser.find_element("css selector", css)  # noqa: E731
    assert browser.execute_script(SHOWN, ".op > summary") == 10
    by_error = fill(browser, "fc")
    assert by_error != fill(browser, "soft") != fill(browser, "conv") and "12.0 dB" in one(".flagged").text
    one(".by-time").click()
    assert fill(browser, "conv") == fill(browser, "fc") != by_error and "1.000 ms" in one(".flagged").text
    one(".by-dtype").click()
    assert fill(browser, "conv") != fill(browser, "fc") and "float32" in one(".flagged").text
    one(".only").click()
    assert browser.execute_script(SHOWN, ".op > summary") == 4  # of both nets
    one(".only").click()
    one("select option.k1").click()
    assert browser.execute_script(SHOWN, ".op > summary") == 2
    one("select option.all").click()
    one(".marks a").click()
    about = one(".op[open] .about")
    assert all(words in about.text for words in ("departs first: scale", "12.0 dB", "pool", "b.fc"))
    assert browser.execute_script(SHOWN, ".op[open] .about svg") == 1
    browser.find_element("link text", "b.fc").click()  # its partner, and no other
    assert browser.execute_script(SHOWN, ".about") == 1 and "b.pool" in one(".op[open] .about").text
    one(".op[open] > summary").send_keys("\n")
    assert browser.execute_script(SHOWN, ".about") == 0
    sound(shown)


@pytest.mark.parametrize("mode", ["light", "narrow-dark"])
def test_a_large_graph_opens_its_folds(browser: Any, pages: Path, mode: str) -> None:
    shown = opened(browser, pages, mode, "large")
    assert browser.execute_script(SHOWN, ".group") == 40
    assert browser.execute_script(SHOWN, ".op > summary") == 0
    browser.find_element("css selector", ".group").click()
    assert browser.execute_script(SHOWN, ".op > summary") == 25
    browser.find_element("css selector", ".fold[open] .op > summary").click()
    assert "exact" in browser.find_element("css selector", ".op[open] .about").text
    browser.find_element("css selector", ".op[open] > summary").send_keys("\n")
    browser.find_element("css selector", ".only").click()
    assert browser.execute_script(SHOWN, ".group") == 28 and browser.execute_script(SHOWN, ".fold > summary") == 28
    browser.find_element("css selector", ".only").click()
    sound(shown)
