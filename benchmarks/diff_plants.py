"""The plants of diff_faults.py: what is done to a module before a converter reads it, or to the converter's file.

`planted(name, folder)` writes the pair of one; its `operators` are all that the guilty operator may be called.
"""

from __future__ import annotations

import ast
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import diff_nets
import numpy as np
import torch
from torch import nn

Net = Any
Names = set[str]


@dataclass
class Pair:
    """Two models; `operators`: what the guilty one may be called, none where none may be accused."""

    name: str
    net: str
    a: str
    b: str
    operators: Names = field(default_factory=set)
    kinds: Sequence[str] = ()
    twin: str = ""  # b without the fault
    least: float = 90.0  # decibels of a clean b


# --------------------------------------------------------------------------- names of operators


def called(model: str, net: str, modules: Sequence[str]) -> Names:
    """What a file calls the operators of modules: "layer2.0.conv1", or "layer2.0:relu:1" for its own second relu."""
    path, found = Path(model), Names()
    for module in modules:
        module, kind, index = [*module.split(":"), "", "0"][:3] if ":" in module else (module, "", "")
        rows = [row for row in _operators(path, net, module) if re.search(kind, row[0], re.I)]
        found |= {name for row in (rows[int(index or 0) :][:1] if kind else rows) for name in row[1:]}
        found |= Names() if kind else {module}
    return found


def _operators(path: Path, net: str, module: str) -> Iterator[tuple[str, ...]]:
    """(type, names ...) of each operator of a module in a file."""
    if str(path).startswith("diff_nets:") or path.suffix == ".pt2":
        with torch.no_grad(), diff_nets.quiet():
            example = (torch.from_numpy(diff_nets.items(net, 1)),)
            sound = diff_nets.NETS[net]
            program = torch.export.load(path) if path.suffix == ".pt2" else torch.export.export(sound(), example)
        for node in program.graph.nodes:
            stack = [*(node.meta.get("nn_module_stack") or {}).values()]
            if node.op == "call_function" and stack and stack[-1][0] == module:
                yield str(node.target), node.name
    elif path.suffix == ".onnx":
        import onnx

        for node in onnx.load(path, load_external_data=False).graph.node:
            if module in (scope(node), *re.split(r"/|_\d+/|;", node.name)):
                yield node.op_type, node.name, *node.output
    elif path.suffix == ".tflite":
        parts = "/[^;]*_".join(map(re.escape, module.split(".")))
        wanted = re.compile(rf"_{parts}(;|$)|(^|/|;){re.escape(module)}(_\d+)?/")
        model = _lite(path)
        graph = model.subgraphs[0]
        for op in graph.operators:
            made = [graph.tensors[i].name.decode() for i in op.outputs]
            if any(map(wanted.search, made)):
                yield str(model.operatorCodes[op.opcodeIndex].builtinCode), *made
    elif path.suffix == ".xml":
        for layer in ET.parse(path).iter("layer"):
            if f"module.{module}/" in layer.get("name", ""):
                yield layer.get("type", ""), layer.get("name", "")


def scope(node: Any) -> str:
    """The torch module of an ONNX node, by either exporter: "layer2.0.conv1"."""
    held = {prop.key: prop.value for prop in node.metadata_props}.get("pkg.torch.onnx.name_scopes")
    if held:
        return str(ast.literal_eval(held)[-2])
    whole: list[str] = []
    for part in node.name.strip("/").split("/")[:-1]:
        whole[-1:] = [part] if whole and part.startswith(f"{whole[-1]}.") else [*whole[-1:], part]
    return ".".join(whole)


# --------------------------------------------------------------------------- faults of a module


def _transposed(layer: str) -> Callable[[Net], None]:
    def change(net: Net) -> None:
        weight = net.get_submodule(layer).weight
        weight.copy_(weight.T.clone())

    return change


def _assigned(parts: str, **values: Any) -> Callable[[Net], None]:
    """Attributes of modules."""

    def change(net: Net) -> None:
        for part in parts.split() or [""]:
            for name, value in values.items():
                setattr(net.get_submodule(part), name, value)

    return change


def _copied(source: str, to: str) -> Callable[[Net], None]:
    return lambda net: net.get_parameter(to).copy_(net.get_parameter(source))


def _symmetric(net: Net) -> None:
    net.blocks[6].dw.uneven, net.blocks[6].dw.conv.padding = False, (1, 1)


