"""Reads and checks TFLite files: operators, inputs, outputs. Without an interpreter."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, brief
from edgecompress.core.model import Quantization, TensorSpec
from edgecompress.data.tensors import LABELS, LONGEST_NAME, is_plain

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers.table import Table

MAGIC = b"TFL3"
# of TensorType: what an input or output of a net can be
DTYPES = ("float32", "float16", "int32", "uint8", "int64", "", "bool", "int16", "", "int8", "float64")
TYPE_NAMES = (
    *("float32", "float16", "int32", "uint8", "int64", "text", "bool", "int16", "complex64", "int8", "float64"),
    *("complex128", "uint64", "resource", "variant", "uint32", "uint16", "int4", "bfloat16", "int2"),
)  # of all types, in the order of the schema
# Fields of the schema's tables, by their place in a table's index
TENSOR_NAME, ENTRY_NAME = 10, 4
TABLE = 8  # bytes of the smallest: a reference to it, and its own to its index

# --------------------------------------------------------------------------- a stranger's bytes


def check(data: bytes, where: str) -> None:
    """Reads every table of a file in Python and checks that no offset points outside. Raises InputError.

    The native library does not check offsets, so it gets no damaged file.
    """
    from ai_edge_litert import schema_py_generated as schema

    if data[4:8] != MAGIC:
        raise InputError(f"{where}: not a TFLite model; give the path of a .tflite file")
    try:
        if _tables(schema.Model.GetRootAs(data)) * TABLE > len(data):
            raise ValueError("it has more tensors and operators than bytes for them")
        whole = schema.ModelT.InitFromPackedBuf(data, 0)
        wrong = next(itertools.chain(_wrong(whole, len(data)), _wrong_names(schema.Model.GetRootAs(data))), "")
    except Exception as error:  # struct's, numpy's and flatbuffers' own: all mean an offset that leads nowhere
        raise InputError(f"{where}: truncated or damaged ({_message(error)}); export or copy it again") from error
    if wrong:
        raise InputError(f"{where}: damaged: {wrong}; export or copy it again")


def _tables(model: schema.Model) -> int:
    """The tables that the lists of a file name: many lists may name the same, so a small file could fill a memory."""
    graphs = (model.Subgraphs(i) for i in range(model.SubgraphsLength()))
    inside = sum(1 + graph.TensorsLength() + graph.OperatorsLength() for graph in graphs)
    return int(inside + model.BuffersLength() + model.OperatorCodesLength() + model.MetadataLength())


def _wrong(model: schema.ModelT, size: int) -> Iterator[str]:
    """What a sound file does not have: numbers of tensors, buffers or operators that are not there."""
    if not model.subgraphs or not numbers_of(model.subgraphs[0].outputs):
        yield "it contains no subgraph with outputs"
    for index, buffer in enumerate(model.buffers or ()):
        if buffer.offset > 1 and buffer.offset + buffer.size > size:
            yield f"buffer {index} lies outside the file"
    for graph in model.subgraphs or ():
        tensors = graph.tensors or ()
        if any(not 0 <= tensor.buffer < len(model.buffers or ()) for tensor in tensors):
            yield "a tensor refers to a buffer that does not exist"
        if any(not 0 <= op.opcodeIndex < len(model.operatorCodes or ()) for op in graph.operators or ()):
            yield "an operator refers to an operator code that does not exist"
        if any(not 0 <= i < len(tensors) for i in numbers_of(graph.inputs, graph.outputs)):
            yield "an input or output refers to a tensor that does not exist"
        if any(not -1 <= i < len(tensors) for op in graph.operators or () for i in numbers_of(op.inputs)):
            yield "an operator's input refers to a tensor that does not exist"
        if any(not 0 <= i < len(tensors) for op in graph.operators or () for i in numbers_of(op.outputs)):
            yield "an operator's output refers to a tensor that does not exist"
        scales = [t.quantization for t in tensors if t.quantization is not None]
        if any(len(numbers_of(q.scale)) not in (0, len(numbers_of(q.zeroPoint))) for q in scales):
            yield "a tensor has different numbers of zero points and scales"
    for signature in model.signatureDefs or ():
        if not 0 <= signature.subgraphIndex < len(model.subgraphs or ()):
            yield "a signature refers to a subgraph that does not exist"
        count = len(model.subgraphs[signature.subgraphIndex].tensors or ())
        if any(not 0 <= e.tensorIndex < count for e in (*(signature.inputs or ()), *(signature.outputs or ()))):
            yield "a signature refers to a tensor that does not exist"


def check_alone(data: bytes, where: str) -> None:
    """Raises InputError for what is more than one net: several in a sound file, or one with state of its own."""
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    every = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    if len({0, *(signature.SubgraphIndex() for signature in every)}) > 1:
        names = ", ".join(_plain(text_of(signature.SignatureKey())) for signature in every)
        raise InputError(
            f"{where}: it holds several nets, with the signatures {names}; convert one of them to a file of its own"
        )
    if any(node.type == "ASSIGN_VARIABLE" for node in graph(data).nodes):
        raise InputError(
            f"{where}: it keeps state from run to run (ASSIGN_VARIABLE); convert it with the state as input and output"
        )


def _wrong_names(model: schema.Model) -> Iterator[str]:
    """Names that the file breaks off in, or that are no text. Its reader cuts them without a word."""
    for graph in (model.Subgraphs(i) for i in range(model.SubgraphsLength())):
        for tensor in (graph.Tensors(i) for i in range(graph.TensorsLength())):
            yield from _wrong_name(tensor._tab, TENSOR_NAME)
    for signature in (model.SignatureDefs(i) for i in range(model.SignatureDefsLength())):
        for entry in itertools.chain(*entries_of(signature)):
            yield from _wrong_name(entry._tab, ENTRY_NAME)


def _wrong_name(table: Table, field: int) -> Iterator[str]:
    if offset := table.Offset(field):
        place = table.Indirect(table.Pos + offset)
        (length,) = struct.unpack_from("<I", table.Bytes, place)
        text = table.Bytes[place + 4 : place + 4 + length + 1]
        if len(text) <= length:
            yield "it ends in the middle of a name"
        text[:length].decode()  # what is no text raises


def numbers_of(*lists: np.ndarray | Sequence[int] | int | None) -> list[int]:
    """The numbers of vectors of a file; where one is not there, its reader gives None or 0."""
    return [int(i) for each in lists if each is not None and not isinstance(each, int) for i in each]


def _message(error: Exception) -> str:
    return brief(str(error).rstrip(". \n")) or type(error).__name__


# --------------------------------------------------------------------------- inputs and outputs


def inputs_and_outputs(data: bytes, where: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs in the file's order, by the names of its signature, or else of its tensors.

    A name that cannot be shown, or is that of another, is changed. Raises InputError: one holds no numbers.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    inputs, outputs = (tuple(_end(graph.Tensors(i), name, where) for name, i, _ in side) for side in ends_of(model))
    return inputs, outputs


# its name, its tensor's number, the (table, field)s that hold the name
End: TypeAlias = "tuple[str, int, list[tuple[Table, int]]]"


def ends_of(model: schema.Model) -> tuple[list[End], list[End]]:
    """Inputs and outputs of the first graph in its order, by the names of its signature, or else of its tensors."""
    graph, ours = model.Subgraphs(0), signatures_of(model)
    inputs, outputs = entries_of(ours[0]) if len(ours) == 1 else ([], [])
    return (
        _side(graph, numbers_of(graph.InputsAsNumpy()), inputs, ("input", (LABELS,))),
        _side(graph, numbers_of(graph.OutputsAsNumpy()), outputs, ("output", ())),
    )


def _side(
    graph: schema.SubGraph,
    numbers: Sequence[int],
    entries: Sequence[schema.TensorMap],
    called: tuple[str, Sequence[str]],
) -> list[End]:
    """The inputs, or the outputs; `called`: how one without a name is, and what none may be."""
    told: dict[int, list[schema.TensorMap]] = {}
    for entry in entries:
        told.setdefault(entry.TensorIndex(), []).append(entry)
    names: list[str] = []
    places: list[list[tuple[Table, int]]] = []
    for number in numbers:
        own = [told[number].pop(0)] if told.get(number) else []
        held = [text_of(entry.Name()) for entry in own] + [text_of(graph.Tensors(number).Name())]
        names.append(_plain(next(filter(None, held), "")))
        places.append([*((entry._tab, ENTRY_NAME) for entry in own), (graph.Tensors(number)._tab, TENSOR_NAME)])
    return list(zip(unlike(names, *called), numbers, places, strict=True))


def signatures_of(model: schema.Model) -> list[schema.SignatureDef]:
    """Those of the first graph."""
    every = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    return [signature for signature in every if signature.SubgraphIndex() == 0]


def entries_of(signature: schema.SignatureDef) -> tuple[list[schema.TensorMap], list[schema.TensorMap]]:
    inputs = [signature.Inputs(i) for i in range(signature.InputsLength())]
    return inputs, [signature.Outputs(i) for i in range(signature.OutputsLength())]


def _end(tensor: schema.Tensor, name: str, where: str) -> TensorSpec:
    """The spec of an input or output."""
    spec = _spec(tensor, name)
    if not spec.dtype:
        raise InputError(
            f"{where}: '{spec.name}' is not a tensor of plain numbers; only tensors of numbers can be deployed"
        )
    return spec


def _plain(name: str) -> str:
    """A name as inputs and outputs can have it: of printable characters, and of a file's."""
    shown = "".join(c if c.isprintable() else "_" for c in name[:LONGEST_NAME])
    return next((shown[:end] for end in range(len(shown), 0, -1) if is_plain(shown[:end])), "")


