"""The precision of an ONNX file: bodies of If, Loop and Scan and the model's own functions are read as well."""

from __future__ import annotations

import math
from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.formats.precision import walk
from edgecompress.formats.precision.walk import Does, Net, Node, Stored

if TYPE_CHECKING:
    import onnx

WORDS = {  # of TensorProto.DataType: the precision, the bits of a number
    1: ("fp32", 32),
    10: ("fp16", 16),
    11: ("fp64", 64),
    16: ("bf16", 16),
    **dict.fromkeys((2, 3), ("int8", 8)),
    **dict.fromkeys((4, 5), ("int16", 16)),
    **dict.fromkeys((6, 12), ("int32", 32)),
    **dict.fromkeys((7, 13), ("int64", 64)),
    8: ("text", 0),
    9: ("bool", 8),
    **dict.fromkeys((17, 18, 19, 20, 24), ("fp8", 8)),
    **dict.fromkeys((21, 22), ("int4", 4)),
    23: ("fp4", 4),
    **dict.fromkeys((25, 26), ("int2", 2)),
}
# What is multiplied, by its place; what quantizes as it goes says so by its type
FACTORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "DeformConv", "MatMul", "Gemm"), (0, 1)),
    **dict.fromkeys(("FusedConv", "FusedGemm", "FusedMatMul", "NhwcConv", "NhwcFusedConv", "TransposeMatMul"), (0, 1)),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "DynamicQuantizeLSTM"), (0, 1, 2)),
    **dict.fromkeys(("QLinearConv", "QLinearMatMul", "QGemm"), (0, 3)),
    **dict.fromkeys(("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul"), (0, 1)),
    **dict.fromkeys(("Attention", "QAttention"), (0, 1)),
    "Einsum": tuple(range(8)),
    "MatMulNBits": (0,),
    "MatMulBnb4": (0,),
}
NARROW = ("MatMulNBits", "MatMulBnb4", "GatherBlockQuantized")  # weights of fewer bits, packed in bytes
AS_THEY_COME = ("ConvInteger", "MatMulInteger", "MatMulIntegerToFloat", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM")
TABLES = {"Gather": (0,), "GatherND": (0,), "GatherBlockQuantized": (0,), "EmbedLayerNormalization": (2, 3, 4)}
INTEGERS = ("QLinear", "QGemm", "QAttention")  # what such a type begins with
QUANTIZE = ("QuantizeLinear", "DynamicQuantizeLinear")
MAKES = dict.fromkeys(("ConvInteger", "MatMulInteger", "Shape", "Size", "NonZero", "ArgMax", "ArgMin"), "int64")
HANDS_ON = ("Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Expand", "Pad")
MAKES_FLOATS = ("DequantizeLinear", "DequantizeBFP")
ROLES: Mapping[str, Does] = {
    **dict.fromkeys(FACTORS, "multiplies"),
    **dict.fromkeys(TABLES, "picks"),
    **dict.fromkeys(HANDS_ON, "hands on"),
    **dict.fromkeys(MAKES_FLOATS, "dequantizes"),
    "Concat": "joins",
}

Names = ChainMap[str, str]  # as a graph has it -> its own in the net


def net(file: Path) -> Net:
    """The net in a file; what lies beside it is not opened. Raises InputError for a damaged one."""
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return _OnnxNet(onnx.load(file, load_external_data=False)).net
    except DecodeError as error:
        raise InputError(f"{file.name}: not an ONNX model, or damaged; export or copy it again") from error


class _OnnxNet:
    """One name for each tensor of all graphs: a body's begins with a number of its own."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.net, self.bodies = Net(), 0
        self.functions = {f"{f.domain}:{f.name}": f for f in model.functions}
        self.inputs = {(key, i): f"{key}/{name}" for key, f in self.functions.items() for i, name in enumerate(f.input)}
        self._graph(model.graph, ChainMap(), "")
        calls = {key: list(_called(f.node, self.functions)) for key, f in self.functions.items()}
        for key in walk.ordered(calls):
            function = self.functions[key]
            names: Names = ChainMap({name: self.inputs[key, i] for i, name in enumerate(function.input)})
            self._nodes(function.node, names, f"{key}/")

    def _graph(self, graph: onnx.GraphProto, names: Names, prefix: str) -> None:
        for value in (*graph.input, *graph.output, *graph.value_info):
            own = names.setdefault(value.name, f"{prefix}{value.name}")
            word = WORDS.get(value.type.tensor_type.elem_type, ("", 0))[0]
            if word:
                self.net.words[own] = word
        for tensor in graph.initializer:
            own = names.maps[0].setdefault(tensor.name, f"{prefix}{tensor.name}")
            self._constant(own, tensor)
        for sparse in graph.sparse_initializer:
            own = names.maps[0].setdefault(sparse.values.name, f"{prefix}{sparse.values.name}")
            self._constant(own, sparse.values, len(sparse.dims))
        self._nodes(graph.node, names, prefix)

    def _constant(self, name: str, tensor: onnx.TensorProto, axes: int | None = None) -> None:
        word, bits = WORDS.get(tensor.data_type, (f"type {tensor.data_type}", 8))
        beside = {entry.key: entry.value for entry in tensor.external_data}
        key = (beside["location"], beside.get("offset", "0")) if "location" in beside else name
        size = math.ceil(math.prod(tensor.dims) * bits / 8)
        self.net.constants[name] = Stored(word, size, len(tensor.dims) if axes is None else axes, key)

    def _nodes(self, nodes: Sequence[onnx.NodeProto], names: Names, prefix: str) -> None:
        for node in nodes:
            reads = tuple(names.get(name, "") for name in node.input)
            writes = tuple(names.maps[0].setdefault(name, f"{prefix}{name}") for name in node.output if name)
            if node.op_type == "Constant":
                self._stated(node, writes[0])
                continue
            self.net.nodes.append(self._node(node, reads, writes))
            for index, name in enumerate(reads):
                if name and (inner := self.inputs.get((f"{node.domain}:{node.op_type}", index))):
                    self.net.known_as.setdefault(inner, []).append(name)
            for body in (a.g for a in node.attribute if a.HasField("g")):
                self.bodies += 1
                inner_names = names.new_child()
                self._invariants(node, body, reads, inner_names)
                self._graph(body, inner_names, f"{self.bodies}/")

    def _invariants(self, node: onnx.NodeProto, body: onnx.GraphProto, reads: Sequence[str], names: Names) -> None:
        """What a Loop hands to its body and gets back as it was has its name from outside."""
        if node.op_type != "Loop":
            return
        kept = {n.output[0]: n.input[0] for n in body.node if n.op_type == "Identity"}
        ends = [kept.get(value.name, value.name) for value in body.output]
        for index, value in enumerate(body.input):
            if 2 <= index < min(len(reads), len(ends) + 1) and ends[index - 1] == value.name and reads[index]:
                names[value.name] = reads[index]

    def _stated(self, node: onnx.NodeProto, name: str) -> None:
        """A constant that a node states."""
        for attribute in node.attribute:
            if attribute.HasField("t"):
                self._constant(name, attribute.t)
            elif attribute.HasField("sparse_tensor"):
                self._constant(name, attribute.sparse_tensor.values, len(attribute.sparse_tensor.dims))
            else:
                self.net.constants[name] = Stored("fp32", 4 * max(len(attribute.floats), 1), 1, name)

    def _node(self, node: onnx.NodeProto, reads: tuple[str, ...], writes: tuple[str, ...]) -> Node:
        kind = node.op_type
        if kind in NARROW:
            return self._narrow(node, reads, writes)
        does: Does = "" if f"{node.domain}:{kind}" in self.functions else ROLES.get(kind, "")
        factors = FACTORS.get(kind, TABLES.get(kind, ()))
        if kind == "Attention" and node.domain in ("", "ai.onnx"):
            factors = (0, 1, 2)
        if does == "dequantizes":
            scale = self.net.constants.get(reads[1]) if len(reads) > 1 else None
            for name in writes:
                self.net.words.setdefault(name, scale.word if scale else "fp32")
        computes = f"int8{walk.DYNAMIC}" if kind in AS_THEY_COME else "int8" if kind.startswith(INTEGERS) else ""
        return Node(reads, writes, does, factors, word=computes, makes=self._makes(node, reads))

    def _makes(self, node: onnx.NodeProto, reads: Sequence[str]) -> str:
        """The precision of what a node makes, where it is not that of what it reads."""
        if node.op_type == "Cast":
            return WORDS.get(next((a.i for a in node.attribute if a.name == "to"), 0), ("", 0))[0]
        if node.op_type in QUANTIZE:
            zero = self.net.constants.get(reads[2]) if len(reads) > 2 else None
            return zero.word if zero else "int8"
        return "int8" if node.op_type.startswith("QLinear") else MAKES.get(node.op_type, "")

    def _narrow(self, node: onnx.NodeProto, reads: tuple[str, ...], writes: tuple[str, ...]) -> Node:
        """Weights of `bits` bits; what they are multiplied with is as it comes."""
        place = 0 if node.op_type == "GatherBlockQuantized" else 1
        bits = next((a.i for a in node.attribute if a.name == "bits"), 4)
        stored = self.net.constants.get(reads[place])
        if stored:
            name = reads[place]
            self.net.constants[name] = Stored(f"int{bits}", stored.bytes, max(stored.axes, walk.MATRIX), stored.key)
        if place == 0:
            return Node(reads, writes, "picks", (0,))
        return Node(reads, writes, "multiplies", (0,), (1,))


def _called(nodes: Sequence[onnx.NodeProto], functions: Mapping[str, onnx.FunctionProto]) -> Iterator[str]:
    """The functions that nodes call, those in their bodies too."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if (key := f"{node.domain}:{node.op_type}") in functions:
            yield key
        for attribute in node.attribute:
            stack += attribute.g.node if attribute.HasField("g") else ()
