"""The report: what it says, what it never says, and that nothing in it acts."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import io
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import report_inputs
from msgspec.structs import replace
from report_inputs import HOSTILE, MEDIANS, request, write
from rich.console import Console

from edgecompress.cli import console
from edgecompress.commands.job_run import Result
from edgecompress.core.model import Artifact, Context, Request
from edgecompress.reporting import (
    before_after,
    formatting,
    html,
    markdown,
    model,
    model_numbers,
    shipped_headline,
    tables,
    terminal,
)
from edgecompress.stages import report as stage

Report = dict[str, Any]
HERE = Path(__file__).parent
SCHEMA = model.json_schema()
GOLDEN = HERE / "data" / "report"


@pytest.fixture(scope="module")
def deploy(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return request(tmp_path_factory.mktemp("deploy"))


@pytest.fixture(scope="module")
def made(deploy: Request) -> Artifact:
    return stage.run(deploy)


@pytest.fixture(scope="module")
def report(made: Artifact) -> Report:
    found: Report = json.loads((made.path / "report.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def page(made: Artifact) -> str:
    return (made.path / "report.html").read_text(encoding="utf-8")


def valid(found: Mapping[str, Any]) -> None:
    jsonschema.Draft202012Validator(SCHEMA).validate(found)


def variant(found: Mapping[str, Any], name: str) -> Report:
    return next(v for v in found["variants"] if v["name"] == name)


def row(found: Mapping[str, Any], metric: str) -> Report:
    return next(r for r in found["deltas"] if r["metric"] == metric)


def shown(found: Mapping[str, Any], width: int = 100, colour: bool = True, verbose: bool = True) -> str:
    """What a terminal of that width is sent."""
    sent = io.StringIO()
    Console(width=width, file=sent, force_terminal=True, color_system="standard" if colour else None).print(
        terminal.render(model.of(found), verbose)
    )
    return sent.getvalue()


def with_inputs(given: Request, **changes: Artifact) -> Request:
    return Request({**given.inputs, **changes}, given.out, given.options, given.context)


def with_options(given: Request, **changes: Any) -> Request:
    return Request(given.inputs, given.out, {**given.options, **changes}, given.context)


# ------------------------------------------------------------------ the stage and its schema


def test_the_stage_writes_three_files_and_says_the_verdict(made: Artifact) -> None:
    assert [f.name for f in made.files()] == ["report.html", "report.json", "report.md"]
    assert made.kind == "report"
    assert made.facts["variant"] == "int8"
    assert made.facts["sentence"].startswith("int8 ships: ")


def test_the_report_fits_its_schema(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    valid(report)


def spoil(path: str, value: Any) -> Callable[[Report], None]:
    def change(found: Any) -> None:
        *parents, last = path.split("/")
        for key in parents:
            found = found[int(key) if key.isdigit() else key]
        found[last] = value

    return change


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("another version", spoil("schema", "edgecompress/stages/report/2")),
        ("a measured number without a value", spoil("variants/0/numbers/latency/value", None)),
        ("an unavailable number with a value", spoil("variants/0/numbers/arena/value", 0)),
        ("an unavailable number without a reason", spoil("variants/0/numbers/arena/reason", "")),
        ("a status that nobody knows", spoil("variants/0/numbers/latency/status", "guessed")),
        ("a key that nobody knows", spoil("extra", 1)),
        ("too many latencies", spoil("variants/0/sessions/0/latencies_ms", [1.0] * 2001)),
        ("a verdict that nobody knows", spoil("variants/0/verdict", "won")),
        ("a hash that is none", spoil("variants/0/artifact/sha256", "abc")),
    ],
)
def test_the_schema_rejects(report: Report, what: str, change: Callable[[Report], None]) -> None:
    wrong = copy.deepcopy(report)
    change(wrong)
    with pytest.raises(jsonschema.ValidationError):
        valid(wrong)


# ------------------------------------------------------------------ what the numbers are


def session_medians(given: Request, name: str) -> list[float]:
    rounds = [a for a in given.inputs.values() if a.kind == "round" and name in a.facts["variants"]]
    return [a.facts["variants"][name]["median_ms"] for a in rounds]


def test_the_headline_is_the_median_of_session_medians_with_their_interval(deploy: Request, report: Report) -> None:
    medians = session_medians(deploy, "int8")
    latency = variant(report, "int8")["numbers"]["latency"]
    assert latency["value"] == pytest.approx(statistics.median(medians))
    assert (latency["low"], latency["high"], latency["n"]) == (min(medians), max(medians), 6)


def test_the_change_is_the_median_of_the_paired_ratios(deploy: Request, report: Report) -> None:
    pairs = zip(session_medians(deploy, "openvino-fp32"), session_medians(deploy, "int8"), strict=True)
    ratios = [before / after for before, after in pairs]
    change = row(report, "latency")["change"]
    assert report["baseline"] == "openvino-fp32"
    assert change["factor"] == pytest.approx(statistics.median(ratios))
    assert (change["low"], change["high"]) == pytest.approx((min(ratios), max(ratios)))
    assert change["called"] == "better"


def test_a_reference_that_ships_is_compared_with_a_faster_one_only(report: Report) -> None:
    assert before_after.baseline(model.of({**report, "subject": "openvino-fp32"})) == ""
    assert before_after.baseline(model.of({**report, "subject": "fp32"})) == "openvino-fp32"


@pytest.mark.parametrize("guess", [{}, {"guessed": True, "exact": False}, {"guessed": True, "exact": True}])
@pytest.mark.parametrize("called", ["same", "none"])
@pytest.mark.parametrize("factor", [0.985, 0.999, 1.0, 1.001, 1.015])
def test_no_two_that_are_as_fast_are_called_faster_or_slower(factor: float, called: Any, guess: Report) -> None:
    change = model_numbers.Change(factor, None, None, 1, called, **guess)
    says = before_after.say(change, ("faster", "slower"))
    assert says.startswith("no change") and "faster" not in says and "slower" not in says


@pytest.mark.parametrize(
    ("factor", "says"),
    [(1.3, "speed undecided: 1.30× (0.900–1.60) that of"), (0.8, "speed undecided: 0.800× (0.900–1.60) that of")],
)
def test_a_ratio_that_its_interval_leaves_open_is_undecided_in_the_headline_too(
    report: Report, factor: float, says: str
) -> None:
    open_still = model_numbers.Change(factor, 0.9, 1.6, 6, "same")
    told = model.of(report)
    deltas = [replace(d, change=open_still) if d.metric == "latency" else d for d in told.deltas]
    assert shipped_headline.gains(replace(told, deltas=deltas)).startswith(f"{says} openvino-fp32")
    same = [replace(d, change=replace(open_still, factor=1.01)) if d.metric == "latency" else d for d in told.deltas]
    assert shipped_headline.gains(replace(told, deltas=same)).startswith("as fast as openvino-fp32")


@pytest.mark.parametrize(("factor", "fp32_ms"), [("1.83×", 0.552), ("1.00×", 0.3021)])
def test_one_session_calls_no_variant_faster_that_the_race_left_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: str, fp32_ms: float
) -> None:
    monkeypatch.setitem(MEDIANS, "openvino-fp32", fp32_ms)
    told = model.of(report_inputs.written(request(tmp_path, sessions=1, runs=60)))
    others = [replace(v, verdict="undecided") if v.name == "openvino-fp32" else v for v in told.variants]
    open_still = replace(told, variants=others)
    assert shipped_headline.gains(open_still).startswith(f"speed undecided: {factor} that of openvino-fp32")
    lines = {v.name: tables.why_not(open_still, v) for v in others}
    assert lines["openvino-fp32"] == f"not decided, {factor} the time of int8"
    assert lines["int8-dynamic"].endswith("× slower") and "(" not in lines["int8-dynamic"]
    assert lines["fp16-odd"] == "net 71 of 500 items lost, limit 5"


def test_what_did_not_ship_has_the_interval_of_its_sessions(report: Report) -> None:
    told = model.of(report)
    lines = {v.name: tables.why_not(told, v) for v in told.variants}
    assert re.fullmatch(r"1\.8\d× \(1\.8\d–1\.8\d\) slower", lines["openvino-fp32"])


@pytest.mark.parametrize("sessions", [1, 6])
def test_several_targets_tell_once_that_ratios_of_one_session_have_no_interval(
    tmp_path: Path, sessions: int, capsys: pytest.CaptureFixture[str]
) -> None:
    made = stage.run(request(tmp_path, sessions=sessions, runs=60))
    args = argparse.Namespace(json=False, quiet=False, verbose=0, began=time.monotonic())
    results = dict.fromkeys(("x86", "arm64"), Result(0, "int8: the fastest", None, made.path))
    assert console.all_ended(console.open(args), args, results) == 0
    said = capsys.readouterr().out
    assert said.count(shipped_headline.ONE_SESSION) == (sessions == 1)
    assert said.count("   did not ship:\n     openvino-int8:") == 2 and "without " not in said


def test_every_change_is_against_one_baseline(report: Report) -> None:
    assert report["baseline"] == "openvino-fp32"
    assert {each["before_of"] for each in report["deltas"]} == {"openvino-fp32", "source"}  # the accuracy: the source's
    factor = report_inputs.SIZES["openvino-fp32"] / report_inputs.SIZES["int8"]
    assert row(report, "size")["change"]["factor"] == factor


def test_the_headline_says_what_is_bought_and_what_it_costs(deploy: Request) -> None:
    given = costly(deploy)
    found = report_inputs.written(given)
    told = found["summary"]
    assert [words.split(" [")[0] for words in told["bought"]] == ["1.83× faster", "3.61× smaller"]
    assert [words.split("×")[0] for words in told["costs"]] == ["peak memory 5.00", "load 17.0"]
    assert told["remarks"][0].startswith("costs: peak memory 5.00× more [5.00, 5.00], load 17.0× slower [")
    assert told["sentence"].count("openvino-fp32") == 1 and "fp32 " not in told["sentence"].replace("openvino-fp32", "")


def costly(given: Request) -> Request:
    """The same, with five times the memory and seventeen times the load."""
    rounds = {role: artifact for role, artifact in given.inputs.items() if artifact.kind == "round"}
    for role, artifact in rounds.items():
        before, after = (artifact.facts["variants"][name] for name in ("openvino-fp32", "int8"))
        memory = {**after["memory"], "peak_rss_bytes": 5 * before["memory"]["peak_rss_bytes"]}
        int8 = {**after, "memory": memory, "load_ms": 17 * before["load_ms"]}
        facts = {**artifact.facts, "variants": {**artifact.facts["variants"], "int8": int8}}
        rounds[role] = dataclasses.replace(artifact, facts=facts)
    return with_inputs(given, **rounds)


def undecided(given: Request) -> Request:
    """The same, judged by items that do not decide."""
    verdict = given.inputs["int8/verdict"]
    says = "net 2 of 500 items lost (4 became wrong, 2 became right): -3.1 to 7.5 with 95 % confidence, limit 5: "
    says += "undecided, about 990 items would decide (there are 500)"
    check = {"name": "items_lost", "ok": True, "value": 2, "limit": 5, "says": says, "decision": "undecided"}
    check |= {"low": -3.1, "high": 7.5, "needed": 987}
    return with_inputs(
        given, **{"int8/verdict": dataclasses.replace(verdict, facts={**verdict.facts, "checks": [check]})}
    )


def test_what_ships_undecided_says_so_in_every_face(deploy: Request) -> None:
    found = report_inputs.written(undecided(deploy))
    valid(found)
    says = "undecided: items lost −3.10 to 7.50, limit 5.00; about 990 items would decide"
    assert says in found["summary"]["remarks"] and len(found["summary"]["undecided"]) == 1
    for verbose in (False, True):
        assert says in " ".join(shown(found, colour=False, verbose=verbose).split())
    assert says in html.page(model.of(found)) and says in markdown.page(model.of(found))
    assert report_inputs.written(deploy)["summary"]["undecided"] == []


def test_the_accuracy_is_that_of_the_artifact_against_the_source(report: Report) -> None:
    accuracy = row(report, "accuracy")
    assert (accuracy["before"]["value"], accuracy["after"]["value"]) == (462 / 500, 460 / 500)
    assert accuracy["says"] == "net 2 of 500 items lost"


def test_every_run_is_in_the_histogram_and_long_sessions_are_thinned(tmp_path: Path) -> None:
    found = report_inputs.written(request(tmp_path, sessions=2, runs=5000))
    int8 = variant(found, "int8")
    histogram = int8["distribution"]["histogram"]
    assert sum(histogram["counts"]) + histogram["over"] == int8["distribution"]["runs"] == 10_000
    assert [(s["every"], len(s["latencies_ms"])) for s in int8["sessions"]] == [(3, 1667), (3, 1667)]
    assert any("report.json holds 1 of 3 latencies of its longest sessions" in note["text"] for note in found["notes"])


def test_one_session_has_no_interval_and_calls_no_change(tmp_path: Path) -> None:
    found = report_inputs.written(request(tmp_path, sessions=1, runs=60))
    valid(found)
    latency = row(found, "latency")
    assert (latency["after"]["low"], latency["after"]["high"]) == (None, None)
    assert latency["change"]["called"] == "none"
    assert "one session, so ratios have no interval (--profile standard gives one)" in found["summary"]["remarks"]
    (note,) = (note["text"] for note in found["notes"] if "differences are not judged" in note["text"])
    assert (
        "Where the choice gives a range beside a ratio, it assumes that sessions of one variant differ by 2 %" in note
    )
    assert "needs 299 runs" in variant(found, "int8")["numbers"]["p99"]["reason"]


def test_what_is_missing_is_null_with_its_reason(report: Report) -> None:
    broken = variant(report, "broken")
    assert {n["value"] for n in broken["numbers"].values()} == {None}
    assert all(n["reason"] for n in broken["numbers"].values())
    assert broken["numbers"]["latency"]["reason"] == "the converter ended with signal 6"
    assert "– " in shown(report) and " 0 ms" not in shown(report)


def test_an_estimate_is_written_with_its_sign_its_band_and_its_name(report: Report, page: str) -> None:
    gross = variant(report, "int8")["numbers"]["energy_gross"]
    assert gross["status"] == "estimated"
    number = model_numbers.Number(**gross)
    assert formatting.text(number, spread=True) == "≈ 1.3 mJ (0.64 – 1.9)"
    assert formatting.provenance(number) == "estimated, package, power model: a synthetic citation"
    assert "estimated, package, power model: a synthetic citation" in page
    assert row(report, "energy_gross")["change"]["called"] == "none"
    assert row(report, "energy_gross")["says"] == "≈ 1.8× less"


@pytest.mark.parametrize(("key", "value"), [("status", "measured"), ("scope", "wall")])
def test_numbers_of_different_standing_are_never_compared(
    deploy: Request, tmp_path: Path, key: str, value: str
) -> None:
    facts = report_inputs.energy_facts()
    for number in facts["variants"]["openvino-fp32"]:
        number[key] = value
    found = report_inputs.written(with_inputs(deploy, energy=write(tmp_path / "energy", "energy", facts)))
    for metric in ("energy_gross", "energy_net", "inferences_per_joule"):
        assert row(found, metric)["change"] is None
        assert row(found, metric)["says"].startswith("not compared: ")
    assert "change" not in {r["metric"] for r in found["deltas"] if r["change"]}


@pytest.mark.parametrize(
    ("value", "unit", "status", "words"),
    [
        (0.30123, "ms", "measured", "0.3012 ms"),
        (0.0042, "ms", "measured", "4.200 µs"),
        (12_345.0, "ms", "measured", "12.35 s"),
        (310_482, "bytes", "measured", "303 KiB"),
        (512, "bytes", "measured", "512 B"),
        (0.924, "fraction", "measured", "92.4 %"),
        (-0.012, "fraction", "measured", "−1.20 %"),
        (1234.5, "/s", "measured", "1,234 /s"),
        (0.00129, "J", "estimated", "≈ 1.3 mJ"),
        (777.7, "1/J", "estimated", "≈ 780 /J"),
        (9.996, "W", "estimated", "≈ 10 W"),
        (0, "operators", "measured", "0 operators"),
    ],
)
def test_numbers_are_written_with_the_digits_they_deserve(value: float, unit: str, status: Any, words: str) -> None:
    assert formatting.text(formatting.number("x", value, unit=unit, status=status)) == words


# ------------------------------------------------------------------ how it may end


def test_a_profile_of_one_artifact_has_no_before(tmp_path: Path) -> None:
    profile = {"name": "standard", "sessions": 6}
    inputs = {f"round-{i}": report_inputs.a_round(tmp_path / f"r{i}", i, ["int8"], 80) for i in range(1, 7)}
    inputs["int8/artifact"] = write(tmp_path / "a", "onnx", {}, {"model.onnx": b"m"})
    (tmp_path / "out").mkdir()
    asked = Request(inputs, tmp_path / "out", {"profile": profile, "exit_code": 0}, Context())
    made = stage.run(asked)
    found = json.loads((made.path / "report.json").read_text())
    valid(found)
    assert found["summary"]["outcome"] == "measured"
    assert re.match(r"int8 takes 0\.3\d+ ms \[.*\] per run, the median of 6 sessions\.", found["summary"]["sentence"])
    assert row(found, "latency")["before"] is None
    assert "No variant has an accuracy" in (made.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("code", "outcome", "words"), [(1, "nothing", "Nothing ships: "), (3, "failed", "It failed: broken/export: ")]
)
def test_nothing_shipped_says_why(deploy: Request, code: int, outcome: str, words: str) -> None:
    choice = {"variant": "", "reason": "no variant kept the budget", "table": {}}
    found = report_inputs.written(with_options(deploy, choice=choice, exit_code=code))
    valid(found)
    assert found["summary"]["outcome"] == outcome
    assert found["summary"]["sentence"].startswith(words)
    assert found["deltas"] == []
    assert words.split(":")[0] in shown(found)
    assert words.split(":")[0] in html.page(model.of(found))


def test_a_crashed_session_is_told_and_not_counted(deploy: Request, tmp_path: Path) -> None:
    facts = copy.deepcopy(dict(deploy.inputs["round-6"].facts))
    facts["variants"]["int8"] = {"crashed": "signal 11; log: a.log"}
    found = report_inputs.written(with_inputs(deploy, **{"round-6": write(tmp_path / "r", "round", facts)}))
    valid(found)
    assert variant(found, "int8")["numbers"]["latency"]["n"] == 5
    assert any(n["level"] == "warning" and "int8 crashed in 1 session: signal 11" in n["text"] for n in found["notes"])


@pytest.mark.parametrize(
    ("fact", "level", "words"),
    [
        ({"random": True}, "warning", "The data is random"),
        (
            {"cut": [["data", "calibrate", "select", "test"]]},
            "note",
            "split by seed into calibrate, select and test",
        ),
        (
            {"cut": [["calibrate", "calibrate", "select"]]},
            "note",
            "split by seed into calibrate and select.",
        ),
        ({"repeated": {"within": 7, "elsewhere": 0}}, "warning", "7 of the 500 test items are copies of others"),
        ({"repeated": {"within": 0, "elsewhere": 9}}, "warning", "9 of the 500 test items also calibrated or chose"),
    ],
)
def test_how_the_data_came_about_is_said(
    deploy: Request, tmp_path: Path, fact: dict[str, Any], level: str, words: str
) -> None:
    samples = write(tmp_path / "samples", "samples", {**report_inputs.SAMPLES, **fact})
    found = report_inputs.written(with_inputs(deploy, samples=samples))
    assert any(n["level"] == level and words in n["text"] for n in found["notes"])
    assert (
        words in shown(found, width=300)
        and words in markdown.page(model.of(found))
        and words in html.page(model.of(found))
    )


PERPLEXITY = {"name": "perplexity", "before": 4.0, "after": 4.016, "unit": "", "n": 400, "ratio": 1.004}
PERPLEXITY |= {"net_lost": None, "items_lost": None, "items_gained": None, "low": 1.001, "high": 1.007}
OWN = {**PERPLEXITY, "name": "pkg.mod:score", "ratio": None, "before": 0.7, "after": 0.65}
BROKEN = {**PERPLEXITY, "before": None, "after": None, "ratio": None, "reason": "a score is not finite"}


@pytest.mark.parametrize(
    ("metric", "says"),
    [(PERPLEXITY, "1.004× the source's"), (OWN, "−0.05 to the source's"), (BROKEN, "a score is not finite")],
)
def test_other_metrics_are_said_in_their_own_way(deploy: Request, tmp_path: Path, metric: Report, says: str) -> None:
    facts = {**deploy.inputs["int8/verdict"].facts, "metric": metric}
    found = report_inputs.written(with_inputs(deploy, **{"int8/verdict": write(tmp_path / "v", "verdict", facts)}))
    valid(found)
    assert row(found, "accuracy")["says"] == says
    assert says in shown(found, width=200)


def test_an_accuracy_that_nobody_judged_is_a_warning(deploy: Request, tmp_path: Path) -> None:
    facts = {**deploy.inputs["int8/verdict"].facts, "metric": None, "reasons": {"metric": "the data has no labels"}}
    found = report_inputs.written(with_inputs(deploy, **{"int8/verdict": write(tmp_path / "v", "verdict", facts)}))
    valid(found)
    warnings = [n["text"] for n in found["notes"] if n["level"] == "warning"]
    assert warnings == [
        "Accuracy was not measured: the data has no labels; only the outputs were compared with the source's."
    ]
    assert variant(found, "int8")["numbers"]["accuracy"]["reason"] == "the data has no labels"


# ------------------------------------------------------------------ strangers' names


def hostile(value: Any) -> Any:
    """Every text of an option replaced by one that attacks; keys and known words stay."""
    if isinstance(value, dict):
        kept = ("name", "verdict", "status", "variant", "runtime", "stage")
        return {k: v if k in kept and isinstance(v, str) else hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) else value


class Tags(HTMLParser):
    """What a browser would make of a page: its elements, their attributes, its ids."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "action"):
                self.links.append(value or "")


