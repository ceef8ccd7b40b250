"""The multiply-accumulates (MACs) and bytes moved of each operator of an artifact in one inference.

A MAC is one product added to a sum: what He et al. (2015) and Sandler et al. (2018) count, half of torch's FLOPs. Only
convolutions, matrix products and recurrent cells have any. Bytes are what an operator reads and writes, weights too, in
the artifact's own precision: what lies between QuantizeLinear and DequantizeLinear counts as the integers that it is,
and a Relu, Clip or QuantizeLinear behind an operator is its last step, as every runtime has it, and moves nothing.
Caches are not in it: a tensor that is written and read at once counts both times.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import Artifact

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    import onnx
    from ai_edge_litert import schema_py_generated as schema

BITS = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "complex64": 64,
    "bool": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)},
}
COUNTS = ("int32", "int64", "bool")  # biases, lengths and shapes: never a factor
# What reading a file that contradicts itself raises: an axis, a shape, an option that is not there
CONTRADICTION = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
Shape = tuple[int, ...]
Attribute: TypeAlias = "int | float | str | bytes | onnx.TensorProto | Sequence[int | float | bytes]"


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph; `constant`: a weight."""

    name: str
    shape: Shape
    dtype: str
    constant: bool = False

    @property
    def bytes(self) -> int:
        """Its size, packed."""
        return math.ceil(math.prod(self.shape) * BITS.get(self.dtype, 8) / 8)


@dataclass(frozen=True)
class Op:
    """An operator with the tensors that it reads and writes; `macs` is None if unknown."""

    name: str
    type: str
    macs: int | None
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))

    @property
    def dtype(self) -> str:
        """The narrowest dtype of the factors, signedness ignored; "" without MACs."""
        factors = [t.dtype.removeprefix("u") for t in self.reads if t.dtype not in COUNTS]
        return min(factors, key=lambda dtype: BITS.get(dtype, 8), default="") if self.macs else ""


@dataclass(frozen=True)
class Graph:
    """An artifact's operators, and its input and output tensors."""

    ops: tuple[Op, ...]
    ends: tuple[Tensor, ...]
    weights: tuple[Tensor, ...] = ()  # whole, also those of which an operator picks some rows


class OpWork(TypedDict):
    """The cost of one operator; `dtype` is that of its factors."""

    name: str
    type: str
    macs: int | None
    bytes: int
    dtype: str


class Sums(TypedDict):
    """The cost of all operators: the MACs also by the dtype of the factors.

    `once_bytes` is each weight, input and output once, as if everything between them stayed in registers.
    """

    macs: int | None
    bytes: int | None
    macs_of: dict[str, int] | None
    once_bytes: int | None


class Work(Sums):
    """The sums of one artifact, or the reason why they are unknown."""

    kind: str
    batch: int
    why: str


def of(artifact: Artifact, batch: int = 1) -> list[OpWork]:
    """The cost of each operator in one run; `macs` is None for an unknown operator.

    Raises StageFailed, with the reason, for an artifact whose operators cannot be counted.
    """
    ops = graph(artifact, batch).ops
    return [{"name": o.name, "type": o.type, "macs": o.macs, "bytes": o.bytes, "dtype": o.dtype} for o in ops]


def total(artifact: Artifact, batch: int = 1) -> Work:
    """The sums of one run of `batch` items; all are None, with the reason in `why`, where they cannot be counted."""
    try:
        counted = graph(artifact, batch)
        if unknown := sorted({op.type for op in counted.ops if op.macs is None}):
            raise StageFailed(f"the MACs of {', '.join(unknown)} cannot be counted")
    except EdgeError as error:
        none = Sums(macs=None, bytes=None, macs_of=None, once_bytes=None)
        return {"kind": artifact.kind, "batch": batch, **none, "why": str(error)}
    return {"kind": artifact.kind, "batch": batch, **_sums(counted), "why": ""}


