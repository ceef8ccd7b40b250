"""Half precision in ONNX and of programs: what stays in fp32 is what the samples break; no NaN ships."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from edgecompress.core.config import build
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.settings import Target
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import onnx_fp16
from edgecompress.formats import torch_module
from edgecompress.pipeline import conversion
from edgecompress.techniques import _fp16_ranges, torch_fp16
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

Weights = dict[str, Any]


def net(folder: Path, nodes: list[Any], weights: Weights, shape: tuple[int, ...] = (1, 16)) -> Artifact:
    """x -> y, both of `shape`."""
    ends = TensorSpec("x", shape), TensorSpec("y", shape)
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in ends]
    constants = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    folder.mkdir()
    onnx.save_model(model, folder / "model.onnx")
    return Artifact(folder, "onnx", ends[:1], ends[1:]).write()


def matrix(seed: int) -> Any:
    return np.random.default_rng(seed).normal(size=(16, 16)) / 4


def huge(folder: Path) -> Artifact:
    """Between two products the numbers are a million times too large for half precision, and come back."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Mul", ["a", "up"], ["b"], "up"),
        helper.make_node("Relu", ["b"], ["c"], "relu"),
        helper.make_node("Mul", ["c", "down"], ["d"], "down"),
        helper.make_node("MatMul", ["d", "w2"], ["y"], "last"),
    ]
    return net(folder, nodes, {"w1": matrix(0), "w2": matrix(1), "up": 3e4, "down": 1 / 3e4})


def halved(model: Artifact, folder: Path, **options: Any) -> Artifact:
    out = folder / "half"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return onnx_fp16.apply(Request(inputs, out, onnx_fp16.Options(**options)))


def answers(artifact: Artifact, folder: Path) -> Any:
    session = ort.open(artifact, 1)
    items = tensors.batches(conformance.samples(artifact, folder), "test", 1)
    return np.concatenate([session.run(item)[artifact.outputs[0].name] for item in items])


def sqnr_db(model: Artifact, other: Artifact, folder: Path) -> float:
    a, b = (answers(artifact, folder) for artifact in (model, other))
    return float(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


def on_a_gpu(proto: Any, model: Artifact, folder: Path) -> Any:
    """What a device answers that stores every tensor as it is typed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    stored = onnx_fp16._stored(proto).SerializeToString()
    session = onnxruntime.InferenceSession(stored, options, providers=["CPUExecutionProvider"])
    items = tensors.batches(conformance.samples(model, folder), "test", 1)
    return np.concatenate([session.run(None, item)[0] for item in items])


def stored_type(artifact: Artifact, name: str) -> int:
    """The element type of a weight."""
    graph = onnx.load_model(artifact.file(".onnx")).graph
    return next(t.data_type for t in graph.initializer if t.name == name)


# --------------------------------------------------------------------------- what stays in fp32


def test_what_overflows_stays_in_fp32_and_the_rest_does_not(tmp_path: Path) -> None:
    model = huge(tmp_path / "net")
    blind = on_a_gpu(onnx_fp16.converted(onnx.load_model(model.file(".onnx")), set()), model, tmp_path)
    assert not np.isfinite(blind).all(), "without the check it must break, else this test shows nothing"
    half = halved(model, tmp_path)
    checked = on_a_gpu(onnx.load_model(half.file(".onnx")), model, tmp_path)
    assert np.isfinite(checked).all()
    assert sqnr_db(model, half, tmp_path) >= 50
    assert "lost" not in half.facts
    assert half.facts["kept"] == ["up", "relu", "down"]
    assert half.facts["largest"]["tensor"] == "b"
    assert half.facts["largest"]["value"] > 2 * _fp16_ranges.LARGEST / 4
    assert stored_type(half, "w1") == stored_type(half, "w2") == TensorProto.FLOAT16


def test_two_nodes_in_fp32_do_not_meet_in_half_precision(tmp_path: Path) -> None:
    half = onnx.load_model(halved(huge(tmp_path / "net"), tmp_path).file(".onnx"))
    makers = {name: node for node in half.graph.node for name in node.output}
    for name in ("relu", "down"):
        node = next(n for n in half.graph.node if n.name == name)
        assert makers[node.input[0]].op_type in ("Mul", "Relu")


def test_numbers_near_the_end_of_half_precision_have_headroom(tmp_path: Path) -> None:
    weights = {"w1": matrix(0), "w2": matrix(1), "up": 8e3, "down": 1 / 8e3}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("Mul", ["a", "up"], ["b"], "up"),
        helper.make_node("Mul", ["b", "down"], ["c"], "down"),
        helper.make_node("MatMul", ["c", "w2"], ["y"], "last"),
    ]
    model = net(tmp_path / "net", nodes, weights)
    assert halved(model, tmp_path).facts["kept"] == ["up", "down"]
    (tmp_path / "tight").mkdir()
    assert halved(model, tmp_path / "tight", headroom=1.0).facts["kept"] == []


def test_numbers_too_small_for_half_precision_stay_in_fp32(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "tiny"], ["a"], "shrink"),
        helper.make_node("Mul", ["a", "vast"], ["b"], "grow"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "last"),
    ]
    model = net(tmp_path / "net", nodes, {"tiny": 1e-9, "vast": 1e9, "w": matrix(0)})
    half = halved(model, tmp_path)
    assert half.facts["kept"] == ["shrink", "grow"]
    assert sqnr_db(model, half, tmp_path) >= 50


def test_a_weight_beyond_half_precision_costs_its_node_only(tmp_path: Path) -> None:
    large = matrix(0)
    large[0, 0] = 1e6
    nodes = [
        helper.make_node("MatMul", ["x", "large"], ["a"], "first"),
        helper.make_node("Tanh", ["a"], ["b"], "tanh"),
        helper.make_node("MatMul", ["b", "w"], ["y"], "last"),
    ]
    model = net(tmp_path / "net", nodes, {"large": large, "w": matrix(1)})
    half = halved(model, tmp_path)
    assert "lost" not in half.facts
    assert half.facts["kept"] == ["first", "tanh"]
    assert stored_type(half, "large") == TensorProto.FLOAT
    assert stored_type(half, "w") == TensorProto.FLOAT16
    assert sqnr_db(model, half, tmp_path) >= 50


def test_nodes_can_be_kept_by_name(tmp_path: Path) -> None:
    half = halved(huge(tmp_path / "net"), tmp_path, skip=("la*",))
    assert half.facts["kept"] == ["up", "relu", "down", "last"]
    assert stored_type(half, "w2") == TensorProto.FLOAT


def test_nodes_without_a_name_can_be_kept_too(tmp_path: Path) -> None:
    model = huge(tmp_path / "net")
    proto = onnx.load_model(model.file(".onnx"))
    for node in proto.graph.node:
        node.name = ""
    onnx.save_model(proto, model.file(".onnx"))
    assert halved(model, tmp_path).facts["kept"] == ["Mul_1", "Relu_2", "Mul_3"]


# --------------------------------------------------------------------------- the ladder


def cancelling(folder: Path) -> Artifact:
    """(x w + 100) - 100: every tensor fits, but half precision leaves little of the difference."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "product"),
        helper.make_node("Add", ["a", "shift"], ["b"], "add"),
        helper.make_node("Sub", ["b", "shift"], ["c"], "subtract"),
        helper.make_node("MatMul", ["c", "w"], ["y"], "last"),
    ]
    return net(folder, nodes, {"w": matrix(0), "shift": 1000.0})


