"""The weights of an ONNX file: as torch lays them out, as the file has them, and others in their place for a while."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Change
from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.session import CPU, OnnxSession

if TYPE_CHECKING:
    import numpy as np
    import onnx

Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Readers: TypeAlias = "dict[str, list[tuple[onnx.NodeProto, int]]]"
MATRIX = 2
FEWER_BITS = ("int4", "uint4", "float4_e2m1fn", "int2", "uint2")
QUANTIZED = ("DequantizeLinear", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul")


def of(model: Artifact) -> Iterator[tuple[str, np.ndarray]]:
    """The initializers that are multiplied; a product's [inputs, outputs] is turned over."""
    import onnx

    graph = external.load(model.file(".onnx")).graph
    read = _readers(graph)
    for weight in _factors(graph):
        array = onnx.numpy_helper.to_array(weight)
        yield weight.name, array.T if _turned(read, weight.name) else array


def _factors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """The initializers of two or more axes that are no whole numbers of 32 or 64 bits."""
    import onnx

    kind = onnx.TensorProto
    return [
        w for w in graph.initializer if len(w.dims) >= MATRIX and w.data_type not in (kind.INT64, kind.INT32, kind.BOOL)
    ]


def _readers(graph: onnx.GraphProto) -> Readers:
    """Who reads each tensor of a graph, and as which input."""
    readers: Readers = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    return readers


def _turned(read: Readers, name: str) -> bool:
    """Whether a matrix is read as [inputs, outputs], itself or by way of its real numbers."""
    for node, place in read.get(name, []):
        if node.op_type == "DequantizeLinear":
            return _turned(read, node.output[0])
        transposed = next((a.i for a in node.attribute if a.name == "transB"), 0)
        if place == 1 and (node.op_type == "MatMul" or (node.op_type == "Gemm" and not transposed)):
            return True
    return False


def stored(model: Artifact) -> Iterator[tuple[str, np.ndarray | None]]:
    """The same constants as they are stored, less their zero points; None for one of fewer than 8 bits."""
    import onnx

    graph = external.load(model.file(".onnx")).graph
    read, constants = _readers(graph), {c.name: c for c in graph.initializer}
    for weight in _factors(graph):
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
            default = {"DequantizeLinear": 1, "ConvInteger": 0, "QLinearConv": 0}.get(node.op_type, -1)
            axis = next((int(a.i) for a in node.attribute if a.name == "axis"), default)
            shape[axis] = zero.size
            centred: np.ndarray = array - zero.reshape(shape)
            return centred
    return array


class ChangeableOnnx:
    """A protocols.ChangeableNet: each change is a file, opened anew."""

    def __init__(self, model: Artifact, threads: int) -> None:
        import onnx

        self.model, self.threads = model, threads
        self.proto = external.load(model.file(".onnx"))
        readers = _readers(self.proto.graph)
        matrices = {w.name: w for w in _factors(self.proto.graph) if w.data_type == onnx.TensorProto.FLOAT}
        self.turned = {name: _turned(readers, name) for name in matrices}
        self.weights = {name.removesuffix(".weight"): weight for name, weight in matrices.items()}
        self.session = self._session(model)

    @property
    def layers(self) -> Sequence[str]:
        return list(self.weights)

    def run(self, inputs: Arrays) -> Arrays:
        return self.session.run(inputs)

    def _session(self, model: Artifact) -> OnnxSession:
        return OnnxSession(model, self.threads, False, (CPU,))

    @contextmanager
    def changed(self, layer: str, change: Change) -> Iterator[None]:
        import onnx

        weight, dense = self.weights[layer], self.session
        kept = onnx.TensorProto()
        kept.CopyFrom(weight)
        array = onnx.numpy_helper.to_array(kept)
        changed = change(array.T).T if self.turned[weight.name] else change(array)
        weight.CopyFrom(onnx.numpy_helper.from_array(changed.astype(array.dtype), weight.name))
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(self.proto, Path(folder) / "model.onnx")
            self.session = self._session(Artifact(Path(folder), "onnx", self.model.inputs, self.model.outputs))
            try:
                yield
            finally:
                self.session.close()
                self.session = dense
                weight.CopyFrom(kept)
