"""report.html in a real browser: each figure is drawn, says what report.json says, and nothing leaves the page."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from report_browser import MODES, Report, View, assert_drawn, assert_sound, needed, number, opened
from report_inputs import request

from edgecompress.stages import report as stage

pytestmark = needed


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stage.run(request(tmp_path_factory.mktemp("page"))).path


@pytest.fixture(scope="module", params=list(MODES))
def view(browser: Any, page: Path, request: pytest.FixtureRequest) -> View:
    return opened(browser, page, request.param)


# ------------------------------------------------------------------ what report.json says that each figure shows


def ordered(report: Report) -> list[Report]:
    """As the report shows them: the fastest first."""
    return sorted(report["variants"], key=lambda v: v["numbers"]["latency"]["value"] or math.inf)


def variants(report: Report, key: str) -> list[Report]:
    return [v for v in ordered(report) if v[key]]


def known(report: Report, metric: str) -> list[Report]:
    return [v for v in ordered(report) if v["numbers"][metric]["value"] is not None]


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
    assert len(assert_drawn(view, figure, what)) == COUNTS[figure, what](view.report) > 0


def find(report: Report, name: str) -> Any:
    return next(v for v in report["variants"] if v["name"] == name)


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
    sessions = [(v["name"], s) for v in ordered(view.report) for s in v["sessions"]]
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


def test_the_page_keeps_to_itself_fits_and_is_readable(view: View) -> None:
    assert_sound(view)


def test_dark_is_dark_and_light_is_light(view: View) -> None:
    colour = view.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    brightness = sum(map(int, re.findall(r"\d+", colour)[:3])) / 3
    assert brightness < 60 if view.theme == "dark" else brightness > 200
