"""The weights of a model, by name, as torch lays them out: [filters, channels, *kernel] or [rows, columns]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core import registry
from edgecompress.core.model import Artifact
from edgecompress.formats import tflite, torch_module

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch
    from ai_edge_litert import schema_py_generated as schema

Named = tuple[str, "np.ndarray"]
Readers: TypeAlias = "dict[str, list[tuple[onnx.NodeProto, int]]]"
MATRIX = 2
KINDS = ("module", "program", "onnx", "tflite")  # read here; any other by its runtime's `weights`


def of(model: Artifact) -> Iterator[Named]:
    """Each weight of two or more axes of a torch net, an .onnx or .tflite file, or of a format whose runtime tells."""
    if own := registry.weights_of(model.kind):
        yield from ((name, array) for name, array in own(model) if array is not None)
    else:
        yield from {"onnx": _onnx, "tflite": _tflite}.get(model.kind, _torch)(model)


def readable(kind: str) -> bool:
    """Whether the weights of this kind of model can be read."""
    return kind in KINDS or registry.weights_of(kind) is not None


def _torch(model: Artifact) -> Iterator[Named]:
    """What the state calls weight or bias, as Distiller has it; a tied one under each of its names."""
    for name, tensor in torch_module.rebuild(model).state_dict().items():
        if is_weight(name, tensor):
            yield name, tensor.float().numpy()


def is_weight(name: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor of a torch net's state is one."""
    return tensor.ndim >= MATRIX and ("weight" in name or "bias" in name) and bool(tensor.is_floating_point())


# --------------------------------------------------------------------------- ONNX


def _onnx(model: Artifact) -> Iterator[Named]:
    """The initializers that are multiplied; a product's [inputs, outputs] is turned over."""
    import onnx

    graph = onnx.load(model.file(".onnx")).graph
    read = readers(graph)
    for weight in factors(graph):
        array = onnx.numpy_helper.to_array(weight)
        yield weight.name, array.T if turned(read, weight.name) else array


def factors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers of two or more axes that are no whole numbers of 32 or 64 bits."""
    import onnx

    kind = onnx.TensorProto
    return [
        w for w in graph.initializer if len(w.dims) >= MATRIX and w.data_type not in (kind.INT64, kind.INT32, kind.BOOL)
    ]


def readers(graph: onnx.GraphProto) -> Readers:
    """Who reads each tensor of a graph, and as which input."""
    readers: Readers = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    return readers


def turned(read: Readers, name: str) -> bool:
    """Whether a matrix is read as [inputs, outputs], itself or by way of its real numbers."""
    for node, place in read.get(name, []):
        if node.op_type == "DequantizeLinear":
            return turned(read, node.output[0])
        transposed = next((a.i for a in node.attribute if a.name == "transB"), 0)
        if place == 1 and (node.op_type == "MatMul" or (node.op_type == "Gemm" and not transposed)):
            return True
    return False


# --------------------------------------------------------------------------- TFLite


def _tflite(model: Artifact) -> Iterator[Named]:
    """Constants of convolutions and products, from [out, height, width, in] or, depthwise, [1, height, width, out]."""
    tables = lite(model)
    for graph in tables.subgraphs:
        for op in graph.operators:
            yield from _lite(tables, graph, op, tflite.number(tables.operatorCodes[op.opcodeIndex]))


def lite(model: Artifact) -> schema.ModelT:
    """The tables of a .tflite file, sound ones. Raises InputError."""
    from ai_edge_litert import schema_py_generated as schema

    file = model.file(".tflite")
    data = file.read_bytes()
    tflite.check(data, file.name)
    return schema.ModelT.InitFromPackedBuf(data, 0)


def _lite(model: schema.ModelT, graph: schema.SubGraphT, op: schema.OperatorT, code: int) -> Iterator[Named]:
    from ai_edge_litert.schema_py_generated import BuiltinOperator as Code

    if code not in (Code.CONV_2D, Code.DEPTHWISE_CONV_2D, Code.TRANSPOSE_CONV, Code.FULLY_CONNECTED):
        return
    tensor = graph.tensors[op.inputs[1]]
    array = _lite_array(tensor, model.buffers[tensor.buffer])
    if array is None:
        return
    if array.ndim > MATRIX:
        array = array.transpose((3, 0, 1, 2) if code == Code.DEPTHWISE_CONV_2D else (0, 3, 1, 2))
    yield (tensor.name or b"").decode(errors="replace"), array


def _lite_array(tensor: schema.TensorT, buffer: schema.BufferT) -> np.ndarray | None:
    """A constant as whole or real numbers, zero where it means zero; None for what is no constant, or is packed."""
    import numpy as np

    from edgecompress.formats import tflite

    dtype = tflite.TYPE_NAMES[tensor.type]
    if buffer.data is None or dtype not in ("float32", "float16", "int8", "uint8"):
        return None
    array = np.frombuffer(bytes(buffer.data), dtype).reshape(tensor.shape)
    zero = tensor.quantization.zeroPoint if tensor.quantization is not None else None
    return array if zero is None or dtype.startswith("float") else array.astype(np.int32) - int(zero[0])
