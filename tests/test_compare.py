"""Reports beside each other: intervals, what is refused and why, gates and their exit codes, measuring in turns."""

from __future__ import annotations

import contextlib
import copy
import html
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import nulls
import numpy as np
import pytest
import report_inputs
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.cli import main
from edgecompress.commands import compare as command
from edgecompress.commands import compare_page
from edgecompress.core.errors import InputError
from edgecompress.core.quantities import QUANTITIES
from edgecompress.data import metrics, paired_proportions
from edgecompress.reporting import compare, compare_output, gates, model, model_numbers, model_variant, read
from edgecompress.reporting.model_numbers import values

Report = dict[str, Any]
GOLDEN = Path(__file__).parent / "golden" / "compare.txt"
positive = st.floats(0.01, 100)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Report:
    report: Report = report_inputs.written(report_inputs.request(tmp_path_factory.mktemp("deploy"), runs=400))
    return report


@pytest.fixture
def before(made: Report) -> Report:
    return copy.deepcopy(made)


@pytest.fixture
def after(made: Report) -> Report:
    """Another run of the same."""
    return {**copy.deepcopy(made), "date": "2026-01-02T12:00:00+00:00"}


def subject(report: Report) -> Report:
    found: Report = next(v for v in report["variants"] if v["name"] == report["subject"])
    return found


def slower(report: Report, factor: float) -> Report:
    for session in subject(report)["sessions"]:
        session["median_ms"] *= factor
    number = subject(report)["numbers"]["latency"]
    number |= {end: number[end] * factor for end in ("value", "low", "high")}
    return report


def held(tmp_path: Path, *reports: Report, fail_if: tuple[str, ...] = ()) -> compare.ReportComparison:
    return command.compare(written(tmp_path, *reports), command.ComparisonRequest(fail_if))


def written(tmp_path: Path, *reports: Report) -> list[str]:
    files = [tmp_path / f"{chr(97 + i)}.json" for i in range(len(reports))]
    for file, report in zip(files, reports, strict=True):
        file.write_text(json.dumps(report))
    return [str(file) for file in files]


def changed(found: compare.ReportComparison, metric: str, at: int = 0) -> compare.Change:
    return next(row.changes[at] for row in found.rows if row.metric.gate == metric)


# --------------------------------------------------------------------------- intervals


@given(st.tuples(positive, positive).map(sorted), st.tuples(positive, positive).map(sorted), st.data())
def test_a_quotient_holds_every_quotient_of_what_its_two_hold(a: Any, b: Any, data: st.DataObject) -> None:
    low, high = compare.quotient(tuple(a), tuple(b))
    x, y = data.draw(st.floats(*a)), data.draw(st.floats(*b))
    assert low is not None and high is not None
    assert low * (1 - 1e-12) <= x / y <= high * (1 + 1e-12)


@given(st.tuples(st.floats(-10, 10), st.floats(-10, 10)).map(sorted), st.tuples(positive, positive).map(sorted))
def test_a_numerator_may_be_below_nothing(a: Any, b: Any) -> None:
    low, high = compare.quotient(tuple(a), tuple(b))
    assert low is not None and high is not None and low <= a[0] / b[1] <= high and low <= a[1] / b[0] <= high


@pytest.mark.parametrize("b", [(0.0, 1.0), (-1.0, 1.0), (None, 1.0), (1.0, None)])
def test_a_quotient_by_what_may_be_nothing_has_no_interval(b: Any) -> None:
    assert compare.quotient((1.0, 2.0), b) == (None, None)


@given(st.floats(0.2, 5), st.integers(0, 10**6))
def test_the_change_there_and_the_change_back_are_inverse(made: Report, factor: float, seed: int) -> None:
    draw, report = random.Random(seed), model.of(made)
    (of_subject,) = (v for v in report.variants if v.name == report.subject)
    old, new = (
        compare.ComparedVariant(run, report, drawn(draw, of_subject, scale), run)
        for run, scale in (("old", 1.0), ("new", factor))
    )
    there, back = (compare.change(compare.BY_NAME["latency_ms"], *pair) for pair in ((old, new), (new, old)))
    assert there.ratio is not None and there.low is not None and there.high is not None
    assert (there.ratio * (back.ratio or 0), there.low * (back.high or 0)) == pytest.approx((1, 1))
    assert there.low <= there.ratio <= there.high
    assert {there.called, back.called} in ({"better", "worse"}, {"same"})