def _sums(graph: Graph) -> Sums:
    by_dtype: dict[str, int] = {}
    for op in graph.ops:
        if op.macs:
            by_dtype[op.dtype] = by_dtype.get(op.dtype, 0) + op.macs
    weights = {t.name: t.bytes for op in graph.ops for t in op.reads if t.constant}
    once = sum(weights.values()) + sum(t.bytes for t in graph.ends)
    moved = sum(op.bytes for op in graph.ops)
    return {"macs": sum(by_dtype.values()), "bytes": moved, "macs_of": by_dtype, "once_bytes": once}


def graph(artifact: Artifact, batch: int = 1) -> Graph:
    """The operators of one run of `batch` items; raises StageFailed where they cannot be counted."""
    reader = READERS.get(artifact.kind) or _of_plugin(artifact.kind)
    if reader is None:
        raise StageFailed(f"operators can be counted in {', '.join(READERS)} files, not in kind '{artifact.kind}'")
    try:
        return reader(artifact, batch)
    except CONTRADICTION as error:
        what = f"{type(error).__name__}: {error}"
        raise StageFailed(f"{artifact.path}: its operators or their shapes contradict each other ({what})") from error


def _of_plugin(kind: str) -> Callable[[Artifact, int], Graph] | None:
    """What counts a format that only its own runtime knows."""
    return next((runtime.count for runtime in registry.runtimes() if runtime.format == kind and runtime.count), None)


# --------------------------------------------------------------------------- formulas, of shapes


def _convolution(weights: Shape, out: Shape) -> int:
    """Weights [out channels, channels of a group, *kernel]."""
    return math.prod(out) * math.prod(weights[1:])


def _transposed(data: Shape, weights: Shape) -> int:
    """Weights [in channels, out channels of a group, *kernel]: each input value meets all of its channel's."""
    return math.prod(data) * math.prod(weights[1:])


def _product(a: Shape, out: Shape, transposed: bool = False) -> int:
    """Each value of the product is a sum over the inner axis of `a`."""
    return math.prod(out) * a[-2 if transposed else -1]


def _recurrent(steps: int, weights: Sequence[Shape]) -> int:
    """Each weight of each gate and direction is used once a step; `steps`: times the batch."""
    return steps * sum(map(math.prod, weights))


def _attention(queries: Shape, keys: Shape, out: Shape) -> int:
    """Queries times keys, then their weights times the values."""
    return (math.prod(queries) + math.prod(out)) * keys[-2]


# --------------------------------------------------------------------------- a graph of any format


@dataclass(frozen=True)
class Node:
    """An operator as its file has it: tensors by name, "" where one is left out."""

    name: str
    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


Macs: TypeAlias = "Callable[[Node, Sequence[Shape], Shape], int | None]"


@dataclass(frozen=True)
class Dialect:
    """What the operators of a format are. `macs`: of a node, the shapes it reads (left out: ()) and its output's."""

    macs: Macs
    views: tuple[str, ...] = ()  # they move nothing
    picks: tuple[str, ...] = ()  # they read no more of their first input than they write
    last_steps: tuple[str, ...] = ()  # of the operator before them
    dequantize: tuple[str, ...] = ()  # their readers take the integers
    loops: tuple[str, ...] = ()


