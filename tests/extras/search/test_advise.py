"""`edgecompress advise`: what fits a net and a target, ranked before anything is built."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path

import nulls
import numpy as np
import pytest
import report_inputs
from small_onnx import conv_net

from edgecompress.cli.main import main
from edgecompress.core.errors import EdgeError, InputError
from edgecompress.extras.search import expected_gains
from edgecompress.extras.search.advise import Advice, _ordered, _recorded, _row, advise, text
from edgecompress.extras.search.expected_gains import KINDS, Expected, Interval, Record, expected
from edgecompress.pipeline.job_request import Options
from edgecompress.reporting import model

CONV = {"macs": 7.0, "weights": 5.0, "activations": 5.0, "convolutions": 1.0}
OTHERS = dict.fromkeys(KINDS[1:], 0.0)


def record(net: str, decades: float, gains: dict[str, dict[str, float]], sha256: str = "") -> Record:
    """A net of convolutions that is so many decades of MACs larger than CONV."""
    features = {**CONV, **OTHERS, "macs": CONV["macs"] + decades}
    return Record(net, f"{net}.json", "linux-x86_64", features, gains, 2.0, sha256)


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    return "net.onnx"


def test_the_nearest_nets_make_the_interval_and_the_likest_counts_most():
    records = [record(f"n{n}", n / 2, {"onnx int8": {"latency": 1.0 + n}}) for n in range(7)]
    told = expected("onnx int8", {**CONV, **OTHERS}, records, "latency", "")
    assert list(told.records) == ["n0", "n1", "n2", "n3", "n4"]
    assert told.gain and (told.gain.low, told.gain.high) == (1.0, 5.0)
    assert told.gain.middle < 2.0
    assert told.kept == 1.0


def test_a_variant_that_was_lost_on_like_nets_comes_after_one_that_gains_less():
    lost = {"onnx int8": {}, "onnx fp32": {"latency": 1.0}}
    records = [record("a", 0, lost), record("b", 0.1, lost), record("c", 1, {"onnx int8": {"latency": 9.0}})]
    told = expected("onnx int8", {**CONV, **OTHERS}, records, "latency", "")
    assert told.kept and told.kept < expected_gains.MOSTLY
    assert told.gain and told.gain.middle == pytest.approx(9.0)


def test_a_record_of_the_same_net_stands_alone():
    records = [
        record("like it", 0, {"onnx int8": {"latency": 4.0}}),
        record("itself", 3, {"onnx int8": {"latency": 2.0}}, "ab"),
    ]
    told = expected("onnx int8", {**CONV, **OTHERS}, records, "latency", "ab")
    assert (told.gain, dict(told.records)) == (expected_gains.Interval(2.0, 2.0, 2.0), {"itself": "itself.json"})


def test_a_net_that_is_like_none_of_the_records_is_told_nothing():
    far = [record("huge", expected_gains.FAR + 0.1, {"onnx int4": {"latency": 6.5}})]
    assert expected("onnx int4", {**CONV, **OTHERS}, far, "latency", "") == expected_gains.Expected()


def test_what_nobody_recorded_is_not_known():
    assert expected("onnx int8", CONV, [], "latency", "") == expected_gains.Expected()
    assert expected_gains.of_platform([record("a", 0, {})], ["android-*"]) == []
    assert expected_gains.pace(CONV, []) == 1.0


@pytest.mark.parametrize(
    ("layer", "kind"),
    [("Conv2d", 0), ("CONV_2D", 0), ("Gemm", 1), ("UNIDIRECTIONAL_SEQUENCE_LSTM", 2), ("GRU", 2), ("aten.linear", 1)],
)
def test_layers_of_any_format_are_of_a_kind(layer, kind):
    assert expected_gains.kind(layer) == KINDS[kind]


def test_a_size_is_from_what_certainly_shrinks_to_all_of_it():
    whole, half = (expected_gains.size("int8", 1_000_000, share, 20) for share in (1.0, 0.5))
    assert 3.8 < whole.low < 4.0 == whole.high
    assert 1.5 < half.low < 1.61
    assert expected_gains.size("fp32", 1000, 1.0, 20).low == 1.0


def test_the_table_that_ships_tells_of_every_variant_of_x86_by_the_best_uncompressed_one():
    table = expected_gains.prior()
    keys = {key for each in table.records for key in each.gains}
    assert {"onnx int8", "litert int8-dynamic", "executorch int8", "openvino fp32", "onnx int4"} <= keys
    assert all(each.source.startswith("benchmarks/") and each.features for each in table.records)
    assert table.factors["qat"] == expected_gains.Interval(1.0, 1.0, 1.0)


def test_a_report_of_the_users_own_is_a_record(tmp_path):
    report = model.of(report_inputs.written(report_inputs.request(tmp_path)))
    for variant in report.variants:
        variant.compress = [] if "fp32" in variant.name else [variant.name.removeprefix("openvino-")]
    told = expected_gains.of_report(report, "there")
    assert told.source == "there"
    assert told.gains["openvino fp32"]["latency"] == 1.0 > told.gains["onnx fp32"]["latency"]
    assert told.gains["onnx int8"]["size"] > 3.0
    assert told.gains["onnx fp16-odd"] == told.gains["onnx broken"] == {}


@pytest.mark.parametrize(("sessions", "says"), [(1, "latency 1.8x (one session), size"), (6, "latency 1.8x, size")])
def test_one_record_has_no_interval_and_of_one_session_the_row_says_so(net, tmp_path, monkeypatch, sessions, says):
    report = model.of(report_inputs.written(report_inputs.request(tmp_path / "report", sessions=sessions)))
    for variant in report.variants:
        variant.compress = [] if "fp32" in variant.name else [variant.name.removeprefix("openvino-")]
    own = expected_gains.of_report(report, "there")
    monkeypatch.setattr(expected_gains, "expected", lambda name, ours, records, objective, sha256: expected(
        name, own.features, [replace(own, net="/far/away/net.onnx")], objective, own.sha256
    ))  # fmt: skip
    told = text(advise(net, "web", options=Options(store="store", progress=False)), everything=False, width=80)
    assert says in told
    assert "kept its limits in the one record, net.onnx edgecompress" in " ".join(told.split())


def test_reasons_that_are_cut_do_not_end_in_a_colon():
    records = {f"net-{n}": f"net-{n}.json" for n in range(5)}
    why = [f"int8: {'word ' * 15}", _recorded(Expected(kept=1.0, records=records, of="litert int8"))]
    row = Advice("int8", "litert", ["int8"], True, why, 1, {"latency": Interval(1.0, 2.0, 3.0)}, records=records)
    for width in range(60, 120):
        lines = [*_row(row, "latency", False, width)]
        assert not [line for line in lines if line.endswith((": …", "; …"))]
    assert "2x (1–3)" in lines[0]


def test_a_net_whose_operators_nothing_reads_is_advised_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made = nulls.make(tmp_path)
    assert main(["advise", made["model"], "--target", made["target"], "--store", "store", "--verbose"]) == 2
    assert "check reads no operators of kind 'null'" in capsys.readouterr().out.replace("\n", " ")


def test_a_file_without_data_is_advised_and_each_command_is_one_that_a_plan_takes(net, capsys):
    advised = advise(net, "web", options=Options(store="store", progress=False))
    fits = [row for row in advised.rows if row.rank]
    assert [row.rank for row in fits] == list(range(1, len(fits) + 1))
    assert fits[0].own
    assert "give --data" in " ".join(next(row for row in fits if row.variant == "int8").why)
    assert any(row.variant.startswith("pruned-") and row.steps[0] == "prune_channels" for row in advised.rows)
    for row in (fits[0], next(row for row in fits if row.variant == "onnx-fp16")):
        words = shlex.split(row.command)[2:]
        assert main(["plan", *words, "--store", "store", "--quiet"]) == 0
    assert max(map(len, (line for line in str(advised).splitlines() if "edgecompress deploy" not in line))) <= 110


def test_by_size_the_smallest_is_first_among_the_targets_own(net):
    advised = advise(net, "web", objective="size", options=Options(store="store", progress=False))
    own = [row for row in advised.rows if row.own and row.rank]
    assert own == sorted(own, key=lambda row: -row.gains["size"].middle)
    assert own[0].variant == "int8"


def test_a_trained_recipe_says_how_many_items_it_trains_on(net):
    rng = np.random.default_rng(0)
    x = {f"{s}.image": rng.normal(size=(n, 3, 8, 8)).astype("float32") for s, n in (("test", 8), ("train", 24))}
    np.savez("data.npz", **x)
    advised = advise(net, "web", data="data.npz", options=Options(store="store", progress=False))
    told = {row.variant: " ".join(row.why) for row in advised.rows}
    assert "trains on 24 items" in told["pruned-int8"], told["pruned-int8"]
    assert advised.data["test"] == 4  # of its 8 items the other splits have some


def test_rows_of_which_nothing_is_known_keep_the_targets_order(net):
    advised = advise(net, "web", options=Options(store="store", progress=False))
    rows = [row for row in advised.rows if row.own]
    assert [row.variant for row in _ordered(rows, "latency")] == [row.variant for row in rows]


def test_the_command_prints_json(net, capsys):
    assert main(["advise", net, "--target", "web", "--json", "--store", "store", "--metric", "top5"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["rows"][0]["rank"] == 1
    words = "edgecompress deploy net.onnx --target web --metric top5 --data random --only"
    assert told["rows"][0]["command"].startswith(words)


@pytest.mark.parametrize(
    ("given", "how", "says"),
    [
        ("net.onnx", {"target": "wep"}, "did you mean 'web'"),
        ("net.onnx", {"objective": "speed"}, "--objective speed"),
        ("none.onnx", {}, "none.onnx"),
        ("factory:broken", {"data": "data.npz"}, "no weights here"),
        ("factory:broken", {}, "give --data"),
    ],
)
def test_bad_input_is_one_line(net, given, how, says):
    np.savez("data.npz", image=np.zeros((8, 3, 8, 8), "float32"))
    Path("factory.py").write_text("def broken():\n    raise RuntimeError('no weights here')\n")
    with pytest.raises(EdgeError, match=says) as raised:
        advise(given, **{"target": "web", "options": Options(store="store", progress=False), **how})
    assert "\n" not in str(raised.value)
    assert isinstance(raised.value, InputError) or given == "factory:broken"
