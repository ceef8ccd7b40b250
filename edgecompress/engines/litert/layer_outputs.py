"""A TFLite file once more, the ends of its layers handed out: what a diagnosis holds against the source."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.core.watched_graph import WatchedOperator, attributes, written
from edgecompress.engines.litert import model_edits, model_file, weights
from edgecompress.engines.litert.model_file import Subgraph, TfliteOperator

FILE = "model.tflite"
# What computes nothing of its own: views, moves, shapes, and what only changes how a number is held
VIEWS = {
    *("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SHAPE", "RANK", "TRANSPOSE", "SLICE", "STRIDED_SLICE", "SPLIT"),
    *("SPLIT_V", "UNPACK", "BROADCAST_TO", "TILE", "PAD", "PADV2", "FILL", "RANGE", "CAST", "QUANTIZE"),
    *("DEQUANTIZE", "DENSIFY"),
}
# What takes and gives images, in TFLite always with their channels last
IMAGES = {
    *("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"),
    *("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR", "SPACE_TO_DEPTH", "DEPTH_TO_SPACE"),
    *("LOCAL_RESPONSE_NORMALIZATION"),
}
# What gives its axes another meaning than those of its inputs
TURNS = {
    *("TRANSPOSE", "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "BATCH_MATMUL", "FULLY_CONNECTED", "GATHER", "GATHER_ND"),
    *("PACK", "UNPACK", "EMBEDDING_LOOKUP", "SCATTER_ND", "CUSTOM", "CALL", "CALL_ONCE", "IF", "WHILE"),
    *("STABLEHLO_COMPOSITE"),
}
QUANTIZED = ("int8", "uint8", "int16")
WEIGHTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "CONV_3D", "FULLY_CONNECTED")
OWN_WEIGHTS = re.compile(r"/torch\.nn\.modules\.(conv|linear|rnn)\.\w+;\d*$")
ATTRIBUTE = re.compile(r".*\._*[^._]+_(.+)")  # of "package.Class_attribute"
WRAPPER = "net"  # what a traced program calls the user's own module


@dataclass(frozen=True)
class TfliteLayerOutput:
    """A tensor at the end of a layer: the operator that makes it, its number, and its spec."""

    node: TfliteOperator
    number: int
    spec: TensorSpec


def _sound(model: Artifact) -> bytes:
    """The file's bytes. Raises StageFailed for a damaged one."""
    file = model.file(".tflite")
    data = file.read_bytes()
    try:
        model_file.check(data, file.name)
    except InputError as error:
        raise StageFailed(str(error)) from error
    return data


def tapped(request: Request) -> Artifact:
    """The file with the outputs of its layers as further outputs; input: "model".

    Tensors come as the file holds them: their specs say the quantization, and not each has the batch on its first axis.
    facts: {"taps": [{"output", "operator", "type", "dtype", "layout", "module", "tensor"}]}. Raises StageFailed.
    """
    model, data = request.model, _sound(request.model)
    graph = model_file.graph(data)
    own = {spec.name for spec in model.outputs}
    names = (name for name in map("tap_{}".format, itertools.count()) if name not in own)
    layers = [replace(layer, spec=replace(layer.spec, name=next(names))) for layer in _layer_outputs(graph)]
    (request.out / FILE).write_bytes(
        model_edits.with_layer_outputs(data, {layer.spec.name: layer.number for layer in layers})
    )
    facts = {"taps": [_about(layer, graph) for layer in layers]}
    outputs = (*model.outputs, *(layer.spec for layer in layers))
    return Artifact(request.out, model.kind, model.inputs, outputs, facts).write()


