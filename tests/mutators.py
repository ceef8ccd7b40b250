"""Planted faults: the constants of an artifact's file, found by the format's own API, and the ways to damage one."""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from edgecompress.core.model import Artifact

Array = np.ndarray[Any, np.dtype[Any]]
FAULTS = {"scale": "scale", "zero point": "zero point", "channels": "weight", "transpose": "weight", "bias": "bias"}


@dataclass(frozen=True)
class Constant:
    """One array inside a file, what it is for ("scale", "zero point", "weight", "bias"), and how to replace it."""

    name: str
    role: str
    array: Array
    write: Callable[[Array], None]


def plant(artifact: Artifact, fault: str, seed: int) -> tuple[Artifact, str]:
    """Damages one constant and seals the artifact again, as a converter at fault would; says what it did."""
    random = np.random.default_rng([list(FAULTS).index(fault), seed])
    fit = [c for c in CONSTANTS[artifact.kind](artifact.path) if c.role == FAULTS[fault]]
    chosen = fit[random.integers(len(fit))]
    chosen.write(DAMAGE[fault](chosen.array, random).astype(chosen.array.dtype))
    if artifact.kind == "qnn":  # what runs is what the compiler made of that file
        from edgecompress.engines.qnn.runtimes import qnn

        for file in artifact.path.glob("model_ctx*"):
            file.unlink()
        qnn._compile(artifact.path, artifact.facts["soc"], fallback=False)
    return Artifact.read(artifact.path).write(), f"{fault} of {chosen.name}"


# --------------------------------------------------------------------------- damages


def _scaled(array: Array, random: np.random.Generator) -> Array:
    found = array.copy()
    found.flat[random.integers(array.size)] *= random.uniform(2, 6)
    return found


def _shifted(array: Array, random: np.random.Generator) -> Array:
    """An integer goes up or down by 8 to 40, within eight bits; a real one by some tenths of the largest."""
    found, place = array.copy(), random.integers(array.size)
    if array.dtype.kind == "f":
        found.flat[place] += random.choice([-1, 1]) * random.uniform(0.2, 0.6) * (np.abs(array).max() or 1.0)
        return found
    limits, step = np.iinfo(array.dtype if array.itemsize == 1 else np.int8), int(random.integers(8, 40))
    value = int(array.flat[place])
    found.flat[place] = value + step if value + step <= limits.max else value - step
    return found


def _swapped(array: Array, random: np.random.Generator) -> Array:
    """Output channels: the first axis, or the last of a depthwise kernel."""
    channels = np.moveaxis(array, 0 if len(array) > 1 else -1, 0)
    order = np.arange(len(channels))
    pair = random.choice(len(channels), 2, replace=False)
    order[pair] = order[pair[::-1]]
    return np.moveaxis(channels[order], 0, 0 if len(array) > 1 else -1)


def _transposed(array: Array, random: np.random.Generator) -> Array:
    """A kernel's height and width; a matrix as if it were stored the other way round."""
    square = [
        pair for pair in combinations(range(1, array.ndim), 2) if array.shape[pair[0]] == array.shape[pair[1]] > 1
    ]
    return array.swapaxes(*square[-1]) if square else array.swapaxes(0, -1).reshape(array.shape)


def _biased(array: Array, random: np.random.Generator) -> Array:
    found = array.copy().astype(np.float64)
    found.flat[random.integers(array.size)] += random.choice([-1, 1]) * random.uniform(3, 9) * found.std()
    return found


DAMAGE: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "scale": _scaled,
    "zero point": _shifted,
    "channels": _swapped,
    "transpose": _transposed,
    "bias": _biased,
}


# --------------------------------------------------------------------------- formats


def _patch(file: Path, offset: int) -> Callable[[Array], None]:
    """Replaces the bytes at a place."""

    def write(array: Array) -> None:
        with file.open("r+b") as stream:
            stream.seek(offset)
            stream.write(np.ascontiguousarray(array).tobytes())

    return write


def onnx(folder: Path) -> Iterator[Constant]:
    """Initializers, named by ONNX Runtime's quantizer."""
    import onnx
    from onnx import numpy_helper

    file = folder / "model.onnx"
    for index, tensor in enumerate(onnx.load(file).graph.initializer):
        array = numpy_helper.to_array(tensor)

        def write(array: Array, index: int = index, name: str = tensor.name) -> None:
            model = onnx.load(file)
            model.graph.initializer[index].CopyFrom(numpy_helper.from_array(array, name))
            onnx.save(model, file)

        ends = {"_scale": "scale", "_zero_point": "zero point", "bias_quantized": "bias", "_quantized": "weight"}
        role = next((role for end, role in ends.items() if tensor.name.endswith(end)), "")
        if role != "zero point" or array.dtype != np.int32:  # that of a bias is not looked at
            yield Constant(tensor.name, role, array, write)