class _Walk:
    """A graph whose tensors have shapes, and who makes and who reads each."""

    def __init__(self, nodes: Sequence[Node], tensors: dict[str, Tensor], ends: Sequence[str], how: Dialect) -> None:
        self.nodes, self.tensors, self.ends, self.how = nodes, tensors, ends, how
        self.makers = {name: node for node in nodes for name in node.writes}
        self.readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in filter(None, node.reads):
                self.readers.setdefault(name, []).append(node)
        for node in nodes:
            if all(self._constant(name) for name in node.reads if name):  # computed once, when it is loaded
                known = {name: tensors[name] for name in node.writes if name in tensors}
                tensors |= {name: dataclasses.replace(tensor, constant=True) for name, tensor in known.items()}

    def graph(self) -> Graph:
        """The operators that move or multiply something; raises StageFailed where a shape depends on the data."""
        last = {name for node in self.nodes for name in self._behind(node)}
        ops = [self._op(node) for node in self.nodes if not last.intersection(node.writes) and not self._still(node)]
        return Graph(tuple(ops), tuple(t for t in map(self._tensor, self.ends) if not t.constant), self._weights())

    def _weights(self) -> tuple[Tensor, ...]:
        """The constants that are factors or are added: no scalars, no scales, no shapes."""
        computing = [node for node in self.nodes if not self._still(node) and node.type not in self.how.dequantize]
        read = [self._stored(name) for node in computing for name in node.reads if name and self._constant(name)]
        return tuple({t.name: t for t in read if t.shape and t.dtype not in ("int64", "bool")}.values())

    def _tensor(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise StageFailed(f"the shape of '{name}' is known only at run time")
        return self.tensors[name]

    def _constant(self, name: str) -> bool:
        return name in self.tensors and self.tensors[name].constant

    def _still(self, node: Node) -> bool:
        """Whether a node moves nothing: a view, a constant, or numbers that their readers take as they are stored."""
        read_inside = all(self.readers.get(name) and name not in self.ends for name in node.writes)
        inner = node.type in self.how.dequantize and read_inside
        return node.type in self.how.views or inner or all(map(self._constant, filter(None, node.writes)))

    def _behind(self, node: Node) -> list[str]:
        """The tensors that a node's only output becomes in the last steps behind it."""
        behind: list[str] = []
        if node.type in self.how.dequantize or self._still(node):
            return behind
        place = node.writes
        while len(place) == 1 and place[0] not in self.ends:
            readers = self.readers.get(place[0], [])
            if len(readers) != 1 or not self._is_last_step(readers[0], place[0]):
                break
            place = readers[0].writes
            behind += place
        return behind

    def _is_last_step(self, node: Node, data: str) -> bool:
        """Whether a node changes `data` value by value, with nothing but constants beside it."""
        return node.type in self.how.last_steps and all(self._constant(r) for r in node.reads if r and r != data)

    def _stored(self, name: str) -> Tensor:
        """What is there in memory for a tensor that is read: where it was dequantized or computed at load from."""
        maker, tensor = self.makers.get(name), self._tensor(name)
        if maker is None or not (tensor.constant or maker.type in self.how.dequantize) or not maker.reads:
            return tensor
        origin = self._stored(maker.reads[0])
        return origin if math.prod(origin.shape) == math.prod(tensor.shape) else tensor

    def _op(self, node: Node) -> Op:
        if node.type in self.how.loops:
            raise StageFailed(
                f"the number of iterations of the body of {node.type} '{node.name}' is known only at run time"
            )
        shapes = [self._tensor(name).shape if name else () for name in node.reads]
        reads = [self._stored(name) for name in node.reads if name]
        names = [*node.writes, *self._behind(node)][-1:] if len(node.writes) == 1 else list(filter(None, node.writes))
        writes = [self._tensor(name) for name in names]
        if node.type in self.how.picks:
            reads[0] = Tensor(f"rows of {reads[0].name}", writes[0].shape, reads[0].dtype, reads[0].constant)
        macs = self.how.macs(node, shapes, self._tensor(node.writes[0]).shape)
        return Op(node.name, node.type, macs, tuple(reads), tuple(writes))


# --------------------------------------------------------------------------- ONNX

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


def _cells(node: Node, reads: Sequence[Shape], out: Shape) -> int:
    """Data [steps, batch, features], or [batch, steps, features]."""
    return _recurrent(reads[0][0] * reads[0][1], reads[1:3])


ONNX_MACS: Mapping[str, Macs] = {
    "Conv": lambda node, reads, out: _convolution(reads[1], out),
    "DeformConv": lambda node, reads, out: _convolution(reads[1], out),
    "ConvTranspose": lambda node, reads, out: _transposed(reads[0], reads[1]),
    "MatMul": lambda node, reads, out: _product(reads[0], out),
    "Gemm": lambda node, reads, out: _product(reads[0], out, bool(node.attributes.get("transA"))),
    "Attention": lambda node, reads, out: _attention(reads[0], reads[1], out),
    "Einsum": _einsum,
    **dict.fromkeys(("LSTM", "GRU", "RNN"), _cells),
}


def _onnx_macs(node: Node, reads: Sequence[Shape], out: Shape) -> int | None:
    if node.attributes["domain"] not in ("", "ai.onnx") and node.type not in STAND_INS:
        return None
    kind, own = STAND_INS.get(node.type, (node.type, tuple(range(len(reads)))))
    return ONNX_MACS[kind](node, [reads[i] for i in own if i < len(reads)], out) if kind in ONNX_MACS else 0


ONNX = Dialect(
    _onnx_macs,
    views=("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size", "Constant"),
    picks=("Gather", "GatherElements", "GatherND", "Slice"),
    last_steps=("Relu", "Clip", "QuantizeLinear"),
    dequantize=("DequantizeLinear",),
    loops=("If", "Loop", "Scan"),
)


def _of_onnx(artifact: Artifact, batch: int) -> Graph:
    import onnx

    model = onnx.load(artifact.file(".onnx"))
    shaped = _shaped(model, artifact, batch)
    nodes = [_onnx_node(node, index) for index, node in enumerate(model.graph.node)]
    tensors = _onnx_tensors(model.graph, shaped)
    ends = [value.name for value in (*model.graph.input, *model.graph.output)]
    return _Walk(nodes, tensors, ends, ONNX).graph()


def _onnx_node(node: onnx.NodeProto, index: int) -> Node:
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
        raise StageFailed(f"{artifact.path}: {' '.join(str(error).split())[:300]}") from error


def _onnx_tensors(graph: onnx.GraphProto, shaped: onnx.GraphProto) -> dict[str, Tensor]:
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


# --------------------------------------------------------------------------- TFLite

COMPOSITE = "STABLEHLO_COMPOSITE"
MOST_OPS = 1_000_000  # that the composites of a graph stand for
OPAQUE = ("CUSTOM", "DELEGATE", "CALL", "STABLEHLO_CUSTOM_CALL")


def _lite_cells(weights: Sequence[int]) -> Callable[[Node, Sequence[Shape], Shape], int]:
    return lambda node, reads, out: _recurrent(
        math.prod(reads[0][:-1]), [reads[i] for i in weights if i < len(reads) and reads[i]]
    )


# The weights' layouts are the schema's: [out, height, width, in], depthwise [1, height, width, channels], 3-D [depth,
# height, width, in, out]. Inputs 1 to 8 of an LSTM: four input and four recurrent matrices; 16: the projection.
LITE_MACS: Mapping[str, Macs] = {
    "CONV_2D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][1:]),
    "DEPTHWISE_CONV_2D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][1:3]),
    "CONV_3D": lambda node, reads, out: math.prod(out) * math.prod(reads[1][:4]),
    "TRANSPOSE_CONV": lambda node, reads, out: math.prod(reads[2]) * math.prod(reads[1][:3]),
    "FULLY_CONNECTED": lambda node, reads, out: math.prod(out) * reads[1][-1],
    "BATCH_MATMUL": lambda node, reads, out: math.prod(out) * (reads[0][-1] * reads[0][-2] // out[-2]),
    **dict.fromkeys(("LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM"), _lite_cells((*range(1, 9), 16))),
    **dict.fromkeys(("RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"), _lite_cells((1, 2))),
    **dict.fromkeys(OPAQUE, lambda node, reads, out: None),
}
LITE = Dialect(
    lambda node, reads, out: LITE_MACS[node.type](node, reads, out) if node.type in LITE_MACS else 0,
    views=("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SHAPE"),
    picks=("GATHER", "GATHER_ND", "SLICE", "STRIDED_SLICE", "EMBEDDING_LOOKUP"),
    loops=("IF", "WHILE", "STABLEHLO_WHILE"),
)


def _of_tflite(artifact: Artifact, batch: int) -> Graph:
    """Its shapes are fixed: `batch` is the one that the file is made for."""
    from ai_edge_litert import schema_py_generated as schema

    from edgecompress.formats import tflite

    file = artifact.file(".tflite")
    data = file.read_bytes()
    tflite.check(data, file.name)
    return _lite_graph(schema.ModelT.InitFromPackedBuf(data, 0), 0, {})


def _lite_graph(model: schema.ModelT, index: int, known: dict[int, Graph]) -> Graph:
    """One of a file's graphs; a composite's operators are those of the graph it stands for.

    `known`: the graphs so far. A small file can name one graph many times over, in each of many others.
    """
    if index not in known:
        known[index] = Graph((), ())  # of a composite that contains itself nothing is counted twice
        known[index] = _lite_graph_of(model, index, known)
    return known[index]


def _lite_graph_of(model: schema.ModelT, index: int, known: dict[int, Graph]) -> Graph:
    graph = model.subgraphs[index]
    tensors = {t.name: t for t in (_lite_tensor(model, graph, i) for i in range(len(graph.tensors)))}
    named = [*tensors]
    ends = [named[i] for i in (*graph.inputs, *graph.outputs)]
    nodes = [_lite_node(model, op, named) for op in graph.operators]
    composed = [
        op.builtinOptions2.decompositionSubgraphIndex for op in graph.operators if _kind(model, op) == COMPOSITE
    ]
    inner = [op for number in composed for op in _lite_graph(model, number, known).ops]
    if len(inner) > MOST_OPS:
        raise StageFailed(f"its composites stand for {len(inner):,} operators; at most {MOST_OPS:,} are counted")
    walked = _Walk([node for node in nodes if node.type != COMPOSITE], tensors, ends, LITE).graph()
    return dataclasses.replace(walked, ops=(*walked.ops, *inner))


def _lite_node(model: schema.ModelT, op: schema.OperatorT, named: Sequence[str]) -> Node:
    reads = tuple(named[i] if i >= 0 else "" for i in op.inputs)
    writes = tuple(named[i] for i in op.outputs)
    return Node(writes[0].partition(" ")[2], _kind(model, op), reads, writes)


def _lite_tensor(model: schema.ModelT, graph: schema.SubGraphT, index: int) -> Tensor:
    """A tensor; its number is in its name, because names may repeat."""
    from edgecompress.formats import tflite

    tensor = graph.tensors[index]
    buffer = model.buffers[tensor.buffer]
    constant = bool(buffer.offset > 1 or (buffer.data is not None and len(buffer.data)))
    shape = tuple(int(d) for d in tensor.shape) if tensor.shape is not None else ()
    name = f"{index} {(tensor.name or b'').decode(errors='replace')}"
    return Tensor(name, shape, tflite.TYPE_NAMES[tensor.type], constant)


def _kind(model: schema.ModelT, op: schema.OperatorT) -> str:
    from ai_edge_litert.schema_py_generated import BuiltinOperator

    from edgecompress.formats import tflite

    number = tflite.number(model.operatorCodes[op.opcodeIndex])
    return next((name for name, value in vars(BuiltinOperator).items() if value == number), "CUSTOM")


# --------------------------------------------------------------------------- OpenVINO

OPENVINO_MACS: Mapping[str, Macs] = {
    "Convolution": lambda node, reads, out: _convolution(reads[1], out),
    "GroupConvolution": lambda node, reads, out: _convolution(reads[1][1:], out),  # [groups, out, in, *kernel]
    "ConvolutionBackpropData": lambda node, reads, out: _transposed(reads[0], reads[1]),
    "GroupConvolutionBackpropData": lambda node, reads, out: _transposed(reads[0], reads[1][1:]),
    "MatMul": lambda node, reads, out: _product(reads[0], out, node.attributes.get("transpose_a") == "true"),
    "ScaledDotProductAttention": lambda node, reads, out: _attention(reads[0], reads[1], out),
    "LSTMSequence": lambda node, reads, out: _recurrent(math.prod(reads[0][:2]), reads[4:6]),
    "LSTMCell": lambda node, reads, out: _recurrent(reads[0][0], reads[3:5]),
    **dict.fromkeys(
        ("GRUSequence", "RNNSequence"), lambda node, reads, out: _recurrent(math.prod(reads[0][:2]), reads[3:5])
    ),
    **dict.fromkeys(("GRUCell", "RNNCell"), lambda node, reads, out: _recurrent(reads[0][0], reads[2:4])),
}
OPENVINO = Dialect(
    lambda node, reads, out: OPENVINO_MACS[node.type](node, reads, out) if node.type in OPENVINO_MACS else 0,
    views=("Reshape", "Squeeze", "Unsqueeze", "ShapeOf", "Const", "Parameter", "Result", "Convert"),
    picks=("Gather", "GatherND", "GatherElements", "Slice", "StridedSlice"),
    last_steps=("Add", "ReLU", "Clamp", "FakeQuantize"),
    loops=("If", "Loop", "TensorIterator"),
)
IR_DTYPES = {
    "FP64": "float64",
    "FP32": "float32",
    "FP16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "BOOLEAN": "bool",
}


def _of_openvino(artifact: Artifact, batch: int) -> Graph:
    from xml.etree import ElementTree

    root = ElementTree.parse(artifact.file(".xml")).getroot()
    layers = root.findall("layers/layer")
    sources = {
        (edge.get("to-layer"), edge.get("to-port")): f"{edge.get('from-layer')}:{edge.get('from-port')}"
        for edge in root.iterfind("edges/edge")
    }
    tensors = {t.name: t for layer in layers for t in _ir_tensors(layer, batch)}
    nodes = [_ir_node(layer, sources) for layer in layers]
    parameters = [name for node in nodes if node.type == "Parameter" for name in node.writes]
    results = [name for node in nodes if node.type == "Result" for name in node.reads]
    computing = [node for node in nodes if node.type not in ("Const", "Parameter", "Result")]
    return _Walk(computing, tensors, [*parameters, *results], OPENVINO).graph()


def _ir_node(layer: Element, sources: Mapping[tuple[str | None, str | None], str]) -> Node:
    number, data = layer.get("id"), layer.find("data")
    reads = tuple(sources.get((number, port.get("id")), "") for port in layer.iterfind("input/port"))
    writes = tuple(f"{number}:{port.get('id')}" for port in layer.iterfind("output/port"))
    return Node(
        layer.attrib["name"], layer.attrib["type"], reads, writes, dict(data.attrib) if data is not None else {}
    )


def _ir_tensors(layer: Element, batch: int) -> Iterator[Tensor]:
    """What a layer makes; a first axis of no fixed size is the batch. What FakeQuantize makes are 8-bit integers."""
    for port in layer.iterfind("output/port"):
        shape = [int(axis.text or "") for axis in port.iterfind("dim")]
        if shape and shape[0] < 0:
            shape[0] = batch
        if min(shape, default=0) < 0:
            continue
        precision = str(port.get("precision"))
        dtype = "int8" if layer.get("type") == "FakeQuantize" else IR_DTYPES.get(precision, _integers(precision))
        yield Tensor(f"{layer.get('id')}:{port.get('id')}", tuple(shape), dtype, layer.get("type") == "Const")


def _integers(precision: str) -> str:
    """I8 is int8, U4 is uint4."""
    return {"I": "int", "U": "uint"}.get(precision[:1], precision[:1]) + precision[1:]


READERS: Mapping[str, Callable[[Artifact, int], Graph]] = {
    "onnx": _of_onnx,
    "tflite": _of_tflite,
    "openvino": _of_openvino,
}
