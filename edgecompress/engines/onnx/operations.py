"""The operators of an .onnx file in the words of core.operations, and which of them stay in float in its variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.operations import MULTIPLYING, Kernels, Operation, convolution

if TYPE_CHECKING:
    import onnx

WORDS = {
    **dict.fromkeys(("Gemm", "FusedGemm", "QGemm"), "linear"),
    **dict.fromkeys(("MatMul", "FusedMatMul", "QLinearMatMul", "MatMulInteger"), "matmul"),
    **{name: name.lower() for name in ("LSTM", "GRU", "RNN", "Einsum", "Attention")},
    "ConvTranspose": "convtranspose",
    "MultiHeadAttention": "attention",
}
CONVOLUTIONS = ("Conv", "FusedConv", "QLinearConv", "ConvInteger")
# Those that ONNX Runtime's quantizers make int8, of whose weights or of weights and activations; others stay in float
STATIC = ("conv", "conv_grouped", "conv_depthwise", "conv3d", "convtranspose", "convtranspose3d", "linear", "matmul")
DYNAMIC = ("linear", "matmul", "lstm")


def operations(artifact: Artifact) -> list[Operation]:
    """Those of all graphs of the file, bodies too; constants are none."""
    import onnx

    model = onnx.load_model(artifact.file(".onnx"), load_external_data=False)
    return list(_of_graph(model.graph))


def _of_graph(graph: onnx.GraphProto) -> Iterator[Operation]:
    shapes = {weight.name: tuple(weight.dims) for weight in graph.initializer}
    words: dict[str, str] = {}
    for node in graph.node:
        if node.op_type not in ("Constant", "QuantizeLinear", "DequantizeLinear"):
            own = word(node, shapes)
            words |= dict.fromkeys(node.output, own)
            yield Operation(node.op_type, own, "", words.get(node.input[0], "") if node.input else "")
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _of_graph(attribute.g)


def word(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> str:
    """That of a node of a graph whose constants have those shapes."""
    kind = str(node.op_type)
    if kind not in CONVOLUTIONS:
        return WORDS.get(kind, kind.lower())
    weights = shapes.get(node.input[1], ())
    groups = next((a.i for a in node.attribute if a.name == "group"), 1)
    return convolution(groups, weights)


def kernels(operation: Operation, precision: str) -> Kernels:
    """ONNX Runtime computes all of them on the CPU; what multiplies stays in float where no quantizer takes it."""
    taken = {"int8": STATIC, "int8-dynamic": DYNAMIC}.get(precision, MULTIPLYING)
    stays = operation.word in MULTIPLYING and operation.word not in taken
    return Kernels(floats=[operation.type] if stays else ())
