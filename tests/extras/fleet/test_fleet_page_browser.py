"""matrix.html in a real browser: what each view shows, what a filter hides, light and dark, on a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from report_browser import MODES, View, assert_sound, needed, opened

from edgecompress.extras.fleet import page, sweep
from edgecompress.extras.fleet.matrix import Row

pytestmark = [*needed, pytest.mark.slow]
TARGETS = {"x86": ("host", "bench-2"), "arm64": ("rpi5", "rpi4")}


def rows() -> list[Row]:
    """Ten models on four devices; one cell each lost, failed and refused."""
    found = list[Row]()
    for number in range(10):
        for at, (target, device) in enumerate((t, d) for t, devices in TARGETS.items() for d in devices):
            ms = (1.0 + number) * 2**at
            numbers = {
                "latency": {"value": ms, "unit": "ms", "text": f"{ms:.3g} ms"},
                "size": {"value": 1000.0 * (1 + at), "unit": "bytes", "text": f"{1 + at} kB"},
            }
            name = f"net{number}/{target}/{device}/quick"
            state = {(1, 0): "lost", (2, 1): "failed", (3, 2): "refused"}.get((number, at), "shipped")
            good = state == "shipped"
            found.append(
                Row(
                    cell=name, source=f"net{number}", target=target, device=device, profile="quick", state=state,
                    exit_code=0 if good else 1, says="" if good else "no variant is within its limits",
                    report=f"{name}/report.html" if good else "", variant="int8" if good else "",
                    numbers=dict(numbers) if good else {},
                    loss=0.002 * number if good else None, wall_s=3.0, saved_s=0.0,
                )
            )  # fmt: skip
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("matrix")
    (made / sweep.FILE).write_text(json.dumps({"schema": sweep.SCHEMA, "rows": rows()}), encoding="utf-8")
    (made / sweep.PAGE).write_text(page.of(rows(), ["x86 does not run on rpi5 (linux-aarch64)"]), encoding="utf-8")
    return made


@pytest.fixture(params=MODES)
def view(browser: Any, folder: Path, request: pytest.FixtureRequest) -> View:
    return opened(browser, folder, request.param, "matrix")


SEEN = """
return [...document.querySelectorAll(arguments[0])].filter(e => e.checkVisibility()).map(e => e.textContent);
"""


def seen(view: View, what: str) -> list[str]:
    found: list[str] = view.browser.execute_script(SEEN, what)
    return found


def choose(view: View, name: str) -> None:
    view.browser.execute_script("document.getElementById(arguments[0]).click()", name)


def test_the_page_is_sound_in_light_and_dark_and_on_a_phone(view: View) -> None:
    assert_sound(view)


def test_each_view_shows_its_numbers_and_a_filter_hides_what_it_names(view: View) -> None:
    assert len(seen(view, ".heat .of-verdict")) == 40 and seen(view, ".heat .of-latency") == []
    assert {text[0] for text in seen(view, ".heat .of-verdict")} == {"\u2713", "\u2715", "!", "\u2013"}
    for name in ("latency", "size", "loss", "energy_gross"):
        choose(view, f"view-{name}")
        assert len(seen(view, f".heat .of-{name}")) == 40 and seen(view, ".heat .of-verdict") == []
    choose(view, "view-latency")
    assert seen(view, ".heat .of-latency")[0] == "1\u00a0ms"
    choose(view, "target-0")
    assert len(seen(view, ".heat .of-latency")) == 20
    choose(view, "source-0")
    assert len(seen(view, ".heat .of-latency")) == 18
    choose(view, "target-0")
    choose(view, "source-0")


def test_a_cell_leads_to_its_report(view: View) -> None:
    links = view.browser.execute_script(
        "return [...document.querySelectorAll('.heat a')].map(a => a.getAttribute('href'))"
    )
    assert "net0/x86/host/quick/report.html" in links