def _channel(net: Net) -> None:
    net.blocks[9].project.conv.weight[5] *= 1.8


def _swapped(net: Net) -> None:
    net.kind, net.light = net.light, net.kind


def _stale(net: Net) -> None:
    net.layer2[2].bn1.reset_running_stats()


class _LastFlat(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1).flatten(1)


class _Quick(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(1.702 * x)


class _NoJoin(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(x.shape[0], x.shape[2], -1)


def _keras_bias(net: Net) -> None:
    net.get_layer("dense_1").bias.assign(np.zeros(48, np.float32))


def _keras_stale(net: Net) -> None:
    layer = net.get_layer("bn_2")
    layer.moving_mean.assign(np.zeros(24, np.float32))
    layer.moving_variance.assign(np.ones(24, np.float32))


def _none(net: Net) -> None:
    pass


def _erf(net: Net) -> None:
    for layer in net.layers[1:]:
        layer.act.approximate = "none"


def _quick(net: Net) -> None:
    net.layers[1].act = _Quick()


def _of_first(net: Net) -> None:
    net.gru.weight_hh_l1.copy_(net.gru.weight_hh_l0)


def _louder(net: Net) -> None:
    """The same function, by numbers beyond float16 between two layers."""
    net.fc.weight *= 2e4
    net.fc.bias *= 2e4
    net.kind.weight /= 2e4
    net.light.weight /= 2e4


# name: net, forms of A and B, the guilty modules, kinds, what is done to the module of B
Change = Callable[[Net], Any]
NEAREST = {"mode": "nearest", "align_corners": None}
CHANGED: Mapping[str, tuple[str, str, str, str, Sequence[str], Change]] = {
    "pad-symmetric": ("mobilenet", "torch", "onnx", "blocks.6.dw blocks.6.dw.conv", ["padding"], _symmetric),
    "pad-zeros": ("unet", "torch", "openvino", "mid.0", ["padding"], _assigned("mid.0", padding_mode="zeros")),
    "pool-excludes": ("heads", "torch", "coreml", "pool3", ["padding"], _assigned("pool3", count_include_pad=False)),
    "epsilon-bn": ("resnet", "pt2", "pt2", "layer2.1.bn2", ["epsilon"], _assigned("layer2.1.bn2", eps=1e-2)),
    "epsilon-bn-tflite": ("heads", "torch", "tflite", "conv2 bn2", ["epsilon"], _assigned("bn2", eps=1e-1)),
    "epsilon-ln": ("encoder", "torch", "coreml", "layers.1.norm2", ["epsilon"], _assigned("layers.1.norm2", eps=1e-1)),
    "transposed": ("encoder", "dynamo", "onnx", "layers.2.out", ["weight"], _transposed("layers.2.out")),
    "transposed-fp16": ("encoder", "torch", "coreml16", "layers.1.q", ["weight"], _transposed("layers.1.q")),
    "channel": ("mobilenet", "torch", "openvino", "blocks.9.project.conv", ["channel scale"], _channel),
    "swapped": ("heads", "torch", "onnx", "", ["swapped outputs"], _swapped),
    "swapped-tflite": ("heads", "onnx", "tflite", "", ["swapped outputs"], _swapped),
    "resize-nearest": ("unet", "torch", "tflite", "up2", ["resize mode"], _assigned("up2", **NEAREST)),
    "gelu-erf": ("encoder", "torch", "dynamo", "layers.1.act", ["activation"], _erf),
    "gelu-quick": ("encoder", "torch", "tflite", "layers.1.act", ["activation"], _quick),
    "leaky": ("unet", "torch", "coreml", "enc2.1", ["activation"], _assigned("enc2.1", negative_slope=0.01)),
    "bias-keras": ("keras", "keras", "ktflite", "dense_1", ["bias"], _keras_bias),
    "overflow": ("speech", "torch", "coreml16", "norm", ["fp16 overflow"], _none),
    "overflow-pt2": ("heads", "pt2", "coreml16", "fc", ["fp16 overflow"], _louder),
    "other-weights": (
        "resnet", "pt2", "dynamo", "layer3.2.conv1 layer3.2.bn1", ["weight"],
        _copied("layer3.1.conv1.weight", "layer3.2.conv1.weight"),
    ),
    "other-weights-lstm": (
        "texts", "torch", "openvino", "rnn_2", ["weight"], _copied("rnn_1.weight_hh_l0", "rnn_2.weight_hh_l0")
    ),
    "other-weights-gru": ("speech", "torch", "onnx", "gru", ["weight"], _of_first),
    "stale": ("resnet", "torch", "tflite", "layer2.2.conv1 layer2.2.bn1 layer2.2:relu", ["batch norm"], _stale),
    "stale-keras": ("keras", "keras", "saved", "bn_2", ["batch norm"], _keras_stale),
    "layout-flatten": ("heads", "torch", "onnx", "flatten", ["layout"], _assigned("", flatten=_LastFlat())),
    "layout-heads": ("encoder", "torch", "tflite", "layers.1.join", ["layout"], _assigned("layers.1", join=_NoJoin())),
}  # fmt: skip


def sound(net: str) -> Net:
    return diff_nets.keras_net() if net == "keras" else diff_nets.NETS[net]()


def written(form: str, net: str, made: Net, stem: Path) -> str:
    """A file of the form, or the factory of the sound net."""
    if form == "torch":
        return f"diff_nets:{net}"
    more = diff_nets.items(net, 32, 77) if form.endswith("8") else None
    return diff_nets.write(form, net, made, stem, more)


def _changed(name: str, work: Path) -> Pair:
    net, a, b, modules, kinds, change = CHANGED[name]
    good, bad = sound(net), sound(net)
    with torch.no_grad():
        change(bad)
        if change is _louder:
            change(good)
    made = Pair(name, net, written(a, net, good, work / "a"), written(b, net, bad, work / "b"), kinds=kinds)
    if change not in (_none, _louder) and b.endswith("16"):
        made.twin = written(b, net, good, work / "twin")
    for model in (made.a, made.b):
        made.operators |= called(model, net, modules.split())
    return made


# --------------------------------------------------------------------------- faults of a file

FILED: dict[str, tuple[str, str, str, Sequence[str], Sequence[str], Callable[[str, str], Names]]] = {}


def plant(name: str, net: str, a: str, b: str, kinds: Sequence[str], modules: str = "") -> Callable[[Any], Any]:
    """A function that changes a copy of the converter's file, and says what the guilty operator is called there."""

    def add(function: Callable[[str, str], Names]) -> Callable[[str, str], Names]:
        FILED[name] = net, a, b, kinds, modules.split(), function
        return function

    return add


def _filed(name: str, work: Path) -> Pair:
    net, a, b, kinds, modules, function = FILED[name]
    one, twin = (written(form, net, sound(net), work / stem) for form, stem in ((a, "a"), (b, "twin")))
    file = Path(twin).with_stem("b")
    if file.suffix == ".xml":
        file.with_suffix(".bin").write_bytes(Path(twin).with_suffix(".bin").read_bytes())
    names = function(twin, str(file)) | called(one, net, modules)
    return Pair(name, net, one, str(file), names, kinds, twin)


def onnx_changed(
    source: str, file: str, module: str, kind: str, change: Callable[[Any, Any], Sequence[str]], has: Sequence[int] = ()
) -> Names:
    """Changes the operator of a type in a module, or the one that has an attribute."""
    import onnx

    proto = onnx.load(source)
    nodes = [n for n in proto.graph.node if n.op_type == kind]
    node = next(n for n in nodes if (any([*a.ints] == has for a in n.attribute) if has else scope(n) == module))
    more = change(proto.graph, node)
    onnx.save(proto, file)
    return {node.name, *node.output, *more}


def attribute(**values: Any) -> Callable[[Any, Any], Sequence[str]]:
    def change(graph: Any, node: Any) -> Sequence[str]:
        import onnx

        kept = [a for a in node.attribute if a.name not in values]
        del node.attribute[:]
        node.attribute.extend([*kept, *(onnx.helper.make_attribute(k, v) for k, v in values.items())])
        return ()

    return change


@plant("pad-shifted", "resnet", "onnx", "onnx", ["padding"], "layer2.0.conv1")
def _(source: str, file: str) -> Names:
    return onnx_changed(source, file, "layer2.0.conv1", "Conv", attribute(pads=[0, 0, 1, 1]))


@plant("pad-same", "keras", "keras", "tf2onnx", ["padding"], "conv_2 bn_2")
def _(source: str, file: str) -> Names:
    return onnx_changed(source, file, "", "Conv", attribute(pads=[1, 1, 0, 0]), has=[0, 0, 1, 1])


@plant("pool-counts", "heads", "torch", "onnx", ["padding"], "pool1")
def _(source: str, file: str) -> Names:
    return onnx_changed(source, file, "pool1", "AveragePool", attribute(count_include_pad=0))


@plant("resize-corners", "unet", "onnx", "onnx", ["resize mode"], "up2")
def _(source: str, file: str) -> Names:
    change = attribute(coordinate_transformation_mode="align_corners")
    return onnx_changed(source, file, "up2", "Resize", change)


@plant("bias-dropped", "mobilenet", "pt2", "onnx", ["bias"], "blocks.4.project.conv")
def _(source: str, file: str) -> Names:
    def change(graph: Any, node: Any) -> Sequence[str]:
        node.input.pop()
        return ()

    return onnx_changed(source, file, "blocks.4.project.conv", "Conv", change)


@plant("clip", "unet", "torch", "onnx", ["saturated range", "activation"], "dec1.1")
def _(source: str, file: str) -> Names:
    def change(graph: Any, node: Any) -> list[str]:
        import onnx

        made = node.output[0]
        graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.4), "most"))
        node.output[0] = f"{made}_free"
        clip = onnx.helper.make_node("Clip", [node.output[0], "", "most"], [made], name="clip")
        graph.node.insert([*graph.node].index(node) + 1, clip)
        return ["clip", made]

    return onnx_changed(source, file, "dec1.1", "LeakyRelu", change)


