"""Twenty ways to damage an artifact: in the constants of its file, its calibration, what goes in, or what comes out.

How strong a damage is, and where, is drawn from a seeded generator: some of each cost the task nothing, some ruin it.
"""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.core.model import Artifact

Array = Any  # numpy's
Random = np.random.Generator
Arrays = dict[str, Array]


# --------------------------------------------------------------------------- the constants of a file


@contextmanager
def constants(model: Artifact) -> Iterator[list[Array]]:
    """The float32 constants of a file, to be changed in place; the file is written again at the end."""
    with {"onnx": _onnx, "openvino": _openvino, "tflite": _tflite}[model.kind](model) as arrays:
        yield arrays


@contextmanager
def _onnx(model: Artifact) -> Iterator[list[Array]]:
    import onnx

    proto = onnx.load(model.file(".onnx"))
    held = [t for t in proto.graph.initializer if t.data_type == onnx.TensorProto.FLOAT]
    arrays = [onnx.numpy_helper.to_array(t).copy() for t in held]
    yield arrays
    for tensor, array in zip(held, arrays, strict=True):
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, model.file(".onnx"))


@contextmanager
def _openvino(model: Artifact) -> Iterator[list[Array]]:
    whole = bytearray(model.file(".bin").read_bytes())
    arrays = []
    for data in ET.parse(model.file(".xml")).iter("data"):
        if data.get("element_type") == "f32" and data.get("offset"):
            shape = [int(n) for n in (data.get("shape") or "").split(",") if n.strip()]
            count = int(data.get("size", 0)) // 4
            arrays.append(np.frombuffer(whole, np.float32, count, int(data.get("offset", 0))).reshape(shape))
    yield arrays
    model.file(".bin").write_bytes(whole)


@contextmanager
def _tflite(model: Artifact) -> Iterator[list[Array]]:
    from ai_edge_litert import schema_py_generated as schema

    whole = bytearray(model.file(".tflite").read_bytes())
    root = schema.Model.GetRootAs(whole)
    arrays, seen = [], set[int]()
    for graph in map(root.Subgraphs, range(root.SubgraphsLength())):
        for tensor in map(graph.Tensors, range(graph.TensorsLength())):
            held = root.Buffers(tensor.Buffer()).DataAsNumpy()
            if tensor.Type() == schema.TensorType.FLOAT32 and not isinstance(held, int) and tensor.Buffer() not in seen:
                seen.add(tensor.Buffer())
                arrays.append(held.view(np.float32).reshape(tensor.ShapeAsNumpy()))
    yield arrays
    model.file(".tflite").write_bytes(whole)


def copied(model: Artifact, folder: Path) -> Artifact:
    """The artifact in another folder."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(model.path, folder)
    return Artifact.read(folder)


def kernels(arrays: Sequence[Array]) -> list[Array]:
    """What multiplies: two axes or more that are no vector."""
    return [a for a in arrays if a.ndim > 1 and a.size >= 48 and sorted(a.shape)[-2] > 1]


def vectors(arrays: Sequence[Array]) -> list[Array]:
    """Biases and the like, of at least three numbers; no sizes, which are whole ones."""
    rows = [a for a in arrays if a.size >= 3 and max(a.shape, default=0) == a.size]
    return [a for a in rows if (a != np.round(a)).any()]


def some(random: Random, arrays: Sequence[Array]) -> Array:
    return arrays[random.integers(len(arrays))]


def channels(kernel: Array) -> Array:
    """A view with the output channels first: they are the last axis of a TFLite's depthwise kernel [1, h, w, c]."""
    return np.moveaxis(kernel, -1, 0) if kernel.ndim == 4 and kernel.shape[0] == 1 else kernel


def strength(random: Random, low: float, high: float) -> float:
    """Of one order of magnitude as likely as of another."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


# --------------------------------------------------------------------------- in the file


def noise(random: Random, arrays: Sequence[Array]) -> None:
    s = strength(random, 0.02, 0.6)
    for kernel in kernels(arrays):
        kernel += s * kernel.std() * random.normal(size=kernel.shape).astype(np.float32)


def noise_in_one(random: Random, arrays: Sequence[Array]) -> None:
    kernel = some(random, kernels(arrays))
    kernel += strength(random, 0.1, 1.5) * kernel.std() * random.normal(size=kernel.shape).astype(np.float32)


def channel_zeroed(random: Random, arrays: Sequence[Array]) -> None:
    kernel = channels(some(random, kernels(arrays)))
    kernel[random.integers(len(kernel))] = 0


def channels_swapped(random: Random, arrays: Sequence[Array]) -> None:
    kernel = channels(some(random, kernels(arrays)))
    a, b = random.choice(len(kernel), 2, replace=len(kernel) < 2)
    kernel[[a, b]] = kernel[[b, a]]


def bias_shifted(random: Random, arrays: Sequence[Array]) -> None:
    bias = some(random, vectors(arrays) or [k.reshape(-1) for k in kernels(arrays)]).reshape(-1)
    bias[random.integers(len(bias))] += strength(random, 0.1, 3) * random.choice([-1, 1])


def tensor_scaled(random: Random, arrays: Sequence[Array]) -> None:
    kernel = some(random, kernels(arrays))
    kernel *= strength(random, 1.05, 2.5) ** random.choice([-1, 1])


def rounded(kernel: Array, bits: int) -> None:
    step = np.abs(kernel).max() / (2 ** (bits - 1) - 1) or 1
    kernel[...] = np.round(kernel / step) * step


def few_bits_in_one(random: Random, arrays: Sequence[Array]) -> None:
    rounded(some(random, kernels(arrays)), int(random.integers(2, 5)))


def few_bits(random: Random, arrays: Sequence[Array]) -> None:
    bits = int(random.integers(3, 6))
    for kernel in kernels(arrays):
        rounded(kernel, bits)


def kernel_flipped(random: Random, arrays: Sequence[Array]) -> None:
    """Transposed where it is square, else the other way round."""
    kernel = some(random, kernels(arrays))
    square = [(a, b) for a in range(kernel.ndim) for b in range(a) if kernel.shape[a] == kernel.shape[b] > 1]
    kernel[...] = (kernel.swapaxes(*square[0]) if square else kernel[::-1]).copy()


def stale_norm(random: Random, arrays: Sequence[Array]) -> None:
    """Batch norm's statistics of other data: each channel of a layer gets a wrong gain."""
    kernel, s = channels(some(random, kernels(arrays))), strength(random, 0.03, 0.6)
    kernel *= np.exp(s * random.normal(size=(len(kernel), *[1] * (kernel.ndim - 1)))).astype(np.float32)


