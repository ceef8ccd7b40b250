"""The site that `make site` builds: no warning, no dead link, nothing from another host, and it fits on a phone."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from report_browser import MODES, requested

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
LOADED_LINKS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}


@dataclass
class Page(HTMLParser):
    """What a page has: its anchors, where its links lead, what it loads."""

    path: Path
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {key: value or "" for key, value in attrs}
        self.anchors |= {said[key] for key in ("id", "name") if key in said}
        if tag == "link":
            loaded = LOADED_LINKS & set(said.get("rel", "").split())
            (self.loads if loaded else self.links).append(said["href"])
        elif "href" in said:
            self.links.append(said["href"])
        if tag in LOADED and LOADED[tag] in said:
            self.loads.append(said[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built by the command of the Makefile."""
    out = tmp_path_factory.mktemp("site")
    line = re.search(r"-m sphinx (.+) build/site$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert line
    flags = line[1].replace("build/doctrees", str(out / "doctrees")).split()
    command = [sys.executable, "-m", "sphinx", *flags, str(out / "html")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return out / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def dead(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    """The links of a page that lead nowhere on the site."""
    for link in page.links + page.loads:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        path = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        anchor = unquote(parts.fragment)
        if not path.is_file() or (anchor and path in pages and anchor not in pages[path].anchors):
            yield link


@pytest.mark.prove
def test_every_page_of_the_repository_is_a_page_of_the_site(pages: dict[Path, Page], site: Path) -> None:
    sources = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/plugins/README.md"]
    sources += [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    assert "docs/reference/commands.md" in sources
    built = {path.relative_to(site).with_suffix(".md").as_posix() for path in pages}
    assert sorted(set(sources) - built) == []


def test_the_first_page_is_the_readme_and_its_sidebar_leads_to_every_page(pages: dict[Path, Page], site: Path) -> None:
    assert (site / "index.html").read_bytes() == (site / "README.html").read_bytes()
    led = {(site / urlsplit(link).path).resolve() for link in pages[site / "index.html"].links}
    apart = {site / "index.html", site / "README.html", site / "search.html"}
    assert sorted(set(pages) - apart - led) == []


def test_no_link_and_no_anchor_is_dead(pages: dict[Path, Page], site: Path) -> None:
    found = {str(path.relative_to(site)): list(dead(page, pages)) for path, page in pages.items()}
    assert sum(len(page.links) for page in pages.values()) > 1000
    assert {page: links for page, links in found.items() if links} == {}


def test_nothing_is_loaded_from_another_host(pages: dict[Path, Page], site: Path) -> None:
    loads = {load for page in pages.values() for load in page.loads}
    assert any(load.endswith(".css") or ".css?" in load for load in loads)
    assert [load for load in loads if urlsplit(load).netloc] == []
    styles = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.css")}
    named = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")
    assert [str(path) for path, text in styles.items() if named.search(text)] == []


def test_links_to_code_are_paths(site: Path) -> None:
    text = (site / "CONTRIBUTING.html").read_text(encoding="utf-8")
    shown = re.sub(r"<[^>]+>", "", text)
    assert "edgecompress/core/protocols.py" in shown
    assert 'protocols.py"' not in text


# ------------------------------------------------------------------ in a browser


def shown(browser: Any, address: str, mode: str) -> tuple[int, list[Any], list[str]]:
    """How wide a page is in one of MODES, what the console says, and what the page asked for."""
    theme, width = MODES[mode]
    scheme = {"name": "prefers-color-scheme", "value": theme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    requested(browser)
    browser.get(address)
    wide = browser.execute_script("return document.documentElement.scrollWidth")
    return wide - width, browser.get_log("browser"), requested(browser)


@pytest.mark.prove
@pytest.mark.browser
@pytest.mark.parametrize("mode", MODES)
def test_no_page_scrolls_sideways_and_the_console_is_clean(
    browser: Any, site: Path, pages: dict[Path, Page], mode: str
) -> None:
    for path in pages:
        over, console, requests = shown(browser, path.as_uri(), mode)
        assert (over, console) == (0, []), path
        assert [r for r in requests if not r.startswith(("data:", site.as_uri()))] == [], path


@pytest.mark.browser
@pytest.mark.parametrize("mode", ["light", "dark"])
def test_the_scheme_is_the_systems_until_it_is_toggled(browser: Any, site: Path, mode: str) -> None:
    shown(browser, (site / "index.html").as_uri(), mode)
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    brightness = "return getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)[0]"
    assert (browser.execute_script(brightness) > 127) == (mode == "light")
    browser.find_element("css selector", ".theme-toggle-content .theme-toggle").click()
    assert (browser.execute_script(brightness) > 127) == (mode == "dark")
    browser.execute_script("localStorage.clear()")


@pytest.mark.browser
def test_the_search_finds_pages_without_a_server(browser: Any, site: Path) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    shown(browser, (site / "search.html").as_uri() + "?q=sparsity", "light")
    found = "return [...document.querySelectorAll('#search-results li a')].map(a => a.href)"
    hits = WebDriverWait(browser, 20).until(lambda b: b.execute_script(found))
    assert any("docs/sparsity.html" in hit for hit in hits)
    assert browser.get_log("browser") == []
