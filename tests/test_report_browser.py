"""report.html in a real browser: each figure is drawn, says what report.json says, and nothing leaves the page."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from report_inputs import request

from edgecompress.stages import report as stage

Report = Mapping[str, Any]
CHROMIUM, DRIVER = shutil.which("chromium") or "", shutil.which("chromedriver") or ""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars"
)
MODES = {"light": ("light", 1200), "dark": ("dark", 1200), "narrow": ("light", 400), "narrow-dark": ("dark", 400)}

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no Chromium: apt-get install chromium chromium-driver"),
]


@dataclass(frozen=True)
class View:
    """The page as opened in one mode."""

    browser: Any
    report: Report
    url: str
    width: int
    theme: str
    console: list[Any]
    requests: list[str]

    def marks(self, figure: str, what: str) -> list[dict[str, Any]]:
        """The marks of a figure that stand for data: what they say, their title, box, fill and stroke."""
        found: list[dict[str, Any]] = self.browser.execute_script(MARKS, figure, what)
        return found


MARKS = """
const inside = `#figure-${arguments[0]} [aria-roledescription="${arguments[1]}"]`;
return [...document.querySelectorAll(inside)].map(mark => {
  const box = mark.getBoundingClientRect(), style = getComputedStyle(mark);
  const panel = mark.closest('.panel').dataset.variant || '';
  return {says: mark.getAttribute('aria-label'), title: mark.querySelector('title').textContent, panel,
          x: box.x, y: box.y, width: box.width, height: box.height, fill: style.fill, stroke: style.stroke,
          shown: style.visibility === 'visible' && style.display !== 'none' && Number(style.opacity) > 0};
});
"""
CONTRAST = r"""
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function rgb(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function light([r, g, b]) {
  const linear = [r, g, b].map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
}
function behind(element) {
  for (let at = element; at; at = at.parentElement) {
    const colour = rgb(getComputedStyle(at).backgroundColor);
    if (colour[3] === 255) return colour;
  }
  return [255, 255, 255, 255];
}
document.querySelectorAll('details').forEach(d => d.open = true);
const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
while (texts.nextNode()) {
  const element = texts.currentNode.parentElement, text = texts.currentNode.textContent.trim();
  if (!text || element.tagName === 'title') continue;
  const style = getComputedStyle(element), svg = element instanceof SVGElement;
  const [a, b] = [rgb(svg ? style.fill : style.color), behind(element)].map(light);
  found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text]);
}
return found;
"""


def open_browser(profile: Path) -> Any:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(DRIVER))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    opened = open_browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage.run(request(tmp_path_factory.mktemp("page"))).path


@pytest.fixture(scope="module", params=list(MODES))
def view(browser: Any, page: Path, request: pytest.FixtureRequest) -> View:
    theme, width = MODES[request.param]
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("performance")
    url = (page / "report.html").as_uri()
    browser.get(url)
    report = json.loads((page / "report.json").read_text(encoding="utf-8"))
    return View(browser, report, url, width, theme, browser.get_log("browser"), requested(browser))


def requested(browser: Any) -> list[str]:
    """Each address that the page asked for."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


# ------------------------------------------------------------------ what report.json says that each figure shows


def variants(report: Report, key: str) -> list[Report]:
    return [v for v in report["variants"] if v[key]]


def known(report: Report, metric: str) -> list[Report]:
    return [v for v in report["variants"] if v["numbers"][metric]["value"] is not None]


def bins(report: Report) -> int:
    shapes = [v["distribution"]["histogram"] for v in variants(report, "distribution")]
    return sum(sum(1 for n in (*h["counts"], h["over"]) if n) for h in shapes)


COUNTS: dict[tuple[str, str], Callable[[Report], int]] = {
    ("changes", "change"): lambda r: sum(1 for row in r["deltas"] if row["change"]),
    ("tradeoff", "variant"): lambda r: len(known(r, "accuracy")),
    ("histogram", "histogram bin"): bins,
    ("ecdf", "cumulative curve"): lambda r: len(variants(r, "distribution")),
    ("strip", "session"): lambda r: sum(len(v["sessions"]) for v in r["variants"]),
    ("operators", "operator"): lambda r: sum(min(10, len(v["ops"]["ops"])) for v in variants(r, "ops")),
    ("energy", "energy"): lambda r: len(known(r, "energy_gross")),
}


@pytest.mark.parametrize(("figure", "what"), list(COUNTS))
def test_each_figure_is_drawn_with_a_mark_for_every_datum(view: View, figure: str, what: str) -> None:
    marks = view.marks(figure, what)
    assert len(marks) == COUNTS[figure, what](view.report) > 0
    for mark in marks:
        assert mark["shown"] and mark["width"] > 0 and mark["height"] > 0, mark
        assert mark["says"] and mark["title"] == mark["says"]
        assert mark["x"] >= 0 and mark["x"] + mark["width"] <= view.width, mark
        assert mark["fill"] != "none" or mark["stroke"] != "none"
        assert "var(" not in mark["fill"] + mark["stroke"]


def find(report: Report, name: str) -> Any:
    return next(v for v in report["variants"] if v["name"] == name)


def number(pattern: str, says: str) -> float:
    found = re.search(pattern, says)
    assert found, says
    return float(found[1].replace(",", ""))


def test_changes_say_the_changes(view: View) -> None:
    says = [mark["says"] for mark in view.marks("changes", "change")]
    assert says == [f"{row['label']}: {row['says']}" for row in view.report["deltas"] if row["change"]]


