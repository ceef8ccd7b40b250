"""What a device adds to a report: traces, passes, roofs, counts, agreement; and that nothing of it is made up."""

from __future__ import annotations

import copy
import dataclasses
import io
import itertools
import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
import report_inputs
import report_looks
from report_inputs import HOSTILE, write
from report_looks import COUNTS, PAIR
from rich.console import Console

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import (
    environment,
    figures,
    formatting,
    html,
    instructions,
    markdown,
    model,
    model_variant,
    pareto,
    power,
    profilers,
    roofline,
    tables,
    terminal,
)
from edgecompress.reporting.sections import sustained

pytestmark = pytest.mark.slow
Report = dict[str, Any]
SCHEMA = model.json_schema()
GOLDEN = Path(__file__).parent / "data" / "report"


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return report_looks.on_a_board(tmp_path_factory.mktemp("board"))


@pytest.fixture(scope="module")
def report(board: Request) -> Report:
    return report_inputs.written(board)


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return html.page(model.of(report))


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return report_looks.simulated(tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="module")
def counted(simulated: Request) -> Report:
    return report_inputs.written(simulated)


def valid(found: Mapping[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(found)


def variant(found: Mapping[str, Any], name: str) -> Report:
    return next(v for v in found["variants"] if v["name"] == name)


def shown(found: Mapping[str, Any], width: int = 200) -> str:
    sent = io.StringIO()
    Console(width=width, file=sent).print(terminal.render(model.of(found), verbose=True))
    return sent.getvalue()


def faces(found: Mapping[str, Any]) -> tuple[str, str]:
    return html.page(model.of(found)), markdown.page(model.of(found))


def changed(given: Request, **inputs: Artifact) -> Request:
    return Request({**given.inputs, **inputs}, given.out, given.options, given.context)


def notes(found: Mapping[str, Any], level: str) -> list[str]:
    return [n["text"] for n in found["notes"] if n["level"] == level]


def test_both_kinds_of_report_fit_the_schema(report: Report, counted: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    valid(report)
    valid(counted)


def test_a_page_with_everything_stays_small_and_one_without_has_nothing_of_it(page: str, tmp_path: Path) -> None:
    assert len(page.encode()) < 420_000
    plain = html.page(model.of(report_inputs.written(report_inputs.request(tmp_path))))
    assert len(plain.encode()) < 240_000
    for figure in ("power", "sustained", "periodic", "throughput", "cold", "timeline", "roofline"):
        assert f'id="figure-{figure}"' in page
        assert f'id="figure-{figure}"' not in plain
    assert 'id="figure-instructions"' not in page + plain


def test_every_new_figure_has_a_table_of_its_numbers_in_every_page(report: Report, page: str) -> None:
    for face in (page, markdown.page(model.of(report))):
        for words in (
            "Windows of energy",
            "Sustained",
            "At a fixed rate",
            "Throughput by batch",
            "From a cold start",
            "Memory by phase",
            "Roofline",
            "Accuracy, latency, energy",
            "On the device",
            "Runtimes on the device",
        ):
            assert words in face


# ------------------------------------------------------------------ power


def test_the_trace_keeps_every_spike_in_a_thousand_buckets(report: Report) -> None:
    trace = variant(report, "int8")["power_trace"]
    assert trace["samples"] == 9000
    assert len(trace["t_s"]) == len(trace["low_w"]) == len(trace["high_w"]) <= 1000
    assert max(trace["high_w"]) == 9.9
    assert all(
        low <= mean <= high for low, mean, high in zip(trace["low_w"], trace["mean_w"], trace["high_w"], strict=True)
    )


def test_the_phases_are_those_of_the_agent_with_their_mean_power(report: Report) -> None:
    phases = variant(report, "int8")["power_trace"]["phases"]
    assert [p["phase"] for p in phases] == ["idle", "window", "window", "window", "idle"]
    assert [p["begin_s"] for p in phases] == pytest.approx([0, 5.02, 15.04, 25.06, 35.08])
    assert phases[0]["power"]["value"] == pytest.approx(2.6)
    assert phases[1]["joules"] / phases[1]["seconds"] == pytest.approx(phases[1]["power"]["value"])


def test_watts_of_a_long_run_keep_their_status() -> None:
    answer = report_looks.sustained("int8")
    answer["power"]["status"] = "replayed"
    for row in answer["series"]:
        row["power_w"] = 5.0
    found = {"why": "", "lines": [], "answer": answer}
    report = {
        "schema": model.SCHEMA,
        "passes": [{"pass": "sustained", "variants": {"int8": found}}],
        "variants": [],
        "subject": "int8",
        "baseline": "",
    }
    assert {row[-1] for row in sustained.windows(model.of(report)).rows} == {"5.000 W, replayed"}
    assert "power, replayed, W" in [panel.heading for panel in sustained.figure(model.of(report)).panels]


def test_a_sensor_without_samples_shows_its_windows_alone(board: Request, tmp_path: Path) -> None:
    found = report_inputs.written(changed(board, energy=report_looks.energy(tmp_path / "energy", samples=0)))
    valid(found)
    trace = variant(found, "int8")["power_trace"]
    assert (trace["samples"], trace["t_s"], trace["longest_gap_s"]) == (0, [], None)
    assert "keeps no samples" in power.traces(model.of(found)).caption
    assert "power trace" not in figures.drawn(power.traces(model.of(found)))[0]


@pytest.mark.parametrize("status", ["simulated", "replayed"])
def test_a_trace_that_no_instrument_took_says_so(board: Request, tmp_path: Path, status: str) -> None:
    found = report_inputs.written(changed(board, energy=report_looks.energy(tmp_path / "energy", status=status)))
    assert variant(found, "int8")["power_trace"]["status"] == status
    assert status in power.traces(model.of(found)).caption
    assert ("Dashed and hollow" in power.traces(model.of(found)).caption) == (status == "simulated")


def test_windows_of_a_sensor_that_was_given_up_are_not_shown(board: Request, tmp_path: Path) -> None:
    files = {"int8.json": json.dumps(report_looks.energy_answer("int8")).encode()}
    modelled = write(tmp_path / "energy", "energy", report_inputs.energy_facts(), files)
    assert variant(report_inputs.written(changed(board, energy=modelled)), "int8")["power_trace"] is None


def test_windows_that_cannot_be_read_name_their_file(board: Request, tmp_path: Path) -> None:
    spoiled = write(tmp_path / "energy", "energy", report_looks.energy_facts(), {"int8.json": b'{"windows": [3]}'})
    with pytest.raises(StageFailed, match=r"int8\.json: the energy windows cannot be read"):
        report_inputs.written(changed(board, energy=spoiled))


# ------------------------------------------------------------------ passes


def test_each_pass_is_in_every_face_in_its_own_words(report: Report, page: str) -> None:
    assert [look["pass"] for look in report["passes"]] == [*report_looks.PASSES, "sustained", "odd"]
    for face in (page, markdown.page(model.of(report)), shown(report)):
        assert "crashed: signal 9; log: odd.log" in face
    assert "items/s" in shown(report)


def test_throttling_is_a_warning_and_no_average_stands_for_it(report: Report, page: str) -> None:
    assert any(n.startswith("openvino-fp32 throttles: the last quarter does 7") for n in notes(report, "warning"))
    assert not any(n.startswith("int8 throttles") for n in notes(report, "warning"))
    assert "throttled: " in page and "var(--worse)" in page


FIGURES = {"memory": "timeline"}
SPOILT: list[tuple[str, Callable[[Report], Any], str]] = [
    ("sustained", lambda a: a["series"][3].update(items_per_s="fast"), "series[3].items_per_s is 'fast', not number"),
    ("sustained", lambda a: a["series"][0].update(t_s=float("nan")), "series[0].t_s is 'nan', not number"),
    ("sustained", lambda a: a.update(throttling=None), "throttling is 'None', not a table"),
    ("memory", lambda a: a.update(timeline={"t_s": 1}), "timeline is \"{'t_s': 1}\", not a list"),
    ("cold", lambda a: a.pop("summary"), "summary is 'None', not a table"),
    ("roofline", lambda a: a["ops"].append([]), "ops[5] is '[]', not a table"),
]


@pytest.mark.parametrize(("name", "spoil", "says"), SPOILT)
def test_an_answer_that_is_not_as_promised_is_told_and_never_drawn(
    board: Request, tmp_path: Path, name: str, spoil: Callable[[Report], Any], says: str
) -> None:
    make = {**report_looks.PASSES, "sustained": report_looks.sustained}[name]
    answers = {v: make(v) for v in PAIR}
    spoil(answers["int8"])
    facts = {"pass": name, "options": {}, "variants": answers}
    looked = Artifact(tmp_path, "pass", facts=facts)
    found = report_inputs.written(changed(board, **{f"pass/{name}": looked}))
    assert list(profilers.answers(model.of(found), name)) == ["openvino-fp32"]
    warned = [n for n in notes(found, "warning") if n.startswith(f"Profiler {name} has no result for int8")]
    assert says in warned[0]
    drawn = {f.name: f for f in figures.every(model.of(found))}[FIGURES.get(name, name)]
    assert {p.variant for p in drawn.panels} <= {"", "openvino-fp32"}


def test_a_hostile_answer_is_only_text(board: Request, tmp_path: Path) -> None:
    answer = report_looks.roofline("int8")
    answer["ops"][0]["name"] = answer["ops"][4]["name"] = HOSTILE
    answer["bandwidth"]["reason"] = HOSTILE
    cold = report_looks.cold("int8") | {"dropped": HOSTILE, "dropped_reason": HOSTILE}
    given = {
        "pass/roofline": ("roofline", answer),
        "pass/cold": ("cold", cold),
        "pass/own": ("own", {HOSTILE: HOSTILE}),
    }
    inputs = {
        r: write(tmp_path / n, "pass", {"pass": n, "options": {}, "variants": {"int8": a}})
        for r, (n, a) in given.items()
    }
    inputs["int8/agree"] = write(tmp_path / "agree", "agreement", hostile_agreement())
    found = report_inputs.written(changed(board, **inputs))
    valid(found)
    for face in faces(found):
        assert "<script" not in face and "\u202e" not in face and "\x1b" not in face


def hostile_agreement() -> Report:
    output = {"name": HOSTILE, "moved": None, "reason": HOSTILE, "operator": ""}
    check = {"name": "on_device", "ok": False, "value": None, "limit": 0.05, "says": HOSTILE}
    return {"outputs": [output], "checks": [check], "limit": 0.05, "environment": {}, "lost": HOSTILE}


# ------------------------------------------------------------------ roofline


def test_operators_stand_under_the_roofs_by_what_their_shapes_tell(report: Report) -> None:
    found = variant(report, "int8")["roofline"]
    ops = {op["name"]: op for op in found["ops"]}
    assert ops["/conv0"]["macs"] == 16 * 32 * 32 * 3 * 9
    assert ops["/conv1"]["macs"] == 16 * 32 * 32 * 16
    assert ops["/conv0"]["gflops"] == pytest.approx(2 * ops["/conv0"]["macs"] / 0.11e6)
    assert ops["/conv0"]["flops_per_byte"] == pytest.approx(2 * ops["/conv0"]["macs"] / ops["/conv0"]["bytes"])
    ridge = found["gflops"] / found["gb_per_s"]
    assert {n: op["bound"] for n, op in ops.items()} == {
        n: "unknown" if n == "/gemm" else "memory" if op["flops_per_byte"] < ridge else "compute"
        for n, op in ops.items()
    }
    assert ops["/gemm"]["gb_per_s"] > found["gb_per_s"] and ops["/gemm"]["of_roof"] is None
    assert all(op["of_roof"] is None or op["of_roof"] <= 1 for op in ops.values())
    assert ops["/add"]["bound"] == "memory"
    assert found["unmatched"] == ["/odd"]


def test_only_a_roof_above_an_operator_binds_it_and_right_of_the_corner_only_in_float32() -> None:
    roofs = 40.0, 10.0  # GFLOP/s, GB/s
    op = {"name": "conv", "type": "Conv", "ms": 1.0}
    costs = (
        (10_000_000, 1_000_000, "float32", ("compute", 0.5)),
        (30_000_000, 1_000_000, "float32", ("unknown", None)),
        (10_000_000, 1_000_000, "int8", ("unknown", None)),
        (1_000_000, 1_000_000, "int8", ("memory", 0.1)),
        (10_000_000, 20_000_000, "float32", ("unknown", None)),
    )
    for macs, moved, dtype, expected in costs:
        found = roofline._op(op, {"macs": macs, "bytes": moved, "dtype": dtype}, roofs)
        assert (found.bound, found.of_roof) == expected


def test_the_memory_bound_operators_and_those_without_a_place_are_named(report: Report) -> None:
    row = next(r for r in roofline.table(model.of(report)).rows if r[0] == "int8")
    assert row[4] == "1 of 4 operators" and "/add" in row and row[-1] == "1: /odd"
    assert "what its operators compute is not known" in variant(report, "openvino-fp32")["roofline"]["why"]


# ------------------------------------------------------------------ accuracy, latency, energy


def point(name: str, device: str, *values: float, status: Any = "measured", scope: str = "board") -> model.Point:
    units = (("accuracy", "fraction"), ("latency", "ms"), ("energy", "mJ"))
    made = {axis: formatting.number(axis, v, unit=unit) for (axis, unit), v in zip(units, values, strict=True)}
    made["accuracy"] = dataclasses.replace(made["accuracy"], metric="top1")
    made["energy"] = formatting.number("energy_gross", values[2], status=status, scope=scope)
    return model.Point(name, device, **made)


def test_what_is_worse_in_all_three_is_beaten_on_whatever_device() -> None:
    rows = [point("int8", "a", 0.92, 1.0, 2.0), point("fp32", "a", 0.93, 2.0, 4.0), point("fp32", "b", 0.93, 3.0, 4.0)]
    assert [r.beaten_by for r in pareto.ranked(rows)] == ["", "", "fp32 on a"]


@pytest.mark.parametrize("other", [{"status": "estimated"}, {"scope": "package"}])
def test_energies_of_different_standing_beat_nothing(other: Report) -> None:
    rows = [point("int8", "a", 0.92, 1.0, 2.0), point("fp32", "a", 0.91, 2.0, 4.0, **other)]
    assert [r.beaten_by for r in pareto.ranked(rows)] == ["", ""]


def test_the_front_of_a_report_has_the_variants_with_all_three(report: Report) -> None:
    assert [(p["variant"], p["device"]) for p in report["pareto"]] == [("int8", "rpi5"), ("openvino-fp32", "rpi5")]


# ------------------------------------------------------------------ instructions


def test_a_simulated_device_is_ranked_by_instructions_and_has_no_latency(counted: Report) -> None:
    sentence = counted["summary"]["sentence"]
    assert sentence.startswith("int8 ships: 2.34× fewer instructions (simulated) than fp32, 3.52× smaller, ")
    assert counted["baseline"] == "fp32"
    for v in counted["variants"]:
        assert v["numbers"]["latency"]["value"] is None
        assert v["numbers"]["latency"]["reason"].startswith("the device is simulated")
        assert v["numbers"]["instructions"]["status"] == "simulated"
        assert v["numbers"]["instructions"]["value"] == COUNTS[v["name"]]["instructions"]


def test_no_face_of_a_simulated_report_has_a_time_of_an_inference(counted: Report) -> None:
    page, text = faces(counted)
    for face in (page, text, shown(counted)):
        assert "instructions (simulated)" in face and "204.2 k" in face
        assert " ms" not in face.replace(" ms/", "").split("Stages")[0]
    for figure in ("ecdf", "histogram", "strip"):
        assert f'id="figure-{figure}"' not in page
    assert "One session per variant" not in text


@pytest.mark.parametrize(("transport", "told"), [("host", True), ("qemu", False), ("ssh", False), ("valgrind", False)])
def test_only_on_this_machine_the_times_of_verify_are_the_devices(
    transport: str, told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = [{"name": "/mean", "type": "mean", "ms": 0.0059, "share": 0.16}]
    monkeypatch.setitem(report_inputs.LEFT, "int8", {"fallback": left})
    asked = report_looks.simulated(tmp_path)
    device = {**asked.options["device"], "transport": transport}
    report = report_inputs.written(dataclasses.replace(asked, options={**asked.options, "device": device}))
    found = next(v for v in report["variants"] if v["name"] == "int8")["verify"]["fallback"]
    assert found == (left if told else [{**left[0], "ms": None, "share": None}])
    rows = {row[0]: row[1:] for row in tables.fallback(model.of(report)).rows}
    assert rows["int8"] == ("1", "mean", *(("5.900 µs", "16.0 %") if told else ("–", "–")), "/mean")


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ({}, "int8 uses SDOT: 62.53 k of 204.2 k instructions."),
        (
            {"dot_i8": 0, "mlal": 150_400},
            "No SDOT on qemu-cortex-a76: int8 multiplies in 16-bit MLAL, 150.4 k of 204.2 k",
        ),
        ({"dot_i8": 0, "mlal": 0, "fmla_f32": 0, "sve": 35_190}, "int8 uses SVE: 35.19 k of 204.2 k instructions."),
        ({"dot_i8": 0, "mlal": 0, "fmla_f32": 0}, "int8: no vector multiplication was counted."),
    ],
)
def test_the_kernel_that_the_device_decides_is_named(
    simulated: Request, tmp_path: Path, classes: Mapping[str, int], says: str
) -> None:
    rows = copy.deepcopy(COUNTS)
    rows["int8"]["classes"] = {**rows["int8"]["classes"], **classes}  # type: ignore[dict-item]
    given = changed(simulated, count=write(tmp_path / "count", "count", report_looks.counted(rows)))
    found = report_inputs.written(given)
    assert any(line.startswith(says) for line in instructions.kernels(model.of(found)))
    assert all(says.split(",")[0] in face for face in (markdown.page(model.of(found)), shown(found)))


def test_the_classes_of_a_variant_add_up_to_its_instructions(counted: Report) -> None:
    shown = [(v.name, v.count) for v in model.of(counted).variants if v.count]
    segments = [s for pair in shown for s in instructions._segments(*pair, instructions._classes(shown))]
    for name, row in COUNTS.items():
        own = [s for s in segments if s["label"] == name]
        assert sum(s["b"] - s["a"] for s in own) == row["instructions"]
        assert all(s["opacity"] < 0.2 for s in own), "simulated marks are hollow"


def test_processes_that_count_apart_are_a_warning(simulated: Request, tmp_path: Path) -> None:
    found = report_inputs.written(
        changed(simulated, count=write(tmp_path / "count", "count", report_looks.counted(apart=7)))
    )
    valid(found)
    assert variant(found, "int8")["numbers"]["instructions"]["high"] == 204_179
    assert any("int8: its processes did not count alike" in n for n in notes(found, "warning"))


def test_a_variant_that_crashed_in_the_count_has_no_number(simulated: Request, tmp_path: Path) -> None:
    facts = report_looks.counted()
    facts["variants"]["fp32"] = {"crashed": "signal 4; log: a.log"}
    found = report_inputs.written(changed(simulated, count=write(tmp_path / "count", "count", facts)))
    valid(found)
    assert variant(found, "fp32")["numbers"]["instructions"]["reason"] == "crashed: signal 4; log: a.log"
    assert "204.2 k instructions per inference (simulated)" in found["summary"]["sentence"]


# ------------------------------------------------------------------ where it ran


def test_the_answers_of_the_device_stand_beside_those_here(report: Report) -> None:
    assert "int8 on the device: 0.30 % from here, limit 5 %." in notes(report, "note")
    assert ("int8", "logits", "0.30 %", "5.00 %", "kept", "") in environment.agreed(model.of(report)).rows


@pytest.mark.parametrize(
    ("moved", "limit", "says"),
    [(0.08, 0.05, "8 % from"), (None, 0.05, "holds NaN"), (0.003, None, "0.30 % from here, not judged")],
)
def test_what_does_not_agree_is_told(board: Request, tmp_path: Path, moved: Any, limit: Any, says: str) -> None:
    found = report_inputs.written(
        changed(board, **{"int8/agree": report_looks.agreement(tmp_path / "agree", moved, limit)})
    )
    valid(found)
    assert says in environment.agrees(msgspec.convert(variant(found, "int8"), model_variant.Variant))
    assert environment.agreed(model.of(found)).rows[0][4] == ("not judged" if limit is None else "broken")


def test_the_environment_says_how_it_was_reached_and_what_it_was_like(report: Report, counted: Report) -> None:
    said, emulated = dict(environment.table(model.of(report)).rows), dict(environment.table(model.of(counted)).rows)
    assert (said["reached by"], said["emulated"], said["governor"]) == ("ssh", "no", "ondemand")
    assert said["clock"] == "1,500 MHz before, 2,400 MHz after"
    assert said["temperature"] == "41.20 °C before, 63.90 °C after"
    assert said["energy"] == "measured, board, rpi5_pmic"
    assert emulated["emulated"] == "yes, by emulated arm64 (QEMU)"
    assert "temperature" not in emulated


def test_energy_that_had_to_be_measured_and_was_not_is_the_first_warning(board: Request) -> None:
    options = {**board.options, "not_measured": "energy of int8 is estimated, not measured"}
    found = report_inputs.written(Request(board.inputs, board.out, options, board.context))
    assert found["summary"]["sentence"] == "Nothing ships: energy of int8 is estimated, not measured."
    assert notes(found, "warning")[0] == "Energy had to be measured: energy of int8 is estimated, not measured."
    assert "no: energy of int8 is estimated" in dict(environment.table(model.of(found)).rows)["required measured"]


@pytest.mark.parametrize("name", ["simulated.md", "simulated.txt"])
def test_the_text_is_the_golden_one(counted: Report, name: str) -> None:
    """To renew after a wanted change: write `text` over the file, and read the difference."""
    text = shown(counted, 100) if name.endswith("txt") else markdown.page(model.of(counted))
    plain = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        (GOLDEN / name).write_text(plain, encoding="utf-8")
    assert plain == (GOLDEN / name).read_text(encoding="utf-8")


# The linear RGB that an eye without the long- or the middle-wave cones sees (G. M. Machado, M. M. Oliveira, L. A. F.
# Fernandes: A physiologically-based model for simulation of color vision deficiency, 2009, table 1, severity 1).
EYES = {
    "all cones": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


@pytest.mark.parametrize("eye", EYES)
def test_the_colours_of_the_series_are_told_apart(eye: str) -> None:
    style = (Path(html.__file__).parent / "style.css").read_text(encoding="utf-8")
    for palette in re.findall(r"--c0: .*", style):
        hexes = re.findall(r"--c[1-6]: #(\w{6})", palette)
        srgb = np.array([[int(text[i : i + 2], 16) / 255 for i in (0, 2, 4)] for text in hexes])
        linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
        xyz = np.clip(linear @ np.array(EYES[eye]).T, 0, 1) @ XYZ.T / (0.95047, 1, 1.08883)
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], axis=1)
        assert (
            min(np.linalg.norm(a - b) for a, b in itertools.combinations(lab, 2)) > 10
        )  # of CIE 1976; 2.3 is just seen
