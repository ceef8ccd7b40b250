"""TFLite files as ai-edge-quantizer wants them: their operators, recipes with exceptions, the result as an artifact."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.engines.litert import model_edits, model_file
from edgecompress.techniques import _tail

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_quantizer.qtyping import ModelT, OperatorT, SubGraphT
    from ai_edge_quantizer.recipe_manager import RecipeManager

FILE = "model.tflite"
READ_TOO = "_dequant"  # what the quantizer puts behind the name of an output that the graph reads as well
FLOAT32 = 0  # of TensorType
LARGEST_INSIDE = model_edits.FURTHEST - 2**20  # bytes of a file whose weights can be inside its tables
ENDS = ("INPUT", "OUTPUT")  # what the quantizer calls the inputs and outputs of a graph
# What stays in float, by tests/test_int8_operators.py: LiteRT stops where a divisor rounds to 0, its elder divides and
# takes roots in float alone, and whether two numbers are equal is no longer told once they are rounded
FLOATS = ("DIV", "SQRT", "EQUAL", "NOT_EQUAL")
# What hands on the numbers that it reads
MOVES = {
    *("PAD", "PADV2", "RELU", "RESHAPE", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "MAX_POOL_2D", "MIRROR_PAD"),
    *("PACK", "UNPACK", "GATHER", "SQUEEZE", "EXPAND_DIMS"),
}
ADDING = ("ADD", "SUB")
# What each kind of operator, by its name in the schema, is to the end of a net
ROLES: dict[str, _tail.Role] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "CONV_3D_TRANSPOSE"), "layer"),
    **dict.fromkeys(("FULLY_CONNECTED", "BATCH_MATMUL", "UNIDIRECTIONAL_SEQUENCE_LSTM", "WHILE"), "layer"),
    **dict.fromkeys(("TOPK_V2", "NON_MAX_SUPPRESSION_V4", "NON_MAX_SUPPRESSION_V5", "CUSTOM"), "choice"),
    **dict.fromkeys(("RESHAPE", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT", "SPLIT_V", "SQUEEZE"), "move"),
    **dict.fromkeys(("EXPAND_DIMS", "UNPACK"), "move"),
    "LOGISTIC": "share",
    "SOFTMAX": "softmax",
    "CONCATENATION": "join",
    "PACK": "join",
    "MUL": "scale",
    "SUM": "sum",
    "EXP": "grow",
}


@dataclass(frozen=True)
class QuantizerOperator:
    """One operator of a graph: its scope (its outputs' names), its type, its constants of more than one dimension."""

    scope: str
    type: str
    shape: tuple[int, ...]  # of its largest constant
    largest: float  # magnitude among them
    turned: bool  # its first input is a constant

    @property
    def weights(self) -> int:
        """Numbers in its largest constant."""
        return math.prod(self.shape) if self.shape else 0


def source(request: Request) -> bytes:
    """The file to compress, as the quantizer reads it."""
    return model_edits.completed(request.model.file(".tflite").read_bytes())


def operators(data: bytes) -> list[QuantizerOperator]:
    """The operators of a file that the quantizer knows, in its order."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    known = []
    for graph in model.subgraphs:
        for op in graph.operators:
            if kind := kind_of(model, op):
                weights = list(_constants(model, graph, op))
                scope = files.get_op_scope(op, graph.tensors)
                shape = max((w.shape for w in weights), key=math.prod, default=())
                largest = max((float(abs(w).max()) for w in weights), default=0.0)
                turned = model.buffers[graph.tensors[op.inputs[0]].buffer].data is not None
                known.append(QuantizerOperator(scope, kind, shape, largest, turned))
    return known


def kind_of(model: ModelT, op: OperatorT) -> str:
    """The type of an operator, "" of one that the quantizer does not know; old files have its number elsewhere."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    name = files.TFL_OP_CODE_TO_NAME.get(model_file.number(model.operatorCodes[op.opcodeIndex]))
    return "" if name is None else str(name.value)


def _constants(model: ModelT, graph: SubGraphT, op: OperatorT) -> Iterator[np.ndarray]:
    """The float constants that an operator reads, biases left out."""
    import numpy as np

    for tensor in (graph.tensors[i] for i in op.inputs if i >= 0):
        data = model.buffers[tensor.buffer].data
        if tensor.type == FLOAT32 and data is not None and len(tensor.shape) > 1 and math.prod(tensor.shape):
            yield np.frombuffer(data, np.float32).reshape(tensor.shape)


def matching(known: Sequence[QuantizerOperator], patterns: Iterable[str]) -> list[str]:
    """The scopes that match one of `patterns`, regular expressions; raises InputError where one matches none."""
    chosen: dict[str, None] = {}
    for pattern in patterns:
        scopes = [op.scope for op in known if re.search(pattern, op.scope)]
        if not scopes:
            names = ", ".join(op.scope[-60:] for op in known[:4])
            raise InputError(f"skip: no operator's name matches '{pattern}'; the names end in {names}, ...")
        chosen |= dict.fromkeys(scopes)
    return list(chosen)


def to_their_ends(data: bytes, scopes: Sequence[str]) -> list[str]:
    """Those operators, what only clips or moves their outputs, and what reads these: nothing rounds them on the way."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model, floats = files.read_model(data), list(scopes)
    for graph in model.subgraphs:
        handed: set[int] = set()  # tensors that stay in float
        for op in graph.operators:  # in the order of computing
            kind = kind_of(model, op)
            scope = files.get_op_scope(op, graph.tensors)
            reads = not handed.isdisjoint(op.inputs)
            if scope in scopes or (reads and kind in MOVES):
                handed.update(op.outputs)
            if reads and kind and scope not in floats:
                floats.append(scope)
    return floats


def behind(data: bytes) -> list[str]:
    """The operators of the main graph that choose, and those around them, where no layer follows any more."""
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    kinds = {value: name for name, value in vars(schema.BuiltinOperator).items() if isinstance(value, int)}
    graph, steps = model.subgraphs[0], []
    for op in graph.operators:
        read = [i for i in op.inputs if i >= 0]
        inputs = [i for i in read if model.buffers[graph.tensors[i].buffer].data is None]
        kind = kinds.get(model_file.number(model.operatorCodes[op.opcodeIndex]), "")
        role = ROLES.get(kind, "")
        role = "" if role == "layer" and inputs == read else role  # it multiplies two tensors that are computed
        added = [graph.tensors[i].shape for i in read if i not in inputs]
        role = "place" if kind in ADDING and any(map(_tail.places, added)) else role
        steps.append(_tail.Step(files.get_op_scope(op, graph.tensors), role, inputs, list(op.outputs)))
    return _tail.tail(steps)


def unseen(data: bytes, seen: Collection[str]) -> Iterator[str]:
    """The operators on real numbers of which calibration saw none: those of a body, such as a window's reduction."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    for graph in model.subgraphs:
        for op in graph.operators:
            tensors = (graph.tensors[i] for i in (*op.inputs, *op.outputs) if i >= 0)
            real = (t for t in tensors if t.type == FLOAT32 and model.buffers[t.buffer].data is None)
            if kind_of(model, op) and any(tensor.name.decode() not in seen for tensor in real):
                yield files.get_op_scope(op, graph.tensors)


def check_patterns(patterns: Iterable[str]) -> None:
    """Raises ValueError: one is no regular expression."""
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"skip: '{pattern}' is not a valid regular expression: {error}") from error


