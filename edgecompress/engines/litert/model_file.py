"""Reads, checks and edits TFLite files: operators, inputs, outputs. Without an interpreter."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, StageFailed
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
TENSOR_NAME, ENTRY_NAME, GRAPH_INPUTS, GRAPH_OUTPUTS, SIGNATURE_OUTPUTS = 10, 4, 6, 8, 6
SIGNATURE = "serving_default"  # what converters call the one of a net
# An entry of a signature as bytes: its index (of 8 bytes, for a table of 12), then the name and the tensor's number
ENTRY = struct.Struct("<4HiII")
TABLE = 8  # bytes of the smallest: a reference to it, and its own to its index
FURTHEST = 2**31  # that anything of a flatbuffer lies from its start

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
    if not model.subgraphs or not _numbers(model.subgraphs[0].outputs):
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
        if any(not 0 <= i < len(tensors) for i in _numbers(graph.inputs, graph.outputs)):
            yield "an input or output refers to a tensor that does not exist"
        if any(not -1 <= i < len(tensors) for op in graph.operators or () for i in _numbers(op.inputs)):
            yield "an operator's input refers to a tensor that does not exist"
        if any(not 0 <= i < len(tensors) for op in graph.operators or () for i in _numbers(op.outputs)):
            yield "an operator's output refers to a tensor that does not exist"
        scales = [t.quantization for t in tensors if t.quantization is not None]
        if any(len(_numbers(q.scale)) not in (0, len(_numbers(q.zeroPoint))) for q in scales):
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
        names = ", ".join(_plain(_text(signature.SignatureKey())) for signature in every)
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
        for entry in itertools.chain(*_entries(signature)):
            yield from _wrong_name(entry._tab, ENTRY_NAME)


def _wrong_name(table: Table, field: int) -> Iterator[str]:
    if offset := table.Offset(field):
        place = table.Indirect(table.Pos + offset)
        (length,) = struct.unpack_from("<I", table.Bytes, place)
        text = table.Bytes[place + 4 : place + 4 + length + 1]
        if len(text) <= length:
            yield "it ends in the middle of a name"
        text[:length].decode()  # what is no text raises


def _numbers(*lists: np.ndarray | Sequence[int] | int | None) -> list[int]:
    """The numbers of vectors of a file; where one is not there, its reader gives None or 0."""
    return [int(i) for each in lists if each is not None and not isinstance(each, int) for i in each]


def _message(error: Exception) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__


# --------------------------------------------------------------------------- inputs and outputs


def inputs_and_outputs(data: bytes, where: str) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs and outputs in the file's order, by the names of its signature, or else of its tensors.

    A name that cannot be shown, or is that of another, is changed. Raises InputError: one holds no numbers.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    inputs, outputs = (tuple(_end(graph.Tensors(i), name, where) for name, i, _ in side) for side in _named(model))
    return inputs, outputs


# its name, its tensor's number, the (table, field)s that hold the name
End: TypeAlias = "tuple[str, int, list[tuple[Table, int]]]"


def _named(model: schema.Model) -> tuple[list[End], list[End]]:
    """Inputs and outputs of the first graph in its order, by the names of its signature, or else of its tensors."""
    graph, ours = model.Subgraphs(0), _signatures(model)
    inputs, outputs = _entries(ours[0]) if len(ours) == 1 else ([], [])
    return (
        _side(graph, _numbers(graph.InputsAsNumpy()), inputs, ("input", (LABELS,))),
        _side(graph, _numbers(graph.OutputsAsNumpy()), outputs, ("output", ())),
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
        held = [_text(entry.Name()) for entry in own] + [_text(graph.Tensors(number).Name())]
        names.append(_plain(next(filter(None, held), "")))
        places.append([*((entry._tab, ENTRY_NAME) for entry in own), (graph.Tensors(number)._tab, TENSOR_NAME)])
    return list(zip(_unlike(names, *called), numbers, places, strict=True))


def _signatures(model: schema.Model) -> list[schema.SignatureDef]:
    """Those of the first graph."""
    every = [model.SignatureDefs(i) for i in range(model.SignatureDefsLength())]
    return [signature for signature in every if signature.SubgraphIndex() == 0]


def _entries(signature: schema.SignatureDef) -> tuple[list[schema.TensorMap], list[schema.TensorMap]]:
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


def _unlike(names: Sequence[str], otherwise: str, taken: Sequence[str] = ()) -> list[str]:
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
    shape = tuple(_numbers(tensor.ShapeAsNumpy()))
    return TensorSpec(name or _text(tensor.Name()), shape, dtype, "", _quantization(tensor))


def _text(name: bytes | None) -> str:
    return (name or b"").decode(errors="replace")


def _quantization(tensor: schema.Tensor) -> Quantization | None:
    parameters = tensor.Quantization()
    if parameters is None or not parameters.ScaleLength():
        return None
    scale = tuple(float(s) for s in parameters.ScaleAsNumpy())
    zero = tuple(_numbers(parameters.ZeroPointAsNumpy())) or (0,) * len(scale)
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


def graph(data: bytes) -> Subgraph:
    """The graph of a valid file."""
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    first = model.Subgraphs(0)
    kinds = types(data)
    operators = (first.Operators(place) for place in range(first.OperatorsLength()))
    nodes = (
        TfliteOperator(
            kinds[op.OpcodeIndex()], place, *(tuple(_numbers(v)) for v in (op.InputsAsNumpy(), op.OutputsAsNumpy()))
        )
        for place, op in enumerate(operators)
    )
    tensors = (_spec(first.Tensors(number)) for number in range(first.TensorsLength()))
    sides = (tuple(_numbers(numbers)) for numbers in (first.InputsAsNumpy(), first.OutputsAsNumpy()))
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


# --------------------------------------------------------------------------- what its readers ask for


def completed(data: bytes) -> bytes:
    """The file as ai-edge-quantizer and LiteRT's calibrator read one; as it is where it is so already.

    The number of each kind of operator stands in today's field, each tensor has a name of its own, weights are real
    numbers where operators read them as such, and the one signature tells the inputs and outputs of the first graph,
    by the names of `inputs_and_outputs`.
    """
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(data)
    ends = inputs_and_outputs(data, "the TFLite file")
    changes = [_renumbered(model), _own_names(model), _made_real(model), _own_signature(model, ends)]
    if not any(changes):
        return data
    return packed(model)


def _renumbered(model: schema.ModelT) -> bool:
    """Puts the number of each kind of operator into today's field; whether one was not there."""
    old = [code for code in model.operatorCodes if code.builtinCode != number(code)]
    for code in old:
        code.builtinCode = number(code)
    return bool(old)