def drawn(draw: random.Random, variant: model_variant.Variant, scale: float) -> model_variant.Variant:
    again = copy.copy(variant)
    medians = [scale * draw.lognormvariate(0, 0.05) for _ in range(6)]
    again.sessions = [model_numbers.Session(round=f"round-{i}", median_ms=median) for i, median in enumerate(medians)]
    return again


def test_two_runs_are_not_paired_and_variants_of_one_run_are(tmp_path: Path, before: Report, after: Report) -> None:
    a, b = written(tmp_path, before, after)
    assert not changed(command.compare([a, b]), "latency_ms").paired
    in_turns = changed(command.compare([f"{a}@openvino-fp32", a]), "latency_ms")
    assert in_turns.paired and in_turns.called == "better" and in_turns.n == 6
    copied = tmp_path / "copy.json"
    copied.write_text(Path(a).read_text())
    assert changed(command.compare([a, f"{copied}@fp32"]), "latency_ms").paired


def test_the_same_measured_twice_is_no_change(tmp_path: Path, before: Report, after: Report) -> None:
    found = held(tmp_path, before, after)
    assert {c.called for row in found.rows for c in row.changes} <= {"same", "none"}
    assert "no change" in found.sentences[0]


def first_session_alone(variant: Report) -> None:
    variant["sessions"] = variant["sessions"][:1]
    for quantity in (q for q in QUANTITIES.values() if q.session):
        kept = msgspec.convert(variant["sessions"], list[model_numbers.Session])
        for value in values(kept, quantity.session).values():
            variant["numbers"][quantity.name]["value"] = value


def test_one_session_calls_nothing(tmp_path: Path, before: Report, after: Report) -> None:
    for report in (before, slower(after, 3)):
        first_session_alone(subject(report))
    change = changed(held(tmp_path, before, after), "latency_ms")
    assert (change.called, change.low) == ("none", None)
    assert change.says == "3.00× slower, not called"
    change = changed(held(tmp_path, before, slower(after, 1 / 2.98)), "latency_ms")
    assert (change.called, change.says) == ("none", "no change called (0.993×)")


# --------------------------------------------------------------------------- what is refused


def test_scopes_and_statuses_of_energy_do_not_mix(tmp_path: Path, before: Report, after: Report) -> None:
    subject(after)["numbers"]["energy_gross"]["scope"] = "board"
    assert changed(held(tmp_path, before, after), "energy_gross_mj").why == "not compared: package beside board"
    for status in ("measured", "replayed", "simulated"):
        subject(after)["numbers"]["energy_gross"] |= {"status": status, "scope": "package"}
        why = changed(held(tmp_path, before, after), "energy_gross_mj").why
        assert why == f"not compared: estimated beside {status}"


def test_measured_energy_is_called_by_its_intervals(tmp_path: Path, before: Report, after: Report) -> None:
    for report, value in ((before, 1.0), (after, 0.5)):
        ends = {"value": value, "low": value * 0.98, "high": value * 1.02}
        subject(report)["numbers"]["energy_gross"] |= {"status": "measured", **ends}
    change = changed(held(tmp_path, before, after), "energy_gross_mj")
    assert change.called == "better" and change.low == pytest.approx(0.49 / 1.02)


def test_estimates_are_told_and_never_called(tmp_path: Path, before: Report, after: Report) -> None:
    subject(after)["numbers"]["energy_gross"]["value"] *= 3
    change = changed(held(tmp_path, before, after), "energy_gross_mj")
    assert (change.called, change.says) == ("none", "≈ 3.0× more")


def test_estimates_of_two_models_and_bounds_are_not_compared(tmp_path: Path, before: Report, after: Report) -> None:
    number = subject(after)["numbers"]["energy_gross"]
    source, number["source"] = number["source"], "calibration: RAPL of another"
    change = changed(held(tmp_path, before, after), "energy_gross_mj")
    assert change.ratio is None and change.why == f"not compared: by {source} and by calibration: RAPL of another"
    number |= {"source": source, "low": number["value"], "high": None}
    assert changed(held(tmp_path, before, after), "energy_gross_mj").why == "not compared: a bound is no value"