def parsed(text: str) -> Tags:
    tags = Tags()
    tags.feed(text)
    return tags


@pytest.fixture(scope="module")
def attacked(deploy: Request, tmp_path_factory: pytest.TempPathFactory) -> Report:
    folder = tmp_path_factory.mktemp("attacked")
    ops = report_inputs.ops_facts()
    ops["variants"]["int8"]["ops"] = [{"name": HOSTILE, "type": HOSTILE, "ms": 1.0, "where": HOSTILE}] * 3
    ops["variants"]["int8"]["fallback"] = [HOSTILE]
    energy = report_inputs.energy_facts() | {"sensor": HOSTILE, "why_not": {HOSTILE: HOSTILE}}
    for number in energy["variants"]["int8"]:
        number["source"] = number["scope"] = HOSTILE
    samples = report_inputs.SAMPLES | {"origin": HOSTILE, "label_names": [HOSTILE]}
    inputs = {n: write(folder / n, n, f) for n, f in (("ops", ops), ("energy", energy), ("samples", samples))}
    found = report_inputs.written(with_options(with_inputs(deploy, **inputs), **hostile(deploy.options)))
    valid(found)
    return found


def test_a_hostile_name_is_only_text_in_html(attacked: Report, page: str) -> None:
    text = html.page(model.of(attacked))
    found, plain = parsed(text), parsed(page)
    assert found.tags <= plain.tags | {"text"}
    assert "script" not in found.tags
    assert not any(name.startswith("on") for name in found.attributes)
    assert "\u202e" not in text and "\x1b" not in text
    assert "&lt;script&gt;" in text


