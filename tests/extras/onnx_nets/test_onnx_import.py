"""ONNX files as torch nets: each operator by the standard's own cases, layers by their names, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import prove
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases
from small_onnx import conv_net, images

import edgecompress
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.extras.onnx_nets import net as imported
from edgecompress.extras.onnx_nets import onnx_import, shapes
from edgecompress.extras.onnx_nets.values import OPERATORS

# Cases that are not asked for: types that torch has no arithmetic for, texts, training, what is newer than opset 24.
OTHER_TYPES = re.compile(
    r"bfloat16|bf16|FLOAT8|FLOAT4|float4|e4m3|e5m2|e8m0|U?INT[24]_|_U?INT[24]$|u?int[24]($|_)|uint(16|32|64)|string"
    r"|local_window|bidirectional_window|training|quantizelinear_blocked_symmetric|bitwise_not_3d|BFLOAT"
)
# Cases that are computed otherwise.
LEFT = {
    "test_col2im_5d": "torch folds pictures alone",
    "test_top_k_same_values": "torch picks another of equal numbers",
    "test_top_k_same_values_largest": "torch picks another of equal numbers",
    "test_top_k_same_values_2d": "torch picks another of equal numbers",
}


def cases() -> dict[str, Any]:
    """The standard's cases of one node each whose operator is in the table, by name."""
    found = {}
    for case in collect_testcases(None):
        nodes = case.model.graph.node
        fits = len(nodes) == 1 and nodes[0].op_type in OPERATORS
        if fits and not OTHER_TYPES.search(case.name):
            found[case.name] = case
    return found


def plain(value: Any) -> np.ndarray:
    """Some cases hold protobuf's tensors."""
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def wrong(case: Any, file: Path) -> str:
    """How the imported net differs from a case's answers, or ""."""
    model, node = case.model, case.model.graph.node[0]
    onnx.save(model, file)
    try:
        net = imported.load(file)
        for inputs, outputs in case.data_sets:
            given = {value.name: plain(array) for value, array in zip(model.graph.input, inputs, strict=False)}
            for place in OPERATORS[node.op_type].known:  # in a graph these come from constants and shapes
                if place < len(node.input) and node.input[place] in given:
                    net.known[node.input[place]] = given.pop(node.input[place])
            with torch.no_grad():
                found = net(**{word: torch.tensor(array) for word, array in given.items()})
            for value, expected in zip(model.graph.output, map(plain, outputs), strict=True):
                ours = found[value.name].numpy()
                assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
                steps = 4 * np.finfo(ours.dtype).eps if ours.dtype.kind == "f" else 0  # float16 rounds at 1e-3
                np.testing.assert_allclose(ours, expected, rtol=max(case.rtol, 1e-3, steps), atol=max(case.atol, 1e-5))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_each_operator_computes_what_the_standards_own_cases_say(tmp_path: Path) -> None:
    every = cases()
    operators = {case.model.graph.node[0].op_type: name for name, case in every.items() if name not in LEFT}
    assert len(operators) >= 150 and {*LEFT} <= {*every} and len(LEFT) < 0.05 * len(every)
    chosen = every if prove.WHOLE else sorted(operators.values())
    failed = {name: why for name in chosen if (why := wrong(every[name], tmp_path / "case.onnx"))}
    assert {name: why for name, why in failed.items() if name not in LEFT} == {}
    assert not prove.WHOLE or failed.keys() == LEFT.keys()


# --------------------------------------------------------------------------- whole graphs

