"""TFLite files edited: as other readers want them, with other names, with further outputs. Without an interpreter."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import TensorSpec
from edgecompress.engines.litert.model_file import (
    MAGIC,
    TYPE_NAMES,
    ends_of,
    entries_of,
    inputs_and_outputs,
    number,
    numbers_of,
    signatures_of,
    text_of,
    unlike,
)

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
    from flatbuffers.table import Table

# Fields of the schema's tables, by their place in a table's index
GRAPH_INPUTS, GRAPH_OUTPUTS, SIGNATURE_OUTPUTS = 6, 8, 6
SIGNATURE = "serving_default"  # what converters call the one of a net
# An entry of a signature as bytes: its index (of 8 bytes, for a table of 12), then the name and the tensor's number
ENTRY = struct.Struct("<4HiII")
FURTHEST = 2**31  # that anything of a flatbuffer lies from its start

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
    present = [text_of(tensor.name) for tensor in tensors]
    names = unlike(present, "tensor")
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
    inside = [numbers_of(numbers) for numbers in (graph.inputs, graph.outputs)]
    wanted = [[(spec.name, i) for spec, i in zip(side, inside[k], strict=True)] for k, side in enumerate(specs)]
    signatures = list(model.signatureDefs or ())
    told = [
        [{(text_of(entry.name), entry.tensorIndex) for entry in ends or ()} for ends in (each.inputs, each.outputs)]
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


def with_plain_scatters(data: bytes) -> bytes:
    """The file with a StableHLO operator in the graph by which a scatter combines two numbers, as its kernel reads it.

    The converter writes LiteRT's own ones there, too.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    kinds = schema.BuiltinOperator
    codes = schema.Model.GetRootAs(data)
    if all(codes.OperatorCodes(i).BuiltinCode() != kinds.STABLEHLO_SCATTER for i in range(codes.OperatorCodesLength())):
        return data
    plain = {
        kinds.ADD: kinds.STABLEHLO_ADD,
        kinds.MUL: kinds.STABLEHLO_MULTIPLY,
        kinds.MAXIMUM: kinds.STABLEHLO_MAXIMUM,
        kinds.MINIMUM: kinds.STABLEHLO_MINIMUM,
    }
    model = flatbuffer_utils.read_model_from_bytearray(bytearray(data))
    scatters = [
        op.builtinOptions2
        for graph in model.subgraphs
        for op in graph.operators
        if number(model.operatorCodes[op.opcodeIndex]) == kinds.STABLEHLO_SCATTER
    ]
    for graph in {how.updateComputationSubgraphIndex for how in scatters}:
        for op in model.subgraphs[graph].operators:
            if kind := plain.get(number(model.operatorCodes[op.opcodeIndex])):
                op.opcodeIndex, op.builtinOptions, op.builtinOptionsType = len(model.operatorCodes), None, 0
                model.operatorCodes.append(schema.OperatorCodeT(127, None, 1, kind))
    return packed(model)


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
    sides = zip((GRAPH_INPUTS, GRAPH_OUTPUTS), ends_of(model), (inputs, outputs), strict=True)
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
    _point(
        out, graph._tab, GRAPH_OUTPUTS, _append_numbers(out, [*numbers_of(graph.OutputsAsNumpy()), *outputs.values()])
    )
    for signature in signatures_of(model):
        entries = [(text_of(entry.Name()), entry.TensorIndex()) for entry in entries_of(signature)[1]]
        _point(out, signature._tab, SIGNATURE_OUTPUTS, _append_entries(out, [*entries, *outputs.items()]))
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
    for index, (name, tensor) in enumerate(entries):
        table = _end_of(out) + 8  # behind its index
        out += ENTRY.pack(8, 12, 4, 8, 8, 0, tensor)
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
