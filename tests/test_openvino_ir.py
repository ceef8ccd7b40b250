"""The IR that is written is the net that was given: smaller, and with a name for each node that no other has."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgecompress.engines.openvino import ir

openvino = pytest.importorskip("openvino")
SEEDED = np.random.default_rng(5)


def net(names: list[str], file: Path) -> openvino.Model:
    """A chain of products and sums, named so, by way of an ONNX file."""
    nodes, weights, before = [], [], "x"
    for number, name in enumerate(names):
        kind = ("MatMul", "Add", "Mul")[number % 3]
        shape = (4, 4) if kind == "MatMul" else (4,)
        weights.append(numpy_helper.from_array(SEEDED.normal(size=shape).astype("float32"), f"weight{number}"))
        nodes.append(helper.make_node(kind, [before, f"weight{number}"], [name], name=name))
        before = name
    shape = ["n", 4]
    inputs, outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", before))
    graph = helper.make_graph(nodes, "chain", [inputs], [outputs], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)
    return openvino.convert_model(file)


@pytest.mark.parametrize(
    "names",
    [
        [f"c{number}" for number in range(12)],
        [f"Add_{number}" for number in range(12)],
        [f"Multiply_{number}" for number in range(12)],
        ["Constant_1", "Constant_2", "c1", "c2", "Add_1", "Add_1_"],
        ["layer", "other", "last"],
    ],
    ids=lambda names: names[0],
)
def test_no_two_nodes_have_one_name_and_the_answers_stay(names: list[str], tmp_path: Path) -> None:
    given = net(names, tmp_path / "chain.onnx")
    items = SEEDED.normal(size=(3, 4)).astype("float32")
    before = openvino.compile_model(given, "CPU")(items)[0]
    ir.save(given, tmp_path)
    written = openvino.Core().read_model(tmp_path / ir.FILE)
    counts = Counter(node.get_friendly_name() for node in written.get_ordered_ops())
    assert not [name for name, count in counts.items() if count > 1]
    assert np.array_equal(openvino.compile_model(written, "CPU")(items)[0], before)