def test_instructions_are_counted_and_so_a_change_of_them_is_exact(
    tmp_path: Path, before: Report, after: Report
) -> None:
    for report, count in ((before, 1_000_000), (after, 1_100_000)):
        counted = {"metric": "instructions", "unit": "instructions", "value": count, "status": "simulated", "n": 5}
        subject(report)["numbers"]["instructions"] = {**subject(report)["numbers"]["size"], **counted}
    found = held(tmp_path, before, after, fail_if=("instructions > 1.05x",))
    assert changed(found, "instructions").says == "1.10× more"
    assert found.gates[0].ended == "broken" and found.gates[0].says == "1.1x, simulated"


def test_another_artifact_on_another_device_has_no_winner(tmp_path: Path, before: Report, after: Report) -> None:
    after["device"]["name"] = "rpi5"
    subject(after)["artifact"]["sha256"] = "0" * 64
    found = held(tmp_path, before, slower(after, 2), fail_if=("latency_ms > 1.05x",))
    assert "another artifact on another device" in changed(found, "latency_ms").why
    assert changed(found, "size_bytes").called == "same"
    assert found.gates[0].ended == "not judged" and found.exit_code == 2


def test_the_same_artifact_on_two_devices_compares_the_devices(tmp_path: Path, before: Report, after: Report) -> None:
    after["device"]["name"] = "rpi5"
    found = held(tmp_path, before, slower(after, 2))
    assert changed(found, "latency_ms").called == "worse"
    assert found.sentences[0].startswith("A comparison of devices: the same artifact on host (Synthetic CPU")


def test_batches_and_test_data_do_not_mix(tmp_path: Path, before: Report, after: Report) -> None:
    after["run"]["batch"] = 8
    after["data"]["sha256"] = "of other files"
    found = held(tmp_path, before, after)
    assert changed(found, "latency_ms").why == "not compared: batch 1 beside batch 8"
    assert changed(found, "accuracy").why == "not compared: judged on other test data"
    assert changed(found, "size_bytes").called == "same"


def test_test_data_is_known_by_its_content_wherever_it_lies(tmp_path: Path, before: Report, after: Report) -> None:
    after["data"]["data"] = "/elsewhere/images"
    assert changed(held(tmp_path, before, after), "accuracy").why == ""
    del before["data"]["sha256"]  # a report of an older version: what it tells of the data has to be the same
    assert changed(held(tmp_path, before, after), "accuracy").why == "not compared: judged on other test data"


def test_what_is_different_around_it_is_warned_of(tmp_path: Path, before: Report, after: Report) -> None:
    after["environment"] |= {"governor": "powersave", "os": "Linux 7"}
    after["run"]["threads"] = 4
    for report, version in ((before, "1.31.1"), (after, "1.32.0")):
        report["environment"]["runtimes"] = {"int8": {"versions": {"onnxruntime": version}}}
    warnings = "\n".join(held(tmp_path, before, after).warnings)
    assert "governor powersave, the baseline's is unknown" in warnings
    assert "threads 4, the baseline's is 1" in warnings
    assert "onnxruntime version 1.32.0, the baseline's is 1.31.1" in warnings
    assert "measured in another run than the baseline" in warnings


def test_a_perplexity_that_falls_is_better(tmp_path: Path, before: Report, after: Report) -> None:
    subject(after)["artifact"]["sha256"] = "0" * 64
    for report, value in ((before, 20.0), (after, 21.5)):
        ratio = {"ratio": value / 20, "low": value / 20 - 0.005, "high": value / 20 + 0.005}
        told = {"name": "perplexity", "unit": "", "before": 20.0, "after": value, "n": 900}
        subject(report)["verify"]["metric"] = {**told, **ratio}
        subject(report)["numbers"]["accuracy"] |= {"metric": "perplexity", "value": value, "unit": ""}
    found = held(tmp_path, before, after, fail_if=("accuracy_drop > 1", "accuracy_drop > 1.6", "accuracy_drop > 2"))
    assert changed(found, "accuracy").called == "worse"
    assert changed(found, "accuracy").says == "+1.5 [+1.29, +1.71]"
    assert [gate.ended for gate in found.gates] == ["broken", "undecided", "kept"]


