"""The other devices of report.html in a real browser: each has its dot, its words and its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from measured_inputs import of, sessions, shipped, told
from report_browser import MODES, View, assert_drawn, assert_sound, needed, number, opened
from report_inputs import HOSTILE

from edgecompress.commands import report
from edgecompress.pipeline.job_request import Options
from edgecompress.reporting import external_section, model

pytestmark = needed


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with a phone of six sessions, one of two, a browser with a coarse clock, and two that are not ranked."""
    folder = shipped(tmp_path_factory.mktemp("elsewhere"))
    coarse = {"clock": "performance.now", "clock_step_ns": 20_000, "device__platform": "web-x86_64"}
    others = [
        *sessions(2, name="Redmi Note 12", median_ns=700_000),
        told("Firefox on Windows", latencies_ns=[1_480_000, 1_500_000, 1_520_000] * 10, **coarse),
        told("An old tablet", latencies_ns=[20_000] * 30, **coarse),
        told(HOSTILE, 90_000, self_test="fail"),
    ]
    files = of(folder, *sessions(6), *others)
    report.add(folder, files, Options(store=folder.parent / "store"))
    return folder


@pytest.fixture(scope="module", params=list(MODES))
def view(browser: Any, page: Path, request: pytest.FixtureRequest) -> View:
    return opened(browser, page, request.param)


def test_each_device_that_has_a_latency_is_a_dot_that_says_it(view: View) -> None:
    rows = [r for r in view.report["elsewhere"] if r["numbers"]["latency"]["value"] is not None]
    marks = assert_drawn(view, "elsewhere", "device")
    assert [r["rank"] for r in rows] == [1, 2, 3, None] and len(marks) == len(rows)
    for mark, row in zip(marks, rows, strict=True):
        assert mark["says"].startswith(f"{row['device']['name'][:60]}")
        took = number(r": ([\d.]+) ms", mark["says"].removeprefix(row["device"]["name"][:60]))
        assert took == pytest.approx(row["numbers"]["latency"]["value"], rel=0.02)


def test_the_dots_lie_as_the_latencies_do(view: View) -> None:
    ranked = view.marks("elsewhere", "device")[:3]
    places = [mark["x"] + mark["width"] / 2 for mark in ranked]
    assert places == sorted(places) and places[-1] - places[0] > 50
    heights = [mark["y"] for mark in view.marks("elsewhere", "device")]
    assert heights == sorted(heights)


def test_what_failed_its_self_test_is_hollow_and_says_so(view: View) -> None:
    *ranked, failed = view.marks("elsewhere", "device")
    assert failed["opacity"] == 0 and failed["dashes"] != "none" and "self-test failed: not ranked" in failed["says"]
    assert all(mark["opacity"] > 0.5 and "not ranked" not in mark["says"] for mark in ranked)


def test_the_section_has_the_words_of_the_tables(view: View) -> None:
    view.browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    sections = view.browser.find_elements("css selector", "section")
    section = next(s for s in sections if s.text.startswith(external_section.TITLE))
    text = " ".join(section.get_attribute("textContent").replace("\N{NO-BREAK SPACE}", " ").split())
    text = text.replace("\N{WORD JOINER}", "")
    for table in (
        external_section.table(model.of(view.report)),
        external_section.places(model.of(view.report)),
        external_section.sessions(model.of(view.report)),
    ):
        assert table.rows
        for cell in (cell for line in (table.head, *table.rows) for cell in line):
            assert " ".join(cell.split()) in text


def test_the_page_is_as_any_other(view: View) -> None:
    assert_sound(view)