def openvino(folder: Path) -> Iterator[Constant]:
    """Constants of model.bin, located and understood through model.xml: what each one feeds says what it is."""
    data, (layers, edges) = (folder / "model.bin").read_bytes(), _graph_of(folder / "model.xml")
    roles = {"Convert 0": "weight", "Multiply 1": "scale", "Add 1": "bias"}
    roles |= {"FakeQuantize 3": "zero point", "FakeQuantize 4": "scale"}  # its lowest and highest output
    for edge in edges:
        layer, end = layers[edge.attrib["from-layer"]], layers[edge.attrib["to-layer"]]
        said, use = layer.find("data"), f"{end.get('type')} {edge.get('to-port')}"
        if layer.get("type") != "Const" or said is None or use not in roles:
            continue
        shape = [int(size) for size in said.attrib["shape"].split(",") if size.strip()]
        dtype = {"f32": np.float32, "f16": np.float16, "i8": np.int8}[said.attrib["element_type"]]
        offset = int(said.attrib["offset"])
        array = np.frombuffer(data, dtype, int(np.prod(shape)), offset).reshape(shape)
        shared = use.startswith("FakeQuantize")  # by its input range: a fault is in one of the two
        write = partial(_rewire, folder, dict(edge.attrib)) if shared else _patch(folder / "model.bin", offset)
        yield Constant(f"{layer.get('name')} of {end.get('name')}", roles[use], array, write)


def _graph_of(xml: Path) -> tuple[dict[str, ElementTree.Element], list[ElementTree.Element]]:
    root = ElementTree.parse(xml).getroot()
    return {layer.attrib["id"]: layer for layer in root.iter("layer")}, list(root.iter("edge"))


def _rewire(folder: Path, edge: dict[str, str], array: Array) -> None:
    """Gives one end of an edge a constant of its own."""
    tree = ElementTree.parse(folder / "model.xml")
    layers, edges = tree.getroot().find("layers"), tree.getroot().find("edges")
    assert layers is not None and edges is not None
    own = copy.deepcopy(next(layer for layer in layers if layer.get("id") == edge["from-layer"]))
    own.attrib |= {"id": "1000000", "name": "planted"}
    data, file = own.find("data"), folder / "model.bin"
    assert data is not None
    data.attrib["offset"] = str(file.stat().st_size)
    layers.insert(0, own)
    next(e for e in edges if e.attrib == edge).attrib["from-layer"] = "1000000"
    with file.open("ab") as stream:
        stream.write(array.tobytes())
    tree.write(folder / "model.xml")