def _own_names(model: schema.ModelT) -> bool:
    """Gives names to the tensors that have none, or that of another; whether there were such."""
    tensors = [tensor for graph in model.subgraphs for tensor in graph.tensors or ()]
    present = [_text(tensor.name) for tensor in tensors]
    names = _unlike(present, "tensor")
    for tensor, name in zip(tensors, names, strict=True):
        tensor.name = name.encode()
    return names != present


def _made_real(model: schema.ModelT) -> bool:
    """Makes constants of the weights that are dequantized when the file is loaded; whether there were such."""
    from ai_edge_litert import schema_py_generated as schema

    found = False
    for graph in model.subgraphs:
        left = []
        for op in graph.operators or ():
            kind = number(model.operatorCodes[op.opcodeIndex])
            given = graph.tensors[op.inputs[0]] if kind == schema.BuiltinOperator.DEQUANTIZE else None
            real = None if given is None else _real(given, model.buffers[given.buffer].data)
            if real is None:
                left.append(op)
                continue
            graph.tensors[op.outputs[0]].buffer = len(model.buffers)
            model.buffers.append(schema.BufferT(real))
        found, graph.operators = found or len(left) < len(graph.operators or ()), left
    return found


def _real(tensor: schema.TensorT, data: np.ndarray | None) -> np.ndarray | None:
    """The bytes of a constant as real numbers of 32 bits; None for what is none, or is packed."""
    import numpy as np

    dtype = TYPE_NAMES[tensor.type]
    if data is None or tensor.sparsity is not None or dtype not in ("float16", "int8", "uint8", "int16"):
        return None
    array = np.frombuffer(data, dtype).reshape(tensor.shape).astype(np.float32)
    if dtype != "float16":
        along = [-1 if axis == tensor.quantization.quantizedDimension else 1 for axis in range(array.ndim)]
        scale, zero = (np.asarray(each) for each in (tensor.quantization.scale, tensor.quantization.zeroPoint))
        shape = along if scale.size > 1 else ()
        array = (array - zero.reshape(shape)) * scale.reshape(shape)
    return np.frombuffer(array.astype(np.float32).tobytes(), np.uint8)


