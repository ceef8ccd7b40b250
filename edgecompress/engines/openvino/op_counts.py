"""The operators of an OpenVINO IR with the tensors that they read and write, and their MACs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import (
    Dialect,
    Graph,
    Macs,
    Node,
    Tensor,
    attention,
    convolution,
    product,
    recurrent,
    transposed,
    walked,
)

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MACS: Mapping[str, Macs] = {
    "Convolution": lambda node, reads, out: convolution(reads[1], out),
    "GroupConvolution": lambda node, reads, out: convolution(reads[1][1:], out),  # [groups, out, in, *kernel]
    "ConvolutionBackpropData": lambda node, reads, out: transposed(reads[0], reads[1]),
    "GroupConvolutionBackpropData": lambda node, reads, out: transposed(reads[0], reads[1][1:]),
    "MatMul": lambda node, reads, out: product(reads[0], out, node.attributes.get("transpose_a") == "true"),
    "ScaledDotProductAttention": lambda node, reads, out: attention(reads[0], reads[1], out),
    "LSTMSequence": lambda node, reads, out: recurrent(math.prod(reads[0][:2]), reads[4:6]),
    "LSTMCell": lambda node, reads, out: recurrent(reads[0][0], reads[3:5]),
    **dict.fromkeys(
        ("GRUSequence", "RNNSequence"), lambda node, reads, out: recurrent(math.prod(reads[0][:2]), reads[3:5])
    ),
    **dict.fromkeys(("GRUCell", "RNNCell"), lambda node, reads, out: recurrent(reads[0][0], reads[2:4])),
}
OPERATORS = Dialect(
    lambda node, reads, out: MACS[node.type](node, reads, out) if node.type in MACS else 0,
    views=("Reshape", "Squeeze", "Unsqueeze", "ShapeOf", "Const", "Parameter", "Result", "Convert"),
    picks=("Gather", "GatherND", "GatherElements", "Slice", "StridedSlice"),
    last_steps=("Add", "ReLU", "Clamp", "FakeQuantize"),
    loops=("If", "Loop", "TensorIterator"),
)
DTYPES = {
    "FP64": "float64",
    "FP32": "float32",
    "FP16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "BOOLEAN": "bool",
}


def graph(artifact: Artifact, batch: int) -> Graph:
    """The operators of one run of `batch` items; raises StageFailed where a shape depends on the data."""
    from xml.etree import ElementTree

    root = ElementTree.parse(artifact.file(".xml")).getroot()
    layers = root.findall("layers/layer")
    sources = {
        (edge.get("to-layer"), edge.get("to-port")): f"{edge.get('from-layer')}:{edge.get('from-port')}"
        for edge in root.iterfind("edges/edge")
    }
    tensors = {t.name: t for layer in layers for t in _tensors(layer, batch)}
    nodes = [_node(layer, sources) for layer in layers]
    parameters = [name for node in nodes if node.type == "Parameter" for name in node.writes]
    results = [name for node in nodes if node.type == "Result" for name in node.reads]
    computing = [node for node in nodes if node.type not in ("Const", "Parameter", "Result")]
    return walked(computing, tensors, [*parameters, *results], OPERATORS)


def _node(layer: Element, sources: Mapping[tuple[str | None, str | None], str]) -> Node:
    number, data = layer.get("id"), layer.find("data")
    reads = tuple(sources.get((number, port.get("id")), "") for port in layer.iterfind("input/port"))
    writes = tuple(f"{number}:{port.get('id')}" for port in layer.iterfind("output/port"))
    return Node(
        layer.attrib["name"], layer.attrib["type"], reads, writes, dict(data.attrib) if data is not None else {}
    )


def _tensors(layer: Element, batch: int) -> Iterator[Tensor]:
    """What a layer makes; a first axis of no fixed size is the batch. What FakeQuantize makes are 8-bit integers."""
    for port in layer.iterfind("output/port"):
        shape = [int(axis.text or "") for axis in port.iterfind("dim")]
        if shape and shape[0] < 0:
            shape[0] = batch
        if min(shape, default=0) < 0:
            continue
        precision = str(port.get("precision"))
        dtype = "int8" if layer.get("type") == "FakeQuantize" else DTYPES.get(precision, _integers(precision))
        yield Tensor(f"{layer.get('id')}:{port.get('id')}", tuple(shape), dtype, layer.get("type") == "Const")


def _integers(precision: str) -> str:
    """I8 is int8, U4 is uint4."""
    return {"I": "int", "U": "uint"}.get(precision[:1], precision[:1]) + precision[1:]
