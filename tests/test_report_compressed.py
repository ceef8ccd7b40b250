"""What pruning, low rank and training add to a report: what was taken out, what it bought, also where it is nothing."""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import report_compressed
import report_inputs
from report_compressed import FITS, MADE, STEPS, made
from report_inputs import HOSTILE, write
from rich.console import Console

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import (
    compression,
    compression_gains,
    figures,
    html,
    markdown,
    model,
    strength_search,
    terminal,
    training,
)

pytestmark = pytest.mark.slow
Report = dict[str, Any]
SCHEMA = model.json_schema()
GOLDEN = Path(__file__).parent / "data" / "report"
SECTIONS = ("Gains of compression", "What was compressed", "How the strength was found", "Training")


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return report_compressed.request(tmp_path_factory.mktemp("deploy"))


@pytest.fixture(scope="module")
def report(deploy: Request) -> Report:
    return built(deploy)


def built(given: Request, **changes: Any) -> Report:
    """The report, with some options changed; it fits its schema."""
    found = report_inputs.written(Request(given.inputs, given.out, {**given.options, **changes}, given.context))
    jsonschema.Draft202012Validator(SCHEMA).validate(found)
    return found


def gain(found: Report, name: str) -> Report:
    return next(g for g in found["gains"] if g["variant"] == name)


def variant(found: Report, name: str) -> Report:
    return next(v for v in found["variants"] if v["name"] == name)


def notes(found: Report, level: str) -> list[str]:
    return [n["text"] for n in found["notes"] if n["level"] == level]


def shown(found: Report, width: int = 100) -> str:
    sent = io.StringIO()
    Console(width=width, file=sent).print(terminal.render(model.of(found), verbose=True))
    return sent.getvalue()


# ------------------------------------------------------------------ the faces


def test_the_report_fits_its_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert {v["name"] for v in report["variants"] if v["compressed"]} == {"pruned-int8", "sparse-int8", "low-rank-int8"}


def test_the_sections_are_there_only_where_there_is_something_to_tell(report: Report, tmp_path: Path) -> None:
    plain = report_inputs.written(report_inputs.request(tmp_path, sessions=1, runs=20))
    pages = html.page(model.of(report)), html.page(model.of(plain))
    for title in SECTIONS:
        assert f"<h2>{title}</h2>" in pages[0] and f"<h2>{title}</h2>" not in pages[1]
        assert f"## {title}\n" in markdown.page(model.of(report)) and f"## {title}\n" not in markdown.page(
            model.of(plain)
        )
    assert plain["gains"] == plain["fits"] == [] and len(pages[0].encode()) < 320_000


@pytest.mark.parametrize("name", ["compressed.md", "compressed.txt"])
def test_the_text_is_the_golden_one(report: Report, name: str) -> None:
    """EDGECOMPRESS_GOLDEN=write renews it; read the difference."""
    text = shown(report) if name.endswith("txt") else markdown.page(model.of(report))
    plain = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        (GOLDEN / name).write_text(plain, encoding="utf-8")
    assert plain == (GOLDEN / name).read_text(encoding="utf-8")


