"""TFLite files as bytes: whether one is sound, its ends as specs, its ends renamed. No interpreter sees them here."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

from edgecompress.errors import InputError, StageFailed
from edgecompress.model import Quantization, TensorSpec

MAGIC = b"TFL3"
# of TensorType: what a tensor at the ends of a net can be
DTYPES = ("float32", "float16", "int32", "uint8", "int64", "", "bool", "int16", "", "int8", "float64")
# Fields of the schema's tables, by their place in a table's index
TENSOR_NAME, ENTRY_NAME, GRAPH_INPUTS, GRAPH_OUTPUTS = 10, 4, 6, 8

# --------------------------------------------------------------------------- a stranger's bytes


def check(data: bytes, where: str) -> None:
    """Reads every table of a file in Python: nothing points out of it. Raises InputError.

    The native library follows what a file says without looking: it gets none that is cut or torn.
    """
    from ai_edge_litert import schema_py_generated as schema

    if data[4:8] != MAGIC:
        raise InputError(f"{where}: not a TFLite model; give the path of a .tflite file")
    try:
        wrong = next(_wrong(schema.ModelT.InitFromPackedBuf(data, 0), len(data)), "")
    except Exception as error:  # struct's, numpy's and flatbuffers' own: all mean an offset that leads nowhere
        raise InputError(f"{where}: truncated or damaged ({_said(error)}); export or copy it again") from error
    if wrong:
        raise InputError(f"{where}: damaged: {wrong}; export or copy it again")


def _wrong(model: Any, size: int) -> Iterator[str]:
    """What a sound file does not have: numbers of tensors, buffers or operators that are not there."""
    if not model.subgraphs:
        yield "it holds no graph"
    for index, buffer in enumerate(model.buffers or ()):
        if buffer.offset > 1 and buffer.offset + buffer.size > size:
            yield f"buffer {index} lies outside the file"
    for graph in model.subgraphs or ():
        tensors = graph.tensors or ()
        if any(not 0 <= tensor.buffer < len(model.buffers or ()) for tensor in tensors):
            yield "a tensor's buffer is not there"
        if any(not 0 <= op.opcodeIndex < len(model.operatorCodes or ()) for op in graph.operators or ()):
            yield "an operator's kind is not there"
        if any(not 0 <= i < len(tensors) for i in _numbers(graph.inputs, graph.outputs)):
            yield "an input or output is not there"
        if any(not -1 <= i < len(tensors) for op in graph.operators or () for i in _numbers(op.inputs, op.outputs)):
            yield "an operator's tensor is not there"


def _numbers(*lists: Any) -> list[int]:
    """The numbers of vectors of a file; where one is not there, its reader gives None or 0."""
    return [int(i) for each in lists if each is not None and not isinstance(each, int) for i in each]


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


# --------------------------------------------------------------------------- the ends of a file


def ends(data: bytes, where: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs in the file's order, by the names of its signature, or else of its tensors.

    Raises InputError: one holds no numbers.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    names = _signature_names(model)
    return tuple(
        tuple(_spec(graph.Tensors(index), names[end].get(index, ""), where) for index in _numbers(numbers))
        for end, numbers in enumerate((graph.InputsAsNumpy(), graph.OutputsAsNumpy()))
    )  # type: ignore[return-value]


def _signature_names(model: Any) -> tuple[dict[int, str], dict[int, str]]:
    """{tensor: name} of the inputs and of the outputs, as the one signature of the first graph has them."""
    signatures = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    ours = [s for s in signatures if s.SubgraphIndex() == 0]
    if len(ours) != 1:
        return {}, {}
    return tuple({e.TensorIndex(): e.Name().decode() for e in entries} for entries in _entries(ours[0]))  # type: ignore[return-value]


def _entries(signature: Any) -> tuple[list[Any], list[Any]]:
    inputs = [signature.Inputs(i) for i in range(signature.InputsLength())]
    return inputs, [signature.Outputs(i) for i in range(signature.OutputsLength())]


def _spec(tensor: Any, name: str, where: str) -> TensorSpec:
    name = name or (tensor.Name() or b"").decode()
    dtype = DTYPES[tensor.Type()] if tensor.Type() < len(DTYPES) else ""
    if not dtype:
        raise InputError(f"{where}: '{name}' holds no plain numbers; only tensors of numbers can be deployed")
    return TensorSpec(name, tuple(_numbers(tensor.ShapeAsNumpy())), dtype, "", _quantization(tensor))


def _quantization(tensor: Any) -> Quantization | None:
    found = tensor.Quantization()
    if found is None or not found.ScaleLength():
        return None
    scale = tuple(float(s) for s in found.ScaleAsNumpy())
    zero = tuple(int(z) for z in found.ZeroPointAsNumpy())
    return Quantization(scale, zero, found.QuantizedDimension() if len(scale) > 1 else None)


def operators(data: bytes) -> dict[str, str]:
    """{name of its first output: "TYPE:number in the file"} of each operator of the first graph, as LiteRT has them."""
    from ai_edge_litert import schema_py_generated as schema

    model = schema.Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    types = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}
    found = {}
    for place in range(graph.OperatorsLength()):
        code = model.OperatorCodes(graph.Operators(place).OpcodeIndex())
        kind = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())  # old files have only the latter
        output = graph.Tensors(graph.Operators(place).Outputs(0))
        found[output.Name().decode()] = f"{types[kind]}:{place}"
    return found


def renamed(data: bytes, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> bytes:
    """The file with its ends called and ordered as in `inputs` and `outputs`: {name in its signature: new name}.

    The new names stand behind all the rest: no weight moves, so each keeps its alignment. Raises StageFailed.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph, found = (
        model.Subgraphs(0),
        [{e.Name().decode(): e for e in each} for each in _entries(model.SignatureDefs(0))],
    )
    out = bytearray(data)
    order = ((GRAPH_OUTPUTS, found[1], outputs), (GRAPH_INPUTS, found[0], inputs))  # a tensor that is both: an input
    for field, entries, wanted in order:
        if entries.keys() != wanted.keys():
            raise StageFailed(f"the TFLite file has {', '.join(entries)} where {', '.join(wanted)} were expected")
        numbers = [entries[old].TensorIndex() for old in wanted]
        struct.pack_into(f"<{len(numbers)}i", out, graph._tab.Vector(graph._tab.Offset(field)), *numbers)
        for (old, new), number in zip(wanted.items(), numbers, strict=True):
            place = _append(out, new)
            _point(out, entries[old]._tab, ENTRY_NAME, place)
            _point(out, graph.Tensors(number)._tab, TENSOR_NAME, place)
    return bytes(out)


def _append(out: bytearray, text: str) -> int:
    """A string behind the rest, as flatbuffers have them; returns its place."""
    encoded = text.encode()
    out += b"\0" * (-len(out) % 4)
    place = len(out)
    out += struct.pack("<I", len(encoded)) + encoded + b"\0"
    return place


def _point(out: bytearray, table: Any, field: int, place: int) -> None:
    """Makes a field of a table point to `place`."""
    at = table.Pos + table.Offset(field)
    struct.pack_into("<I", out, at, place - at)
