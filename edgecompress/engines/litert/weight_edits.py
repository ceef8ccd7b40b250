"""Weights of TFLite files, edited: dead channels raised, few levels in the place of 255, rows of one magnitude."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.engines.litert import model_edits, quantizer

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_quantizer.qtyping import ModelT, OperatorT, SubGraphT, TensorT

# The axis of a weight along which its outputs lie
OUTPUTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}
FLOAT32, INT8 = 0, 9  # of TensorType
DTYPES = {FLOAT32: "float32", 2: "int32", INT8: "int8"}
BITS, MOST = 8, 127  # of an int8 weight
A_BIT = 4.0  # how many times the noise of one bit more that of a bit less is


@dataclass(frozen=True)
class _Weighted:
    """An operator with constant weights; its arrays are views of the file."""

    scope: str
    source: str  # the tensor it reads
    weights: np.ndarray  # outputs first
    bias: np.ndarray | None
    tensors: tuple[TensorT, ...]  # of the weights, and of the bias


def lifted(data: bytes, ranges: Mapping[str, Mapping[str, np.ndarray]]) -> bytes:
    """The float file, its dead channels raised so far that their biases fit into 32 bits.

    A channel whose weights are all but zero gets a scale so small that its bias overflows, and what was a constant
    output becomes another. One weight is raised instead: the output moves by 0.003 % of the bias at most.
    """
    import numpy as np

    copy = bytearray(data)
    for op in _weighted(copy, FLOAT32):
        if op.source in ranges and op.bias is not None:
            ends = ranges[op.source]
            step = float(max(ends["max"].flat[0], 0) - min(ends["min"].flat[0], 0)) / 255
            least = MOST * np.abs(op.bias) / (step * 2**30) if step else np.zeros_like(op.bias)
            for channel in np.flatnonzero(_largest(op.weights) < least):
                op.weights[(channel, *(0,) * (op.weights.ndim - 1))] = least[channel]
    return bytes(copy)


def rounded(data: bytes, bits: int, kept: Collection[str]) -> bytes:
    """The float file, its weights on the grid that `narrowed` leaves them on; not those of the operators `kept`.

    Per channel, from -(2^(bits - 1) - 1) to as many, times max|w| / (2^(bits - 1) - 1). The quantizer knows 8 bits.
    """
    import numpy as np

    if bits == BITS:
        return data
    copy, most = bytearray(data), 2 ** (bits - 1) - 1
    for op in _weighted(copy, FLOAT32):
        if op.scope not in kept:
            steps = np.maximum(_largest(op.weights), np.finfo(np.float32).tiny) / most
            steps = steps.reshape(-1, *(1,) * (op.weights.ndim - 1))
            op.weights[:] = np.round(op.weights / steps) * steps
    return bytes(copy)


def narrowed(data: bytes, bits: int) -> bytes:
    """The int8 file of a rounded one, with the levels that it uses and no others: its scales, weights, biases.

    A weight k of b bits came as round(127 k / (2^(b - 1) - 1)), which tells k exactly.
    """
    import numpy as np

    if bits == BITS:
        return data
    copy, share = bytearray(data), (2 ** (bits - 1) - 1) / MOST
    done: set[int] = set()  # where arrays lie: one may be that of several tensors
    for op in _weighted(copy, INT8):
        scales = [tensor.quantization.scale for tensor in op.tensors]
        for array, by in [(op.weights, share), (op.bias, share), *((scale, 1 / share) for scale in scales)]:
            if array is not None and array.ctypes.data not in done:
                done.add(array.ctypes.data)
                array[:] = np.round(array * by) if array.dtype.kind == "i" else array * by
    return bytes(copy)


def evened(data: bytes) -> bytes:
    """The float file, with matrices of FULLY_CONNECTED that lose little where one scale is that of all their rows.

    Where it would cost them more than a bit, each row gets the magnitude of the largest, and a MUL behind the product
    gives it back its own. A matrix that another type of operator reads as well stays as it is.
    """
    import numpy as np
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(data))
    kinds, options = schema.BuiltinOperator, schema.BuiltinOptions
    shares = dict(_shares(model))
    if not shares:
        return data
    model.operatorCodes.append(schema.OperatorCodeT(kinds.MUL, None, 1, kinds.MUL))
    for buffer, share in shares.items():
        matrix = np.frombuffer(model.buffers[buffer].data, np.float32).reshape(len(share), -1) / share[:, None]
        model.buffers[buffer].data = np.frombuffer(matrix.tobytes(), np.uint8)
    for graph in model.subgraphs:

        def constant(name: bytes, array: np.ndarray, graph: SubGraphT = graph) -> int:
            model.buffers.append(schema.BufferT(np.frombuffer(array.astype(np.float32).tobytes(), np.uint8)))
            graph.tensors.append(schema.TensorT(array.shape, FLOAT32, len(model.buffers) - 1, name))
            return len(graph.tensors) - 1

        operators: list[OperatorT] = []
        for op in graph.operators:
            operators.append(op)
            matrix = graph.tensors[op.inputs[1]].buffer if len(op.inputs) > 1 else None
            if matrix not in shares:
                continue
            made, share = op.outputs[0], shares[matrix]
            name = graph.tensors[made].name
            if len(op.inputs) > 2 and op.inputs[2] >= 0:
                bias = np.frombuffer(model.buffers[graph.tensors[op.inputs[2]].buffer].data, np.float32)
                op.inputs = [*op.inputs[:2], constant(name + b"/bias", bias / share)]
            tensor = graph.tensors[made]
            signature = tensor.shapeSignature
            graph.tensors.append(schema.TensorT(tensor.shape, FLOAT32, 0, name + b"/rows", shapeSignature=signature))
            op.outputs = [len(graph.tensors) - 1]
            how = schema.MulOptionsT(op.builtinOptions.fusedActivationFunction)
            op.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.NONE
            inputs = [op.outputs[0], constant(name + b"/share", share)]
            last = len(model.operatorCodes) - 1
            operators.append(schema.OperatorT(last, inputs, [made], options.MulOptions, how))
        graph.operators = operators
    return model_edits.packed(model)


def _shares(model: ModelT) -> Iterator[tuple[int, np.ndarray]]:
    """What the rows of a matrix have of its largest number, by its buffer: where a scale for all costs too much."""
    import numpy as np

    products: dict[int, TensorT] = {}
    others: set[int] = set()
    for graph in model.subgraphs:
        for op in graph.operators:
            tensors = [graph.tensors[i] if i >= 0 else None for i in op.inputs]
            fully = quantizer.kind_of(model, op) == "FULLY_CONNECTED"
            whole = all(t is None or model.buffers[t.buffer].data is not None for t in tensors[2:])  # a bias is known
            for place, tensor in enumerate(tensors):
                if tensor is not None and fully and whole and place == 1 and tensor.type == FLOAT32:
                    products[tensor.buffer] = tensor
                elif tensor is not None:
                    others.add(tensor.buffer)
    for buffer, tensor in products.items():
        data = model.buffers[buffer].data
        if buffer not in others and tensor.sparsity is None and data is not None and len(data):
            rows = _largest(np.frombuffer(data, np.float32).reshape(tensor.shape)).astype(np.float64)
            rows[rows == 0] = rows.max()
            if rows.max() ** 2 > A_BIT * np.mean(rows**2):
                yield buffer, (rows / rows.max()).astype(np.float32)


def _weighted(data: bytearray, kind: int) -> Iterator[_Weighted]:
    """The operators whose weights are constants of that TensorType."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(memoryview(data))  # its arrays are views of `data`: slices of a bytearray would be copies
    for graph in model.subgraphs:
        for op in graph.operators:
            axis = OUTPUTS.get(quantizer.kind_of(model, op))
            tensors = [graph.tensors[i] for i in op.inputs[1:3] if i >= 0]
            arrays = [_array(model, tensor) for tensor in tensors]
            if axis is None or not arrays or arrays[0] is None or tensors[0].type != kind:
                continue
            yield _with_weights(graph, op, (axis, tensors, [array for array in arrays if array is not None]))


def _with_weights(graph: SubGraphT, op: OperatorT, parts: tuple[int, list[TensorT], list[np.ndarray]]) -> _Weighted:
    import numpy as np
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    axis, tensors, arrays = parts
    scope, source = files.get_op_scope(op, graph.tensors), graph.tensors[op.inputs[0]].name.decode()
    bias = arrays[1] if len(arrays) > 1 else None
    held = tuple(tensors) if bias is not None else tuple(tensors[:1])
    return _Weighted(scope, source, np.moveaxis(arrays[0], axis, 0), bias, held)


def _array(model: ModelT, tensor: TensorT) -> np.ndarray | None:
    """A tensor's constant, as a view of the file."""
    import numpy as np

    data = model.buffers[tensor.buffer].data
    if data is None or tensor.type not in DTYPES:
        return None
    return np.frombuffer(data, DTYPES[tensor.type]).reshape(tensor.shape)


def _largest(weights: np.ndarray) -> np.ndarray:
    """The largest magnitude of each output channel."""
    import numpy as np

    largest: np.ndarray = np.abs(weights).reshape(len(weights), -1).max(1)
    return largest