Nodes = list[onnx.NodeProto]
F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def graph(
    folder: Path, nodes: Nodes, inputs: Mapping[str, tuple[int, list[Any]]], outputs: Mapping[str, list[Any]],
    constants: Mapping[str, np.ndarray], opset: int = 17,
) -> Path:  # fmt: skip
    ends = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    outs = [helper.make_tensor_value_info(name, F, shape) for name, shape in outputs.items()]
    held = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    made = helper.make_graph(nodes, "net", ends, outs, held)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder / "g.onnx")
    return folder / "g.onnx"


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def agrees(file: Path, given: Mapping[str, np.ndarray]) -> imported.OnnxNet:
    """The net, once it is found to answer as ONNX Runtime does, also as torch.export has it."""
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    net = imported.load(file)
    inputs = {name: torch.from_numpy(array) for name, array in given.items()}
    program = torch.export.export(net, (), inputs).module()
    for value, expected in zip(session.get_outputs(), session.run(None, dict(given)), strict=True):
        for run in (net, program):
            np.testing.assert_allclose(run(**inputs)[value.name].detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    return net


@pytest.mark.parametrize("operator", ["AveragePool", "MaxPool"])
@pytest.mark.parametrize("seed", range(12))
def test_the_windows_of_ceil_mode_are_onnx_runtimes(operator: str, seed: int, tmp_path: Path) -> None:
    """Uneven pads, and windows that would begin in them, which neither has."""
    draw = np.random.default_rng(seed)
    kernel, strides, sizes = (draw.integers(*ends, 2).tolist() for ends in ((1, 5), (1, 4), (5, 12)))
    pads = [int(draw.integers(0, kernel[i % 2])) for i in range(4)]
    counted = {"count_include_pad": int(draw.integers(2))} if operator == "AveragePool" else {}
    options = {"kernel_shape": kernel, "strides": strides, "pads": pads, "ceil_mode": 1, **counted}
    nodes, ends = [helper.make_node(operator, ["x"], ["y"], **options)], {"x": (F, [1, 2, *sizes])}
    agrees(graph(tmp_path, nodes, ends, {"y": [1, 2, None, None]}, {}, opset=19), {"x": drawn(1, 2, *sizes)})


def test_layers_have_the_files_names_and_a_product_its_bias(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "features.0.weight"], ["a"], "/features/0/Conv", pads=[0, 1, 1, 2]),
        helper.make_node("BatchNormalization", ["a", "s", "b", "m", "v"], ["n"], "/features/1/BatchNorm"),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["h"], "/head/MatMul"),
        helper.make_node("Add", ["h", "bias"], ["y"], "/head/Add"),
    ]
    constants = {"features.0.weight": drawn(4, 3, 3, 3), "w": drawn(4, 5), "bias": drawn(5, seed=1)}
    constants |= {"s": drawn(4), "b": drawn(4, seed=2), "m": drawn(4, seed=3), "v": abs(drawn(4, seed=4)) + 0.1}
    file = graph(tmp_path, nodes, {"x": (F, [2, 3, 6, 6])}, {"y": [2, 5]}, constants)
    net = agrees(file, {"x": drawn(2, 3, 6, 6, seed=5)})
    layers = {name: type(module).__name__ for name, module in net.layers.named_modules() if name}
    assert layers["features.0"] == "Padded" and layers["features.1.BatchNorm"] == "BatchNorm"
    assert layers["head.MatMul"] == "Linear" and net.layers.head.MatMul.bias is not None
    assert not [*net.constants] and "y" not in net.known


def test_a_layer_may_have_a_word_of_python_in_its_name(tmp_path: Path) -> None:
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "gru/while/MatMul")
    net = agrees(graph(tmp_path, [node], {"x": (F, [2, 4])}, {"y": [2, 5]}, {"w": drawn(4, 5)}), {"x": drawn(2, 4)})
    assert "gru.while_.MatMul" in dict(net.layers.named_modules())


def test_shapes_are_plain_sizes_and_a_branch_that_is_known_is_taken(tmp_path: Path) -> None:
    def branch(op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["x"], [f"{op}_y"])
        return helper.make_graph([node], op, [], [helper.make_tensor_value_info(f"{op}_y", F, None)])

    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"], axis=0),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["wanted"], axis=0),
        helper.make_node("Equal", ["k", "k"], ["same"]),
        helper.make_node("If", ["same"], ["z"], then_branch=branch("Relu"), else_branch=branch("Neg")),
        helper.make_node("Reshape", ["z", "wanted"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1]), "k": np.array(3)}
    constants = {name: np.asarray(value, np.int64) for name, value in constants.items()}
    file = graph(tmp_path, nodes, {"x": (F, [2, 3, 4])}, {"y": [2, 12]}, constants)
    net = agrees(file, {"x": drawn(2, 3, 4)})
    assert "If" not in {node.op for node, _ in net.steps}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_a_recurrent_layer_is_torchs_own(op: str, gates: int, direction: str, tmp_path: Path) -> None:
    d, size = 2 if direction == "bidirectional" else 1, 5
    more = {"linear_before_reset": 1} if op == "GRU" else {}
    node = helper.make_node(
        op, ["x", "w", "r", "b", "", "h0"], ["y", "h"], hidden_size=size, direction=direction, **more
    )
    constants = {
        "w": drawn(d, gates * size, 3),
        "r": drawn(d, gates * size, size, seed=1),
        "b": drawn(d, 2 * gates * size),
    }
    ends = {"x": (F, [7, 2, 3]), "h0": (F, [d, 2, size])}
    file = graph(tmp_path, [node], ends, {"y": [7, d, 2, size], "h": [d, 2, size]}, constants)
    net = agrees(file, {"x": drawn(7, 2, 3, seed=2), "h0": drawn(d, 2, size, seed=3)})
    assert getattr(torch.nn, op) in {type(module) for module in net.modules()}