def watched(request: Request) -> Artifact:
    """The input "model" with each real number of its first graph as a further output; see core.watched_graph.

    Raises StageFailed for a damaged file.
    """
    model, data = request.model, _sound(request.model)
    graph, tables = model_file.graph(data), weights.tables_in(data)
    first, alive = tables.subgraphs[0], set(graph.inputs)
    named = [f"{number} {spec.name}" for number, spec in enumerate(graph.tensors)]
    images, ends = _images(graph), dict(zip(graph.outputs, (spec.name for spec in model.outputs), strict=False))
    operators, specs, numbers = list[WatchedOperator](), list[TensorSpec](), dict[str, int]()
    for node, table in zip(graph.nodes, first.operators, strict=True):
        if alive.isdisjoint(node.reads):
            continue
        alive.update(node.writes)
        options = vars(table.builtinOptions) if table.builtinOptions is not None else {}
        made = graph.tensors[node.writes[0]].name if node.writes else ""
        operators.append(
            WatchedOperator(
                made or f"{node.type}:{node.place}",
                node.type,
                tuple(named[n] for n in node.reads if n in alive),
                tuple(named[n] for n in node.writes),
                tuple(named[n] for n in node.reads if n >= 0 and n not in alive),
                attributes({**options, **_held(node, graph)}),
                module_of(made, node.type),
            )
        )
        for number in node.writes:
            spec = graph.tensors[number]
            if number not in ends and (spec.dtype.startswith("float") or spec.quantization is not None):
                specs.append(replace(spec, name=f"value_{len(specs)}", layout="NHWC" if number in images else ""))
                numbers[specs[-1].name] = number
    (request.out / FILE).write_bytes(model_edits.with_layer_outputs(data, numbers))
    own = [(name, named[number]) for number, name in ends.items()]
    values = [*own, *((name, named[number]) for name, number in numbers.items())]
    told = written(request.out, values, own, operators, weights.constants(tables, named))
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {**told}).write()


def _held(node: TfliteOperator, graph: Subgraph) -> dict[str, str]:
    """The narrowest type of what an operator reads, where that is no real number."""
    types = [graph.tensors[n].dtype for n in node.reads if n >= 0]
    narrow = next((t for t in ("int4", "int8", "uint8", "int16", "float16") if t in types), "")
    return {"held": narrow} if narrow else {}


# --------------------------------------------------------------------------- where layers end


def _layer_outputs(graph: Subgraph) -> Iterator[TfliteLayerOutput]:
    """The real numbers that depend on the inputs and are computed, not moved; in the order of computing."""
    alive, images = set(graph.inputs), _images(graph)
    for node in graph.nodes:
        if alive.isdisjoint(node.reads):
            continue
        alive.update(node.writes)
        for number in node.writes if node.type not in VIEWS else ():
            spec = graph.tensors[number]
            if spec.dtype.startswith("float") or (spec.quantization is not None and spec.dtype in QUANTIZED):
                yield TfliteLayerOutput(node, number, replace(spec, layout="NHWC" if number in images else ""))


def _images(graph: Subgraph) -> set[int]:
    """The tensors of four axes whose channels are the last: at an operator on images, or laid out as another such."""
    touched = [
        (node.type, {n for n in (*node.reads, *node.writes) if n >= 0 and len(graph.tensors[n].shape) == 4})
        for node in graph.nodes
    ]
    images: set[int] = set().union(*(numbers for kind, numbers in touched if kind in IMAGES))
    alike = [numbers for kind, numbers in touched if kind not in TURNS]
    before = -1
    while len(images) > before:
        before = len(images)
        for numbers in (*alike, *reversed(alike)):
            if not images.isdisjoint(numbers):
                images |= numbers
    return images


# --------------------------------------------------------------------------- what they are called


def _about(layer: TfliteLayerOutput, graph: Subgraph) -> dict[str, Json]:
    """The operator as a technique's `skip` knows it, and the module of torch where the tensor's name holds it."""
    names = [graph.tensors[number].name for number in layer.node.writes]
    return {
        "output": layer.spec.name,
        "operator": "".join(f"{name};" for name in names if name),
        "type": layer.node.type,
        "dtype": layer.spec.dtype,
        "layout": layer.spec.layout,
        "module": module_of(graph.tensors[layer.number].name, layer.node.type),
        "tensor": graph.tensors[layer.number].name,
    }


def module_of(name: str, kind: str) -> str:
    """The path of a module of torch, as far as the name that litert_torch gave a tensor tells it; else "".

    Such a name lists the modules of all that became one operator, as "Class/Class_attribute/...;number", the
    operator itself last. Of an operator with weights, the module that has them is taken, of others the first.
    """
    places = [place if ";" in place else f"{place};" for place in name.split(";;")]
    weighted = [place for place in places if OWN_WEIGHTS.search(place)] if kind in WEIGHTED else []
    _, *inner = (weighted[-1] if weighted else places[0]).partition(";")[0].split("/")
    matches = [ATTRIBUTE.fullmatch(part) for part in inner]
    path = [match[1] for match in matches if match]
    return ".".join(path[path[:1] == [WRAPPER] :]) if all(matches) else ""
