"""A report in a real browser: how it is opened, what its marks say, and what is true of every page."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

Report = Mapping[str, Any]
CHROMIUM, DRIVER = shutil.which("chromium") or "", shutil.which("chromedriver") or ""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --use-fake-device-for-media-stream "
    "--use-fake-ui-for-media-stream"
)
MODES = {"light": ("light", 1200), "dark": ("dark", 1200), "narrow": ("light", 400), "narrow-dark": ("dark", 400)}

needed = [
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
          opacity: Number(style.fillOpacity), dashes: style.strokeDasharray,
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


def opened(browser: Any, page: Path, mode: str, name: str = "report") -> View:
    """A folder with a report (or another page and its JSON), in one of MODES."""
    theme, width = MODES[mode]
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get_log("performance")
    url = (page / f"{name}.html").as_uri()
    browser.get(url)
    report = json.loads((page / f"{name}.json").read_text(encoding="utf-8"))
    return View(browser, report, url, width, theme, browser.get_log("browser"), requested(browser))


def requested(browser: Any) -> list[str]:
    """Each address that the page asked for."""
    events = (json.loads(entry["message"])["message"] for entry in browser.get_log("performance"))
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def number(pattern: str, says: str) -> float:
    found = re.search(pattern, says)
    assert found, says
    return float(found[1].replace(",", ""))


def assert_sound(view: View) -> None:
    """The console is clean, no request leaves the page, nothing is wider than it, and every text can be read."""
    assert view.console == []
    assert set(view.requests) - {"data:,"} == {view.url}
    assert view.browser.execute_script("return document.documentElement.scrollWidth") <= view.width
    wide = view.browser.execute_script(
        "return [...document.querySelectorAll('svg:not(.edges), figcaption, h1, h2, .tile, .sentence')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    measured = view.browser.execute_script(CONTRAST)
    assert len(measured) > 150
    faint = sorted((round(ratio, 2), text) for ratio, text in measured if ratio < 4.5)
    assert faint == []


def assert_drawn(view: View, figure: str, what: str) -> list[dict[str, Any]]:
    """The marks of a figure: each is seen, inside the page, and says aloud what its title says."""
    marks = view.marks(figure, what)
    for mark in marks:
        assert mark["shown"] and mark["width"] > 0 and mark["height"] > 0, mark
        assert mark["says"] and mark["title"] == mark["says"]
        assert mark["x"] >= 0 and mark["x"] + mark["width"] <= view.width, mark
        assert mark["fill"] != "none" or mark["stroke"] != "none"
        assert "var(" not in mark["fill"] + mark["stroke"]
    return marks