@pytest.mark.parametrize(("op", "gates"), [("LSTM", 4), ("GRU", 3)])
def test_a_first_state_of_zeros_is_left_to_the_layer_whatever_the_batch(op: str, gates: int, tmp_path: Path) -> None:
    """torch's exporter makes it of the batch's size: with it no channel of the layer could be removed."""
    nodes = [
        helper.make_node("Shape", ["x"], ["n"], start=1, end=2),
        helper.make_node("Concat", ["one", "n", "five"], ["sizes"], axis=0),
        helper.make_node("Expand", ["zero", "sizes"], ["zeros"]),
        helper.make_node("Slice", ["zeros", "first", "one"], ["h0"]),
        helper.make_node(op, ["x", "w", "r", "", "", "h0"], ["y", "h"], hidden_size=5, linear_before_reset=1)
        if op == "GRU"
        else helper.make_node(op, ["x", "w", "r", "", "", "h0", "h0"], ["y", "h"], hidden_size=5),
    ]
    constants = {"one": np.array([1]), "five": np.array([5]), "first": np.array([0]), "zero": np.float32([0])}
    constants |= {"w": drawn(1, gates * 5, 3), "r": drawn(1, gates * 5, 5, seed=1)}
    file = graph(tmp_path, nodes, {"x": (F, [7, "n", 3])}, {"y": [7, 1, "n", 5], "h": [1, "n", 5]}, constants)
    net = agrees(file, {"x": drawn(7, 2, 3, seed=2)})
    (cell,) = [node for node, layer in net.steps if layer]
    assert not any(cell.inputs[5:])


@pytest.mark.parametrize(
    ("before", "after", "target", "told"),
    [
        (("n", 8, 4, 4), (), [-1, 128], [0, -1]),
        (("n", 8, 4, 4), ("n", 128), None, [0, -1]),
        ((2, 8, 4, 4), (2, 128), [2, 128], [0, -1]),
        (("n", 64), (), [0, 64, 1, 1], [0, 0, 1, 1]),
        (("n", 6, 16), (), [0, 0, 2, 8], [0, 0, 2, 8]),
        (("n", 6, 16), ("", 16), [-1, 16], None),  # items and steps are joined
        (("", 8, 4, 4), (), [-1, 128], None),  # nobody says that the first axis stays
        (("n", 6, "m"), (), [-1, 6], None),
    ],
)
def test_a_reshape_goes_by_the_sizes_of_its_input(
    before: Any, after: Any, target: list[int] | None, told: list[int] | None
) -> None:
    """A flatten of 8 x 4 x 4 must not ask for 128 once channels are removed."""
    assert shapes.relative(before, after, None if target is None else np.array(target)) == told


def test_a_net_that_flattens_can_lose_channels(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "c.weight"], ["a"], "/c/Conv"),
        helper.make_node("Reshape", ["a", "flat"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["y"], "/head/MatMul"),
    ]
    constants = {"c.weight": drawn(8, 3, 3, 3), "flat": np.array([-1, 128]), "w": drawn(128, 5)}
    net = agrees(
        graph(tmp_path, nodes, {"x": (F, ["n", 3, 6, 6])}, {"y": ["n", 5]}, constants), {"x": drawn(2, 3, 6, 6)}
    )
    net.layers.c, net.layers.head.MatMul = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(64, 5)
    assert net(x=torch.zeros(3, 3, 6, 6))["y"].shape == (3, 5)


def test_a_loop_whose_length_is_known_is_unrolled(tmp_path: Path) -> None:
    """h = tanh(x[i] + h): the steps of a sequence, as torch.jit.script exports them."""
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["step"], axis=0),
        helper.make_node("Add", ["step", "h_in"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["h_out"]),
        helper.make_node("Identity", ["go_in"], ["go_out"]),
        helper.make_node("Identity", ["h_out"], ["row"]),
    ]
    ends = [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", I, []), ("go_in", TensorProto.BOOL, []))]
    state = [helper.make_tensor_value_info(name, F, [3]) for name in ("h_in", "h_out", "row")]
    on = helper.make_tensor_value_info("go_out", TensorProto.BOOL, [])
    body = helper.make_graph(nodes, "body", [*ends, state[0]], [on, *state[1:]])
    outside = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "first"], ["n"], axis=0),
        helper.make_node("Loop", ["n", "", "h0"], ["h", "rows"], "loop", body=body),
        helper.make_node("Relu", ["rows"], ["y"]),
    ]
    constants = {"first": np.asarray(0, np.int64), "h0": drawn(3)}
    file = graph(tmp_path, outside, {"x": (F, [4, 3])}, {"h": [3], "y": [4, 3]}, constants)
    agrees(file, {"x": drawn(4, 3, seed=1)})
    open_file = graph(tmp_path, outside, {"x": (F, ["n", 3])}, {"h": [3], "y": ["n", 3]}, constants)
    with pytest.raises(InputError, match="the operator Loop 'loop' depends on its inputs"):
        imported.load(open_file)