def test_a_hostile_name_is_only_text_in_markdown(attacked: Report) -> None:
    text = markdown.page(model.of(attacked))
    assert "<script" not in text and "\u202e" not in text and "\x1b" not in text
    table = [line for line in text.splitlines() if line.startswith("|")]
    widths = [len(re.findall(r"(?<!\\)\|", line)) for line in table]
    heads = [i for i, line in enumerate(table) if "---" in line and set(line) <= set("|- ")]
    assert len(heads) > 10 and all(widths[i] == widths[i - 1] == widths[i + 1] for i in heads)


def test_a_hostile_name_is_only_text_in_a_terminal(attacked: Report) -> None:
    text = shown(attacked, colour=False)
    assert "\x1b[31m" not in text and "\u202e" not in text
    assert "\\u001b[31m" in text
    raw = copy.deepcopy(attacked)
    raw["summary"]["sentence"] = "\x1b]0;owned\x07[bold]not markup[/bold]"
    assert "\x1b]0" not in shown(raw) and "[bold]not markup[/bold]" in shown(raw)


# ------------------------------------------------------------------ the faces


def test_the_page_is_one_file_that_asks_for_nothing(page: str) -> None:
    found = parsed(page)
    assert len(page.encode()) < 2_000_000
    assert found.links == ["data:,"]
    assert not found.tags & {"script", "iframe", "img", "object", "embed", "audio", "video", "base", "form"}
    assert set(re.findall(r"url\(([^)]{0,5})", page)) <= {"#ecdf", "#stri", "#hist", "#chan"}
    assert "@import" not in page
    assert "default-src &#x27;none&#x27;" in page


