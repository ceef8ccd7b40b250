"""ONNX files as strangers write them: details that runtimes and tools stumble over are settled when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnxruntime.transformers import float16

from edgecompress.core.errors import InputError
from edgecompress.core.model import OPEN, Artifact, Dim, Request, TensorSpec
from edgecompress.data import metrics, tensors
from edgecompress.engines.onnx.graph_edits import is_quantized
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import int8_dynamic, onnx_fp16, ptq_int8
from edgecompress.engines.openvino.runtimes import openvino
from edgecompress.engines.openvino.techniques import nncf_int8

pytestmark = pytest.mark.slow
onnx_net = pytest.importorskip("edgecompress.extras.onnx_nets.net")

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
W = np.random.default_rng(1).normal(size=(5, 4)).astype("float32")


def proto(
    nodes: list[onnx.NodeProto], shapes: dict[str, list[Any]], constants: dict[str, Any], ir: int = 8, opset: int = 17
) -> onnx.ModelProto:
    """A model of float inputs and outputs: those that a node makes are outputs."""
    made = {name for node in nodes for name in node.output}
    ends = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    sides = ([v for n, v in ends.items() if (n in made) is output] for output in (False, True))
    graph = helper.make_graph(nodes, "net", *sides, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def read(folder: Path, model: onnx.ModelProto, **declared: Any) -> Artifact:
    onnx.save_model(model, folder / "user.onnx")
    (folder / "read").mkdir()
    return ort.read(Request({}, folder / "read", {"path": str(folder / "user.onnx"), **declared}))


def gemm() -> onnx.ModelProto:
    node = helper.make_node("Gemm", ["x", "w"], ["y"], transB=1, alpha=2.0)
    return proto([node], {"x": ["batch", 4], "y": ["batch", 5]}, {"w": W})


def test_an_attribute_of_an_undefined_type_has_that_of_its_value(tmp_path: Path) -> None:
    model = gemm()
    for attribute in model.graph.node[0].attribute:
        attribute.type = AttributeProto.UNDEFINED
    found = read(tmp_path, model)
    np.testing.assert_allclose(ort.open(found, 1).run({"x": X})["y"], 2 * X @ W.T, rtol=1e-5)


def test_an_attribute_of_an_undefined_type_without_a_value_is_not_there(tmp_path: Path) -> None:
    model = gemm()
    model.graph.node[0].attribute.append(AttributeProto(name="beta", type=AttributeProto.UNDEFINED))
    body = helper.make_graph(
        [helper.make_node("Softmax", ["y"], ["z"])],
        "body",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 5])],
    )
    body.node[0].attribute.append(AttributeProto(name="axis", type=AttributeProto.UNDEFINED))
    model.graph.node.append(helper.make_node("If", ["yes"], ["z"], then_branch=body, else_branch=body))
    model.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 5]))
    found = read(tmp_path, model)
    assert ort.open(found, 1).run({"x": X})["z"].sum(1) == pytest.approx([1, 1, 1])


def test_weights_that_are_inputs_too_are_none_any_more(tmp_path: Path) -> None:
    model = gemm()
    model.ir_version = 3
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [5, 4]))
    found = read(tmp_path, model)
    file = onnx.load_model(found.file(".onnx"))
    assert [value.name for value in file.graph.input] == ["x"] == [spec.name for spec in found.inputs]


# --------------------------------------------------------------------------- open axes


def samples(folder: Path, **shapes: tuple[int, ...]) -> Artifact:
    specs = tuple(TensorSpec(name, (Dim("batch", 1, 8), *shape)) for name, shape in shapes.items())
    return Artifact(folder, "samples", specs)


def flexible() -> onnx.ModelProto:
    """Means over an open axis that two inputs have."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("ReduceMean", ["sum"], ["y"], axes=[1], keepdims=0),
        helper.make_node("Identity", ["sum"], ["z"]),
    ]
    return proto(nodes, {**{key: ["n", "steps", 4] for key in "abz"}, "y": ["n", 4]}, {})


def sized(folder: Path, model: onnx.ModelProto, data: dict[str, tuple[int, ...]], **declared: Any) -> Artifact:
    onnx.save_model(model, folder / "user.onnx")
    (folder / "read").mkdir()
    inputs = {"samples": samples(folder, **data)} if data else {}
    return ort.read(Request(inputs, folder / "read", {"path": str(folder / "user.onnx"), **declared}))


def words(specs: tuple[TensorSpec, ...]) -> dict[str, list[Any]]:
    return {s.name: [d if isinstance(d, int) else (d.name, d.min, d.max) for d in s.shape] for s in specs}


