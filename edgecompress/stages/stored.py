"""What the weights of a model take on disk and on the wire: as they are, without their zeros, and compressed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from edgecompress import storage, torch_net
from edgecompress.errors import InputError
from edgecompress.model import Artifact, Request
from edgecompress.stages import analyze
from edgecompress.stages.analyze import weights

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

REQUIRES, EXTRA = storage.REQUIRES, storage.EXTRA
FEWER_BITS = ("int4", "uint4", "float4_e2m1fn", "int2", "uint2")
QUANTIZED = ("DequantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")

Stored = tuple[str, "Array | None"]


def run(request: Request) -> Artifact:
    """The stage: {"model"} -> "storage": {"rows", "total": see `edgecompress.storage`; "packed": the names of weights
    that are of fewer than 8 bits or sparse already, and in no row; "files": {"bytes", "zstd": each file compressed}}.
    """
    model = request.model
    if model.kind not in analyze.KINDS:
        raise InputError(
            f"weights are read from torch nets, .onnx and .tflite files, not from kind '{model.kind}'; export it first"
        )
    found = list(of(model))
    rows = [storage.row(name, array) for name, array in found if array is not None]
    facts = {
        "kind": model.kind,
        "rows": rows,
        "total": storage.total(rows),
        "packed": [name for name, array in found if array is None],
        "files": {
            "bytes": model.size_bytes,
            "zstd": sum(len(storage.squeezed(file.read_bytes())) for file in model.files()),
        },
    }
    return Artifact(request.out, "storage", facts=facts).write()


def of(model: Artifact) -> Iterator[Stored]:
    """Each constant of two or more axes once, in the order and dtype of the file; whole numbers less their zero point.

    None for one that is packed already.
    """
    yield from {"onnx": _onnx, "tflite": _tflite}.get(model.kind, _torch)(model)


def _torch(model: Artifact) -> Iterator[Stored]:
    import torch

    seen: set[int] = set()
    for name, tensor in torch_net.rebuild(model).state_dict().items():
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


def _centred(array: Array, readers: list[tuple[Any, int]], constants: Any) -> Array:
    """The weight less the numbers that stand for 0, which its reader has two places behind it."""
    import onnx

    for node, place in readers:
        name = node.input[place + 2] if node.op_type in QUANTIZED and len(node.input) > place + 2 else ""
        if name in constants:
            zero = onnx.numpy_helper.to_array(constants[name])
            shape = [1] * array.ndim
            shape[_axis(node)] = zero.size
            centred: Array = array - zero.reshape(shape)
            return centred
    return array


def _axis(node: Any) -> int:
    """Along which a weight has a zero point each."""
    default = {"DequantizeLinear": 1, "ConvInteger": 0, "QLinearConv": 0}.get(node.op_type, -1)
    return next((int(a.i) for a in node.attribute if a.name == "axis"), default)


def _tflite(model: Artifact) -> Iterator[Stored]:
    found = weights.lite(model)
    seen = {0}  # the first buffer is the empty one
    for graph in found.subgraphs:
        for tensor in graph.tensors:
            data = found.buffers[tensor.buffer].data
            axes = 0 if tensor.shape is None else len(tensor.shape)
            if data is not None and axes >= weights.MATRIX and tensor.buffer not in seen:
                seen.add(tensor.buffer)
                yield from _lite(tensor, data)


def _lite(tensor: Any, data: Any) -> Iterator[Stored]:
    import numpy as np

    from edgecompress.costs import COUNTS, LITE_DTYPES

    name, dtype = (tensor.name or b"").decode(errors="replace"), LITE_DTYPES[tensor.type]
    if tensor.sparsity is not None or dtype in FEWER_BITS:
        yield name, None
    elif dtype not in (*COUNTS, "text"):
        dtype = "int16" if dtype == "bfloat16" else dtype
        array = np.frombuffer(bytes(data), dtype).reshape(tensor.shape)
        zero = tensor.quantization.zeroPoint if tensor.quantization is not None and array.dtype.kind != "f" else None
        yield name, array if zero is None else array - np.array(zero[0], array.dtype)
