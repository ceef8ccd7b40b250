"""What pruning, low rank and training add to report.html, in a real browser: marks say what report.json says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_compressed
from report_browser import MODES, Report, View, assert_drawn, assert_sound, needed, number, opened

from edgecompress.stages import report as stage

pytestmark = [*needed, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    told = {"pruned-int8/prune_channels": report_compressed.neighbours()}
    return stage.run(report_compressed.request(tmp_path_factory.mktemp("page"), fits=told)).path


@pytest.fixture(scope="module", params=("light", "narrow-dark"))
def view(browser: Any, page: Path, request: pytest.FixtureRequest) -> View:
    return opened(browser, page, request.param)


def parts(report: Report) -> int:
    found = [v["compressed"] for v in report["variants"] if v["compressed"]]
    rows = [(c["groups"], c["layers"], c["sparsity"]["rows"] if c["sparsity"] else []) for c in found]
    return sum(len(kind) for each in rows for kind in each)


COUNTS: dict[tuple[str, str], Callable[[Report], int]] = {
    ("gains", "gain"): lambda r: len(r["gains"]),
    ("gains", "promise"): lambda r: len(r["gains"]),
    ("compressed", "part"): parts,
    ("fits", "cell"): lambda r: sum(len(f["saved"]) for f in r["fits"]),
    ("fits", "trial"): lambda r: sum(t["ratio"] is not None for f in r["fits"] for t in f["trials"]),
    ("training", "loss"): lambda r: sum(bool(v["training"]) for v in r["variants"]),
    ("training", "top1 on select, %"): lambda r: sum(bool(v["training"]) for v in r["variants"]),
}


@pytest.mark.parametrize(("figure", "what"), list(COUNTS))
def test_each_figure_is_drawn_with_a_mark_for_every_datum(view: View, figure: str, what: str) -> None:
    assert len(assert_drawn(view, figure, what)) == COUNTS[figure, what](view.report) > 0


def test_what_was_bought_lies_in_the_order_of_its_factors(view: View) -> None:
    marks = view.marks("gains", "gain")
    assert [m["says"] for m in marks] == [g["says"] for g in view.report["gains"]]
    middles = [
        (g["change"]["factor"], m["x"] + m["width"] / 2) for g, m in zip(view.report["gains"], marks, strict=True)
    ]
    assert [x for _, x in sorted(middles)] == sorted(x for _, x in middles)


def test_bars_are_as_long_as_the_dense_widths(view: View) -> None:
    groups = view.report["variants"][0]["compressed"]["groups"]
    marks = [m for m in view.marks("compressed", "part") if m["panel"] == "pruned-int8"]
    for mark, group in zip(marks, groups, strict=True):
        assert mark["width"] / marks[-1]["width"] == pytest.approx(group["channels"] / 64, abs=0.02)
        assert mark["says"].startswith(f"{group['name']}: {group['kept'] or 'gone'}")


def test_the_chosen_trial_is_full_and_each_lies_where_it_measured(view: View) -> None:
    trials = [t for t in view.report["fits"][0]["trials"] if t["ratio"] is not None]
    marks = view.marks("fits", "trial")
    assert [m["opacity"] > 0.5 for m in marks] == [t["chosen"] for t in trials]
    assert [number(r"measured ([\d.]+)", m["says"]) for m in marks] == pytest.approx(
        [t["ratio"] for t in trials], rel=2e-3
    )
    assert (marks[0]["x"] > marks[1]["x"]) == (trials[0]["ratio"] > trials[1]["ratio"])


@pytest.mark.parametrize("mode", list(MODES))
def test_the_page_keeps_to_itself_fits_and_is_readable(browser: Any, page: Path, mode: str) -> None:
    view = opened(browser, page, mode)
    assert_sound(view)
