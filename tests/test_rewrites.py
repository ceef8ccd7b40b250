"""Rewrites of ONNX graphs around kernels: what goes, what stays, and that the answers are the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.engines.onnx.graph_edits import drop_reshapes
from edgecompress.engines.onnx.techniques import int8_dynamic

STEPS, WIDTH, COLUMNS = 6, 64, 32
SEEDED = np.random.default_rng(0)
WEIGHTS = (SEEDED.normal(size=(WIDTH, COLUMNS)) / WIDTH**0.5).astype(np.float32)
BIAS = SEEDED.normal(size=COLUMNS).astype(np.float32)


def net(
    folded: Sequence[int], unfolded: Sequence[int], transposed: bool, bias: bool, *, twice: bool = False
) -> onnx.ModelProto:
    """x [1, 6, 64] -> Reshape -> Gemm -> Reshape -> y."""
    weights = WEIGHTS if folded[1] == WIDTH else np.tile(WEIGHTS, (2, 1))
    matrix = weights.T.copy() if transposed else weights
    constants = {"w": matrix, "fold": np.array(folded), "unfold": np.array(unfolded)} | ({"b": BIAS} if bias else {})
    nodes = [
        helper.make_node("Reshape", ["x", "fold"], ["rows"], "before"),
        helper.make_node("Gemm", ["rows", "w", *(["b"] if bias else [])], ["p"], "product", transB=int(transposed)),
        helper.make_node("Reshape", ["p", "unfold"], ["y"], "after"),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(unfolded))]
    if twice:
        outputs.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, [STEPS, COLUMNS]))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, STEPS, WIDTH])],
        outputs,
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def answers(model: onnx.ModelProto) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).normal(size=(1, STEPS, WIDTH)).astype(np.float32)
    return list(session.run(None, {"x": x}))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("folded", [(STEPS, WIDTH), (-1, WIDTH)])
def test_a_product_between_two_reshapes_is_one_on_all_axes(
    folded: tuple[int, int], transposed: bool, bias: bool
) -> None:
    model = net(folded, (1, STEPS, COLUMNS), transposed, bias)
    before = answers(model)
    assert drop_reshapes(model) == ["product"]
    onnx.checker.check_model(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul", *(["Add"] if bias else [])]
    np.testing.assert_allclose(answers(model)[0], before[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("folded", "unfolded", "twice"),
    [((STEPS // 2, 2 * WIDTH), (1, STEPS // 2, COLUMNS), False), ((STEPS, WIDTH), (STEPS, 1, COLUMNS), False),
     ((STEPS, WIDTH), (1, STEPS, COLUMNS), True)],
    ids=["other rows", "other axes", "read again"],
)  # fmt: skip
def test_reshapes_that_do_more_than_fold_and_unfold_stay(
    folded: tuple[int, int], unfolded: tuple[int, ...], twice: bool
) -> None:
    model = net(folded, unfolded, False, True, twice=twice)
    assert drop_reshapes(model) == []
    assert [node.op_type for node in model.graph.node] == ["Reshape", "Gemm", "Reshape"]


def test_dynamic_int8_of_a_linear_layer_on_three_axes_has_no_reshape(tmp_path: Path) -> None:
    for name in ("net", "out"):
        (tmp_path / name).mkdir()
    onnx.save_model(net((-1, WIDTH), (1, STEPS, COLUMNS), True, True), tmp_path / "net" / "model.onnx")
    ends = (TensorSpec("x", (1, STEPS, WIDTH)),), (TensorSpec("y", (1, STEPS, COLUMNS)),)
    model = Artifact(tmp_path / "net", "onnx", *ends).write()
    int8 = int8_dynamic.apply(Request({"model": model}, tmp_path / "out", int8_dynamic.Options()))
    made = onnx.load_model(tmp_path / "out" / "model.onnx")
    assert "Reshape" not in {node.op_type for node in made.graph.node}
    assert int8.facts["rewrites"] == {int8_dynamic.RESHAPES: ["product"]}
    assert np.abs(answers(made)[0] - answers(net((-1, WIDTH), (1, STEPS, COLUMNS), True, True))[0]).max() < 0.05
