"""TFLite files written from tables: nets of strangers without the converter that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.core.model import Artifact, Request

TYPES = {"float32": 0, "float16": 1, "int32": 2, "uint8": 3, "int64": 4, "bool": 6, "int16": 7, "int8": 9}
Scale = tuple[Any, Any]  # scale and zero point, of a tensor or of each of its first axis


@dataclass
class Net:
    """One graph of a file: tensors by name, operators in their order."""

    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    tensors: dict[str, tuple[str, Sequence[int]]] = field(default_factory=dict)  # name -> dtype, shape
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    scales: Mapping[str, Scale] = field(default_factory=dict)
    variables: Sequence[str] = ()  # state between runs
    operators: list[tuple[str, Sequence[str], Sequence[str], str, dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, reads: str, writes: str, options: str = "", **fields: Any) -> None:
        """An operator; names apart by spaces, "-" where one is left out; `options`: the table of its `fields`."""
        self.operators.append((kind, reads.split(), writes.split(), options, fields))


def packed(
    *nets: Net, signatures: Mapping[str, int] | None = None, named: Mapping[str, str | None] | None = None
) -> bytes:
    """The file. `signatures`: key -> graph; `named`: tensors that are called otherwise in the file."""
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    model = schema.ModelT(version=3, buffers=[schema.BufferT()], operatorCodes=[], subgraphs=[])
    kinds: list[tuple[str, int]] = []
    numbers: list[dict[str, int]] = []
    for net in nets:
        graph = schema.SubGraphT(tensors=[], operators=[])
        every = {**net.tensors, **{name: (str(a.dtype), a.shape) for name, a in net.constants.items()}}
        number = {name: i for i, name in enumerate(every)} | {"-": -1}
        for name, (dtype, shape) in every.items():
            tensor = schema.TensorT(list(shape), TYPES[dtype], 0, (named or {}).get(name, name))
            tensor.isVariable = name in net.variables
            if name in net.constants:
                model.buffers.append(schema.BufferT(np.frombuffer(net.constants[name].tobytes(), np.uint8)))
                tensor.buffer = len(model.buffers) - 1
            if name in net.scales:
                scale, zero = (np.atleast_1d(each) for each in net.scales[name])
                tensor.quantization = schema.QuantizationParametersT(scale=scale.tolist(), zeroPoint=zero.tolist())
            graph.tensors.append(tensor)
        for kind, reads, writes, options, fields in net.operators:
            version = fields.get("version", 1)
            fields = {name: value for name, value in fields.items() if name != "version"}
            if (kind, version) not in kinds:
                kinds.append((kind, version))
                code = getattr(schema.BuiltinOperator, kind)
                model.operatorCodes.append(schema.OperatorCodeT(min(code, 127), None, version, code))
            op = schema.OperatorT(
                kinds.index((kind, version)), *([number[n] for n in side] for side in (reads, writes))
            )
            if hasattr(schema.BuiltinOptions, options):
                op.builtinOptionsType = getattr(schema.BuiltinOptions, options)
                op.builtinOptions = getattr(schema, f"{options}T")(**fields)
            elif options:
                op.builtinOptions2Type = getattr(schema.BuiltinOptions2, options)
                op.builtinOptions2 = getattr(schema, f"{options}T")(**fields)
            graph.operators.append(op)
        graph.inputs, graph.outputs = ([number[n] for n in side] for side in (net.inputs, net.outputs))
        model.subgraphs.append(graph)
        numbers.append(number)
    model.signatureDefs = [
        schema.SignatureDefT(
            *([schema.TensorMapT(n, numbers[i][n]) for n in side] for side in (nets[i].inputs, nets[i].outputs)), key, i
        )
        for key, i in (signatures or {}).items()
    ] or None
    return bytes(flatbuffer_utils.convert_object_to_bytearray(model))


def source(data: bytes, folder: Path) -> Artifact:
    """The file as a user's source."""
    from edgecompress.engines.litert.runtimes import litert

    folder.mkdir(parents=True)
    file = folder / "net.tflite"
    file.write_bytes(data)
    (folder / "source").mkdir()
    return litert.read(Request({}, folder / "source", {"path": str(file)}))


def seeded(*shape: int) -> np.ndarray:
    """Weights, the same for a shape."""
    return np.random.default_rng(sum(shape)).normal(0, 0.3, shape).astype(np.float32)


def small(**ends: str) -> Net:
    """image [1, 8, 8, 3] -> scores [1, 5]: a convolution, a pool, a product; `ends`: other names of the two."""
    image, scores = ends.get("image", "image"), ends.get("scores", "scores")
    net = Net([image], [scores])
    net.tensors = {
        image: ("float32", (1, 8, 8, 3)),
        "conv": ("float32", (1, 8, 8, 8)),
        "mean": ("float32", (1, 8)),
        scores: ("float32", (1, 5)),
    }
    net.constants = {
        "kernel": seeded(8, 3, 3, 3),
        "bias": seeded(8),
        "plane": np.array([1, 2], np.int32),
        "head": seeded(5, 8),
    }
    conv = {"strideW": 1, "strideH": 1, "fusedActivationFunction": 1}
    net.add("CONV_2D", f"{image} kernel bias", "conv", "Conv2DOptions", **conv)
    net.add("MEAN", "conv plane", "mean", "ReducerOptions")
    net.add("FULLY_CONNECTED", "mean head -", scores, "FullyConnectedOptions")
    return net