def judged(report: Report, right: str, source: float = 0.9) -> Report:
    """A report whose artifact has these of 400 items right, as bits."""
    count = int(right, 16).bit_count()
    share = {"name": "top1", "unit": "fraction", "before": source, "after": count / 400, "n": 400}
    metric = {**share, "net_lost": round(400 * source) - count}
    subject(report)["verify"] |= {"metric": {**metric, "low": -0.05, "high": 0.01}, "right": right}
    subject(report)["numbers"]["accuracy"] |= {"value": count / 400, "n": 400}
    subject(report)["artifact"]["sha256"] = f"{count:064d}"
    return report


def test_accuracies_on_the_same_items_are_compared_item_by_item(tmp_path: Path, before: Report, after: Report) -> None:
    judged(before, "f" * 90 + "0" * 10), judged(after, "f" * 89 + "0" * 11)  # four items lost
    found = held(tmp_path, before, after, fail_if=("accuracy_drop > 0.03", "accuracy_drop > 0.02", "accuracy_drop > 0"))
    low, high = paired_proportions.interval(0, 4, 400)
    assert (changed(found, "accuracy").low, changed(found, "accuracy").high) == (1 + low / 0.9, 1 + high / 0.9)
    assert changed(found, "accuracy").says == "−1.00 points [−2.54, −0.04]"
    assert [gate.ended for gate in found.gates] == ["kept", "undecided", "broken"]
    assert found.gates[1].says.endswith(": about 960 items would decide (there are 400)")
    assert (found.verdict, found.exit_code) == ("FAIL", 1)


def test_a_ratio_that_its_interval_leaves_open_is_no_change_and_not_as_much(
    tmp_path: Path, before: Report, after: Report
) -> None:
    for i, session in enumerate(subject(slower(after, 1.3))["sessions"]):
        session["median_ms"] *= 0.4 if i == 0 else 1
    change = changed(held(tmp_path, before, after), "latency_ms")
    assert change.called == "same" and change.says.startswith("1.30× slower, not called [")


def test_without_the_items_the_interval_is_as_wide_as_two_allow(tmp_path: Path, before: Report, after: Report) -> None:
    judged(before, "f" * 90 + "0" * 10), judged(after, "f" * 89 + "0" * 11)
    del subject(before)["verify"]["right"]
    assert changed(held(tmp_path, before, after), "accuracy").says == "−1.00 points [−6.00, +6.00]"
    judged(before, "f" * 90 + "0" * 10, source=0.95)  # of another source
    del subject(before)["verify"]["right"]
    change = changed(held(tmp_path, before, after), "accuracy")
    assert change.called == "same" and change.low is not None and change.low < 0.93 < 1.04 < (change.high or 0)
    for report in (before, after):
        subject(report)["verify"] = None
    found = held(tmp_path, before, after, fail_if=("accuracy_drop > 0.5",))
    assert changed(found, "accuracy").says == "−1.00 points, not called"
    assert (found.gates[0].ended, found.verdict, found.exit_code) == ("undecided", "UNDECIDED", 4)


def of_errors(report: Report, metric: str, unit: str, scores: np.ndarray, source: float) -> Report:
    """A report whose artifact has these errors, of a source with that mean."""
    numbers = {"before": source, "after": float(scores.mean()), "n": len(scores)}
    told = {"metric": {"name": metric, "unit": unit, **numbers, "ratio": None}, "right": None, **metrics.items(scores)}
    subject(report)["verify"] |= told
    subject(report)["numbers"]["accuracy"] |= {"metric": metric, "unit": unit, "value": numbers["after"]}
    subject(report)["artifact"]["sha256"] = f"{source:064.0f}"
    return report


