"""The size of a model's weights in bytes: dense, without their zeros, and compressed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module, weight_encodings
from edgecompress.stages.analyze import weights

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from ai_edge_litert import schema_py_generated as schema

REQUIRES, EXTRA = weight_encodings.REQUIRES, weight_encodings.EXTRA
FEWER_BITS = ("int4", "uint4", "float4_e2m1fn", "int2", "uint2")
QUANTIZED = ("DequantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")

Stored = tuple[str, "np.ndarray | None"]


def run(request: Request) -> Artifact:
    """The stage: {"model"} -> "storage": {"rows", "total": see formats.weight_encodings; "packed": the names of weights
    that are of fewer than 8 bits or sparse already, and in no row; "files": {"bytes", "zstd": each file compressed}}.
    """
    model = request.model
    if not weights.readable(model.kind):
        raise InputError(
            f"weights are read from torch nets, .onnx and .tflite files, not from kind '{model.kind}'; export it first"
        )
    stored = list(of(model))
    rows = [weight_encodings.row(name, array) for name, array in stored if array is not None]
    facts = {
        "kind": model.kind,
        "rows": rows,
        "total": weight_encodings.total(rows),
        "packed": [name for name, array in stored if array is None],
        "files": {
            "bytes": model.size_bytes,
            "zstd": sum(len(weight_encodings.squeezed(file.read_bytes())) for file in model.files()),
        },
    }
    return Artifact(request.out, "storage", facts=facts).write()


def of(model: Artifact) -> Iterator[Stored]:
    """Each constant of two or more axes once, in the order and dtype of the file; whole numbers less their zero point.

    None for one that is packed already.
    """
    yield from (registry.weights_of(model.kind) or {"onnx": _onnx, "tflite": _tflite}.get(model.kind, _torch))(model)


def _torch(model: Artifact) -> Iterator[Stored]:
    import torch

    seen: set[int] = set()
    for name, tensor in torch_module.rebuild(model).state_dict().items():
        if weights.is_weight(name, tensor) and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _onnx(model: Artifact) -> Iterator[Stored]:
    import onnx

    graph = onnx.load(model.file(".onnx")).graph
    read, constants = weights.readers(graph), {c.name: c for c in graph.initializer}
    for weight in weights.factors(graph):
        array = onnx.numpy_helper.to_array(weight)
        if array.dtype.kind == "V":  # numbers that numpy does not know
            yield weight.name, None if array.dtype.name in FEWER_BITS else array.view(f"u{array.itemsize}")
        else:
            yield weight.name, _centred(array, read.get(weight.name, []), constants)


def _centred(
    array: np.ndarray, readers: list[tuple[onnx.NodeProto, int]], constants: Mapping[str, onnx.TensorProto]
) -> np.ndarray:
    """The weight less the numbers that stand for 0, which its reader has two places behind it."""
    import onnx

    for node, place in readers:
        name = node.input[place + 2] if node.op_type in QUANTIZED and len(node.input) > place + 2 else ""
        if name in constants:
            zero = onnx.numpy_helper.to_array(constants[name])
            shape = [1] * array.ndim
            shape[_axis(node)] = zero.size
            centred: np.ndarray = array - zero.reshape(shape)
            return centred
    return array


def _axis(node: onnx.NodeProto) -> int:
    """Along which a weight has a zero point each."""
    default = {"DequantizeLinear": 1, "ConvInteger": 0, "QLinearConv": 0}.get(node.op_type, -1)
    return next((int(a.i) for a in node.attribute if a.name == "axis"), default)


def _tflite(model: Artifact) -> Iterator[Stored]:
    tables = weights.lite(model)
    seen = {0}  # the first buffer is the empty one
    for graph in tables.subgraphs:
        for tensor in graph.tensors:
            data = tables.buffers[tensor.buffer].data
            axes = 0 if tensor.shape is None else len(tensor.shape)
            if data is not None and axes >= weights.MATRIX and tensor.buffer not in seen:
                seen.add(tensor.buffer)
                yield from _lite(tensor, data)


def _lite(tensor: schema.TensorT, data: np.ndarray) -> Iterator[Stored]:
    import numpy as np

    from edgecompress.formats import tflite
    from edgecompress.formats.op_counts import COUNTS

    name, dtype = (tensor.name or b"").decode(errors="replace"), tflite.TYPE_NAMES[tensor.type]
    if tensor.sparsity is not None or dtype in FEWER_BITS:
        yield name, None
    elif dtype not in (*COUNTS, "text"):
        dtype = "int16" if dtype == "bfloat16" else dtype
        array = np.frombuffer(bytes(data), dtype).reshape(tensor.shape)
        zero = tensor.quantization.zeroPoint if tensor.quantization is not None and array.dtype.kind != "f" else None
        yield name, array if zero is None else array - np.array(zero[0], array.dtype)