BATCH = ("batch", 1, OPEN)


def test_an_open_axis_stays_open(tmp_path: Path) -> None:
    found = sized(tmp_path, flexible(), dict.fromkeys("ab", (7, 4)))
    assert words(found.inputs) == {key: [BATCH, ("steps", 1, OPEN), 4] for key in "ab"}


def test_an_axis_that_is_declared_stays_open_in_its_range(tmp_path: Path) -> None:
    open_axis = {"1": "length:2..64"}
    found = sized(tmp_path, flexible(), dict.fromkeys("ab", (7, 4)), dynamic={"a": open_axis, "b": open_axis})
    assert words(found.inputs) == {key: [BATCH, ("length", 2, 64), 4] for key in "ab"}


def test_a_range_of_one_size_needs_no_data(tmp_path: Path) -> None:
    found = sized(tmp_path, flexible(), {}, dynamic={"a": {"1": "length:5..5"}})
    assert words(found.inputs) == {key: [BATCH, 5, 4] for key in "ab"}


@pytest.mark.parametrize(
    ("dynamic", "says"),
    [
        ({"c": {"1": "n:1..2"}}, "dynamic: the model has no input 'c'"),
        ({"a": {"2": "n:1..2"}}, r"axis 2 of \[batch x steps x 4\] is not open"),
    ],
)
def test_what_is_declared_and_not_open_is_told(tmp_path: Path, dynamic: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        sized(tmp_path, flexible(), dict.fromkeys("ab", (7, 4)), dynamic=dynamic)


# --------------------------------------------------------------------------- conditions


def branch(*nodes: onnx.NodeProto) -> onnx.GraphProto:
    out = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    return helper.make_graph(list(nodes), "branch", [], [out])


def asking(axis: int, size: int, inner: onnx.NodeProto | None = None) -> list[onnx.NodeProto]:
    """An If that asks whether an axis of x has a size: then it doubles x, else it negates it."""
    then = [helper.make_node("Add", ["x", "x"], ["t"])]
    if inner:
        then = [helper.make_node("Add", ["x", "x"], ["t0"]), inner]
    return [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["size"]),
        helper.make_node("Equal", ["size", "wanted"], ["same"]),
        helper.make_node(
            "If",
            ["same"],
            ["y"],
            then_branch=branch(*then),
            else_branch=branch(helper.make_node("Neg", ["x"], ["t"])),
        ),
    ]


def asked(axis: int, size: int, shape: list[Any], inner: onnx.NodeProto | None = None) -> onnx.ModelProto:
    constants = {"axis": np.int64(axis), "wanted": np.int64(size)}
    return proto(asking(axis, size, inner), {"x": shape, "y": shape}, constants)


def kinds(artifact: Artifact) -> set[str]:
    return {node.op_type for node in onnx.load_model(artifact.file(".onnx")).graph.node}


@pytest.mark.parametrize(("size", "factor"), [(4, 2), (5, -1)])
def test_a_condition_that_a_size_decides_is_gone(tmp_path: Path, size: int, factor: int) -> None:
    found = read(tmp_path, asked(1, size, ["batch", 4]))
    assert "If" not in kinds(found) and isinstance(found.batch, Dim) and not found.facts
    np.testing.assert_array_equal(ort.open(found, 1).run({"x": X})["y"], factor * X)


def test_conditions_inside_of_each_other_and_beside_are_gone(tmp_path: Path) -> None:
    inner = helper.make_node(
        "If",
        ["same"],
        ["t"],
        then_branch=branch(helper.make_node("Add", ["t0", "x"], ["t1"])),
        else_branch=branch(helper.make_node("Neg", ["t0"], ["t1"])),
    )
    model = asked(1, 4, ["batch", 4], inner)
    twin = asking(1, 4)[-1]
    twin.output[0] = "z"
    model.graph.node.append(twin)
    model.graph.output.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 4]))
    found = read(tmp_path, model)
    answers = ort.open(found, 1).run({"x": X})
    assert "If" not in kinds(found)
    np.testing.assert_allclose(answers["y"], 3 * X, rtol=1e-6)
    np.testing.assert_array_equal(answers["z"], 2 * X)


@pytest.mark.parametrize("name", ["x", "input"])
def test_a_condition_on_an_open_axis_is_decided_by_the_data_and_is_told(tmp_path: Path, name: str) -> None:
    model = asked(1, 6, ["batch", "steps"])
    assert "If" in kinds(read(tmp_path, model))
    (tmp_path / "again").mkdir()
    found = sized(tmp_path / "again", model, {name: (6,)})
    assert "If" not in kinds(found)
    assert words((*found.inputs, *found.outputs)) == {"x": [BATCH, 6], "y": [BATCH, 6]}
    told = "an If of the model ('y') asks for a size: it is taken for axis 1 of 'x' (6) as in the data"
    assert found.facts["warnings"] == [told]