@plant("normalized-twice", "resnet", "torch", "onnx", ["normalization"], "conv1 bn1")
def _(source: str, file: str) -> Names:
    def change(graph: Any, node: Any) -> list[str]:
        import onnx

        for name, values in (("mean", diff_nets.MEAN), ("std", diff_nets.STD)):
            graph.initializer.append(onnx.numpy_helper.from_array(values.reshape(1, 3, 1, 1), name))
        node.input[0] = "scaled"
        graph.node.insert(0, onnx.helper.make_node("Div", ["centred", "std"], ["scaled"], name="divide"))
        graph.node.insert(0, onnx.helper.make_node("Sub", ["image", "mean"], ["centred"], name="subtract"))
        return ["subtract", "centred", "divide", "scaled"]

    return onnx_changed(source, file, "conv1", "Conv", change)


def _scale_of(graph: Any, tensor: str, change: Callable[[Any], Any], shared: bool = False) -> list[str]:
    """Changes the scale that a tensor is quantized with, or dequantized to; `shared`: of both sides."""
    import onnx

    by_name, told = {t.name: t for t in graph.initializer}, []
    for node in graph.node:
        if node.op_type == "DequantizeLinear" and (tensor in node.output or (shared and tensor in node.input)):
            held = by_name[node.input[1]]
            held.CopyFrom(onnx.numpy_helper.from_array(change(onnx.numpy_helper.to_array(held).copy()), held.name))
            told += [node.name, *node.output]
    assert told, tensor
    return told