def _own_signature(model: schema.ModelT, specs: tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]) -> bool:
    """Gives the file one signature, that of its first graph; whether it had another, or none."""
    from ai_edge_litert import schema_py_generated as schema

    graph = model.subgraphs[0]
    inside = [_numbers(numbers) for numbers in (graph.inputs, graph.outputs)]
    wanted = [[(spec.name, i) for spec, i in zip(side, inside[k], strict=True)] for k, side in enumerate(specs)]
    signatures = list(model.signatureDefs or ())
    told = [
        [{(_text(entry.name), entry.tensorIndex) for entry in ends or ()} for ends in (each.inputs, each.outputs)]
        for each in signatures
    ]
    if told == [[set(side) for side in wanted]] and not signatures[0].subgraphIndex:
        return False
    inputs, outputs = ([schema.TensorMapT(name, index) for name, index in side] for side in wanted)
    model.signatureDefs = [schema.SignatureDefT(inputs, outputs, SIGNATURE)]
    return True


# --------------------------------------------------------------------------- written anew


def packed(model: schema.ModelT) -> bytes:
    """The file of a model, its weights inside the tables and each at a multiple of 16 bytes, as the schema asks for.

    TensorFlow Lite Micro does not look behind the tables, where ai-edge-quantizer puts large ones: it reads zeros.
    """
    import numpy as np
    from flatbuffers import Builder

    class Aligned(Builder):  # type: ignore[misc]
        def StartVector(self, size: int, count: int, alignment: int) -> object:
            return super().StartVector(size, count, 16 if size == 1 else alignment)

    size = 0
    for buffer in model.buffers:
        if buffer.data is not None:
            buffer.data = np.frombuffer(bytes(buffer.data), np.uint8)  # what is no array is written byte by byte
            size += len(buffer.data)
    builder = Aligned(min(size + 2**16, FURTHEST))
    builder.Finish(model.Pack(builder), file_identifier=MAGIC)
    return bytes(builder.Output())