def test_more_stays_in_fp32_until_the_output_is_right(tmp_path: Path) -> None:
    model = cancelling(tmp_path / "net")
    blind = on_a_gpu(onnx_fp16.converted(onnx.load_model(model.file(".onnx")), set()), model, tmp_path)
    wanted = answers(model, tmp_path)
    assert 10 * math.log10((wanted**2).sum() / ((wanted - blind) ** 2).sum()) < 30
    half = halved(model, tmp_path)
    assert half.facts["kept"] == ["add", "subtract"]
    assert sqnr_db(model, half, tmp_path) >= 50


def test_a_few_culprits_are_found_among_many_nodes(tmp_path: Path) -> None:
    nodes, at = [], "x"
    for index in range(6):
        nodes.append(helper.make_node("MatMul", [at, "w"], [f"p{index}"], f"product{index}"))
        if index in (1, 4):
            nodes.append(helper.make_node("Add", [f"p{index}", "shift"], [f"a{index}"], f"add{index}"))
            nodes.append(helper.make_node("Sub", [f"a{index}", "shift"], [f"s{index}"], f"subtract{index}"))
        nodes.append(helper.make_node("Tanh", [nodes[-1].output[0]], [f"t{index}"], f"tanh{index}"))
        at = f"t{index}"
    nodes.append(helper.make_node("MatMul", [at, "w"], ["y"], "last"))
    model = net(tmp_path / "net", nodes, {"w": 2 * matrix(0), "shift": 3000.0})
    half = halved(model, tmp_path)
    assert half.facts["kept"] == ["add1", "subtract1", "add4", "subtract4"]
    assert sqnr_db(model, half, tmp_path) >= 50


def test_a_floor_out_of_reach_loses_the_variant(tmp_path: Path) -> None:
    half = halved(cancelling(tmp_path / "net"), tmp_path, floor_db=150.0)
    assert half.facts["lost"] == "every node would have to stay in fp32"


def test_what_grows_inside_a_node_counts_too(tmp_path: Path) -> None:
    """A layer norm squares what it reads: 300 fits into half precision, its square does not."""
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], "first"),
        helper.make_node("LayerNormalization", ["a", "ones"], ["b"], "norm"),
        helper.make_node("MatMul", ["b", "w2"], ["y"], "last"),
    ]
    for name, scale, kept in (("small", 1.0, []), ("large", 300.0, ["norm"])):
        weights = {"w1": scale * matrix(0), "w2": matrix(1), "ones": np.ones(16)}
        (tmp_path / name).mkdir()
        model = net(tmp_path / name / "net", nodes, weights)
        assert halved(model, tmp_path / name).facts["kept"] == kept