@pytest.mark.parametrize(
    ("metric", "unit", "better"), [("mse", "", -1), ("mae", "", -1), ("ssim", "", 1), ("psnr", "dB", 1)]
)
def test_a_metric_without_classes_has_a_gate_on_what_it_loses_of_its_own_value(
    tmp_path: Path, before: Report, after: Report, metric: str, unit: str, better: int
) -> None:
    draw = np.random.default_rng(0)
    first = draw.uniform(20, 30, 400)
    lost = 10 * np.log10(1.03) if unit else 0.03 * first  # the squared error grows by so much, or the value changes
    second = first - better * lost * draw.uniform(0.8, 1.2, 400)
    of_errors(before, metric, unit, first, source=24.0), of_errors(after, metric, unit, second, source=25.0)
    given = tuple(f"metric_loss > {limit}" for limit in (0.02, 0.03, 0.04))
    found = held(tmp_path, before, after, fail_if=given)
    assert [gate.ended for gate in found.gates] == ["broken", "undecided", "kept"]
    assert changed(found, "accuracy").called == "worse"


def test_scores_of_a_damaged_report_are_told_in_one_line(
    tmp_path: Path, before: Report, after: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    for report, source in ((before, 1.0), (after, 2.0)):
        of_errors(report, "mse", "", np.linspace(1, 2, 30), source)
    subject(after)["verify"]["scores"] = "abcd"
    assert main.main(["compare", *written(tmp_path, before, after), "--fail-if", "metric_loss > 0.01"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_an_accuracy_alone_has_the_interval_of_its_share(tmp_path: Path, before: Report, after: Report) -> None:
    judged(before, "f" * 90 + "0" * 10), judged(after, "f" * 89 + "0" * 11)
    found = held(tmp_path, before, after, fail_if=("accuracy < 0.8", "accuracy < 0.88", "accuracy < 0.95"))
    assert [gate.ended for gate in found.gates] == ["kept", "undecided", "broken"]


def test_different_models_are_refused_in_one_line(
    tmp_path: Path, before: Report, after: Report, capsys: pytest.CaptureFixture[str]
) -> None:
    after["source"]["artifact"]["sha256"] = "0" * 64
    files = written(tmp_path, before, after)
    assert main.main(["compare", *files]) == 0  # trained again: another content under the same name
    after["source"] |= {"name": "another", "model": "models/another.onnx"}
    files = written(tmp_path, before, after)
    capsys.readouterr()
    assert main.main(["compare", *files]) == 2
    said = capsys.readouterr().err
    assert (
        said.count("\n") == 1
        and "b.json of another (top1, 00000000): these are two different models, so no change is computed" in said
    )
    assert main.main(["compare", *files, "--across-models"]) == 0
    after["source"]["artifact"]["sha256"] = before["source"]["artifact"]["sha256"]  # the same content, called otherwise
    assert main.main(["compare", *written(tmp_path, before, after)]) == 0
    after["source"] = {**before["source"], "metric": "mse", "artifact": {**before["source"]["artifact"], "sha256": "0"}}
    assert main.main(["compare", *written(tmp_path, before, after)]) == 2  # another task


def test_the_first_of_three_is_named_only_where_all_may_be_ranked(
    tmp_path: Path, before: Report, after: Report
) -> None:
    third = slower({**copy.deepcopy(after), "date": "third"}, 0.5)
    assert held(tmp_path, before, after, third).sentences[-1].startswith("First by latency_ms: ")
    assert held(tmp_path, before, after, {**after, "date": "third"}).sentences[-1].startswith("No winner by latency_ms")
    third["run"] = {"batch": 8, "threads": 1}
    assert "No ranking by latency_ms" in held(tmp_path, before, after, third).sentences[-1]


# --------------------------------------------------------------------------- gates


@pytest.mark.parametrize(
    ("words", "metric", "limit", "relative"),
    [
        ("latency_ms > 1.05x", "latency_ms", 1.05, True),
        ("latency_ms>3", "latency_ms", 3.0, False),
        (" size_bytes > 1.1× ", "size_bytes", 1.1, True),
        ("accuracy_drop > 0.01", "accuracy_drop", 0.01, False),
        ("inferences_per_joule < 1e3", "inferences_per_joule", 1000.0, False),
    ],
)
def test_a_gate_is_read(words: str, metric: str, limit: float, relative: bool) -> None:
    found = gates.read(words, compare.BY_NAME, [compare.DROP])
    assert (found.metric, found.limit, found.relative) == (metric, limit, relative)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            "mse > 1.05x",
            "no metric 'mse': what the task's metric loses is metric_loss > 0.01, in its own",
        ),
        ("latency > 1", "no metric 'latency', did you mean 'latency_ms'?"),
        ("latency_ms >= 1", "write METRIC > NUMBER"),
        ("latency_ms > fast", "'fast' is not a limit"),
        ("latency_ms > nan", "'nan' is not a limit"),
        ("latency_ms > -1x", "'-1' is not a limit"),
        ("latency_ms > 0x", "'0' is not a limit"),
        ("latency_ms > -0.0x", "'-0.0' is not a limit"),
        ("accuracy_drop > 1.1x", "is a difference already"),
        ("__import__('os') > 1", "write METRIC > NUMBER"),
        ("", "write METRIC > NUMBER"),
    ],
)
def test_a_gate_that_is_none_is_one_line(words: str, says: str) -> None:
    with pytest.raises(InputError) as told:
        gates.read(words, compare.BY_NAME, [compare.DROP])
    assert says in str(told.value) and str(told.value).count("\n") == 0


