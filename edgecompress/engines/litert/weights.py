"""The weights of a TFLite file: as torch lays them out, and as the file has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import COUNTS
from edgecompress.engines.litert import model_file

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

MATRIX = 2
NUMBERS = ("float32", "float16", "int8", "uint8", "int16", "int32", "int64")
FEWER_BITS = ("int4", "uint4", "int2", "uint2")


def of(model: Artifact) -> Iterator[tuple[str, np.ndarray]]:
    """Constants of convolutions and products, from [out, height, width, in] or, depthwise, [1, height, width, out]."""
    tables = _tables(model)
    for graph in tables.subgraphs:
        for op in graph.operators:
            yield from _weight(tables, graph, op, model_file.number(tables.operatorCodes[op.opcodeIndex]))


def _tables(model: Artifact) -> schema.ModelT:
    """The tables of a .tflite file, sound ones. Raises InputError."""
    file = model.file(".tflite")
    data = file.read_bytes()
    model_file.check(data, file.name)
    return tables_in(data)


def tables_in(data: bytes) -> schema.ModelT:
    """The tables of a valid file, with the buffers that lie behind them."""
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema

    tables = schema.ModelT.InitFromPackedBuf(data, 0)
    for buffer in tables.buffers:
        if buffer.offset > 1:  # 0 and 1: its data are in the tables
            buffer.data = np.frombuffer(data, np.uint8, buffer.size, buffer.offset)
    return tables


def _weight(
    model: schema.ModelT, graph: schema.SubGraphT, op: schema.OperatorT, code: int
) -> Iterator[tuple[str, np.ndarray]]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator as Code

    if code not in (Code.CONV_2D, Code.DEPTHWISE_CONV_2D, Code.TRANSPOSE_CONV, Code.FULLY_CONNECTED):
        return
    tensor = graph.tensors[op.inputs[1]]
    array = _array(tensor, model.buffers[tensor.buffer])
    if array is None:
        return
    if array.ndim > MATRIX:
        array = array.transpose((3, 0, 1, 2) if code == Code.DEPTHWISE_CONV_2D else (0, 3, 1, 2))
    yield (tensor.name or b"").decode(errors="replace"), array


def _array(tensor: schema.TensorT, buffer: schema.BufferT) -> np.ndarray | None:
    """A constant as whole or real numbers, zero where it means zero; None for what is no constant, or is packed."""
    import numpy as np

    dtype = model_file.TYPE_NAMES[tensor.type]
    if buffer.data is None or dtype not in ("float32", "float16", "int8", "uint8"):
        return None
    array = np.frombuffer(bytes(buffer.data), dtype).reshape(tensor.shape)
    zero = tensor.quantization.zeroPoint if tensor.quantization is not None else None
    return array if zero is None or dtype.startswith("float") else array.astype(np.int32) - int(zero[0])


def constants(tables: schema.ModelT, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The constants of the first graph by the names of its tensors, real: scales and zero points applied."""
    import numpy as np

    found = {}
    for name, tensor in zip(names, tables.subgraphs[0].tensors, strict=True):
        dtype, buffer = model_file.TYPE_NAMES[tensor.type], tables.buffers[tensor.buffer]
        if buffer.data is None or tensor.sparsity is not None or dtype not in NUMBERS or not len(buffer.data):
            continue
        array = np.frombuffer(bytes(buffer.data), dtype).reshape(() if tensor.shape is None else tensor.shape)
        q = tensor.quantization
        if q is not None and q.scale is not None and len(q.scale) and dtype != "int64":
            shape = [len(q.scale) if a == q.quantizedDimension and len(q.scale) > 1 else 1 for a in range(array.ndim)]
            zero, scale = (np.asarray(each, np.float32).reshape(shape) for each in (q.zeroPoint, q.scale))
            array = (array.astype(np.float32) - zero) * scale
        found[name] = array
    return found


def stored(model: Artifact) -> Iterator[tuple[str, np.ndarray | None]]:
    """Each constant of two or more axes, less its zero point; None for one that is packed."""
    tables = _tables(model)
    seen = {0}  # the first buffer is the empty one
    for graph in tables.subgraphs:
        for tensor in graph.tensors:
            data = tables.buffers[tensor.buffer].data
            axes = 0 if tensor.shape is None else len(tensor.shape)
            if data is not None and axes >= MATRIX and tensor.buffer not in seen:
                seen.add(tensor.buffer)
                yield from _stored(tensor, data)


def _stored(tensor: schema.TensorT, data: np.ndarray) -> Iterator[tuple[str, np.ndarray | None]]:
    import numpy as np

    name, dtype = (tensor.name or b"").decode(errors="replace"), model_file.TYPE_NAMES[tensor.type]
    if tensor.sparsity is not None or dtype in FEWER_BITS:
        yield name, None
    elif dtype not in (*COUNTS, "text"):
        dtype = "int16" if dtype == "bfloat16" else dtype
        array = np.frombuffer(bytes(data), dtype).reshape(tensor.shape)
        zero = tensor.quantization.zeroPoint if tensor.quantization is not None and array.dtype.kind != "f" else None
        yield name, array if zero is None else array - np.array(zero[0], array.dtype)