def pte(folder: Path) -> Iterator[Constant]:
    """The named data of XNNPACK (weights, biases, scales per channel), and the quantization of its activations."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    file = folder / "model.pte"
    data = file.read_bytes()
    parsed = deserialize_pte_binary(data)
    named = parsed.named_data
    for key, entry in named.pte_data.items():
        content = named.buffers[entry.buffer_index]
        if data.count(content) != 1:
            continue
        write = _patch(file, data.index(content))
        if key.startswith("scale_"):
            yield Constant(key[:16], "scale", np.frombuffer(content, np.float32), write)
        elif len(content) <= 256:
            yield Constant(key[:16], "bias", np.frombuffer(content, np.int32), write)
        else:
            flat = np.frombuffer(content, np.int8)
            shape = {576: (64, 3, 3, 1), 36864: (64, 3, 3, 64), 640: (10, 64)}[len(flat)]  # of the demo's net
            yield Constant(key[:16], "weight", flat.reshape(shape), write)
    for delegate in parsed.program.backend_delegate_data:
        yield from _xnnpack(file, data, bytes(delegate.data))


def _xnnpack(file: Path, data: bytes, payload: bytes) -> Iterator[Constant]:
    """Scale and zero point of activations, side by side in the delegate's own flatbuffer; its JSON has six decimals."""
    begin = data.index(payload)
    quants = [value["xvalue_union"].get("quant_params") or {} for value in _graph(payload)["xvalues"]]
    words = np.frombuffer(payload[: len(payload) // 4 * 4], np.int32)
    for zero_point, scale in sorted({(q["zero_point"], q["scale"]) for q in quants if q.get("zero_point")}):
        for place in np.flatnonzero(words[1:] == zero_point):
            found, offset = words[place : place + 1].view(np.float32), begin + 4 * int(place)
            if abs(found[0] - scale) < 1e-6:
                name, after = f"activation at {offset}", words[place + 1 : place + 2]
                yield Constant(name, "scale", found, _patch(file, offset))
                yield Constant(name, "zero point", after, _patch(file, offset + 4))


def _graph(payload: bytes) -> Any:
    """XNNPACK's graph as JSON, by ExecuTorch's schema."""
    import tempfile

    from executorch.backends.xnnpack.serialization import xnnpack_graph_serialize as serialize
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    header = serialize.XNNHeader.from_bytes(payload[: serialize.XNNHeader.EXPECTED_LENGTH])
    with tempfile.TemporaryDirectory() as folder:
        schema, graph = Path(folder) / "schema.fbs", Path(folder) / "schema.bin"
        schema.write_bytes(serialize._get_schema_bytes())
        graph.write_bytes(payload[header.flatbuffer_offset :][: header.flatbuffer_size])
        _flatc_decompile(folder, str(schema), str(graph))
        return json.loads(re.sub(r": (-?)inf\b", r": \1Infinity", (Path(folder) / "schema.json").read_text()))


def mlpackage(folder: Path) -> Iterator[Constant]:
    """Blobs of weight.bin, located through the program: constexpr_affine_dequantize, and the biases of convolutions."""
    from edgecompress.engines.coreml import package

    MIL_pb2, Model_pb2 = package.messages("MIL_pb2"), package.messages("Model_pb2")
    place = folder / "model.mlpackage" / "Data" / "com.apple.CoreML"
    spec = Model_pb2.Model()
    spec.ParseFromString((place / "model.mlmodel").read_bytes())
    block = next(iter(spec.mlProgram.functions["main"].block_specializations.values()))
    blobs = (place / "weights" / "weight.bin").read_bytes()
    dtypes = {MIL_pb2.INT8: np.int8, MIL_pb2.UINT8: np.uint8, MIL_pb2.FLOAT16: np.float16, MIL_pb2.FLOAT32: np.float32}
    biases = {op.inputs["bias"].arguments[0].name for op in block.operations if "bias" in op.inputs}
    roles = {"quantized_data": "weight", "scale": "scale", "zero_point": "zero point", "val": "bias"}
    for op in block.operations:
        name = op.outputs[0].name
        for key, value in op.attributes.items():
            known = op.type == "constexpr_affine_dequantize" or name in biases
            if key not in roles or not known or value.WhichOneof("value") != "blobFileValue":
                continue
            tensor = value.type.tensorType
            shape = [d.constant.size for d in tensor.dimensions]
            offset = struct.unpack_from("<Q", blobs, value.blobFileValue.offset + 16)[0]
            array = np.frombuffer(blobs, dtypes[tensor.dataType], int(np.prod(shape)), offset).reshape(shape)
            yield Constant(f"{name}.{key}", roles[key], array, _patch(place / "weights" / "weight.bin", offset))


def tflite(folder: Path) -> Iterator[Constant]:
    """Weights and biases of each operator, scales and zero points of each tensor, as they lie in the flatbuffer."""
    from ai_edge_litert import schema_py_generated as schema

    file = folder / "model.tflite"
    data = bytearray(file.read_bytes())
    model = schema.Model.GetRootAs(data, 0)
    graph = model.Subgraphs(0)
    begin = _address(np.frombuffer(data, np.uint8))
    for index in range(graph.TensorsLength()):
        tensor = graph.Tensors(index)
        name, buffer, quant = tensor.Name().decode(), model.Buffers(tensor.Buffer()), tensor.Quantization()
        found = [("scale", quant.ScaleAsNumpy()), ("zero point", quant.ZeroPointAsNumpy())] if quant else []
        if buffer.DataLength() and tensor.Type() in (schema.TensorType.INT8, schema.TensorType.INT32) and quant:
            array = buffer.DataAsNumpy().view(np.int8 if tensor.Type() == schema.TensorType.INT8 else np.int32)
            shape = tuple(tensor.ShapeAsNumpy())
            found = [("bias" if len(shape) == 1 else "weight", array.reshape(shape)), *found[:1]]
        for role, array in found:
            if isinstance(array, np.ndarray) and array.size:
                yield Constant(name[-40:], role, array.copy(), _patch(file, _address(array) - begin))


def _address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


CONSTANTS: dict[str, Callable[[Path], Iterator[Constant]]] = {
    "onnx": onnx,
    "qnn": onnx,
    "openvino": openvino,
    "pte": pte,
    "tflite": tflite,
    "mlpackage": mlpackage,
}
