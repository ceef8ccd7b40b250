"""ONNX files as strangers write them: details that runtimes and tools stumble over are settled when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edgecompress.core.errors import InputError
from edgecompress.core.model import OPEN, Artifact, Dim, Request, TensorSpec
from edgecompress.data import metrics, tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import ptq_int8
from edgecompress.engines.openvino.runtimes import openvino
from edgecompress.engines.openvino.techniques import nncf_int8

pytestmark = pytest.mark.slow

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


def quantized(folder: Path, model: onnx.ModelProto) -> Artifact:
    source = read(folder, model)
    data = calibration(folder, X)
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