def test_a_net_with_nothing_left_in_half_precision_is_lost(tmp_path: Path) -> None:
    nodes = [helper.make_node("Mul", ["x", "vast"], ["y"], "grow")]
    half = halved(net(tmp_path / "net", nodes, {"vast": 1e9}), tmp_path)
    assert half.facts["lost"] == "every node would have to stay in fp32"


def test_infinity_that_fp32_has_too_is_a_mask_and_stays(tmp_path: Path) -> None:
    mask = np.where(np.arange(16) < 9, 0.0, -np.inf)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], "scores"),
        helper.make_node("Add", ["a", "mask"], ["b"], "mask"),
        helper.make_node("Softmax", ["b"], ["c"], "softmax"),
        helper.make_node("MatMul", ["c", "w"], ["y"], "last"),
    ]
    model = net(tmp_path / "net", nodes, {"w": matrix(0), "mask": mask})
    half = halved(model, tmp_path)
    assert half.facts["kept"] == []
    assert sqnr_db(model, half, tmp_path) >= 50


@pytest.mark.parametrize("wrong", [{"samples": 0}, {"headroom": 0.5}])
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        onnx_fp16.Options(**wrong)


# --------------------------------------------------------------------------- programs


class Huge(nn.Module):
    """Between two products the numbers are too large for half precision, and come back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x) * 3e5)
        return self.last(y / 3e5)


class Recurrent(nn.Module):
    """An LSTM, its last state, a product; positions of a sequence made on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = nn.LSTM(16, 32, batch_first=True), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        place = torch.arange(x.shape[1], dtype=torch.float32)[None, :, None] / 8
        return self.last(self.lstm(x + place)[0][:, -1])


def program(folder: Path, net: nn.Module, shape: tuple[int, ...]) -> Artifact:
    """A net with a batch of 1 to 8 as a program."""
    folder.mkdir()
    torch.manual_seed(0)
    dims = ({0: torch.export.Dim("batch", min=1, max=8)},)
    exported = torch.export.export(net.eval(), (torch.randn(2, *shape),), dynamic_shapes=dims)
    torch.export.save(exported, folder / "program.pt2")
    specs = (TensorSpec("x", (Dim("batch", 1, 8), *shape)),), (TensorSpec("y", (Dim("batch", 1, 8), 16)),)
    return Artifact(folder, "program", *specs).write()


def halved_program(model: Artifact, folder: Path, **options: Any) -> Artifact:
    out = folder / "half"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return torch_fp16.apply(Request(inputs, out, torch_fp16.Options(**options)))


def program_db(model: Artifact, half: Artifact) -> float:
    x = {
        "x": torch.from_numpy(np.random.default_rng(3).normal(size=(5, *model.inputs[0].shape[1:])).astype(np.float32))
    }
    a, b = (torch_module.outputs(torch_module.rebuild(each), each, x)["y"] for each in (model, half))
    assert b.dtype == torch.float32
    return float(10 * torch.log10((a**2).sum() / ((a - b) ** 2).sum()))


def test_what_overflows_in_a_program_stays_in_fp32(tmp_path: Path) -> None:
    model = program(tmp_path / "net", Huge(), (16,))
    half = halved_program(model, tmp_path)
    assert [name.split("_")[0] for name in half.facts["kept"]] == ["mul", "relu", "div"]
    assert half.facts["largest"]["value"] > _fp16_ranges.LARGEST
    assert "lost" not in half.facts
    assert program_db(model, half) >= 50
    state = torch.export.load(half.file(".pt2")).state_dict
    assert {tensor.dtype for tensor in state.values()} == {torch.float16}


def test_a_program_keeps_its_lstm_in_fp32_and_its_dynamic_batch(tmp_path: Path) -> None:
    model = program(tmp_path / "net", Recurrent(), (6, 16))
    half = halved_program(model, tmp_path)
    assert any(name.startswith("lstm") for name in half.facts["kept"])
    assert not any(name.startswith("linear") for name in half.facts["kept"])
    assert half.inputs == model.inputs
    assert program_db(model, half) >= 50


def test_a_program_with_nothing_left_in_half_precision_is_lost(tmp_path: Path) -> None:
    class Vast(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 1e9

    half = halved_program(program(tmp_path / "net", Vast(), (16,)), tmp_path)
    assert half.facts["lost"] == "every operator would have to stay in fp32"


@pytest.mark.parametrize(
    ("runtime", "technique"),
    [
        *(("onnx", "onnx_fp16"), ("onnx_gpu", "onnx_fp16"), ("openvino", "onnx_fp16")),
        *(("torchinductor", "torch_fp16"), ("mnn", "mnn_fp16")),
    ],
)
def test_fp16_means_the_technique_nearest_to_the_runtime(runtime: str, technique: str) -> None:
    table = {"description": "x", "runtime": runtime, "variant": [{"name": "v", "compress": [{"use": "fp16"}]}]}
    target = build(Target, table, "target")
    calls = [call for call, _ in conversion.steps(target, target.variant[0], "module", "target")]
    assert f"techniques.{technique}:apply" in calls