@plant("range-third", "resnet", "onnx", "onnx8", ["saturated range"], "layer2.1:relu:1 layer2.1:add")
def _(source: str, file: str) -> Names:
    import onnx

    proto = onnx.load(source)
    wanted = "/layer2/layer2.1/Relu_1_output_0"
    node = next(n for n in proto.graph.node if n.op_type == "QuantizeLinear" and n.input[0] == wanted)
    told = _scale_of(proto.graph, node.output[0], lambda scale: scale / np.float32(3), shared=True)
    onnx.save(proto, file)
    before = next(n for n in proto.graph.node if wanted in n.output)  # where the quantizer took the Relu away: the Add
    return {*told, node.name, *node.output, before.name, *before.output}


@plant("scale-tensor", "resnet", "onnx", "onnx8", ["quantization scale"], "layer3.0.conv2")
def _(source: str, file: str) -> Names:
    def change(graph: Any, node: Any) -> list[str]:
        return _scale_of(graph, node.input[1], lambda scale: scale * np.float32(1.6))

    return onnx_changed(source, file, "layer3.0.conv2", "Conv", change)


@plant("scale-channel", "mobilenet", "torch", "onnx8", ["quantization scale", "channel scale"], "blocks.7.expand.conv")
def _(source: str, file: str) -> Names:
    def loud(scale: Any) -> Any:
        scale[np.argsort(scale)[-8:]] *= np.float32(6)
        return scale

    return onnx_changed(
        source, file, "blocks.7.expand.conv", "Conv", lambda graph, node: _scale_of(graph, node.input[1], loud)
    )


