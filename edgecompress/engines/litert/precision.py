"""The precision of a TFLite file: all its graphs, weights dequantized or made dense when it is loaded as stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.engines.litert import model_file
from edgecompress.formats.precision import walk
from edgecompress.formats.precision.walk import Does, Net, Node, Stored

if TYPE_CHECKING:
    from ai_edge_litert import schema_py_generated as schema

WORDS = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    **{f"{sign}int{bits}": f"int{bits}" for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)},
}
CELL = (0, *range(1, 9), 16)  # of an LSTM: four input and four recurrent matrices, the projection
FACTORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "CONV_3D", "FULLY_CONNECTED", "BATCH_MATMUL"), (0, 1)),
    **dict.fromkeys(("STABLEHLO_DOT_GENERAL", "STABLEHLO_CONVOLUTION"), (0, 1)),
    **dict.fromkeys(("TRANSPOSE_CONV", "CONV_3D_TRANSPOSE"), (2, 1)),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), CELL),
    "BIDIRECTIONAL_SEQUENCE_LSTM": (*CELL, *range(18, 26), 33),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN", "SVDF"), (0, 1, 2)),
    "BIDIRECTIONAL_SEQUENCE_RNN": (0, 1, 2, 5, 6),
}
TABLES = {"GATHER": (0,), "GATHER_ND": (0,), "EMBEDDING_LOOKUP": (1,), "EMBEDDING_LOOKUP_SPARSE": (4,)}
ROLES: Mapping[str, Does] = {
    **dict.fromkeys(FACTORS, "multiplies"),
    **dict.fromkeys(TABLES, "picks"),
    **dict.fromkeys(("RESHAPE", "TRANSPOSE", "SQUEEZE", "EXPAND_DIMS", "DENSIFY"), "hands on"),
    "DEQUANTIZE": "dequantizes",
    "FAKE_QUANT": "dequantizes",
    "CONCATENATION": "joins",
}


def net(file: Path) -> Net:
    """The net in a file. Raises InputError for a damaged one."""
    from ai_edge_litert import schema_py_generated as schema

    data = file.read_bytes()
    model_file.check(data, file.name)
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    types = model_file.types(data)
    made = Net()
    calls = {str(i): [str(b) for op in g.operators for b in _bodies(op, types)] for i, g in enumerate(model.subgraphs)}
    for number in map(int, walk.ordered(calls)):
        _graph(model, number, types, made)
    return made


def _graph(model: schema.ModelT, number: int, types: Sequence[str], made: Net) -> None:
    graph = model.subgraphs[number]
    for index, tensor in enumerate(graph.tensors):
        name, dtype = f"{number}/{index}", model_file.TYPE_NAMES[tensor.type]
        word, buffer = WORDS.get(dtype, dtype), model.buffers[tensor.buffer]
        size = buffer.size if buffer.offset > 1 else 0 if buffer.data is None else len(buffer.data)
        made.words[name] = word
        if size:
            axes = 0 if tensor.shape is None else len(tensor.shape)
            made.constants[name] = Stored(word, int(size), axes, tensor.buffer)
    for op in graph.operators:
        kind = types[op.opcodeIndex]
        reads, writes = (tuple(f"{number}/{i}" if i >= 0 else "" for i in side) for side in (op.inputs, op.outputs))
        word = "int8" if kind == "FAKE_QUANT" else ""
        made.nodes.append(Node(reads, writes, ROLES.get(kind, ""), FACTORS.get(kind, TABLES.get(kind, ())), word=word))
        for body in _bodies(op, types):
            for inner, outer in _handed(model.subgraphs[body], kind, reads):
                made.known_as.setdefault(f"{body}/{inner}", []).append(outer)


def _bodies(op: schema.OperatorT, types: Sequence[str]) -> Iterator[int]:
    """The graphs that an operator computes."""
    options = op.builtinOptions2 if types[op.opcodeIndex] == "STABLEHLO_COMPOSITE" else op.builtinOptions
    fields = ("thenSubgraphIndex", "elseSubgraphIndex", "condSubgraphIndex", "bodySubgraphIndex")
    for name in (*fields, "initSubgraphIndex", "subgraph", "decompositionSubgraphIndex"):
        if isinstance(index := getattr(options, name, None), int):
            yield index


def _handed(body: schema.SubGraphT, kind: str, reads: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Inputs of a body with what they are outside; of a loop only those that each turn leaves as they are."""
    given = reads[1:] if kind == "IF" else reads
    for place, (inner, outer) in enumerate(zip(body.inputs, given, strict=False)):
        same = place < len(body.outputs) and body.outputs[place] == inner
        if outer and (same or kind != "WHILE"):
            yield int(inner), outer