def test_a_condition_on_an_axis_that_is_declared_stays(tmp_path: Path) -> None:
    model = asked(1, 6, ["batch", "steps"])
    assert "If" in kinds(sized(tmp_path, model, {"x": (6,)}, dynamic={"x": {"1": "steps:1..9"}}))


def test_a_condition_on_the_batch_fixes_it_and_is_told(tmp_path: Path) -> None:
    found = read(tmp_path, asked(0, 1, ["batch", 4]))
    assert found.batch == 1 and "If" not in kinds(found)
    assert found.facts["warnings"] == ["an If of the model ('y') asks for the batch: it is taken for a batch of 1"]


def test_a_condition_on_values_stays(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["same"]),
        asking(1, 4)[-1],
    ]
    model = proto(nodes, {"x": ["batch", 4], "y": ["batch", 4]}, {"zero": np.float32(0)})
    found = read(tmp_path, model)
    assert "If" in kinds(found) and isinstance(found.batch, Dim)


def valued(then: onnx.NodeProto, other: onnx.NodeProto, *more: onnx.NodeProto) -> onnx.ModelProto:
    """An If that asks for a value, then more nodes that end in y."""
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "zero"], ["yes"]),
        helper.make_node("If", ["yes"], ["t"], then_branch=branch(then), else_branch=branch(other)),
        *more,
    ]
    constants = {"zero": np.float32(0), "w": W[:4].copy(), "flat": np.array([-1, 4])}
    return proto(nodes, {"x": ["batch", 4], "y": ["batch", 4]}, constants)


HIDDEN = (  # how many axes t has is not known before it runs
    helper.make_node("Neg", ["x"], ["a"]),
    helper.make_node("Reshape", ["x", "flat"], ["b"]),
)


def hidden() -> onnx.ModelProto:
    model = valued(*HIDDEN, helper.make_node("MatMul", ["t", "w"], ["y"]))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def test_an_output_whose_axes_a_branch_hides_has_those_of_a_run(tmp_path: Path) -> None:
    assert words(read(tmp_path, hidden()).outputs) == {"y": [BATCH, 4]}


def test_a_net_with_conditions_is_counted_as_far_as_it_is_known(tmp_path: Path) -> None:
    ops = {op.type: op for op in ort.count(read(tmp_path, hidden()), 1).ops}
    assert ops["If"].macs is None and ops["MatMul"].macs == 16


def test_the_layers_of_a_net_with_conditions_are_handed_out(tmp_path: Path) -> None:
    (tmp_path / "tapped").mkdir()
    tapped = ort.tapped(Request({"model": read(tmp_path, hidden())}, tmp_path / "tapped"))
    kinds = [row["type"] for row in tapped.facts["taps"]]
    assert kinds[-2:] == ["If", "MatMul"]
    answers = ort.open(tapped, 1).run({"x": X})
    np.testing.assert_allclose(answers[tapped.outputs[-1].name], answers["y"])


# --------------------------------------------------------------------------- classifiers of scikit-learn


