"""The operators of a SavedModel for `edgecompress check`: as words, the TFLite operators that they become."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.operations import Operation
from edgecompress.engines.tensorflow import savedmodel

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

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
    **dict.fromkeys(("StatelessWhile", "While"), "WHILE"),
    **dict.fromkeys(("StatelessIf", "If"), "IF"),
    "ResizeBilinear": "RESIZE_BILINEAR",
    "ResizeNearestNeighbor": "RESIZE_NEAREST_NEIGHBOR",
    "TensorListReserve": "TENSOR_LIST",
    **dict.fromkeys(("Erf", "Erfc"), "GELU"),  # of which they are a part wherever nets have them
}
DTYPES = {1: "float32", 2: "float64", 3: "int32", 9: "int64", 10: "bool", 19: "float16"}  # of TensorFlow's DataType


def operations(artifact: Artifact) -> list[Operation]:
    """Those of the graph and of its functions, in the order of the file."""
    graph, _, _ = savedmodel.parsed(artifact.path / savedmodel.FOLDER)
    nodes = (*graph.node, *(node for function in graph.library.function for node in function.node_def))
    makers = {node.name: WORDS.get(node.op, _capitals(node.op)) for node in nodes}
    found = []
    for node in nodes:
        if node.op not in STILL and not node.op.startswith("function_"):
            behind = makers.get(node.input[0].split(":")[0], "") if node.input else ""
            found.append(Operation(node.op, makers[node.name], _dtype(node), behind))
    return found


def _capitals(name: str) -> str:
    """RsqrtGrad -> RSQRT_GRAD."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).upper()


def _dtype(node: NodeDef) -> str:
    return DTYPES.get(node.attr["T"].type, "") if "T" in node.attr else ""