def hostile(value: Any) -> Any:
    """Every text replaced by one that attacks, and every name of a group or layer."""
    if isinstance(value, Mapping):
        kept = ("quantity", "status", "stage", "chosen")
        return {k if k != "conv1" else HOSTILE: v if k in kept else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


def test_a_hostile_name_is_only_text(deploy: Request) -> None:
    told = {name: [{**step, "facts": hostile(step["facts"])} for step in steps] for name, steps in MADE.items()}
    found = built(deploy, made=told, fits=hostile(FITS))
    for text in (html.page(model.of(found)), markdown.page(model.of(found)), shown(found)):
        assert "\u202e" not in text and "\x1b[31m" not in text
    assert "<script" not in html.page(model.of(found)) + markdown.page(model.of(found))


# ------------------------------------------------------------------ what was compressed


def test_macs_parameters_and_channels_are_those_of_the_techniques(report: Report) -> None:
    found = variant(report, "pruned-int8")["compressed"]
    assert found["macs"] == {"before": 69_124_736, "after": 34_735_000}
    assert found["align"] == 16 and len(found["groups"]) == 15
    row = compression.table(model.of(report)).rows[0]
    assert row[2:5] == ("69.12 M → 34.73 M, 1.99×", "464.2 k → 238.4 k, 1.95×", "560 → 304, blocks of 16")
    assert ("pruned-int8", "layer1.2.conv1", "layer1.*.conv1", "16", "0: gone whole", "layer1.2.conv1") in (
        compression.channels(model.of(report)).rows
    )


def test_steps_of_a_recipe_are_told_as_one(deploy: Request) -> None:
    """Pruned twice with training between: from the source to what the last step left."""
    first, second = report_compressed.pruned(last=50_000_000), report_compressed.pruned(first=50_000_000)
    first["groups"] = [{**g, "kept": g["channels"]} for g in first["groups"]]
    second["groups"] = [{**g, "channels": max(g["channels"] - 8, 8)} for g in second["groups"]][1:]
    steps = [made("prune_channels", first), made("finetune", report_compressed.trained(3))]
    steps += [made("prune_channels-2", second), made("finetune-2", report_compressed.trained(5))]
    found = variant(built(deploy, made={"pruned-int8": steps}), "pruned-int8")
    assert found["compressed"]["techniques"] == ["prune_channels"]
    assert found["compressed"]["macs"] == {"before": 69_124_736, "after": 34_735_000}
    assert [(g["channels"], g["kept"]) for g in found["compressed"]["groups"]][:3] == [(16, 16), (16, 16), (16, 0)]
    assert [run["technique"] for run in found["training"]] == ["finetune", "finetune-2"]
    assert len(training.epochs(model.of({"schema": model.SCHEMA, "variants": [found]})).rows) == 8


def test_what_was_left_alone_says_why(report: Report) -> None:
    rows = {row[:2]: row[2] for row in compression.left(model.of(report)).rows}
    assert rows["pruned-int8", "fc"] == "its channels are an output of the model"
    assert rows["low-rank-int8", "conv1"] == "already smaller than any of its factors"
    assert compression.sparsity(model.of(report)).rows[0] == (
        *("sparse-int8", "conv1", "–", "432", "0", "0 %"),
        "3 inputs to a sum, no multiple of 4",
    )


def test_what_zeros_save_as_bytes_is_told_of_sparse_variants_alone(report: Report) -> None:
    table = compression.storage(model.of(report))
    assert table.head[1:] == ("weights", "bitmask", "CSR", "zstd", "each at its best", "file", "file through zstd")
    assert [row[0] for row in table.rows] == ["sparse-int8"]
    assert table.rows[0][1:] == ("449 KiB", "282 KiB", "459 KiB", "294 KiB", "273 KiB", "500 KiB", "322 KiB")


def test_facts_of_other_techniques_that_use_the_same_words_are_not_taken_for_these(deploy: Request) -> None:
    others = {"int8": [made("litert_int8", {"layers": ["a"], "groups": [{"name": "g", "kept": 50}], "epochs": 3})]}
    found = built(deploy, made=others, fits={})
    assert all(v["compressed"] is None and v["training"] == [] for v in found["variants"])


def test_of_very_many_parts_those_are_drawn_that_lost_most(deploy: Request) -> None:
    facts = report_compressed.pruned()
    facts["groups"] = [
        {"name": f"conv{i}", "layers": [], "channels": 96, "kept": 96 if i % 2 else 48, "class": ""} for i in range(200)
    ]
    found = built(deploy, made={"pruned-int8": [made("prune_channels", facts)]})
    panel = compression.figure(model.of(found)).panels[0]
    bars = panel.spec["layer"][0]["data"]["values"]
    assert len(bars) == compression.MOST and {bar["left"] for bar in bars} == {48}
    assert len(compression.channels(model.of(found)).rows) == 200


# ------------------------------------------------------------------ what it bought


def test_a_pruned_net_is_held_against_the_same_one_unpruned(report: Report) -> None:
    found = gain(report, "pruned-int8")
    assert (found["twin"], found["metric"], found["status"], found["gained"]) == ("int8", "latency", "measured", True)
    assert found["change"]["factor"] == pytest.approx(0.3004 / 0.1705, rel=0.02)
    assert found["says"].startswith("pruned-int8: 1.99× fewer MACs, 1.76× faster [")
    assert found["says"].endswith("] than int8 (measured).")
    assert "unpruned" not in report["summary"]["sentence"] and found["says"] in notes(report, "note")
    assert found["says"] not in notes(report, "warning")


def test_zeros_that_gain_nothing_are_a_warning_in_every_face(report: Report) -> None:
    found = gain(report, "sparse-int8")
    assert found["gained"] is False and found["change"]["called"] == "same"
    assert found["says"].startswith("sparse-int8: 50 % of its weights are zero, ")
    assert found["says"].endswith(
        "the speed of int8 (measured): no speed-up here, litert computes zeros like any number."
    )
    assert found["says"] in notes(report, "warning")
    for face in (html.page(model.of(report)), markdown.page(model.of(report)), " ".join(shown(report, 200).split())):
        assert "no speed-up here, litert computes zeros like any number" in face


@pytest.mark.parametrize(("sessions", "said"), [(1, "1 session"), (3, "3 sessions")])
def test_too_few_sessions_call_nothing(tmp_path: Path, sessions: int, said: str) -> None:
    found = built(report_compressed.request(tmp_path, sessions=sessions, runs=40))
    pruned = gain(found, "pruned-int8")
    assert pruned["gained"] is None and "1.7" in pruned["says"] and "× faster" in pruned["says"]
    assert pruned["says"].endswith(f"than int8 (measured in {said}: too few to judge a change).")
    assert gain(found, "sparse-int8")["gained"] is False
    assert "unpruned" not in found["summary"]["sentence"]
    assert not any("pruned-int8" in warning for warning in notes(found, "warning"))


def counted(folder: Path) -> Artifact:
    """Instructions of an emulated device; zeros are multiplied, too."""
    numbers = {"pruned-int8": 14_000_000, "sparse-int8": 24_000_000, "int8": 24_000_000, "fp32": 60_000_000}
    same = {"overhead": 1406, "identical": True, "runs": 5, "classes": {"dot_i8": 4_000_000}}
    found = {n: {"instructions": i, "processes": [i, i, i], **same} for n, i in numbers.items()}
    return write(
        folder, "count", {"variants": found, "order": [*found], "sensor": "instructions", "status": "simulated"}
    )


def test_on_a_simulated_device_instructions_are_compared_and_said_to_be(deploy: Request, tmp_path: Path) -> None:
    inputs = {role: a for role, a in deploy.inputs.items() if a.kind != "round"} | {"count": counted(tmp_path)}
    device = {"name": "qemu-cortex-a76", "transport": "qemu"}
    told = {"pruned-int8/prune_channels": report_compressed.simulated_fit()}
    found = built(Request(inputs, deploy.out, deploy.options, deploy.context), device=device, fits=told)
    says = gain(found, "pruned-int8")["says"]
    assert says == "pruned-int8: 1.99× fewer MACs, 1.71× fewer instructions than int8 (simulated)."
    assert "1.00× the instructions of int8 (simulated): no speed-up here" in gain(found, "sparse-int8")["says"]
    assert gain(found, "low-rank-int8")["change"] is None
    assert "strokeDash" in json.dumps(compression_gains.figure(model.of(found)).panels[0].spec)
    assert strength_search.table(model.of(found)).rows[0][5] == "litert, simulated by emulated arm64 (QEMU)"
    assert "share of the dense instructions" in json.dumps(strength_search.figure(model.of(found)).panels[1].spec)
    assert (
        figures.drawn(strength_search.figure(model.of(found)))
        and "hollow" in strength_search.figure(model.of(found)).caption
    )


def estimated(cycles: int) -> dict[str, Any]:
    by = {"source": "Vela 5.2.0", "accelerator": "ethos-u55-128", "system": "High_End", "memory": "Shared_Sram"}
    parts = dict.fromkeys(("npu", "sram", "dram", "on_chip_flash", "off_chip_flash"), 0) | {"total": cycles}
    told = {"status": "estimated", **by, "optimise": "Performance", "clock_mhz": 500.0, "cycles": parts, "reason": ""}
    sizes = {"inference_ms": cycles / 5e5, "macs": 10**7, "sram_bytes": 1 << 16, "flash_bytes": 1 << 18}
    return {"estimate": {**told, **sizes, "npu_operators": 30, "cpu_operators": 0, "fallback": []}}


def test_where_nothing_is_measured_estimated_cycles_are_compared_and_said_to_be(
    deploy: Request, tmp_path: Path
) -> None:
    inputs = {role: a for role, a in deploy.inputs.items() if a.kind != "round"}
    for name, cycles in (("pruned-int8", 410_000), ("int8", 800_000)):
        inputs[f"{name}/artifact"] = write(tmp_path / name, "vela", estimated(cycles), {"m": b"m"})
    found = built(Request(inputs, deploy.out, deploy.options, deploy.context), fits={})
    says = "pruned-int8: 1.99× fewer MACs, ≈ 2.0× fewer cycles than int8 (estimated by Vela 5.2.0)."
    assert gain(found, "pruned-int8")["says"] == says
    assert gain(found, "sparse-int8")["gained"] is None


def test_a_variant_that_was_lost_is_not_compared_and_says_why(deploy: Request, tmp_path: Path) -> None:
    """Its fit ended before any trial."""
    why = "nothing reaches 0.2 of the dense latency: the nearest measures 0.310 of the dense latency"
    table = {**deploy.options["choice"]["table"], "pruned-int8": {"verdict": "lost", "reason": why}}
    inputs = {role: a for role, a in deploy.inputs.items() if not role.startswith("pruned-int8/")}
    for role in [r for r, a in inputs.items() if a.kind == "round"]:
        facts = {**inputs[role].facts, "variants": {**inputs[role].facts["variants"]}}
        facts["variants"].pop("pruned-int8")
        inputs[role] = write(tmp_path / role, "round", facts)
    choice = {"variant": "low-rank-int8", "reason": "", "table": table}
    lost = {"made": {**MADE, "pruned-int8": []}, "fits": {"pruned-int8/prune_channels": {"chosen": "", "reason": why}}}
    found = built(Request(inputs, deploy.out, deploy.options, deploy.context), choice=choice, **lost)
    said = gain(found, "pruned-int8")
    assert said["says"] == f"pruned-int8: prune_channels, not compared with int8: {why}."
    assert said["gained"] is None and said["asked"] == "–: not found"
    assert (
        strength_search.table(model.of(found)).rows[0][-1] == why
        and strength_search.figure(model.of(found)).panels == ()
    )
    assert any(says.startswith("low-rank-int8: ") for says in notes(found, "note"))


def test_the_twin_is_the_uncompressed_one_that_is_most_alike(deploy: Request) -> None:
    steps = {
        **STEPS,
        "low-rank-int8": [{"use": "int8", "io": "int8"}],
        "sparse-int8": [{"use": "finetune"}, *STEPS["int8"]],
    }
    steps["pruned-int8"] = [{"use": "prune_channels"}, {"use": "int8", "io": "int8"}]
    variants = [{**v, "compress": steps[v["name"]]} for v in report_compressed.target()["variant"]]
    told = {"made": {"pruned-int8": MADE["pruned-int8"]}, "target": {**report_compressed.target(), "variant": variants}}
    assert [(g["variant"], g["twin"]) for g in built(deploy, **told)["gains"]] == [("pruned-int8", "low-rank-int8")]


def test_without_a_twin_there_is_nothing_to_hold_it_against(deploy: Request) -> None:
    names = ("pruned-int8", "fp32")
    target = {**report_compressed.target()}
    target["variant"] = [v for v in target["variant"] if v["name"] in names]
    inputs = {role: a for role, a in deploy.inputs.items() if "/" not in role or role.split("/")[0] in names}
    table = {n: row for n, row in deploy.options["choice"]["table"].items() if n in names}
    choice = {"variant": "pruned-int8", "reason": "", "table": table}
    found = built(Request(inputs, deploy.out, deploy.options, deploy.context), target=target, choice=choice)
    says = "pruned-int8: 1.99× fewer MACs, not compared: no such variant without it was built."
    assert gain(found, "pruned-int8")["says"] == says
    assert compression_gains.figure(model.of(found)).panels == () and "Gains of compression" in html.page(
        model.of(found)
    )


# ------------------------------------------------------------------ how the strength was found


def test_the_table_of_the_device_and_the_trials_are_told(report: Report) -> None:
    assert gain(report, "pruned-int8")["asked"] == "0.6 of the dense latency: 0.567"
    assert ("pruned-int8", "fc@8", "−0.4 %", "measured") in strength_search.saved(model.of(report)).rows
    rows = [row[1:4] for row in strength_search.trials(model.of(report)).rows]
    assert rows == [("1", "0.600", "0.655"), ("2", "0.522", "–"), ("3", "0.564", "0.567")]
    assert [t["chosen"] for t in report["fits"][0]["trials"]] == [False, False, True]
    assert strength_search.neighbours(model.of(report)).rows == ()


def test_where_no_width_lies_between_both_neighbours_are_shown(deploy: Request) -> None:
    found = built(deploy, fits={"pruned-int8/prune_channels": report_compressed.neighbours()})
    assert strength_search.neighbours(model.of(found)).rows == (
        ("pruned-int8", "all, measured", "0.511", "0.652"),
        ("pruned-int8", "layer1.2.conv1", "0", "16"),
    )
    for face in (html.page(model.of(found)), markdown.page(model.of(found))):
        assert "Neighbours: no width between" in face


def test_a_goal_in_milliseconds_is_said_as_asked(deploy: Request) -> None:
    told = report_compressed.fit(
        goal={"quantity": "latency_ms", "value": 0.18}, crashed={"layer3.*.conv1@8": "signal 9"}
    )
    found = built(deploy, fits={"pruned-int8/prune_channels": told})
    assert strength_search.table(model.of(found)).rows[0][2] == "at most 0.1800 ms (0.6 of the dense latency)"
    assert strength_search.saved(model.of(found)).rows[-1] == (
        "pruned-int8",
        "layer3.*.conv1@8",
        "– crashed: signal 9",
        "measured",
    )


# ------------------------------------------------------------------ training


def test_what_was_trained_on_and_how_is_one_line(report: Report) -> None:
    first, second = training.table(model.of(report)).rows
    assert first[2:4] == ("24,000 items of the split train", "12")
    assert first[-1].endswith("distilled from the unpruned net at 0.9, on cpu, in bfloat16")
    assert second[2] == "200 items of the split calibrate"
    assert "There is no split 'train': sparse-int8 trained on the calibration data." in notes(report, "note")


def test_who_taught_a_student_is_told(deploy: Request) -> None:
    facts = report_compressed.trained(1) | {"teachers": ["source", "pkg.nets:large"]}
    found = built(deploy, made={"pruned-int8": [made("distill", facts)]})
    assert "distilled from source and pkg.nets:large at 0.9" in training.table(model.of(found)).rows[0][-1]


def test_the_score_is_drawn_beside_what_the_dense_net_had(report: Report) -> None:
    panels = training.figure(model.of(report)).panels
    assert [p.heading.split(":")[0] for p in panels] == ["loss", "top1 on select"] * 2
    assert "dense 92.4 %" in json.dumps(panels[1].spec) and "dense" not in json.dumps(panels[0].spec)


@pytest.mark.parametrize("metric", ["mse", None])
def test_a_loop_that_tells_little_is_shown_as_far_as_it_tells(deploy: Request, metric: str | None) -> None:
    facts = copy.deepcopy(report_compressed.trained(1))
    facts |= {"metric": metric, "distill": 0.0, "amp": "off"}
    facts["epochs"][0] |= {"loss": None, "select": 0.0123 if metric else None}
    found = built(deploy, made={"pruned-int8": [made("finetune", facts)]})
    row = training.table(model.of(found)).rows[0]
    assert row[4:6] == ("–", "0.01230" if metric else "–") and "on labels alone" in row[-1]
    assert len(training.figure(model.of(found)).panels) == bool(metric)
    assert html.page(model.of(found))
