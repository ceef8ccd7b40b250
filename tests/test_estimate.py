"""What a compiler estimates: how it ranks where nothing is measured, and how the report marks it."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import report_inputs
from rich.console import Console

from edgecompress.core.model import Artifact, Choice, Context, Outcome, Request
from edgecompress.core.settings import Profile, Variant
from edgecompress.data import compiler_estimates
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.searches.race import FIRST, Race
from edgecompress.reporting import html, markdown, model, terminal

SCHEMA = model.json_schema()
PROFILE = Profile(
    "test", sessions=1, warmup_s=1, warmup_runs=1, window_s=1, window_runs=1, energy_windows=1, energy_window_s=1
)
SETTINGS = {"accelerator": "ethos-u55-128", "system": "High", "memory": "Shared_Sram", "optimise": "Performance"}
LEFT = {"name": "MEAN:12", "type": "MEAN", "why": "Unsupported depth-reduction."}
ALL_LEFT = "Vela left every operator on the CPU"


def estimated(total: int | None, left: int = 0, **changes: Any) -> dict[str, Any]:
    """What an export says of itself; `total` None: no operator runs on the NPU."""
    kinds = ("npu", "sram", "dram", "on_chip_flash", "off_chip_flash", "total")
    cycles = dict.fromkeys(kinds, total) if total else None
    numbers = {"inference_ms": (total or 0) / 5e5, "macs": 14_000_000, "sram_bytes": 12_288, "flash_bytes": total}
    said = {"status": "estimated", "source": "Vela 5.2.0", **SETTINGS, "clock_mhz": 500.0, "cycles": cycles}
    said |= {"npu_operators": 20 if total else 0, "cpu_operators": left, "fallback": [LEFT] * left}
    said |= {"reason": "" if total else ALL_LEFT, **(numbers if total else dict.fromkeys(numbers))}
    return said | changes


def in_order(found: dict[str, dict[str, Any] | None]) -> Choice:
    """The choice of a race in which nothing is measured, every variant within its limits."""
    entrants = tuple(Candidate(Variant(n), "ethos_u", f"{n}/made", f"{n}/verify", estimated="Vela") for n in found)
    race = Race(entrants, PROFILE, unmeasured="no device is at hand")
    outcomes = {f"{n}/verify": Outcome(f"{n}/verify", "ok") for n in found}
    for name, told in found.items():
        facts = {} if told is None else {"estimate": told}
        outcomes[f"{name}/made"] = Outcome(f"{name}/made", "ok", Artifact(Path("nowhere"), "vela", facts=facts))
    assert race.bound() == "nothing is measured (no device is at hand): what Vela estimates decides"
    choice = race.step(outcomes)
    assert isinstance(choice, Choice)
    return choice


# --------------------------------------------------------------------------- the ranking


def test_the_fewest_estimated_cycles_ship_where_nothing_is_measured() -> None:
    choice = in_order({"dense": estimated(250_000), "pruned": estimated(130_000)})
    assert choice.stage == "pruned"
    assert choice.reason == "the best by the estimate of Vela 5.2.0; not measured on the target: no device is at hand"
    assert choice.table["dense"]["verdict"] == "passed"
    assert choice.table["dense"]["reason"] == "about 1.9x the cycles of pruned (estimated)"


@pytest.mark.parametrize(
    ("other", "ships", "says"),
    [
        (estimated(100_000, left=2), estimated(200_000), "leaves 2 more operators to the CPU than ships"),
        (estimated(None, left=5), estimated(200_000), ALL_LEFT),
        (estimated(100_000), estimated(101_000), "after it in the target's order"),
    ],
)
def test_operators_on_the_cpu_outweigh_cycles_and_within_two_percent_the_order_decides(
    other: dict[str, Any], ships: dict[str, Any], says: str
) -> None:
    both = {"other": other, "ships": ships}
    choice = in_order(both if "order" not in says else dict(reversed(both.items())))
    assert choice.stage == "ships" and says in choice.table["other"]["reason"]


@pytest.mark.parametrize(
    "other", [None, estimated(1, accelerator="ethos-u55-256"), estimated(1, source="Vela 6"), estimated(1, memory="x")]
)
def test_estimates_rank_nothing_where_one_is_missing_or_made_otherwise(other: dict[str, Any] | None) -> None:
    choice = in_order({"first": estimated(100_000), "other": other})
    assert choice.stage == "first"
    assert FIRST in choice.reason
    assert choice.table["other"]["reason"] == "after first in the target's order"


def test_who_estimated_is_named_with_all_settings() -> None:
    made_by = compiler_estimates.made_by(estimated(1))
    assert made_by == "Vela 5.2.0: ethos-u55-128, High, Shared_Sram, Performance"


# --------------------------------------------------------------------------- the report


def reported(folder: Path, found: dict[str, dict[str, Any]], shipped: str) -> dict[str, Any]:
    """The report of variants that were verified and estimated; the reference is "int8"."""
    inputs, table = {}, {}
    for name, told in found.items():
        made = folder / name / "artifact"
        files = {"model_vela.tflite": bytes(300), "model.tflite": bytes(700)}
        facts = {"estimate": told, "here": ["model.tflite"]}
        inputs[f"{name}/artifact"] = report_inputs.write(made, "vela", facts, files)
        inputs[f"{name}/verdict"] = report_inputs.verdict(folder / name / "verdict", "int8")
        table[name] = {"verdict": "shipped" if name == shipped else "passed", "reason": "", "median_ms": None}
    variants = [{"name": n, "runtime": "ethos_u", "compress": [], "reference": n == "int8"} for n in found]
    choice = {"variant": shipped, "reason": "", "unmeasured": "this machine is another", "table": table}
    target = {"name": "ethos-u55", "runtime": "ethos_u", "variant": variants}
    options = report_inputs.options(target=target, choice=choice, outcomes=[])
    report = report_inputs.written(Request(inputs, folder, options, Context()))
    jsonschema.Draft202012Validator(SCHEMA).validate(report)
    return report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {"pruned": estimated(126_000, left=1), "int8": estimated(252_000, left=1), "fp32": estimated(None, left=9)}
    return reported(tmp_path_factory.mktemp("report"), found, "pruned")


def numbers(report: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(v["numbers"] for v in report["variants"] if v["name"] == name)
    return found


def test_every_estimate_is_marked_estimated_and_names_who_made_it(report: dict[str, Any]) -> None:
    for metric in ("cycles", "npu_time", "sram", "flash"):
        n = numbers(report, "pruned")[metric]
        assert n["status"] == "estimated"
        assert n["source"].startswith("Vela 5.2.0: ethos-u55-128")
        missing = numbers(report, "fp32")[metric]
        assert (missing["status"], missing["value"], missing["reason"]) == ("unavailable", None, ALL_LEFT)


def test_no_report_without_an_estimate_knows_of_cycles(tmp_path: Path) -> None:
    plain = report_inputs.written(report_inputs.request(tmp_path, sessions=1, runs=50))
    assert all("cycles" not in v["numbers"] and v["estimate"] is None for v in plain["variants"])
    assert "stimated" not in json.dumps(plain["deltas"][0])


def test_what_no_device_needs_is_no_part_of_the_size(report: dict[str, Any]) -> None:
    assert numbers(report, "pruned")["size"]["value"] == 300


def test_the_pruned_variant_stands_beside_the_dense_one_with_a_guess_of_a_change(report: dict[str, Any]) -> None:
    assert report["baseline"] == "int8"
    rows = {row["metric"]: row for row in report["deltas"]}
    assert rows["cycles"]["says"] == "≈ 2.0× fewer"
    assert rows["flash"]["says"] == "≈ 2.0× less"
    assert rows["cycles"]["change"]["called"] == "none"
    assert report["summary"]["sentence"].startswith("pruned ships: ≈ 2.0× fewer cycles (estimated) than int8, ")
    assert report["summary"]["remarks"][-1] == "not measured on the target"


def test_notes_say_what_the_numbers_are_not(report: dict[str, Any]) -> None:
    said = "\n".join(note["text"] for note in report["notes"])
    assert "estimated cycles do" in said
    assert "and no measurement" in said
    assert "No estimate counts what stays on the CPU, here up to 9 operators." in said


def shown(report: dict[str, Any]) -> str:
    out = io.StringIO()
    Console(width=160, file=out, no_color=True).print(terminal.render(model.of(report), verbose=True))
    return out.getvalue()


@pytest.mark.parametrize("face", [markdown.page, html.page, shown])
def test_every_face_shows_the_estimates_and_their_share_of_the_dense_ones(face: Any, report: dict[str, Any]) -> None:
    page = face(report if face is shown else model.of(report)).replace("\u00a0", " ")
    for said in ("at 500 MHz", "≈ 130 k (0.50×)", "≈ 0.25 ms (0.50×)", "≈ 12 KiB", "20 + 1", "0 + 9"):
        assert said in page


def test_what_stays_on_the_cpu_is_listed_with_the_compilers_reason(report: dict[str, Any]) -> None:
    for page in (markdown.page(model.of(report)), html.page(model.of(report))):
        assert "Left on the CPU" in page
        assert "MEAN:12" in page
        assert "Unsupported depth-reduction." in page


def test_estimates_under_other_settings_are_not_compared(tmp_path: Path) -> None:
    found = {"int8": estimated(250_000), "other": estimated(130_000, accelerator="ethos-u55-256")}
    told = reported(tmp_path, found, "other")
    assert told["baseline"] == ""
    assert "their order does" in told["notes"][0]["text"] + told["notes"][1]["text"]
    assert "≈ 0.26 ms" in markdown.page(model.of(told))
    assert "ms (" not in markdown.page(model.of(told))