def rising(pairs: Iterable[tuple[float, float]]) -> bool:
    """Whether the second of each pair (a place, in pixels) grows with the first."""
    return all(a[1] <= b[1] + 0.5 for a, b in itertools.pairwise(sorted(pairs)))


def test_changes_lie_in_the_order_of_their_factors(view: View) -> None:
    factors = [row["change"]["factor"] for row in view.report["deltas"] if row["change"]]
    places = [mark["x"] + mark["width"] / 2 for mark in view.marks("changes", "change")]
    assert rising(zip(factors, places, strict=True))
    assert max(places) - min(places) > 50


def test_the_tradeoff_shows_latency_and_accuracy(view: View) -> None:
    for mark, variant in zip(view.marks("tradeoff", "variant"), known(view.report, "accuracy"), strict=True):
        numbers = variant["numbers"]
        assert mark["says"].startswith(f"{variant['name']}: ")
        assert number(r"([\d.]+) %", mark["says"]) == pytest.approx(100 * numbers["accuracy"]["value"], abs=0.05)
        if numbers["latency"]["value"] is not None:
            assert number(r": ([\d.]+) ms", mark["says"]) == pytest.approx(numbers["latency"]["value"], rel=1e-3)


def test_the_tradeoff_places_the_faster_to_the_left_and_the_better_above(view: View) -> None:
    pairs = list(zip(view.marks("tradeoff", "variant"), known(view.report, "accuracy"), strict=True))
    raced = [(v["numbers"]["latency"]["value"], m["x"] + m["width"] / 2) for m, v in pairs if v["sessions"]]
    assert rising(raced)
    assert max(x for _, x in raced) < min(m["x"] for m, v in pairs if not v["sessions"])
    assert rising((v["numbers"]["accuracy"]["value"], -(m["y"] + m["height"] / 2)) for m, v in pairs)


def test_the_histogram_counts_every_run(view: View) -> None:
    marks = view.marks("histogram", "histogram bin")
    for variant in variants(view.report, "distribution"):
        own = [m for m in marks if m["panel"] == variant["name"]]
        counts = [number(r": ([\d,]+) runs?$", m["says"]) for m in own]
        assert sum(counts) == variant["distribution"]["runs"]
        assert max(counts) == max(variant["distribution"]["histogram"]["counts"])
        tallest = max(own, key=lambda m: m["height"])
        assert number(r": ([\d,]+) runs?$", tallest["says"]) == max(counts)


def test_the_curves_say_their_quantiles(view: View) -> None:
    for mark, variant in zip(
        view.marks("ecdf", "cumulative curve"), variants(view.report, "distribution"), strict=True
    ):
        quantiles = variant["distribution"]["quantiles_ms"]
        assert mark["says"].startswith(f"{variant['name']}: ")
        assert number(r"within ([\d.]+) ms, 90", mark["says"]) == pytest.approx(quantiles[50], rel=1e-3)


def test_the_strip_says_each_session(view: View) -> None:
    said = [(m["panel"], m["says"]) for m in view.marks("strip", "session")]
    sessions = [(v["name"], s) for v in view.report["variants"] for s in v["sessions"]]
    for (panel, says), (name, session) in zip(said, sessions, strict=True):
        assert panel == name
        assert number(r"median ([\d.]+) ms", says) == pytest.approx(session["median_ms"], rel=1e-3)
        assert number(r"of ([\d,]+) runs", says) == session["n"]


def test_the_operators_are_as_long_as_their_times(view: View) -> None:
    marks = view.marks("operators", "operator")
    for variant in variants(view.report, "ops"):
        own = [m for m in marks if m["panel"] == variant["name"]]
        times = sorted((op["ms"] for op in variant["ops"]["ops"]), reverse=True)[: len(own)]
        assert number(r": ([\d.]+) ms$", own[0]["says"]) == pytest.approx(times[0], rel=1e-3)
        assert own[3]["width"] / own[0]["width"] == pytest.approx(times[3] / times[0], abs=0.02)


def test_energy_says_its_number_its_band_and_what_stands_behind_it(view: View) -> None:
    for mark, variant in zip(view.marks("energy", "energy"), known(view.report, "energy_gross"), strict=True):
        gross = variant["numbers"]["energy_gross"]
        assert number(r"≈ ([\d.]+) mJ", mark["says"]) == pytest.approx(gross["value"], rel=0.05)
        assert number(r"\(([\d.]+) – ", mark["says"]) == pytest.approx(gross["low"], rel=0.05)
        assert f"estimated, {gross['scope']}, {gross['source']}" in mark["says"]


# ------------------------------------------------------------------ the page as a whole


def test_the_console_is_clean_and_no_request_leaves_the_page(view: View) -> None:
    assert view.console == []
    assert set(view.requests) - {"data:,"} == {view.url}


def test_nothing_is_wider_than_the_page(view: View) -> None:
    assert view.browser.execute_script("return document.documentElement.scrollWidth") <= view.width
    wide = view.browser.execute_script(
        "return [...document.querySelectorAll('svg, figcaption, h1, h2, .tile, .sentence')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []


def test_every_text_is_readable(view: View) -> None:
    measured = view.browser.execute_script(CONTRAST)
    assert len(measured) > 300
    faint = sorted((round(ratio, 2), text) for ratio, text in measured if ratio < 4.5)
    assert faint == []


def test_dark_is_dark_and_light_is_light(view: View) -> None:
    colour = view.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert brightness < 60 if view.theme == "dark" else brightness > 200
