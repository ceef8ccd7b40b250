"""The operators of a TFLite file with the tensors that they read and write, and their MACs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Dialect, Graph, Macs, Node, Shape, Tensor, recurrent, walked
from edgecompress.engines.litert import model_file

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

COMPOSITE = "STABLEHLO_COMPOSITE"
MOST_OPS = 1_000_000  # that the composites of a graph stand for
OPAQUE = ("CUSTOM", "DELEGATE", "CALL", "STABLEHLO_CUSTOM_CALL")


def _cells(weights: Sequence[int]) -> Callable[[Node, Sequence[Shape], Shape], int]:
    return lambda node, reads, out: recurrent(
        math.prod(reads[0][:-1]), [reads[i] for i in weights if i < len(reads) and reads[i]]
    )


# The weights' layouts are the schema's: [out, height, width, in], depthwise [1, height, width, channels], 3-D [depth,
# height, width, in, out]. Inputs 1 to 8 of an LSTM: four input and four recurrent matrices; 16: the projection.
MACS: Mapping[str, Macs] = {
    "CONV_2D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][1:]),
    "DEPTHWISE_CONV_2D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][1:3]),
    "CONV_3D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][:4]),
    "TRANSPOSE_CONV": lambda node, reads, out: math.prod(reads[2]) * math.prod(reads[1][:3]),
    "FULLY_CONNECTED": lambda node, reads, out: math.prod(out) * reads[1][-1],
    "BATCH_MATMUL": lambda node, reads, out: math.prod(out) * (reads[0][-1] * reads[0][-2] // out[-2]),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _cells((*range(1, 9), 16))),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), _cells((1, 2))),
    **dict.fromkeys(OPAQUE, lambda node, reads, out: None),
}
OPERATORS = Dialect(
    lambda node, reads, out: MACS[node.type](node, reads, out) if node.type in MACS else 0,
    views=("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SHAPE"),
    picks=("GATHER", "GATHER_ND", "SLICE", "STRIDED_SLICE", "EMBEDDING_LOOKUP"),
    loops=("IF", "WHILE", "STABLEHLO_WHILE"),
)


def graph(artifact: Artifact, batch: int) -> Graph:
    """Its shapes are fixed: `batch` is the one that the file is made for."""
    from ai_edge_litert import schema_py_generated as schema

    file = artifact.file(".tflite")
    data = file.read_bytes()
    model_file.check(data, file.name)
    return _graph(schema.ModelT.InitFromPackedBuf(data, 0), 0, {})


def _graph(model: schema.ModelT, index: int, known: dict[int, Graph]) -> Graph:
    """One of a file's graphs; a composite's operators are those of the graph it stands for.

    `known`: the graphs so far. A small file can name one graph many times over, in each of many others.
    """
    if index not in known:
        known[index] = Graph((), ())  # of a composite that contains itself nothing is counted twice
        known[index] = _graph_of(model, index, known)
    return known[index]


def _graph_of(model: schema.ModelT, index: int, known: dict[int, Graph]) -> Graph:
    graph = model.subgraphs[index]
    tensors = {t.name: t for t in (_tensor(model, graph, i) for i in range(len(graph.tensors)))}
    named = [*tensors]
    ends = [named[i] for i in (*graph.inputs, *graph.outputs)]
    nodes = [_node(model, op, named) for op in graph.operators]
    composed = [
        op.builtinOptions2.decompositionSubgraphIndex for op in graph.operators if _kind(model, op) == COMPOSITE
    ]
    inner = [op for number in composed for op in _graph(model, number, known).ops]
    if len(inner) > MOST_OPS:
        raise StageFailed(f"its composites stand for {len(inner):,} operators; at most {MOST_OPS:,} are counted")
    whole = walked([node for node in nodes if node.type != COMPOSITE], tensors, ends, OPERATORS)
    return dataclasses.replace(whole, ops=(*whole.ops, *inner))


def _node(model: schema.ModelT, op: schema.OperatorT, named: Sequence[str]) -> Node:
    reads = tuple(named[i] if i >= 0 else "" for i in op.inputs)
    writes = tuple(named[i] for i in op.outputs)
    return Node(writes[0].partition(" ")[2], _kind(model, op), reads, writes)


def _tensor(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> Tensor:
    """A tensor; its number is in its name, because names may repeat."""
    tensor = graph.tensors[index]
    buffer = model.buffers[tensor.buffer]
    constant = bool(buffer.offset > 1 or (buffer.data is not None and len(buffer.data)))
    shape = tuple(int(d) for d in tensor.shape) if tensor.shape is not None else ()
    name = f"{index} {(tensor.name or b'').decode(errors='replace')}"
    return Tensor(name, shape, model_file.TYPE_NAMES[tensor.type], constant)


def _kind(model: schema.ModelT, op: schema.OperatorT) -> str:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    number = model_file.number(model.operatorCodes[op.opcodeIndex])
    return next((name for name, value in vars(BuiltinOperator).items() if value == number), "CUSTOM")