def recipe() -> RecipeManager:
    """An empty recipe: what is added last counts."""
    from ai_edge_quantizer import recipe_manager

    logging.getLogger("absl").setLevel(logging.ERROR)
    return recipe_manager.RecipeManager()


def exactly(scope: str) -> str:
    """A recipe's expression for one operator."""
    return f"^{re.escape(scope)}$"


def keep(recipe: RecipeManager, scopes: Iterable[str] = (), types: Iterable[str] = ()) -> None:
    """Leaves operators in float: those of `scopes`, and everywhere those of `types`."""
    from ai_edge_quantizer import qtyping

    names = qtyping.TFLOperationName
    for kind in types:
        recipe.add_quantization_config(".*", names(kind), algorithm_key="no_quantize")
    for scope in scopes:
        recipe.add_quantization_config(exactly(scope), names.ALL_SUPPORTED, algorithm_key="no_quantize")


def quantized(
    data: bytes, recipe: RecipeManager, ranges: Mapping[str, Mapping[str, np.ndarray]] | None = None
) -> bytes:
    """The file by the recipe; raises StageFailed with the quantizer's reason."""
    from ai_edge_quantizer import quantizer

    work = quantizer.Quantizer(memoryview(data))
    work.load_quantization_recipe(recipe.get_quantization_recipe())
    try:
        result = work.quantize(ranges, enable_progress_bar=False, enable_progress_report=False)
    except Exception as error:  # its errors have no base of their own
        raise StageFailed(f"ai-edge-quantizer: {first_line(error)}") from error
    return _from_their_makers(bytes(result.quantized_model))


def _from_their_makers(data: bytes) -> bytes:
    """The file with its weights inside the tables, and each output from where it is made.

    One that the graph reads by another scale as well, the quantizer takes from behind that scale.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(data))
    moved = len(data) < LARGEST_INSIDE
    for number, graph in enumerate(model.subgraphs):
        kinds = [(model_file.number(model.operatorCodes[op.opcodeIndex]), op) for op in graph.operators]
        scaled = {op.outputs[0]: op.inputs[0] for kind, op in kinds if kind == schema.BuiltinOperator.QUANTIZE}
        real = {op.inputs[0]: op.outputs[0] for kind, op in kinds if kind == schema.BuiltinOperator.DEQUANTIZE}
        again = {b: a for b, a in scaled.items() if graph.tensors[a].type == graph.tensors[b].type}
        right = {end: real.get(again[end], again[end]) for end in graph.outputs if end in again}
        graph.outputs = [right.get(end, end) for end in graph.outputs]
        for end in (e for s in model.signatureDefs or () if s.subgraphIndex == number for e in s.outputs):
            end.tensorIndex = right.get(end.tensorIndex, end.tensorIndex)
        moved = moved or bool(right)
    return model_edits.packed(model) if moved else data


def artifact(request: Request, data: bytes, facts: Mapping[str, Json]) -> Artifact:
    """The file written, its inputs and outputs named as before, with the specs that it has."""
    sides = zip(model_file.inputs_and_outputs(data, FILE), (request.model.inputs, request.model.outputs), strict=True)
    data = model_edits.renamed(data, *(_names(found, specs) for found, specs in sides))
    (request.out / FILE).write_bytes(data)
    inputs, outputs = model_file.inputs_and_outputs(data, FILE)
    return Artifact(
        request.out, "tflite", _like(request.model.inputs, inputs), _like(request.model.outputs, outputs), facts
    ).write()


def _names(found: Sequence[TensorSpec], specs: Sequence[TensorSpec]) -> dict[str, str]:
    """{its name in the file: the spec's}: the quantizer calls an output otherwise that the graph reads as well."""
    present = {spec.name for spec in found}
    return {s.name if s.name in present else f"{s.name}{READ_TOO}": s.name for s in specs}


def _like(specs: Sequence[TensorSpec], written: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs with the dtypes and quantizations of the file."""
    return tuple(replace(s, dtype=f.dtype, quantization=f.quantization) for s, f in zip(specs, written, strict=True))