@given(st.text(max_size=40))
def test_no_text_makes_the_reader_of_gates_break(words: str) -> None:
    with contextlib.suppress(InputError):
        gates.read(words, compare.BY_NAME, [compare.DROP])


@given(positive, positive, positive, st.booleans())
def test_a_gate_breaks_only_where_the_whole_interval_is_past_it(a: float, b: float, c: float, above: bool) -> None:
    low, value, high = sorted((a, b, c))
    limit = gates.Gate("", "latency_ms", above, 1.0, True)
    past = [end > 1 if above else end < 1 for end in (low, high)]
    assert limit.judge(value, (low, high)) == ("broken" if all(past) else "undecided" if any(past) else "kept")
    assert limit.judge(value, (None, None)) == "undecided"


def test_a_number_beyond_those_of_all_its_sessions_is_damage(tmp_path: Path, before: Report) -> None:
    variant = subject(before)
    variant["numbers"]["latency"]["value"] = 2 * max(s["median_ms"] for s in variant["sessions"])
    variant["numbers"]["latency"]["high"] = None
    (file,) = written(tmp_path, before)
    with pytest.raises(
        InputError, match=r"damaged: latency is [\d.]+, its sessions have [\d.]+ to [\d.]+ - at `\$\.variants\[\d\]`; "
    ):
        read.report(Path(file))