IN_FILE: dict[str, Callable[[Random, Sequence[Array]], None]] = {
    f.__name__: f
    for f in (
        noise, noise_in_one, channel_zeroed, channels_swapped, bias_shifted, tensor_scaled, few_bits_in_one, few_bits,
        kernel_flipped, stale_norm,
    )
}  # fmt: skip

# --------------------------------------------------------------------------- in what goes in


def wrong_mean(random: Random, x: Array) -> Array:
    if x.dtype.kind == "i":
        return (x + 1) % (x.max() + 1)
    return x + np.float32(strength(random, 0.05, 1) * x.std())


def wrong_scale(random: Random, x: Array) -> Array:
    if x.dtype.kind == "i":
        return np.minimum(x, int(x.max() * random.uniform(0.5, 1)))
    return x * np.float32(strength(random, 1.05, 2.5) ** random.choice([-1, 1]))


def wrong_layout(random: Random, x: Array) -> Array:
    """The colours the other way round, or the plane transposed; of rows: two neighbours swapped."""
    if x.ndim == 4:
        return np.ascontiguousarray(x[:, ::-1] if random.random() < 0.5 else x.swapaxes(2, 3))
    order, at = np.arange(x.shape[-1]), int(random.integers(x.shape[-1] - 1))
    order[[at, at + 1]] = order[[at + 1, at]]
    return np.ascontiguousarray(x[..., order])


IN_INPUT: dict[str, Callable[[Random, Array], Array]] = {f.__name__: f for f in (wrong_mean, wrong_scale, wrong_layout)}

# --------------------------------------------------------------------------- in what comes out


def clipped(random: Random, outputs: Arrays) -> Arrays:
    """As a range that calibration made too small."""
    share = random.uniform(0.5, 0.995)
    return {k: np.clip(y, *np.quantile(y, [1 - share, share])).astype(y.dtype) for k, y in outputs.items()}


def nan_in_rare_items(random: Random, outputs: Arrays) -> Arrays:
    changed = {k: y.copy() for k, y in outputs.items()}
    for y in changed.values():
        y[random.random(len(y)) < 0.02] = np.nan
    return changed


def constant(random: Random, outputs: Arrays) -> Arrays:
    return {k: np.broadcast_to(y.mean(0, keepdims=True), y.shape).astype(y.dtype) for k, y in outputs.items()}


def off_by_one(random: Random, outputs: Arrays) -> Arrays:
    """The last axis moved by one."""
    return {k: np.roll(y, 1, -1) for k, y in outputs.items()}


def stale_items(random: Random, outputs: Arrays) -> Arrays:
    """Now and then what was answered to the item before."""
    n = len(next(iter(outputs.values())))
    late = np.flatnonzero(random.random(n) < strength(random, 0.005, 0.2))
    return {k: _late(y, late) for k, y in outputs.items()}


def _late(y: Array, late: Array) -> Array:
    changed = y.copy()
    changed[late] = y[late - 1]
    return changed


def temperature(random: Random, outputs: Arrays) -> Arrays:
    factor = np.float32(strength(random, 1.05, 2.5) ** random.choice([-1, 1]))
    return {k: y * factor for k, y in outputs.items()}


IN_OUTPUT: dict[str, Callable[[Random, Arrays], Arrays]] = {
    f.__name__: f for f in (clipped, nan_in_rare_items, constant, off_by_one, stale_items, temperature)
}
WRONG_CALIBRATION = "wrong_calibration"  # int8 of data that is not the task's
PLANTS = (*IN_FILE, WRONG_CALIBRATION, *IN_INPUT, *IN_OUTPUT)


def wrong_data(random: Random, inputs: Mapping[str, Array]) -> Arrays:
    """For calibration: a quarter of the contrast, or four times as much."""
    factor = np.float32(strength(random, 0.15, 6))
    return {k: x if x.dtype.kind == "i" else x * factor for k, x in inputs.items()}
