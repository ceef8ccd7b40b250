"""The operators of an ONNX file with the tensors that they read and write, and their MACs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, brief
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import (
    Dialect,
    Graph,
    Macs,
    Node,
    Shape,
    Tensor,
    attention,
    convolution,
    product,
    recurrent,
    transposed,
    walked,
)
from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.session import CPU, options

if TYPE_CHECKING:
    import onnx

# Operators that are others with more inputs: (the standard one, which of the inputs are its own)
STAND_INS = {
    "QLinearConv": ("Conv", (0, 3)),
    "ConvInteger": ("Conv", (0, 1)),
    "QLinearMatMul": ("MatMul", (0, 3)),
    "MatMulInteger": ("MatMul", (0, 1)),
    "DynamicQuantizeMatMul": ("MatMul", (0, 1)),
    "DynamicQuantizeLSTM": ("LSTM", (0, 1, 2)),
    "FusedConv": ("Conv", (0, 1)),
    "FusedGemm": ("Gemm", (0, 1)),
    "QGemm": ("Gemm", (0, 3)),
    "QLinearAdd": ("Add", (0, 3)),
    "QLinearMul": ("Mul", (0, 3)),
    "QLinearAveragePool": ("AveragePool", (0,)),
    "QLinearGlobalAveragePool": ("GlobalAveragePool", (0,)),
    "QLinearLeakyRelu": ("LeakyRelu", (0,)),
    "QLinearSigmoid": ("Sigmoid", (0,)),
}
CONTRIB = "com.microsoft"


def _einsum(node: Node, reads: Sequence[Shape], out: Shape) -> int | None:
    """Each letter is a loop; of more than two operands, or with dots, the order decides: None."""
    equation = node.attributes["equation"]
    assert isinstance(equation, bytes)
    terms = equation.decode().replace(" ", "").split("->")[0].split(",")
    if len(terms) != 2 or "." in "".join(terms):
        return None
    pairs = zip(terms, reads, strict=True)
    return math.prod({letter: size for term, shape in pairs for letter, size in zip(term, shape, strict=True)}.values())


MACS: Mapping[str, Macs] = {
    "Conv": lambda node, reads, out: convolution(reads[1], out),
    "DeformConv": lambda node, reads, out: convolution(reads[1], out),
    "ConvTranspose": lambda node, reads, out: transposed(reads[0], reads[1]),
    "MatMul": lambda node, reads, out: product(reads[0], out),
    "Gemm": lambda node, reads, out: product(reads[0], out, bool(node.attributes.get("transA"))),
    "Attention": lambda node, reads, out: attention(reads[0], reads[1], out),
    "Einsum": _einsum,
    # data [steps, batch, features], or [batch, steps, features]
    **dict.fromkeys(("LSTM", "GRU", "RNN"), lambda node, reads, out: recurrent(reads[0][0] * reads[0][1], reads[1:3])),
}


def _macs(node: Node, reads: Sequence[Shape], out: Shape) -> int | None:
    if node.attributes["domain"] not in ("", "ai.onnx") and node.type not in STAND_INS:
        return None
    kind, own = STAND_INS.get(node.type, (node.type, tuple(range(len(reads)))))
    return MACS[kind](node, [reads[i] for i in own if i < len(reads)], out) if kind in MACS else 0


OPERATORS = Dialect(
    _macs,
    views=("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size", "Constant"),
    picks=("Gather", "GatherElements", "GatherND", "Slice"),
    last_steps=("Relu", "Clip", "QuantizeLinear"),
    dequantize=("DequantizeLinear",),
    loops=("If", "Loop", "Scan"),
)


def graph(artifact: Artifact, batch: int) -> Graph:
    """The operators of one run of `batch` items; raises StageFailed for no ONNX file."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    file = artifact.file(".onnx")
    try:
        model = onnx.load(file, load_external_data=False)
    except DecodeError as error:
        raise StageFailed(f"{file}: not an ONNX model, or damaged") from error
    if external.size(model) <= external.MOST:
        model = onnx.load(file)
    shaped = _shaped(model, artifact, batch)
    nodes = [_node(node, index) for index, node in enumerate(model.graph.node)]
    tensors = _tensors(model.graph, shaped)
    tensors |= _seen(
        model, [name for node in nodes for name in node.writes if name and name not in tensors], artifact, batch
    )
    ends = [value.name for value in (*model.graph.input, *model.graph.output)]
    return walked(nodes, tensors, ends, OPERATORS)


def _node(node: onnx.NodeProto, index: int) -> Node:
    import onnx

    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    name = node.name or f"{node.op_type}_{index}"
    return Node(name, node.op_type, tuple(node.input), tuple(node.output), {**attributes, "domain": node.domain})


def _shaped(model: onnx.ModelProto, artifact: Artifact, batch: int) -> onnx.GraphProto:
    """The graph with the shape of each tensor for a batch, in standard operators: onnx tells shapes of no others."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.value_info[:]
    sizes = {spec.name: spec.concrete(batch) for spec in artifact.inputs}
    for value in copy.graph.input:
        for axis, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ()), strict=False):
            axis.dim_value = size
    for value in copy.graph.output:
        value.type.tensor_type.ClearField("shape")
    for node in copy.graph.node:
        if node.domain == CONTRIB and node.op_type in STAND_INS:
            kind, own = STAND_INS[node.op_type]
            kept = [node.input[i] for i in own if i < len(node.input)]
            node.op_type, node.domain, node.input[:] = kind, "", kept
    try:
        return onnx.shape_inference.infer_shapes(copy, data_prop=True).graph
    except onnx.shape_inference.InferenceError as error:
        raise StageFailed(f"{artifact.path}: {brief(str(error))}") from error


def _seen(model: onnx.ModelProto, names: Sequence[str], artifact: Artifact, batch: int) -> dict[str, Tensor]:
    """The tensors whose shapes are known when it runs: those of a run on zeros; none where it does not run."""
    import numpy as np
    import onnx
    import onnxruntime

    if not names or external.has(model):
        return {}
    known = {value.name for value in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in known)
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options(1), providers=[CPU])
        zeros = {spec.name: np.zeros(spec.concrete(batch), spec.dtype) for spec in artifact.inputs}
        arrays = zip(names, session.run(names, zeros), strict=True)
    except Exception:  # ONNX Runtime has no common class; the tensor that is asked for first is named
        return {}
    return {name: Tensor(name, array.shape, str(array.dtype)) for name, array in arrays if hasattr(array, "shape")}


def _tensors(graph: onnx.GraphProto, shaped: onnx.GraphProto) -> dict[str, Tensor]:
    from onnx import helper

    tensors = {}
    for value in (*shaped.input, *shaped.value_info, *shaped.output):
        axes = value.type.tensor_type.shape.dim
        if value.type.tensor_type.HasField("shape") and all(a.HasField("dim_value") for a in axes):
            dtype = str(helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
            tensors[value.name] = Tensor(value.name, tuple(a.dim_value for a in axes), dtype)
    for weight in graph.initializer:
        dtype = str(helper.tensor_dtype_to_np_dtype(weight.data_type))
        tensors[weight.name] = Tensor(weight.name, tuple(weight.dims), dtype, constant=True)
    return tensors