def test_every_id_of_the_page_is_its_own(page: str) -> None:
    ids = parsed(page).ids
    assert len(ids) == len(set(ids)) > 7
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(ids)


def test_the_terminal_keeps_to_its_width_and_to_no_color(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for width, verbose in itertools.product((80, 100, 120), (False, True)):
        lines = shown(report, width, colour=False, verbose=verbose).splitlines()
        assert max(map(len, lines)) <= width
        assert {v["name"] for v in report["variants"]} <= {line.split(" ")[0] for line in lines}
    text = shown(report, 120)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", text)
    assert "int8 ships: " in text and "lost: net 71 of 500 items lost, limit 5" in text


@pytest.mark.parametrize("name", ["terminal.txt", "report.md"])
def test_the_text_is_the_golden_one(report: Report, name: str) -> None:
    """EDGECOMPRESS_GOLDEN=write renews it; read the difference."""
    text = shown(report, 80, False, verbose=False) if name == "terminal.txt" else markdown.page(model.of(report))
    plain = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        (GOLDEN / name).write_text(plain, encoding="utf-8")
    assert plain == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_terminal_needs_no_heavy_library(made: Artifact) -> None:
    code = """
import json, sys
from msgspec.structs import replace
from rich.console import Console
from edgecompress.reporting import model, terminal
Console().print(terminal.render(model.of(json.load(open(sys.argv[1])))))
heavy = {"numpy", "torch", "vl_convert", "onnx"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""
    asked = [sys.executable, "-c", code, str(made.path / "report.json")]
    ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_why_a_variant_is_slow_and_what_left_the_accelerator_is_in_every_face(report: Report, page: str) -> None:
    evidence = variant(report, "int8-dynamic")["evidence"]
    assert evidence.startswith("int8-dynamic takes 5.2x the time of openvino-fp32: 5 operators left the accelerator")
    assert "ConvInteger takes 96 % of its time (CPU uint8×int8)" in evidence
    assert [v["name"] for v in report["variants"] if v["evidence"]] == ["int8-dynamic"]
    plain = " ".join(unescape(re.sub(r"<[^>]*>", " ", page)).replace("\N{NO-BREAK SPACE}", " ").split())
    faces = {"html": plain, "markdown": markdown.page(model.of(report)), "terminal": " ".join(shown(report).split())}
    for name, face in faces.items():
        assert "ConvInteger takes 96 % of its time" in face, name
    for name in ("html", "markdown"):
        assert "the per-operator pass broke: no counters" in faces[name], name
        assert "/layer0/pool, /layer1/pool, /layer2/pool, …" in faces[name], name


def test_every_variant_and_why_it_lost_is_in_every_face(report: Report, page: str) -> None:
    faces = (shown(report, width=200), markdown.page(model.of(report)), page)
    for name in (*MEDIANS, "fp16-odd", "broken"):
        assert all(name in face for face in faces)
    for reason in ("net 71 of 500 items lost, limit 5", "the converter ended with signal 6", "1.11x the time of int8"):
        assert all(reason in face for face in faces)
