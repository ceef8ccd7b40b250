"""A noisy machine gives no wrong number: simulated races, and what a report says of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import prove
import pytest
import report_inputs

from edgecompress.device.agent import disturbance
from edgecompress.reporting import before_after, formatting, model, model_numbers, model_variant, sessions, tables

NOISE = "other work held its processors for 60% of the time (10 of 10 windows, each repeated)"
RACES = 3
Report = dict[str, Any]


@pytest.fixture(scope="module")
def noise() -> ModuleType:
    """benchmarks/noise.py."""
    return prove.benchmark("noise")


@pytest.mark.parametrize("kernel", ["Linux", "macOS", "nothing"])
@pytest.mark.parametrize("load", ["quiet", "4 busy", "stopped"])
def test_simulated_races_tell_the_truth_or_nothing(noise: ModuleType, load: str, kernel: str) -> None:
    races = noise.simulated(RACES, 0)[f"{load}, {kernel}"]()
    assert all(row.kept for row in noise.promises(f"{load}, {kernel}", races) if row.trials)
    assert all(race.noisy == (load == "4 busy") for race in races)
    assert all(race.within and race.told for race in races if not race.noisy)


def test_if_no_window_were_doubted_the_simulated_intervals_would_miss(
    noise: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disturbance, "cause", lambda window, threads: "")
    races = noise.simulated(12, 0)["2 busy, Linux"]()
    assert not all(row.kept for row in noise.promises("2 busy, Linux", races))


# --------------------------------------------------------------------------- what a report says


def of(folder: Path, change: Callable[[str, int, dict[str, Any]], dict[str, Any]], count: int = 6) -> Report:
    """The report of synthetic sessions, those of each variant and round changed."""
    request = report_inputs.request(folder, sessions=count, runs=50)
    for role, artifact in request.inputs.items():
        if artifact.kind == "round":
            card = json.loads((artifact.path / "artifact.json").read_text())
            told = card["facts"]["variants"]
            card["facts"]["variants"] = {n: {**s, **change(n, int(role[6:]), s)} for n, s in told.items()}
            (artifact.path / "artifact.json").write_text(json.dumps(card))
            object.__setattr__(artifact, "facts", card["facts"])
    return report_inputs.written(request)


def too_noisy(name: str, number: int, session: dict[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(("median_ms", "p90_ms", "min_ms", "max_ms", "mean_ms")), "noisy": NOISE}


def test_a_report_of_what_was_too_noisy_has_no_latency_no_factor_and_no_headline(tmp_path: Path) -> None:
    report = of(tmp_path, too_noisy)
    assert "int8 ships: too noisy to compare, so no latency is reported" in report["summary"]["sentence"]
    assert "×" not in report["summary"]["sentence"] and "faster" not in report["summary"]["sentence"]
    for variant in report["variants"]:
        assert variant["numbers"]["latency"]["value"] is None
    shipped = next(v for v in report["variants"] if v["name"] == "int8")
    assert shipped["numbers"]["latency"]["reason"] == f"too noisy to compare: {NOISE}"
    assert all(not s["latencies_ms"] for v in report["variants"] for s in v["sessions"])


def test_two_that_have_no_round_in_common_are_too_noisy_to_compare(tmp_path: Path) -> None:
    def apart(name: str, number: int, session: dict[str, Any]) -> dict[str, Any]:
        return too_noisy(name, number, session) if ("fp32" in name) == (number > 2) else {}

    report = of(tmp_path, apart)
    assert f"too noisy to compare with {report['baseline']}" in report["summary"]["sentence"]
    assert "faster" not in report["summary"]["sentence"]


def test_a_factor_is_of_windows_beside_each_other(tmp_path: Path) -> None:
    """Half way through each session the machine becomes half as fast; the medians of the two lie on either side."""

    def beside(name: str, number: int, session: dict[str, Any]) -> dict[str, Any]:
        slow = [1.0, 1.0, 2.0, 2.0, 2.0] if name == "int8" else [3.0, 3.0, 6.0, None, None]
        return {"windows_ms": slow, "median_ms": 2.0 if name == "int8" else 3.0}

    report = of(tmp_path, beside)
    factor = next(row for row in report["deltas"] if row["metric"] == "latency")["change"]
    assert factor["factor"] == pytest.approx(3.0)


def test_a_factor_of_one_is_called_neither_faster_nor_slower() -> None:
    change = model_numbers.Change(0.998, None, None, 1, "none")
    assert before_after.say(change, ("faster", "slower")) == "no change called (0.998×)"
    assert before_after.alike(change) and not before_after.alike(model_numbers.Change(0.97, None, None, 1, "none"))


@pytest.mark.parametrize("verdict", ["equal", "undecided", "noisy"])
def test_no_variant_is_called_slower_that_is_not_shown_to_be(verdict: Any) -> None:
    assert formatting.ended(model_variant.Variant("v", verdict=verdict, reason="not decided")) == "not decided"
    assert formatting.ended(model_variant.Variant("v", verdict="slower", reason="2x")) == "slower: 2x"


def test_the_table_of_operators_says_where_they_do_not_add_up(tmp_path: Path) -> None:
    report = of(tmp_path, lambda name, number, session: {"median_ms": 9.0} if name == "int8-dynamic" else {})
    remarks = {row[0]: row[-1] for row in tables.operators(model.of(report)).rows}
    assert remarks == {
        "int8": "",
        "openvino-fp32": "",
        "int8-dynamic": "operator times do not add up to the latency",
    }
    assert sessions.ratios([], [], sessions.LATENCY) == []
