"""`edgecompress check`: what targets make of a model, told before anything is built."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from small_onnx import conv_net

from edgecompress.cli.main import main
from edgecompress.commands.check import Checked, check, text
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.core.operations import Operation
from edgecompress.engines.onnx import operations as onnx_operations
from edgecompress.pipeline.job_request import Options


@pytest.fixture
def store(tmp_path: Path) -> Options:
    return Options(store=tmp_path / "store", progress=False)


def recurrent(path: Path) -> Path:
    """x [1, 4, 8] -> GRU -> y: what no quantizer of ONNX Runtime makes int8."""
    weights = {
        "w": np.random.default_rng(0).normal(size=(1, 24, 8)).astype("float32"),
        "r": np.random.default_rng(1).normal(size=(1, 24, 8)).astype("float32"),
    }
    made = helper.make_graph(
        [helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=8, linear_before_reset=1)],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1, 1, 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_operators_of_a_file_have_words(tmp_path):
    conv_net(tmp_path / "net.onnx")
    found = onnx_operations.operations(Artifact(tmp_path, "onnx", [], []).write())
    assert found[0].word == "conv"
    assert all(op.word for op in found)


def test_a_product_that_no_quantizer_takes_is_said_to_stay_in_float(tmp_path, store):
    found = check(recurrent(tmp_path / "gru.onnx"), "web", options=store)
    rows = found.targets["web"]["variants"]
    assert rows["int8"]["reached"]
    assert rows["int8"]["floats"] == [{"type": "GRU", "count": 1, "becomes": ["GRU"], "multiplies": True}]
    assert rows["fp32"]["floats"] == []
    assert "in float: GRU 1" in str(found)


def test_a_variant_without_a_way_says_why(tmp_path, store):
    (tmp_path / "t.toml").write_text(
        'description = "one of each"\nruntime = "onnx"\nplatforms = ["linux-x86_64"]\n'
        '[[variant]]\nname = "fp32"\nreference = true\n'
        '[[variant]]\nname = "jit"\nruntime = "torchinductor"\ncompress = [{use = "litert_fp16"}]\n'
    )
    conv_net(tmp_path / "net.onnx")
    rows = check(tmp_path / "net.onnx", tmp_path / "t.toml", options=store).targets["t"]["variants"]
    assert rows["fp32"]["reached"]
    assert not rows["jit"]["reached"]
    assert "no path" in rows["jit"]["why"]


def test_a_target_without_a_way_does_not_stop_the_others_and_one_that_is_not_there_does(tmp_path, store):
    conv_net(tmp_path / "net.onnx")
    (tmp_path / "none.toml").write_text(
        'description = "no way"\nruntime = "onnx"\nplatforms = ["linux-x86_64"]\n'
        '[[variant]]\nname = "jit"\nruntime = "torchinductor"\ncompress = [{use = "litert_fp16"}]\n'
    )
    found = check(tmp_path / "net.onnx", ["web", tmp_path / "none.toml"], options=store)
    assert found.targets["web"]["variants"]["fp32"]["reached"]
    assert "no path" in found.targets["none"]["refused"]
    with pytest.raises(InputError, match="did you mean 'web'"):
        check(tmp_path / "net.onnx", ["web", "wep"], options=store)


def test_the_text_fits_80_columns():
    row = {"runtime": "litert", "precision": "int8", "reached": True, "why": "", "operators": 40, "told": True}
    row |= {"chip": "", "table": "", "open": []}
    row["rewritten"] = ["grid_sampler of warp.sample", "prod of prod", "prod of prod_1"]
    many = [
        {"type": f"Operator{i}", "count": i, "becomes": ["BROADCAST_TO", "SELECT"], "multiplies": False}
        for i in range(9)
    ]
    bad = row | {"reached": False, "why": "3 NonMaxSuppression: " + "no lowering " * 12}
    targets = {
        "android": {
            "refused": "",
            "variants": {"int8": row | {"outside": many, "floats": many, "unknown": []}, "fp16": bad},
        }
    }
    said = text(Checked("net", targets))  # type: ignore[arg-type]
    assert max(map(len, said.splitlines())) <= 80
    assert "outside XNNPACK" in said
    assert "rewritten: prod 2, grid_sampler 1" in said
    assert "4 more types" in " ".join(said.split())
    assert "fp16  not reached: 3 NonMaxSuppression" in said


def test_the_command_prints_json_and_ends_with_2_where_nothing_is_reached(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    assert main(["check", "net.onnx", "--target", "web", "--json", "--store", "store"]) == 0
    assert json.loads(capsys.readouterr().out)["targets"]["web"]["variants"]["fp32"]["reached"]


def test_an_activation_behind_a_convolution_costs_nothing():
    from edgecompress.engines.litert import kernels

    fused = kernels.kernels(Operation("relu", "relu", "float32", "conv"), "int8")
    alone = kernels.kernels(Operation("relu", "relu", "float32", "concat"), "int8")
    assert (list(fused.outside), list(alone.outside)) == ([], ["RELU"])


@pytest.mark.slow
def test_a_file_goes_over_torch_and_its_operators_are_told_for_phones(tmp_path, store):
    pytest.importorskip("litert_torch")
    conv_net(tmp_path / "net.onnx")
    found = check(tmp_path / "net.onnx", ["android", "ios"], options=store)
    assert all(row["reached"] for target in found.targets.values() for row in target["variants"].values())
    assert found.targets["android"]["variants"]["int8"]["outside"] == []
    names = {path.name.split("-")[-1] for path in (tmp_path / "store" / "logs").iterdir()}
    assert not any("litert" in name or "int8" in name for name in names), "something was built"