def without_far_sames(data: bytes) -> bytes:
    """The file with the padding VALID in the place of a SAME that pads nothing: the windows are as many.

    That is where strides are larger than kernels; tflite-runtime 2.14 then begins before the map.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    model, found = flatbuffer_utils.read_model_from_bytearray(bytearray(data)), False
    windows = (schema.Conv2DOptionsT, schema.DepthwiseConv2DOptionsT, schema.Pool2DOptionsT)
    for graph in model.subgraphs:
        for op in graph.operators:
            how = op.builtinOptions
            if not isinstance(how, windows) or how.padding != schema.Padding.SAME:
                continue
            size = graph.tensors[op.inputs[0]].shape[1:3]
            pools = isinstance(how, schema.Pool2DOptionsT)
            kernel = (how.filterHeight, how.filterWidth) if pools else graph.tensors[op.inputs[1]].shape[1:3]
            dilation = (1, 1) if pools else (how.dilationHFactor, how.dilationWFactor)
            axes = zip(size, kernel, (how.strideH, how.strideW), dilation, strict=True)
            pads = [-(-n // s) * s - s + (k - 1) * d + 1 - n for n, k, s, d in axes]
            if max(pads) <= 0 and min(size) > 0:
                how.padding, found = schema.Padding.VALID, True
    return packed(model) if found else data


# --------------------------------------------------------------------------- inputs and outputs, edited


def renamed(data: bytes, inputs: Mapping[str, str], outputs: Mapping[str, str]) -> bytes:
    """The file with its inputs and outputs called and ordered as in `inputs` and `outputs`: {its name: new name}.

    Its names are those of its signature, or else of its tensors. What is new stands behind all the rest: no weight
    moves, so each keeps its alignment. Raises StageFailed.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    out = bytearray(data)
    sides = zip((GRAPH_INPUTS, GRAPH_OUTPUTS), _named(model), (inputs, outputs), strict=True)
    for field, present, names in reversed(list(sides)):  # a tensor that is both: an input
        if sorted(name for name, *_ in present) != sorted(names):
            has = ", ".join(name for name, *_ in present) or "nothing"
            raise StageFailed(f"the TFLite file has the inputs or outputs {has}, expected {', '.join(names)}")
        places_of = {name: (number, places) for name, number, places in present}
        _point(out, graph._tab, field, _append_numbers(out, [places_of[old][0] for old in names]))
        for old, new in names.items():
            text = _append(out, new)
            for table, name in places_of[old][1]:
                _point(out, table, name, text)
    return bytes(out)


def with_layer_outputs(data: bytes, outputs: Mapping[str, int]) -> bytes:
    """The file with further outputs behind its own: {name in its signatures: number of the tensor}.

    As in `renamed`, what is new stands behind all the rest. Raises StageFailed.
    """
    from ai_edge_litert.schema_py_generated import Model

    model = Model.GetRootAs(data)
    graph = model.Subgraphs(0)
    out = bytearray(data)
    _point(out, graph._tab, GRAPH_OUTPUTS, _append_numbers(out, [*_numbers(graph.OutputsAsNumpy()), *outputs.values()]))
    for signature in _signatures(model):
        own = [(_text(entry.Name()), entry.TensorIndex()) for entry in _entries(signature)[1]]
        _point(out, signature._tab, SIGNATURE_OUTPUTS, _append_entries(out, [*own, *outputs.items()]))
    return bytes(out)


def _append(out: bytearray, text: str) -> int:
    """A string behind the rest, as flatbuffers have them; returns its place."""
    encoded = text.encode()
    place = _end_of(out)
    out += struct.pack("<I", len(encoded)) + encoded + b"\0"
    return place


def _append_numbers(out: bytearray, numbers: Sequence[int]) -> int:
    place = _end_of(out)
    out += struct.pack(f"<I{len(numbers)}i", len(numbers), *numbers)
    return place


def _append_entries(out: bytearray, entries: Sequence[tuple[str, int]]) -> int:
    """A signature's vector of (name, tensor)."""
    place = _append_numbers(out, [0] * len(entries))
    for index, (name, number) in enumerate(entries):
        table = _end_of(out) + 8  # behind its index
        out += ENTRY.pack(8, 12, 4, 8, 8, 0, number)
        _refer(out, place + 4 + 4 * index, table)
        _refer(out, table + 4, _append(out, name))
    return place


def _end_of(out: bytearray) -> int:
    """The place behind the rest, where a number may stand."""
    out += b"\0" * (-len(out) % 4)
    return len(out)


def _point(out: bytearray, table: Table, field: int, place: int) -> None:
    """Makes a field of a table point to `place`. Raises StageFailed: the table has no such field."""
    offset = table.Offset(field)
    if not offset:
        raise StageFailed("the TFLite file has an input or output without a name, or no outputs; export it again")
    _refer(out, table.Pos + offset, place)


def _refer(out: bytearray, at: int, place: int) -> None:
    """Makes the reference that stands at `at` one to `place`."""
    if place >= FURTHEST:
        raise StageFailed("the TFLite file is too large to be edited: over 2 GiB")
    struct.pack_into("<I", out, at, place - at)