def classifier(classes: str) -> onnx.ModelProto:
    """A classifier as skl2onnx writes it: its label, then a list of {class: probability}."""
    named = {"classlabels_int64s": [0, 1, 2]} if classes == "whole" else {"classlabels_strings": ["a", "b", "c"]}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["best"], axis=1),
        helper.make_node("ArrayFeatureExtractor", ["classes", "best"], ["picked"], domain="ai.onnx.ml"),
        helper.make_node("Reshape", ["picked", "flat"], ["label"]),
        helper.make_node("ZipMap", ["probabilities"], ["output_probability"], domain="ai.onnx.ml", **named),
    ]
    rows = np.array([0, 1, 2]) if classes == "whole" else np.array(["a", "b", "c"], object)
    bias = np.ones((1, 3), "float32")
    constants = {"w": W[:3].T.copy(), "b": bias, "classes": rows, "flat": np.array([-1])}
    kind = TensorProto.INT64 if classes == "whole" else TensorProto.STRING
    listed = helper.make_sequence_type_proto(
        helper.make_map_type_proto(kind, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    outputs = [
        helper.make_tensor_value_info("label", kind, ["batch"]),
        helper.make_value_info("output_probability", listed),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


def test_a_list_of_probabilities_is_a_tensor_of_them(tmp_path: Path) -> None:
    found = read(tmp_path, classifier("whole"))
    assert words(found.outputs) == {"label": [BATCH], "output_probability": [BATCH, 3]}
    answers = ort.open(found, 1).run({"x": X})
    expected = softmax(X @ W[:3].T + 1)
    np.testing.assert_allclose(answers["output_probability"], expected, rtol=1e-5)
    assert answers["label"].tolist() == expected.argmax(1).tolist()
    graph = onnx.load_model(found.file(".onnx")).graph
    assert {node.domain for node in graph.node} == {""}


def test_labels_of_text_are_left_out_and_told(tmp_path: Path) -> None:
    found = read(tmp_path, classifier("text"))
    assert words(found.outputs) == {"output_probability": [BATCH, 3]}
    assert found.facts["warnings"] == ["the output 'label' is text, and left out"]
    assert kinds(found) == {"Gemm", "Softmax", "Identity"}


def test_a_model_of_text_alone_is_refused(tmp_path: Path) -> None:
    model = classifier("text")
    del model.graph.output[1], model.graph.node[5]
    with pytest.raises(InputError, match=r"'label' is a tensor\(string\)"):
        read(tmp_path, model)


def test_a_bias_that_is_a_row_is_quantized(tmp_path: Path) -> None:
    made = quantized(tmp_path, classifier("whole"))
    assert "lost" not in made.facts and any(node.op_type == "QuantizeLinear" for node in nodes_of(made))


def test_int8_of_a_model_without_anything_for_it_is_lost(tmp_path: Path) -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0] * 4, scale=[2.0] * 4)
    model = proto([node], {"x": ["batch", 4], "y": ["batch", 4]}, {})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    assert quantized(tmp_path, model).facts["lost"].startswith("changed nothing in this model")


def nodes_of(artifact: Artifact) -> list[onnx.NodeProto]:
    return list(onnx.load_model(artifact.file(".onnx")).graph.node)


def calibration(folder: Path, x: np.ndarray) -> Artifact:
    tensors.write_split(folder / "samples" / "calibrate", {"x": x})
    specs = samples(folder, x=x.shape[1:]).inputs
    return Artifact(folder / "samples", "samples", specs, facts={"splits": {"calibrate": len(x)}})


def quantized(folder: Path, model: onnx.ModelProto, x: np.ndarray = X) -> Artifact:
    source = read(folder, model)
    data = calibration(folder, x)
    (folder / "int8").mkdir()
    return ptq_int8.apply(Request({"model": source, "samples": data}, folder / "int8", ptq_int8.Options()))


def test_what_a_body_reads_of_the_graph_is_not_quantized_away(tmp_path: Path) -> None:
    """ONNX Runtime's quantizer folds a Relu away that only a body and a product read, and the body goes without it."""
    body = branch(helper.make_node("MatMul", ["positive", "v"], ["t"]))
    nodes = [
        helper.make_node("Gemm", ["x", "w"], ["made"]),
        helper.make_node("Relu", ["made"], ["positive"]),
        helper.make_node("MatMul", ["positive", "v"], ["z"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Greater", ["total", "low"], ["yes"]),
        helper.make_node("If", ["yes"], ["y"], then_branch=body, else_branch=body),
    ]
    constants = {"w": W[:4].T.copy(), "v": W[1:5].copy(), "low": np.float32(-1e9)}
    made = quantized(tmp_path, proto(nodes, {"x": ["batch", 4], "z": ["batch", 4], "y": ["batch", 4]}, constants))
    answers = ort.open(made, 1).run({"x": X})
    expected = np.maximum(X @ constants["w"], 0) @ constants["v"]
    assert np.abs(answers["y"] - expected).max() < 0.1 * np.abs(expected).max()


def test_a_table_that_constants_pick_from_stays_as_it_is_for_nncf(tmp_path: Path) -> None:
    """As the token types of a BERT that was exported for one size."""
    nodes = [
        helper.make_node("GatherElements", ["kinds", "places"], ["picked"], axis=1),
        helper.make_node("Gather", ["table", "picked"], ["types"]),
        helper.make_node("Gather", ["table", "places"], ["positions"]),
        helper.make_node("Add", ["types", "x"], ["typed"]),
        helper.make_node("Add", ["typed", "positions"], ["sum"]),
        helper.make_node("MatMul", ["sum", "w"], ["y"]),
    ]
    rows = np.array([[0, 0, 1]])
    constants = {"kinds": rows, "places": np.array([[0, 1, 2]]), "table": W, "w": W[:4].copy()}
    source = read(tmp_path, proto(nodes, {"x": [1, 3, 4], "y": [1, 3, 4]}, constants))
    data = calibration(tmp_path, np.stack([X] * 8))
    for out in ("openvino", "int8"):
        (tmp_path / out).mkdir()
    exported = openvino.export(Request({"model": source}, tmp_path / "openvino"))
    asked = Request({"model": exported, "samples": data}, tmp_path / "int8", nncf_int8.Options())
    answer = openvino.open(nncf_int8.apply(asked), 1).run({"x": X[None]})["y"]
    expected = (W[rows] + X + W[[0, 1, 2]]) @ W[:4]
    assert np.abs(answer - expected).max() < 0.1 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["top1", "perplexity", "auc"])
def test_classes_are_scored_by_the_probabilities_though_the_label_comes_first(name: str) -> None:
    probabilities = softmax(np.random.default_rng(0).normal(size=(40, 3)))
    labels = probabilities.argmax(1)
    metric = metrics.find(name)
    assert metric
    pictures = np.zeros((40, 4, 4, 3), "float32")
    outputs = {"label": (labels + 1) % 3, "pictures": pictures, "probabilities": probabilities}
    alone = metrics.scores(metric, {"probabilities": probabilities}, labels)
    np.testing.assert_array_equal(metrics.scores(metric, outputs, labels), alone)
    assert metrics.reads(metric, outputs, labels) == {"probabilities"}


# --------------------------------------------------------------------------- half precision


def in_halves(kind: int) -> onnx.ModelProto:
    """Half precision wherever a file may have it: weights, ends, Constants, Casts, fills, bodies, functions."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)

    def typed(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, kind, shape)

    bodies = [
        helper.make_graph(
            [helper.make_node("Constant", [], [f"{op}_c"], value=numpy_helper.from_array(np.array(2, dtype), "c")),
             helper.make_node(op, ["f", f"{op}_c"], [f"{op}_y"])],
            op, [], [typed(f"{op}_y", ["n", 8])])
        for op in ("Mul", "Add")
    ]  # fmt: skip
    nodes = [
        helper.make_node("Cast", ["count"], ["whole"], to=kind),
        helper.make_node("Concat", ["x", "whole"], ["both"], axis=1),
        helper.make_node("Unsqueeze", ["both", "axes"], ["rows"]),
        helper.make_node("Resize", ["rows", "", "scales"], ["large"], mode="nearest"),
        helper.make_node("Squeeze", ["large", "axes"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["m"]),
        helper.make_node(
            "ConstantOfShape", ["one"], ["fill"], value=numpy_helper.from_array(np.array([3], dtype), "v")
        ),
        helper.make_node("Add", ["m", "fill"], ["a"]),
        helper.make_node("twice", ["a"], ["f"], domain="own"),
        helper.make_node("If", ["yes"], ["chosen"], then_branch=bodies[0], else_branch=bodies[1]),
        helper.make_node("Cast", ["chosen"], ["full"], to=TensorProto.FLOAT),
        helper.make_node("Identity", ["chosen"], ["y"]),
    ]
    constants = {"w": np.random.default_rng(2).normal(size=(12, 8)).astype(dtype), "yes": np.array(True)}
    constants |= {"axes": np.array([1]), "scales": np.array([1, 1, 2], "float32"), "one": np.array([1])}
    graph = helper.make_graph(
        nodes, "net", [typed("x", ["n", 4]), helper.make_tensor_value_info("count", TensorProto.INT64, ["n", 2])],
        [typed("y", ["n", 8]), helper.make_tensor_value_info("full", TensorProto.FLOAT, ["n", 8])],
        [numpy_helper.from_array(v, k) for k, v in constants.items()], value_info=[typed("m", ["n", 8])],
    )  # fmt: skip
    two = helper.make_node("Constant", [], ["two"], value=numpy_helper.from_array(np.array(2, dtype), "two"))
    twice = helper.make_function(
        "own", "twice", ["a"], ["b"], [two, helper.make_node("Mul", ["a", "two"], ["b"])], [helper.make_opsetid("", 21)]
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10, functions=[twice])


@pytest.mark.parametrize(("kind", "says"), [(TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16")])
def test_a_source_in_half_precision_is_raised_to_float32(tmp_path: Path, kind: int, says: str) -> None:
    model = in_halves(kind)
    w = numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == "w")).astype("float32")
    found, count = read(tmp_path, model), np.array([[1, 2], [3, 4], [5, 6]])
    assert [spec.dtype for spec in (*found.inputs, *found.outputs)] == ["float32", "int64", "float32", "float32"]
    assert found.facts["warnings"] == [
        f"the source is {says}: it is raised to float32, with its inputs and outputs x, y"
    ]
    y = ort.open(found, 1).run({"x": X, "count": count})
    expected = 4 * (np.repeat(np.concatenate([X, count], 1), 2, 1) @ w + 3)
    np.testing.assert_allclose(y["y"], expected, rtol=1e-5)
    np.testing.assert_allclose(y["full"], expected, rtol=1e-5)


def test_weights_in_half_precision_beside_a_file_are_raised_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MOST", "SMALL"):  # bytes: what makes a file a large one
        monkeypatch.setattr(f"edgecompress.engines.onnx.external.{name}", 16)
    w = np.random.default_rng(3).normal(size=(4, 5)).astype("float16")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = proto([node], {"x": ["batch", 4], "y": ["batch", 5]}, {"w": w})
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save_model(model, tmp_path / "user.onnx", save_as_external_data=True, size_threshold=0)
    (tmp_path / "read").mkdir()
    found = ort.read(Request({}, tmp_path / "read", {"path": str(tmp_path / "user.onnx")}))
    np.testing.assert_allclose(ort.open(found, 1).run({"x": X})["y"], X @ w.astype("float32"), rtol=1e-5)


def test_data_in_half_precision_fits_a_source_that_was_raised(tmp_path: Path) -> None:
    found = read(tmp_path, in_halves(TensorProto.FLOAT16))
    specs = (TensorSpec("x", (Dim("batch"), 4), "float16"), TensorSpec("count", (Dim("batch"), 2), "int64"))
    assert tensors.check_inputs(found, Artifact(tmp_path, "samples", specs)) == {"x": "x", "count": "count"}
    assert tensors.taken(found, {"x": X.astype("float16")})["x"].dtype == "float32"


def test_a_source_in_half_precision_becomes_int8(tmp_path: Path) -> None:
    int8 = quantized(tmp_path, float16.convert_float_to_float16(gemm()))
    assert {spec.dtype for spec in int8.inputs} == {"float32"} and is_quantized(int8.file(".onnx"))
    answers = (ort.open(each, 1).run({"x": X})["y"] for each in (Artifact.read(tmp_path / "read"), int8))
    np.testing.assert_allclose(*answers, atol=0.2)


# --------------------------------------------------------------------------- transposed convolutions


TRANSPOSED: list[dict[str, Any]] = [
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 2], "group": 2},
    {"auto_pad": "SAME_LOWER", "strides": [1, 1], "group": 4, "kernel_shape": [4, 4]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 1], "dilations": [2, 1], "output_padding": [1, 0]},
    {"auto_pad": "SAME_UPPER", "strides": [3, 2], "kernel_shape": [2, 1]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2], "output_shape": [11, 10], "kernel_shape": [3, 5]},
    {"auto_pad": "VALID", "strides": [2, 2], "output_padding": [1, 1]},
    {"output_shape": [12, 10], "strides": [2, 2], "group": 2, "output_padding": [1, 1], "kernel_shape": [4, 4]},
    {"pads": [1, 0, 0, 1], "strides": [2, 2], "group": 2, "dilations": [2, 2]},
]


@pytest.mark.parametrize("how", TRANSPOSED, ids=lambda how: "-".join(f"{k}={v}" for k, v in how.items()))
def test_a_transposed_convolution_is_onnx_runtimes_in_every_runtime_and_in_int8(
    tmp_path: Path, how: dict[str, Any]
) -> None:
    random, groups = np.random.default_rng(0), how.get("group", 1)
    x = random.normal(size=(8, 4, 6, 5)).astype("float32")
    w, b = (random.normal(size=s).astype("float32") for s in ((4, 3, *how.get("kernel_shape", [3, 3])), 3 * groups))
    w *= np.linspace(0.2, 1, 4, dtype="float32")[:, None, None, None]
    nodes = [helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], **how), helper.make_node("Relu", ["c"], ["y"])]
    model = proto(nodes, {"x": ["n", 4, 6, 5], "y": ["n", 3 * groups, None, None]}, {"w": w, "b": b})
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    int8 = quantized(tmp_path, model, x)
    source = Artifact.read(tmp_path / "read")
    assert "lost" not in int8.facts
    (tmp_path / "openvino").mkdir()
    files = [ort.open(source, 1), openvino.open(openvino.export(Request({"model": source}, tmp_path / "openvino")), 1)]
    for session in files:
        answer = np.concatenate([session.run({"x": x[i : i + 1]})["y"] for i in range(len(x))])
        np.testing.assert_allclose(answer, expected, atol=1e-4)
    assert np.abs(ort.open(int8, 1).run({"x": x})["y"] - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("how", TRANSPOSED[:5], ids=lambda how: "-".join(f"{k}={v}" for k, v in how.items()))
def test_a_transposed_convolution_as_a_torch_net_has_no_pads_below_zero(tmp_path: Path, how: dict[str, Any]) -> None:
    """Core ML and ExecuTorch cannot have them."""
    random, groups = np.random.default_rng(0), how.get("group", 1)
    x = random.normal(size=(1, 4, 6, 5)).astype("float32")
    w = random.normal(size=(4, 3, *how.get("kernel_shape", [3, 3]))).astype("float32")
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **how)
    source = read(tmp_path, proto([node], {"x": [1, 4, 6, 5], "y": [1, 3 * groups, None, None]}, {"w": w}))
    net, given = onnx_net.load(source.file(".onnx")), {"x": torch.from_numpy(x)}
    with torch.inference_mode():
        np.testing.assert_allclose(net(**given)["y"], ort.open(source, 1).run({"x": x})["y"], atol=1e-4)
    for call in torch.export.export(net, (), given).graph.nodes:
        assert "pad" not in str(call.target) or min(call.args[1]) >= 0


# --------------------------------------------------------------------------- names that tools take themselves


TAKEN = ["_quantized", "_scale", "_zero_point", "0", "_QuantizeLinear_Output", "_DequantizeLinear_Output",
         "_quantized_scale", "_ReduceMax", "_MatMul", "_cast_to_fp32"]  # fmt: skip


@pytest.mark.parametrize("technique", [ptq_int8, int8_dynamic, onnx_fp16])
@pytest.mark.parametrize("suffix", TAKEN)
def test_tensors_may_have_the_names_that_a_tool_takes_itself(tmp_path: Path, technique: Any, suffix: str) -> None:
    """Two layers share weights and bias; each tensor's name is that of another with what a quantizer appends."""
    random = np.random.default_rng(0)
    w, b, x = (random.normal(size=size).astype("float32") for size in ((32, 32), 32, (8, 32)))
    made, relu, sum_, end = (f"b{suffix}", f"w{suffix}", f"x{suffix}", f"b{suffix}{suffix}")
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], [made]),
        helper.make_node("Relu", [made], [relu]),
        helper.make_node("Gemm", [relu, "w", "b"], [sum_]),
        helper.make_node("Gemm", [sum_, "w", "b"], [end]),
    ]
    source = read(tmp_path, proto(nodes, {"x": ["n", 32], end: ["n", 32]}, {"w": w, "b": b}))
    (tmp_path / "made").mkdir()
    asked = {"model": source, "samples": calibration(tmp_path, x)}
    answer = technique.apply(Request(asked, tmp_path / "made", technique.Options()))
    model = onnx.load_model(answer.file(".onnx"))
    onnx.checker.check_model(model, full_check=True)
    every = [t.name for t in model.graph.initializer] + [name for node in model.graph.node for name in node.output]
    assert "lost" not in answer.facts and len(every) == len({*every})
    assert [t.dims for t in model.graph.initializer].count([32, 32]) == 1
    ours, theirs = (ort.open(each, 1).run({"x": x})[end] for each in (source, answer))
    assert np.abs(ours - theirs).max() < 0.1 * np.abs(ours).max()