def test_exit_codes_of_gates(tmp_path: Path, before: Report, after: Report, capsys: pytest.CaptureFixture[str]) -> None:
    files = written(tmp_path, before, slower(after, 1.2))
    wide = copy.deepcopy(after)
    subject(wide)["sessions"][0]["median_ms"] /= 2
    wide_file = written(tmp_path, before, wide)[1]

    def ended(*gates: str, to: str = wide_file) -> int:
        flags = [words if words.startswith("--") else f"--fail-if={words}" for words in gates]
        return main.main(["compare", files[0], to, *flags])

    assert ended("latency_ms > 1.05x") == 4
    assert "UNDECIDED (exit code 4)" in capsys.readouterr().out
    assert ended("latency_ms > 1.05x", "--strict") == 1
    assert ended("latency_ms > 1.05x", "instructions > 1.01x") == 2
    Path(wide_file).write_text(json.dumps(after))
    assert ended("latency_ms > 1.05x") == 1
    assert ended("latency_ms > 1.3x", "size_bytes > 1.01x", "latency_ms < 1.0x") == 0
    assert ended("latency_ms > 0.01") == 1
    assert ended("accuracy_drop > 0.01") == 0
    capsys.readouterr()
    assert ended("accuracy_drop > 2") == 2
    assert "top1 is from 0 to 1; for 2 points write 0.02" in " ".join(capsys.readouterr().out.split())
    assert ended("instructions > 1.01x") == 2
    assert ended("latency_ms > 1.05x", "instructions > 1.01x") == 1
    capsys.readouterr()
    assert main.main(["compare", files[0], wide_file, "--json", "--fail-if", "latency_ms > 1.05x"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["gates"][0]["ended"] == "broken" and (told["verdict"], told["exit_code"]) == ("FAIL", 1)
    assert main.main(["compare", files[0], wide_file, "-q", "--fail-if", "latency_ms > 2"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a.json"], "two reports or more"),
        (["a.json", "none.json"], "none.json: no such file or folder; give the folder"),
        (["a.json", "a.toml"], "a.toml: is a file, and no report.json; give the folder that a deploy wrote"),
        (["a.json", "a.json@int9"], "a.json@int9: no variant 'int9', did you mean 'int8'"),
        (["a.json", "a.json", "--fail-if", "x"], "write METRIC"),
        (["a.json", "odd.json"], "odd.json: damaged: Object missing required field `name` - at `$.variants[0]`"),
        (["a.json", "other.json"], "not a report of edgecompress"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2(
    words: list[str], says: str, tmp_path: Path, before: Report, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, before)
    (tmp_path / "odd.json").write_text(json.dumps({"schema": before["schema"], "variants": [{}]}))
    (tmp_path / "other.json").write_text("[]")
    (tmp_path / "a.toml").write_text("")
    assert main.main(["compare", *words]) == 2
    told = capsys.readouterr().err
    assert says in told and told.count("\n") == 1


# --------------------------------------------------------------------------- as text, and in turns


def test_the_text_is_as_agreed(tmp_path: Path, before: Report, after: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the words change on purpose: run it with EDGECOMPRESS_GOLDEN=write."""
    from rich.console import Console

    monkeypatch.chdir(tmp_path)
    written(tmp_path, before, slower(after, 1.5))
    promises = command.ComparisonRequest(("latency_ms > 1.05x", "size_bytes > 1.01x"))
    found = command.compare(["a.json", "b.json"], promises)
    screen = Console(width=140, no_color=True, force_terminal=False, record=True)
    with screen.capture() as told:
        screen.print(compare_output.render(found), crop=False)
    text = "".join(f"{line.rstrip()}\n" for line in told.get().splitlines())
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "write":
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


# --------------------------------------------------------------------------- as a page


def elsewhere(report: Report, device: str, factor: float) -> Report:
    """The report as of another device, where everything takes `factor` as long."""
    report["device"]["name"] = device
    for variant in report["variants"]:
        number = variant["numbers"]["latency"]
        number |= {end: number[end] * factor for end in ("value", "low", "high") if number[end]}
        for session in variant["sessions"]:
            session |= {"median_ms": session["median_ms"] and session["median_ms"] * factor}
    return report


def on_fronts(tmp_path: Path, *reports: Report) -> list[list[tuple[str, str, str]]]:
    """Of each front: variant, device, what beats it."""
    fronts = compare_page.page_data(held(tmp_path, *reports))["fronts"]
    return [[(r["variant"], r["device"], r["beaten_by"]) for r in front["rows"]] for front in fronts]


def test_the_variants_of_all_reports_are_on_one_front_by_device(tmp_path: Path, before: Report, after: Report) -> None:
    assert on_fronts(tmp_path, before, elsewhere(after, "rpi5", 5)) == [
        [
            ("int8", "host", ""),
            ("openvino-fp32", "host", ""),
            ("int8", "rpi5", "int8 on host"),
            ("openvino-fp32", "rpi5", "openvino-fp32 on host"),
        ]
    ]


def test_one_report_given_twice_is_there_once_and_two_of_a_device_are_told_apart(
    tmp_path: Path, before: Report, after: Report
) -> None:
    a, b = written(tmp_path, before, after)
    names = [r["variant"] for r in compare_page.page_data(command.compare([f"{a}@fp32", a]))["fronts"][0]["rows"]]
    assert names == ["int8", "openvino-fp32"]
    names = [r["variant"] for r in compare_page.page_data(command.compare([f"{a}@fp32", b]))["fronts"][0]["rows"]]
    assert names == [f"{variant} ({file})" for file in (a, b) for variant in ("int8", "openvino-fp32")]


def test_energies_of_two_scopes_beat_nothing_across_devices(tmp_path: Path, before: Report, after: Report) -> None:
    for v in after["variants"]:
        v["numbers"]["energy_gross"]["scope"] = "board"
    (front,) = on_fronts(tmp_path, before, elsewhere(after, "rpi5", 5))
    assert [beaten for _, _, beaten in front] == [""] * 4


def test_batches_and_test_data_have_fronts_of_their_own(tmp_path: Path, before: Report, after: Report) -> None:
    third = {**copy.deepcopy(after), "data": {**after["data"], "sha256": "of other files"}}
    after["run"]["batch"] = 8
    found = on_fronts(tmp_path, before, elsewhere(after, "a", 5), elsewhere(third, "b", 5))
    assert [{device for _, device, _ in front} for front in found] == [{"host"}, {"a"}, {"b"}]
    assert not any(beaten for front in found for *_, beaten in front)


def test_a_profile_has_the_accuracy_of_the_same_artifact(tmp_path: Path, before: Report, after: Report) -> None:
    missing = {"value": None, "status": "unavailable", "reason": "a profile verifies nothing"}
    for v in elsewhere(after, "rpi5", 5)["variants"]:
        v["numbers"]["accuracy"] |= missing
    other = next(v for v in after["variants"] if v["name"] == "openvino-fp32")
    other["artifact"]["sha256"] = "0" * 64
    (front,) = on_fronts(tmp_path, before, after)
    assert [row[:2] for row in front] == [("int8", "host"), ("openvino-fp32", "host"), ("int8", "rpi5")]
    left = compare_page.page_data(held(tmp_path, before, after))["missing"]
    assert ["openvino-fp32", "no accuracy: a profile verifies nothing"] in [[row[0], row[-1]] for row in left]


@pytest.mark.slow
def test_the_page_is_drawn_by_a_worker_and_says_what_the_terminal_says(
    tmp_path: Path, before: Report, after: Report, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subject(after)["artifact"]["sha256"] = "0" * 64
    after["environment"]["governor"] = report_inputs.HOSTILE
    written(tmp_path, before, elsewhere(after, "rpi5", 5))
    drawn = (
        "import sys\nfrom edgecompress.cli.main import main\n"
        "code = main(['compare', 'a.json', 'b.json', '--json', '--html', 'c.html'])\n"
        "print([m for m in ('torch', 'vl_convert') if m in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", drawn], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == "[]"
    told, page = json.loads(done.stdout), (tmp_path / "c.html").read_text()
    assert told["page"] == "c.html" and sorted(p.name for p in tmp_path.glob("*.html*")) == ["c.html"]
    plain = html.unescape(re.sub(r"<[^>]+>|\N{WORD JOINER}", "", page)).replace("\N{NO-BREAK SPACE}", " ")
    assert all(sentence in plain for sentence in told["sentences"])
    assert "not compared: another artifact on another device" in plain
    assert "● host, ■ rpi5" in plain and "beaten by int8 on host" in plain
    assert page.count('class="plot"') == 2
    assert "<script" not in page and "https://" not in page


@pytest.mark.slow
@pytest.mark.alone  # beside others it may be too noisy to compare
@pytest.mark.prove
def test_what_shipped_is_measured_again_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = [f"--set={key}={value}" for key, value in nulls.FAST.items()]
    net = nulls.make(tmp_path / "net")
    words = [net["model"], "--data", net["data"], "--target", net["target"], "--profile", "quick", *quick]
    assert main.main(["deploy", *words, "--out", "out"]) == 0
    capsys.readouterr()
    turns = ["--remeasure", "--profile", "quick", *quick, "--set=profile.sessions=8"]
    ended = main.main(["compare", "out", "out", *turns, "--json", "--fail-if", "latency_ms > 0.0001x"])
    told = json.loads(capsys.readouterr().out)
    latency = next(row for row in told["rows"] if row["metric"] == "latency_ms")
    judged = latency["changes"][0]["paired"] and latency["changes"][0]["n"] >= 6  # as many sessions were quiet
    assert ended == (1 if judged else 4)
    accuracy = next(row for row in told["rows"] if row["metric"] == "accuracy")
    assert accuracy["changes"][0]["called"] == "same"