def _lite(path: str | Path) -> Any:
    from ai_edge_litert import schema_py_generated as schema

    return schema.ModelT.InitFromPackedBuf(Path(path).read_bytes())


def lite_changed(source: str, file: str, kind: str, index: int, change: Callable[[Any, Any, Any], Any]) -> Names:
    """Changes the index-th operator of a type."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model, code = _lite(source), getattr(schema.BuiltinOperator, kind)
    graph = model.subgraphs[0]
    op = [op for op in graph.operators if model.operatorCodes[op.opcodeIndex].builtinCode == code][index]
    change(model, graph, op)
    builder = flatbuffers.Builder(1 << 20)
    builder.Finish(model.Pack(builder), b"TFL3")
    Path(file).write_bytes(builder.Output())
    return {graph.tensors[i].name.decode() for i in op.outputs}


@plant("channel-tflite", "resnet", "onnx", "tflite", ["channel scale"], "layer2.2.conv1 layer2.2:relu")
def _(source: str, file: str) -> Names:
    def change(model: Any, graph: Any, op: Any) -> None:
        held = model.buffers[graph.tensors[op.inputs[1]].buffer]
        kernel = np.frombuffer(bytes(held.data), np.float32).reshape(32, -1).copy()
        kernel[np.argmax(np.abs(kernel).sum(1))] *= 2
        held.data = np.frombuffer(kernel.tobytes(), np.uint8)

    return lite_changed(source, file, "CONV_2D", 11, change)  # two in each block behind the first


@plant("relu-for-relu6", "mobilenet", "tflite", "tflite", ["activation"])
def _(source: str, file: str) -> Names:
    def change(model: Any, graph: Any, op: Any) -> None:
        assert op.builtinOptions.fusedActivationFunction == 3, "a RELU6"
        op.builtinOptions.fusedActivationFunction = 1

    return lite_changed(source, file, "DEPTHWISE_CONV_2D", 3, change)


@plant("scale-tflite", "keras", "keras", "ktflite8", ["quantization scale", "weight"], "conv_2 bn_2 relu_2")
def _(source: str, file: str) -> Names:
    def change(model: Any, graph: Any, op: Any) -> None:
        told = graph.tensors[op.inputs[1]].quantization
        told.scale = [scale * 1.7 for scale in told.scale]

    return lite_changed(source, file, "CONV_2D", 1, change)


def ir_changed(source: str, file: str, kind: str, module: str, **data: str) -> Names:
    """Changes attributes of a layer in OpenVINO's XML."""
    tree = ET.parse(source)
    layer = next(
        each for each in tree.iter("layer") if each.get("type") == kind and f".{module}/" in each.get("name", "")
    )
    (held,) = layer.findall("data")
    assert set(data) <= set(held.keys()), held.attrib
    held.attrib.update(data)
    tree.write(file)
    return {layer.get("name", "")}


@plant("gelu-ir", "encoder", "pt2", "openvino", ["activation"], "layers.2.act")
def _(source: str, file: str) -> Names:
    return ir_changed(source, file, "Gelu", "layers.2.act", approximation_mode="ERF")


@plant("epsilon-ir", "encoder", "onnx", "openvino", ["epsilon"], "layers.2.norm1")
def _(source: str, file: str) -> Names:
    return ir_changed(source, file, "MVN", "layers.2.norm1", eps="0.1")


@plant("rescaled-twice", "keras", "keras", "ktflite", ["normalization"], "conv_1 bn_1 relu_1")
def _(source: str, file: str) -> Names:
    import keras

    image = keras.Input((28, 28, 1), name="image")
    scaled = keras.layers.Rescaling(1 / 0.353, -0.286 / 0.353, name="rescaling")(image)
    twice = keras.Model(image, diff_nets.keras_net()(scaled))
    diff_nets.write("ktflite", "keras", twice, Path(file).with_suffix(""))
    return called(file, "keras", ["rescaling", "conv_1", "bn_1", "relu_1"]) | {"image"}


def planted(name: str, work: Path) -> Pair:
    """A pair of which B has the fault."""
    return _changed(name, work) if name in CHANGED else _filed(name, work)