# --------------------------------------------------------------------------- average pools


POOLS: list[dict[str, Any]] = [
    {"ceil_mode": 1, "count_include_pad": 1},
    {"ceil_mode": 1, "count_include_pad": 1, "pads": [1, 1, 1, 1]},
    {"ceil_mode": 1, "count_include_pad": 1, "pads": [1, 0, 0, 1], "strides": [2, 3]},
    {"ceil_mode": 1, "count_include_pad": 1, "pads": [1, 1, 1, 1], "strides": [11, 11], "kernel_shape": [2, 2]},
    {"ceil_mode": 1, "count_include_pad": 0, "pads": [1, 1, 1, 1]},
    {"count_include_pad": 1, "pads": [1, 1, 1, 1], "dilations": [2, 2]},
]


@pytest.mark.parametrize("opset", [10, 19])
@pytest.mark.parametrize("how", POOLS, ids=lambda how: "-".join(f"{k}={v}" for k, v in how.items()))
def test_an_average_pool_is_onnx_runtimes_in_openvino_and_in_int8(
    tmp_path: Path, how: dict[str, Any], opset: int
) -> None:
    if opset < 19 and "dilations" in how:
        return  # not yet
    random = np.random.default_rng(0)
    x = (random.normal(size=(8, 3, 11, 10)) + 1).astype("float32")
    w, v = (random.normal(size=s).astype("float32") for s in ((8, 3, 3, 3), (8, 8, 1, 1)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("AveragePool", ["c"], ["p"], **{"kernel_shape": [3, 3], "strides": [2, 2], **how}),
        helper.make_node("Conv", ["p", "v"], ["y"]),
    ]
    model = proto(nodes, {"x": ["n", 3, 11, 10], "y": ["n", 8, None, None]}, {"w": w, "v": v}, opset=opset)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    int8 = quantized(tmp_path, model, x)
    source = Artifact.read(tmp_path / "read")
    (tmp_path / "openvino").mkdir()
    files = [ort.open(source, 1), openvino.open(openvino.export(Request({"model": source}, tmp_path / "openvino")), 1)]
    for session in files:
        answer = np.concatenate([session.run({"x": x[i : i + 1]})["y"] for i in range(len(x))])
        np.testing.assert_allclose(answer, expected, atol=1e-4)
    assert np.abs(ort.open(int8, 1).run({"x": x})["y"] - expected).max() < 0.03 * np.abs(expected).max()


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("largest", [10.0, 300.0])
def test_int8_keeps_small_numbers_that_are_joined_with_large_ones(tmp_path: Path, largest: float, scaled: bool) -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(20, 3, 8, 8)).astype("float32")
    w, v = (random.normal(size=s).astype("float32") for s in ((4, 3, 1, 1), (4, 3, 1, 1)))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["small"]),
        helper.make_node("Conv", ["x", "v"], ["large"]),
        helper.make_node("Concat", ["small", "large"], ["both"], axis=1),
        helper.make_node("Relu", ["both"], ["r"]),
        *([helper.make_node("Mul", ["r", "s"], ["m"])] if scaled else []),
        helper.make_node("Conv", ["m" if scaled else "r", "read"], ["y"]),
    ]
    shares = np.repeat([1.0, 1 / largest], 4)[:, None, None].astype("float32")
    read = random.normal(size=(5, 8, 1, 1)).astype("float32") * (1 if scaled else shares)
    weights = {"w": w, "v": v * largest, "read": read, **({"s": shares} if scaled else {})}
    model = proto(nodes, {"x": ["n", 3, 8, 8], "y": ["n", 5, 8, 8]}, weights)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    found = ort.open(quantized(tmp_path, model, x), 1).run({"x": x})["y"]
    assert np.square(expected).sum() > 300 * np.square(found - expected).sum()


