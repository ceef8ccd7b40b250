"""The operators of a SavedModel for `edgecompress check`: as words, the TFLite operators that they become."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.operations import Operation
from edgecompress.engines.tensorflow import savedmodel

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

LOOPS = ("StatelessWhile", "While")
# What is folded into another operator, moves nothing, or is not computed in the net
STILL = {
    *("Const", "Placeholder", "Identity", "IdentityN", "NoOp", "BiasAdd", "StopGradient", "VarHandleOp", "Assert"),
    *("ReadVariableOp", "Shape", "ShapeN", "PartitionedCall", "StatefulPartitionedCall", "PreventGradient"),
}
# TensorFlow operators whose TFLite name is not their own in capitals
WORDS = {
    "Conv2D": "CONV_2D",
    "Conv3D": "CONV_3D",
    "DepthwiseConv2dNative": "DEPTHWISE_CONV_2D",
    "Conv2DBackpropInput": "TRANSPOSE_CONV",
    "MatMul": "FULLY_CONNECTED",
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3", "Einsum"), "BATCH_MATMUL"),
    **dict.fromkeys(("FusedBatchNorm", "FusedBatchNormV3"), "MUL"),
    "AddV2": "ADD",
    "MaxPool": "MAX_POOL_2D",
    "AvgPool": "AVERAGE_POOL_2D",
    "Sigmoid": "LOGISTIC",
    "RealDiv": "DIV",
    "ConcatV2": "CONCATENATION",
    "Max": "REDUCE_MAX",
    "Min": "REDUCE_MIN",
    "Prod": "REDUCE_PROD",
    "GatherV2": "GATHER",
    **dict.fromkeys(("Select", "SelectV2"), "SELECT"),
    "ResourceGather": "GATHER",
    **dict.fromkeys(LOOPS, "WHILE"),
    **dict.fromkeys(("StatelessIf", "If"), "IF"),
    "ResizeBilinear": "RESIZE_BILINEAR",
    "ResizeNearestNeighbor": "RESIZE_NEAREST_NEIGHBOR",
    "TensorListReserve": "TENSOR_LIST",
    **dict.fromkeys(("Erf", "Erfc"), "GELU"),  # of which they are a part wherever nets have them
}
DTYPES = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 10: "bool", 19: "float16"}  # of TensorFlow's DataType


def operations(artifact: Artifact) -> list[Operation]:
    """Those of the graph in the order of the file; what loops repeat is left out: the converter makes it otherwise."""
    graph, _, _ = savedmodel.parsed(artifact.path / savedmodel.FOLDER)
    bodies = {value.func.name for each in _nodes(graph) if each.op in LOOPS for value in each.attr.values()}
    nodes = [*graph.node, *(n for f in graph.library.function if f.signature.name not in bodies for n in f.node_def)]
    named = {node.name: node for node in nodes}
    found = []
    for node in nodes:
        if node.op not in STILL and not node.op.startswith("function_"):
            maker = _maker(node, named)
            dtype = DTYPES.get(node.attr["T"].type, "") if "T" in node.attr else ""
            found.append(Operation(node.op, _word(node), dtype, _word(maker) if maker else ""))
    return found


def _nodes(graph: GraphDef) -> Iterator[NodeDef]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def


def _maker(node: NodeDef, named: Mapping[str, NodeDef]) -> NodeDef | None:
    """What computes the first input of a node."""
    seen: set[str] = set()
    while node.input and (name := node.input[0].split(":")[0]) in named and name not in seen:
        seen.add(name)
        node = named[name]
        if node.op not in STILL:
            return node
    return None


def _word(node: NodeDef) -> str:
    return WORDS.get(node.op, re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node.op).upper())
