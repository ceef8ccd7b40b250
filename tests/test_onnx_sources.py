"""ONNX files as strangers write them: details that runtimes and tools stumble over are settled when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx.runtimes import onnx as ort

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