def test_what_is_not_in_the_table_is_named_with_its_count(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonMaxSuppression", ["x", "x"], [f"y{i}"]) for i in range(2)]
    file = graph(tmp_path, nodes, {"x": (F, [1, 2, 4])}, {"y0": [1]}, {})
    with pytest.raises(InputError, match=r"g.onnx: as a torch net its operators NonMaxSuppression \(2\) are not known"):
        imported.load(file)


def test_a_branch_that_depends_on_the_input_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph([], "same", [], [helper.make_tensor_value_info("x", F, None)])
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["top"], keepdims=0),
        helper.make_node("Greater", ["top", "one"], ["over"]),
        helper.make_node("If", ["over"], ["y"], "loud", then_branch=body, else_branch=body),
    ]
    file = graph(tmp_path, nodes, {"x": (F, [1, 2])}, {"y": [1, 2]}, {"one": np.float32(1)})
    with pytest.raises(InputError, match="the operator If 'loud' depends on its inputs"):
        imported.load(file)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_net_that_answers_otherwise_is_refused_with_the_first_node_that_does(
    wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["a"], "first"),
        helper.make_node("Selu", ["a"], ["b"], "second"),
        helper.make_node("Neg", ["b"], ["y"], "third"),
    ]
    (tmp_path / "model").mkdir()
    graph(tmp_path / "model", nodes, {"x": (F, ["n", 4])}, {"y": ["n", 4]}, {})
    x = drawn(20, 4)
    y = onnxruntime.InferenceSession(tmp_path / "model" / "g.onnx").run(None, {"x": x})[0]
    sides = [(TensorSpec(name, (1, 4)),) for name in ("x", "y")]
    for name, arrays in (("samples", {"x": x}), ("golden", {"y": y})):
        tensors.write_split(tmp_path / name / "test", arrays)
    inputs = {
        "model": Artifact(tmp_path / "model", "onnx", *sides),
        "samples": Artifact(tmp_path / "samples", "samples", sides[0], facts={"splits": {"test": 20}}),
        "golden": Artifact(tmp_path / "golden", "golden", (), sides[1]),
    }
    (tmp_path / "out").mkdir()
    if wrong:
        doubled: Callable[..., torch.Tensor] = lambda node, v: 2 * OPERATORS["Celu"].run(node, v)  # noqa: E731
        monkeypatch.setitem(OPERATORS, "Selu", type(OPERATORS["Selu"])(doubled))
        with pytest.raises(InputError, match=r"other results than ONNX Runtime .*: first in Selu 'second'"):
            onnx_import.run(Request(inputs, tmp_path / "out"))
        return
    assert onnx_import.run(Request(inputs, tmp_path / "out")).facts["parity_db"] > 100


# --------------------------------------------------------------------------- through the pipeline

TARGET = """
description = "LiteRT from an .onnx"
runtime = "litert"
[limits]
choice_loss = 1.0
channel_error = 9.0
tail_error = 9.0
[[variant]]
name = "pruned"
compress = [{ use = "prune_channels", macs = 0.6, align = 1 }]
[[variant]]
name = "fp32"
reference = true
limits = { sqnr_db = 60.0 }
"""


@pytest.mark.slow
@pytest.mark.prove
def test_a_file_is_pruned_and_exported_to_a_format_that_it_has_no_exporter_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    images(tmp_path / "images.npz")
    (tmp_path / "lite.toml").write_text(TARGET)
    result = edgecompress.deploy("net.onnx", "lite.toml", data="images.npz", metric="none", profile="quick")
    assert isinstance(result, edgecompress.Result) and result.exit_code == 0, result
    told = {variant["name"]: variant for variant in result.read_report()["variants"]}
    assert not {"lost", "failed", "unreached"} & {variant["verdict"] for variant in told.values()}
    assert told["fp32"]["verify"]["outputs"][0]["sqnr_db"] > 100
    sizes = {name: variant["artifact"]["size_bytes"] for name, variant in told.items()}
    assert sizes["pruned"] < sizes["fp32"]