# --------------------------------------------------------------------------- domains


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize(
    "opsets",
    [[("", 11), ("ai.onnx", 13)], [("ai.onnx", 13), ("", 11)], [("", 13), ("", 11)], [("", 11), ("", 13)],
     [("ai.onnx", 13)]],
)  # fmt: skip
def test_a_domain_that_is_imported_twice_is_imported_once(
    tmp_path: Path, opsets: list[tuple[str, int]], domain: str
) -> None:
    """Until opset 12 a Softmax takes all axes from its own on as one."""
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1, domain=domain)
    model = proto([node], {"x": ["n", 3, 4], "y": ["n", 3, 4]}, {})
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*each) for each in opsets)
    found, x = read(tmp_path, model), np.stack([X] * 2)
    written, last = onnx.load_model(found.file(".onnx")), opsets[-1][1]
    assert [(entry.domain, entry.version) for entry in written.opset_import] == [("", last)]
    axes = (1,) if last == 13 else (1, 2)
    np.testing.assert_allclose(ort.open(found, 1).run({"x": x})["y"].sum(axes), 1, rtol=1e-5)
    net = onnx_net.load(found.file(".onnx"))
    np.testing.assert_allclose(net(x=torch.from_numpy(x))["y"].sum(axes), 1, rtol=1e-5)


def test_operators_that_onnx_runtime_alone_has_are_told_when_the_file_is_read(tmp_path: Path) -> None:
    nodes = [helper.make_node("Scaler", [a], [b], domain="ai.onnx.ml", offset=[1.0] * 4, scale=[2.0] * 4)
             for a, b in (("x", "m"), ("m", "y"))]  # fmt: skip
    model = proto(nodes, {"x": ["batch", 4], "y": ["batch", 4]}, {})
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    (told,) = read(tmp_path, model).facts["warnings"]
    assert told.startswith("only ONNX Runtime has the operators Scaler (2) of ai.onnx.ml") and "--as android" in told


def test_operators_that_are_rewritten_are_not_told(tmp_path: Path) -> None:
    assert "warnings" not in read(tmp_path, classifier("whole")).facts
