"""What a device adds to report.html, in a real browser: marks say what report.json says, simulated ones are hollow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import report_looks
from report_browser import Report, View, assert_drawn, assert_sound, needed, number, opened

from edgecompress.reporting import instructions, model
from edgecompress.reporting.roofline import DESCRIBED
from edgecompress.stages import report as stage

pytestmark = [*needed, pytest.mark.slow]
MODES = ("light", "narrow-dark")
MAKERS = {"board": report_looks.on_a_board, "simulated": report_looks.simulated}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: stage.run(make(tmp_path_factory.mktemp(name))).path for name, make in MAKERS.items()}


@pytest.fixture(params=MODES)
def board(browser: Any, pages: dict[str, Path], request: pytest.FixtureRequest) -> View:
    return opened(browser, pages["board"], request.param)


@pytest.fixture(params=MODES)
def simulated(browser: Any, pages: dict[str, Path], request: pytest.FixtureRequest) -> View:
    return opened(browser, pages["simulated"], request.param)


def answers(report: Report, name: str) -> dict[str, Any]:
    look = next(look for look in report["passes"] if look["pass"] == name)
    return {variant: found["answer"] for variant, found in look["variants"].items()}


def beside(report: Report, key: str) -> int:
    return sum(any(row[key] is not None for row in a["series"]) for a in answers(report, "sustained").values())


def traces(report: Report) -> list[Any]:
    return [v["power_trace"] for v in report["variants"] if v["power_trace"]]


def dots(report: Report) -> int:
    placed = [v["roofline"]["ops"] for v in report["variants"] if v["roofline"]]
    return sum(min(DESCRIBED, sum(1 for op in ops if op["macs"])) for ops in placed)


COUNTS: dict[tuple[str, str], Callable[[Report], int]] = {
    ("power", "phase"): lambda r: sum(len(t["phases"]) for t in traces(r)),
    ("power", "power trace"): lambda r: sum(1 for t in traces(r) if t["samples"]),
    ("pareto", "pareto"): lambda r: 2 * len(r["pareto"]),
    ("roofline", "roofline operator"): dots,
    ("sustained", "sustained curve"): lambda r: len(answers(r, "sustained")),
    ("sustained", "stretch"): lambda r: 2 * len(answers(r, "sustained")),
    ("sustained", "clock"): lambda r: beside(r, "cpu_mhz"),
    ("sustained", "temperature"): lambda r: beside(r, "temperature_c"),
    ("periodic", "responses"): lambda r: len(answers(r, "periodic")),
    ("throughput", "batch"): lambda r: sum(len(a["rows"]) for a in answers(r, "throughput").values()),
    ("cold", "start"): lambda r: 3 * sum(1 + bool(a["summary"]["dropped"]) for a in answers(r, "cold").values()),
    ("timeline", "memory curve"): lambda r: len(answers(r, "memory")),
    ("timeline", "phase"): lambda r: sum(len(a["phases"]) for a in answers(r, "memory").values()),
}


def test_each_figure_has_a_mark_for_every_datum(board: View) -> None:
    for (figure, what), count in COUNTS.items():
        assert len(assert_drawn(board, figure, what)) == count(board.report) > 0, (figure, what)


def test_the_power_says_each_phase_and_windows_stand_where_they_ran(board: View) -> None:
    marks = board.marks("power", "phase")
    phases = [p for t in traces(board.report) for p in t["phases"]]
    for mark, phase in zip(marks, phases, strict=True):
        assert mark["says"].startswith(phase["phase"])
        assert number(r": ([\d.]+) W", mark["says"]) == pytest.approx(phase["power"]["value"], rel=1e-3)
    assert marks[1]["width"] / marks[0]["width"] == pytest.approx(phases[1]["seconds"] / phases[0]["seconds"], abs=0.1)
    assert marks[0]["opacity"] < marks[1]["opacity"]


def test_rates_and_batches_say_their_numbers(board: View) -> None:
    rows = [row for a in answers(board.report, "throughput").values() for row in a["rows"]]
    for mark, row in zip(board.marks("throughput", "batch"), rows, strict=True):
        assert number(r": ([\d,.]+) /s", mark["says"]) == pytest.approx(row["items_per_s"], rel=1e-3)
    curves = zip(board.marks("sustained", "sustained curve"), answers(board.report, "sustained").values(), strict=True)
    for mark, answer in curves:
        assert number(r"from ([\d,.]+) /s", mark["says"]) == pytest.approx(answer["series"][0]["items_per_s"], rel=1e-3)


def test_operators_say_what_they_reach_and_the_memory_bound_ones_are_pale(board: View) -> None:
    placed = next(v["roofline"]["ops"] for v in board.report["variants"] if v["name"] == "int8")
    ops = {op["name"]: op for op in placed}
    marks = board.marks("roofline", "roofline operator")
    for mark in marks:
        op = ops[mark["says"].split(":")[0]]
        assert number(r": ([\d.]+) GFLOP/s", mark["says"]) == pytest.approx(op["gflops"], rel=1e-2)
        assert (mark["opacity"] < 0.3) == (op["bound"] == "memory")
    by_intensity = sorted(marks, key=lambda m: ops[m["says"].split(":")[0]]["flops_per_byte"])
    centres = [m["x"] + m["width"] / 2 for m in by_intensity]
    assert centres == sorted(centres)


def test_the_front_is_drawn_full_and_measured_energy_is_not_dashed(board: View) -> None:
    assert all(m["opacity"] > 0.5 and m["dashes"] == "none" for m in board.marks("pareto", "pareto"))


def test_instructions_are_hollow_and_as_long_as_their_counts(simulated: View) -> None:
    shown = [(v.name, v.count) for v in model.of(simulated.report).variants if v.count]
    segments = [s for pair in shown for s in instructions._segments(*pair, instructions._classes(shown))]
    marks = assert_drawn(simulated, "instructions", "instructions")
    assert [m["says"] for m in marks] == [s["says"] for s in segments]
    assert all(m["opacity"] < 0.2 and m["dashes"] != "none" for m in marks)
    long, short = marks[3], marks[0]
    assert long["width"] / short["width"] == pytest.approx(
        (segments[3]["b"] - segments[3]["a"]) / (segments[0]["b"] - segments[0]["a"]), rel=0.35
    )


def test_the_tradeoff_of_a_simulated_device_is_hollow(simulated: View) -> None:
    marks = assert_drawn(simulated, "tradeoff", "variant")
    assert len(marks) == 2
    assert all(m["opacity"] < 0.2 and m["dashes"] != "none" and " instructions" in m["says"] for m in marks)


@pytest.mark.parametrize("which", ["board", "simulated"])
def test_the_page_keeps_to_itself_fits_and_is_readable(
    which: str, request: pytest.FixtureRequest, browser: Any, pages: dict[str, Path]
) -> None:
    for mode in ("light", "dark", "narrow", "narrow-dark"):
        view = opened(browser, pages[which], mode)
        assert_sound(view)