def narrowed(array: np.ndarray) -> tuple[np.ndarray, Scale]:
    """Weights as int8, a scale for each of the first axis."""
    scale = np.abs(array).reshape(len(array), -1).max(1) / 127
    whole = np.round(array / scale.reshape(-1, *(1,) * (array.ndim - 1))).astype(np.int8)
    return whole, (scale, np.zeros(len(array), int))


def loaded_as_real(dtype: str) -> Net:
    """The small net, its kernel held as float16 or int8 and made real when the file is loaded."""
    net = small()
    kernel = net.constants.pop("kernel")
    whole, scale = narrowed(kernel)
    net.constants["held"] = kernel.astype(np.float16) if dtype == "float16" else whole
    net.scales = {} if dtype == "float16" else {"held": scale}
    net.tensors["kernel"] = ("float32", kernel.shape)
    net.operators.insert(0, ("DEQUANTIZE", ["held"], ["kernel"], "", {"version": 3 if dtype == "float16" else 5}))
    return net


def hybrid() -> Net:
    """The small net with int8 weights between real numbers."""
    net = small()
    net.constants["kernel"], scale = narrowed(net.constants["kernel"])
    step = float(np.abs(net.constants["head"]).max() / 127)
    net.constants["head"] = np.round(net.constants["head"] / step).astype(np.int8)
    net.scales = {"kernel": scale, "head": (step, 0)}
    conv, mean, head = net.operators
    net.operators = [(*conv[:4], {**conv[4], "version": 5}), mean, (*head[:4], {"version": 3})]
    return net


def whole(dtype: str) -> Net:
    """The small net between numbers of int8, uint8 or int16."""
    net = small()
    net.tensors = {name: (dtype, shape) for name, (_, shape) in net.tensors.items()}
    step = 0.05 / 256 if dtype == "int16" else 0.05
    net.scales = {name: (step, {"int8": -3, "uint8": 125, "int16": 0}[dtype]) for name in net.tensors}
    kernel, head = net.constants["kernel"], net.constants["head"]
    scale: Scale = (0.01, 128)
    if dtype == "uint8":  # as TensorFlow 1 wrote it: one scale for all
        kernel, head = (np.clip(np.round(a / 0.01) + 128, 0, 255).astype(np.uint8) for a in (kernel, head))
        net.scales |= {"kernel": scale, "head": scale}
    else:
        kernel, scale = narrowed(kernel)
        head = np.round(head / 0.01).astype(np.int8)
        net.scales |= {"kernel": scale, "head": (0.01, 0)}
    steps = step * np.atleast_1d(scale[0])
    bias = np.round(net.constants["bias"] / steps).astype(np.int64 if dtype == "int16" else np.int32)
    net.constants |= {"kernel": kernel, "head": head, "bias": bias}
    net.scales |= {"bias": (steps, np.zeros(len(steps), int))}
    versions = {"int8": (3, 2, 4), "uint8": (1, 2, 1), "int16": (4, 3, 7)}[dtype]
    net.operators = [(*op[:4], {**op[4], "version": v}) for op, v in zip(net.operators, versions, strict=True)]
    return net


def recurrent() -> Net:
    """steps [1, 6, 4] -> states [1, 6, 3]: an LSTM that keeps its state between runs."""
    net = Net(["steps"], ["states"], variables=["hidden", "cell"])
    net.tensors = {"steps": ("float32", (1, 6, 4)), "states": ("float32", (1, 6, 3))}
    net.tensors |= dict.fromkeys(net.variables, ("float32", (1, 3)))
    shapes = {"w": (3, 4), "r": (3, 3), "b": (3,)}
    net.constants = {f"{kind}{i}": seeded(*shape) * (i + 1) for kind, shape in shapes.items() for i in range(4)}
    weights = " ".join(f"{kind}{i}" for kind in "wr" for i in range(4))
    reads = f"steps {weights} - - - b0 b1 b2 b3 - - hidden cell - - - -"
    net.add(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        reads,
        "states",
        "UnidirectionalSequenceLSTMOptions",
        fusedActivationFunction=4,
    )
    return net


def windowed() -> tuple[Net, Net]:
    """The small net behind sums over windows, whose addition is a graph of its own with names of the first one."""
    net = small()
    net.tensors["sums"] = ("float32", (1, 8, 8, 3))
    net.constants["start"] = np.zeros((), np.float32)
    conv, *rest = net.operators
    net.operators = []
    ones = [1, 1, 1, 1]
    how = {"windowDimensions": [1, 3, 3, 1], "windowStrides": ones, "baseDilations": ones, "windowDilations": ones}
    how |= {"padding": [0, 0, 1, 1, 1, 1, 0, 0], "bodySubgraphIndex": 1}
    net.add("STABLEHLO_REDUCE_WINDOW", "image start", "sums", "StablehloReduceWindowOptions", **how)
    net.operators += [(conv[0], ["sums", *conv[1][1:]], *conv[2:]), *rest]
    add = Net(["conv", "mean"], ["scores"])
    add.tensors = dict.fromkeys(("conv", "mean", "scores"), ("float32", ()))
    add.add("ADD", "conv mean", "scores", "AddOptions")
    return net, add
