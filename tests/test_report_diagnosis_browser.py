"""The page of a diagnosis in a real browser: marks are as long as diagnosis.json says, light, dark and on a phone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from report_browser import MODES, View, assert_drawn, assert_sound, needed, opened
from report_diagnosis import diagnosis

from edgecompress.stages.diagnose import page as pages

pytestmark = [*needed, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "report.html").write_text(pages.page(diagnosis()), encoding="utf-8")
    (folder / "report.json").write_text(json.dumps(diagnosis()), encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=("light", "narrow-dark"))
def view(browser: Any, page: Path, request: pytest.FixtureRequest) -> View:
    return opened(browser, page, request.param)


def measured(view: View, key: str) -> list[Any]:
    return [row[key] for row in view.report["layers"] if row["output"]]


COUNTS = {
    ("sqnr", "own noise"): 5,
    ("sqnr", "noise so far"): 5,
    ("effects", "effect"): 4,
    ("ranges", "source range"): 5,
    ("ranges", "artifact range"): 5,
    ("ranges", "outlier"): 4,
    ("channels", "channels"): 2,
    ("values", "values"): 6,
}


@pytest.mark.parametrize(("figure", "what"), list(COUNTS))
def test_each_figure_is_drawn_with_a_mark_for_every_datum(view: View, figure: str, what: str) -> None:
    assert len(assert_drawn(view, figure, what)) == COUNTS[figure, what]


def test_bars_of_noise_are_as_long_as_the_facts_say_and_the_exact_one_is_hollow(view: View) -> None:
    marks, own = view.marks("sqnr", "own noise"), measured(view, "own_sqnr_db")
    for mark, value in zip(marks, own, strict=True):
        assert (mark["opacity"] == 0) == (value is None)
        assert mark["width"] / marks[0]["width"] == pytest.approx((value or own[0]) / own[0], abs=0.03)
    assert [mark["y"] for mark in marks] == sorted(mark["y"] for mark in marks)


def test_the_layer_that_the_advice_is_about_has_its_own_colour(view: View) -> None:
    fills = [mark["fill"] for mark in view.marks("sqnr", "own noise")]
    assert [fill != fills[0] for fill in fills] == [False, True, False, False, False]
    effects = view.marks("effects", "effect")
    assert (effects[0]["fill"], effects[0]["width"]) == (fills[1], max(mark["width"] for mark in effects))


def test_effects_lie_on_a_log_axis(view: View) -> None:
    widths = [mark["width"] for mark in view.marks("effects", "effect")]
    effects = sorted((effect for effect in measured(view, "effect") if effect), reverse=True)
    decade = (widths[0] - widths[1]) / math.log10(effects[0] / effects[1])
    assert widths[1] - widths[2] == pytest.approx(decade * math.log10(effects[1] / effects[2]), abs=0.06 * widths[0])


def test_an_artifact_that_is_too_wide_reaches_beyond_its_source(view: View) -> None:
    ours, theirs = (view.marks("ranges", f"{whose} range") for whose in ("source", "artifact"))
    assert theirs[3]["x"] < ours[3]["x"] and "2 items not finite" in theirs[3]["says"]
    assert theirs[0]["width"] / ours[0]["width"] == pytest.approx(3.25 / 3.5, abs=0.06)


@pytest.mark.parametrize("mode", list(MODES))
def test_the_page_keeps_to_itself_fits_and_is_readable(browser: Any, page: Path, mode: str) -> None:
    view = opened(browser, page, mode)
    assert_sound(view)