def unlike(names: Sequence[str], otherwise: str, taken: Sequence[str] = ()) -> list[str]:
    """The names, each its own: one that is there already gets a number, and so does `otherwise` for an empty one."""
    known, seen, numbers, found = {*names, *taken}, {"", *taken}, dict[str, Iterator[int]](), list[str]()
    for name in names:
        new = name
        if name in seen:
            tried = (f"{name or otherwise}_{i}" for i in numbers.setdefault(name, itertools.count(1)))
            new = next(each for each in tried if each not in known)
            known.add(new)
        seen.add(new)
        found.append(new)
    return found


def _spec(tensor: schema.Tensor, name: str = "") -> TensorSpec:
    """A tensor as the file has it; its dtype is empty where it holds no plain numbers."""
    dtype = DTYPES[tensor.Type()] if 0 <= tensor.Type() < len(DTYPES) else ""
    shape = tuple(numbers_of(tensor.ShapeAsNumpy()))
    return TensorSpec(name or text_of(tensor.Name()), shape, dtype, "", _quantization(tensor))


def text_of(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _quantization(tensor: schema.Tensor) -> Quantization | None:
    parameters = tensor.Quantization()
    if parameters is None or not parameters.ScaleLength():
        return None
    scale = tuple(float(s) for s in parameters.ScaleAsNumpy())
    zero = tuple(numbers_of(parameters.ZeroPointAsNumpy())) or (0,) * len(scale)
    return Quantization(scale, zero, parameters.QuantizedDimension() if len(scale) > 1 else None)


# --------------------------------------------------------------------------- what it computes


@dataclass(frozen=True)
class TfliteOperator:
    """One operator: its type, its number in the file, and the numbers of the tensors that it reads and writes."""

    type: str
    place: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Subgraph:
    """The first graph of a file: its operators in the order of computing, its tensors, the numbers of its
    inputs and outputs.

    The dtype of a tensor that holds no plain numbers is "".
    """

    nodes: tuple[TfliteOperator, ...]
    tensors: tuple[TensorSpec, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def as_written(specs: Sequence[TensorSpec], written: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
    """The specs with the shapes, dtypes and quantization that the file has."""
    pairs = zip(specs, written, strict=True)
    return tuple(replace(s, shape=f.shape, dtype=f.dtype, quantization=f.quantization) for s, f in pairs)


def graph(data: bytes) -> Subgraph:
    """The graph of a valid file."""
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    first = model.Subgraphs(0)
    kinds = types(data)
    operators = (first.Operators(place) for place in range(first.OperatorsLength()))
    nodes = (
        TfliteOperator(
            kinds[op.OpcodeIndex()], place, *(tuple(numbers_of(v)) for v in (op.InputsAsNumpy(), op.OutputsAsNumpy()))
        )
        for place, op in enumerate(operators)
    )
    tensors = (_spec(first.Tensors(number)) for number in range(first.TensorsLength()))
    sides = (tuple(numbers_of(numbers)) for numbers in (first.InputsAsNumpy(), first.OutputsAsNumpy()))
    return Subgraph(tuple(nodes), tuple(tensors), *sides)


def types(data: bytes) -> list[str]:
    """The type of each of a valid file's kinds of operators, by its number where this schema does not know it."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator, Model

    model = Model.GetRootAs(data)
    names = {number: name for name, number in vars(BuiltinOperator).items() if isinstance(number, int)}
    codes = (model.OperatorCodes(i) for i in range(model.OperatorCodesLength()))
    numbers = (int(max(code.BuiltinCode(), code.DeprecatedBuiltinCode())) for code in codes)
    return [names.get(number, f"BUILTIN_{number}") for number in numbers]


def number(code: schema.OperatorCodeT) -> int:
    """The number of a kind of operator: files of TensorFlow before 2.4 have it in the deprecated field alone."""
    return int(max(code.builtinCode, code.deprecatedBuiltinCode))


def operators(data: bytes) -> dict[str, str]:
    """{name of its first output: "TYPE:number in the file"} of each operator of the first graph, as LiteRT has them."""
    first = graph(data)
    return {first.tensors[node.writes[0]].name: f"{node.type}:{node.place}" for node in first.nodes if node.writes}
