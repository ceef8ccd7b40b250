"""An OpenVINO model once more, with what its layers answer as further outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import OPEN, Artifact, Dim, Request, Shape, TensorSpec
from edgecompress.core.watched_graph import WatchedOperator, attributes, written
from edgecompress.engines.openvino import ir

if TYPE_CHECKING:
    import openvino

UNSAFE = re.compile(r"[^\w.-]+")  # in the name of a file
QUANTIZE = "FakeQuantize"
SHAPES = {"ShapeOf"}  # what is computed from these is no layer's answer
VIEWS = {  # the same numbers, or some of them
    *("Broadcast", "Convert", "FakeQuantize", "Parameter", "Reshape", "Result", "Slice", "Split", "Squeeze"),
    *("StridedSlice", "Transpose", "Unsqueeze", "VariadicSplit"),
}
PRODUCTS = {"Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul"}
CLIPS = {"Relu", "Clamp"}  # int8 takes these in everywhere
ACTIVATIONS = {"Elu", "Gelu", "HSwish", "PRelu", "Sigmoid", "Swish", "Tanh"}  # the CPU's kernels, into products
FLOATS = {"f32": "float32", "f16": "float16"}


@dataclass(frozen=True)
class _OpenvinoLayerOutput:
    """Where a layer ends: its operator, and the port of what it answers."""

    operator: openvino.Node
    port: openvino.Output


def tapped(request: Request, net: openvino.Model, compiled: openvino.CompiledModel) -> Artifact:
    """The input "model", read as `net`, with an output per kernel of `compiled`, OpenVINO's graph of what it runs.

    facts: {"taps": [row]}. Raises StageFailed where none can be had.
    """
    model = request.model
    batch = model.batch
    assert isinstance(batch, int)  # the export fixes it
    rows: list[dict[str, str]] = []
    specs: list[TensorSpec] = []
    for layer in _by_kernel(list(_layer_outputs(net)), compiled):
        by_item = _by_item(layer.port, batch)
        if by_item is not None:
            port, words = _of_its_own(by_item), _words(layer)
            name = f"tap_{len(rows):03d}_{UNSAFE.sub('_', words['operator'])[:80]}"
            port.get_tensor().add_names({name})
            net.add_outputs([port])
            specs.append(TensorSpec(name, shape_of(port), FLOATS[port.get_element_type().get_type_name()]))
            rows.append({"output": name, **words})
    if not rows:
        raise StageFailed(f"runtime openvino: no layer output of {model.path} can be read: none is a float tensor")
    ir.save(net, request.out)
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {"taps": rows}).write()


def watched(request: Request, net: openvino.Model) -> Artifact:
    """The input "model", read as `net`, with each real number that it computes as an output; see core.watched_graph."""
    model, nodes = request.model, net.get_ordered_ops()
    live, results = _live(nodes), [result.input_value(0) for result in net.get_results()]
    ends = [(spec.name, _value(port)) for spec, port in zip(model.outputs, results, strict=True)]
    values, specs, operators = list[tuple[str, str]](), list[TensorSpec](), list[WatchedOperator]()
    for node in nodes:
        kind, name = node.get_type_name(), node.get_friendly_name()
        if name not in live or kind in ("Parameter", "Result"):
            continue
        reads, constants = list[str](), list[str]()
        for port in node.input_values():
            maker = port.get_node()
            if maker.get_friendly_name() in live:
                reads.append(_value(port))
            while maker.get_friendly_name() not in live and maker.get_type_name() != "Constant":
                if not (above := maker.input_values()):
                    break
                maker = above[0].get_node()
            constants += [maker.get_friendly_name()] if maker.get_type_name() == "Constant" else []
        made = tuple(_value(port) for port in node.outputs())
        operators.append(
            WatchedOperator(name, kind, tuple(reads), made, tuple(constants), attributes(node.get_attributes()))
        )
        for port in node.outputs():
            if port.get_element_type().get_type_name() in FLOATS:
                specs.append(TensorSpec(f"value_{len(specs)}", (), FLOATS[port.get_element_type().get_type_name()]))
                values.append((specs[-1].name, _value(port)))
    ports = {_value(port): port for node in nodes for port in node.outputs()}
    for output, value in values:
        port = _of_its_own(ports[value])
        port.get_tensor().add_names({output})
        net.add_outputs([port])
    held = {n.get_friendly_name(): n.get_data() for n in nodes if n.get_type_name() == "Constant"}
    ir.save(net, request.out)
    told = written(request.out, values, ends, operators, held)
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {**told}).write()


def _value(port: openvino.Output) -> str:
    return f"{port.get_node().get_friendly_name()}:{port.get_index()}"


def _words(layer: _OpenvinoLayerOutput) -> dict[str, str]:
    dtype = _integer(layer.port.get_node()) or FLOATS[layer.port.get_element_type().get_type_name()]
    words = {"operator": layer.operator.get_friendly_name(), "type": layer.operator.get_type_name()}
    return {**words, "dtype": dtype, "layout": "", "module": "", "tensor": layer.port.get_node().get_friendly_name()}


# --------------------------------------------------------------------------- where the layers end


def _layer_outputs(net: openvino.Model) -> Iterator[_OpenvinoLayerOutput]:
    """The layers' ends, in the order of computing."""
    nodes = net.get_ordered_ops()
    live, taken = _live(nodes), set[str]()
    for node in nodes:
        name = node.get_friendly_name()
        if name not in live - taken or node.get_type_name() in VIEWS:
            continue
        if node.output(0).get_element_type().get_type_name() in FLOATS:
            yield _end(node, live, taken)


def _by_kernel(layers: Sequence[_OpenvinoLayerOutput], compiled: openvino.CompiledModel) -> list[_OpenvinoLayerOutput]:
    """One output where one kernel computes several layers, a convolution with the sum behind it: the last answer.

    It has the name of the first: that is the one whose products are quantized.
    """
    kernels = {
        name: kernel.get_friendly_name()
        for kernel in compiled.get_ordered_ops()
        for name in kernel.get_rt_info()["originalLayersNames"].astype(str).split(",")
    }
    by_kernel: dict[str, _OpenvinoLayerOutput] = {}
    for layer in layers:
        end = layer.port.get_node().get_friendly_name()
        first = by_kernel.pop(kernels.get(end, end), layer)  # taken out and put in again: where its kernel ends
        by_kernel[kernels.get(end, end)] = _OpenvinoLayerOutput(first.operator, layer.port)
    return list(by_kernel.values())


def _live(nodes: list[openvino.Node]) -> set[str]:
    """The nodes whose answers follow from the inputs' values."""
    live: set[str] = set()
    for node in nodes:
        reads = {value.get_node().get_friendly_name() for value in node.input_values()}
        if node.get_type_name() == "Parameter" or (reads & live and node.get_type_name() not in SHAPES):
            live.add(node.get_friendly_name())
    return live


def _end(node: openvino.Node, live: set[str], taken: set[str]) -> _OpenvinoLayerOutput:
    """Follows what alone reads the layer's answer, and is computed with it; `taken` is told of that."""
    last = node
    while len(readers := last.output(0).get_target_inputs()) == 1 and last.get_output_size() == 1:
        reader = next(iter(readers)).get_node()
        if not _takes_in(node.get_type_name(), reader, live):
            break
        last = reader
        taken.add(last.get_friendly_name())
        if last.get_type_name() == QUANTIZE:
            break
    return _OpenvinoLayerOutput(node, last.output(0))


def _takes_in(product: str, reader: openvino.Node, live: set[str]) -> bool:
    kind = reader.get_type_name()
    if kind in (QUANTIZE, *CLIPS):
        return True
    if product not in PRODUCTS:
        return False
    reads = [value.get_node().get_friendly_name() for value in reader.input_values()]
    return kind in ACTIVATIONS or (kind in ("Add", "Multiply") and sum(name in live for name in reads) == 1)


def _integer(node: openvino.Node) -> str:
    """What OpenVINO makes of a FakeQuantize: unsigned where nothing is below zero; nothing for other nodes."""
    if node.get_type_name() != QUANTIZE:
        return ""
    lowest = node.input_value(1).get_node()
    signed = lowest.get_type_name() != "Constant" or bool((lowest.get_data() < 0).any())
    return "int8" if signed else "uint8"


# --------------------------------------------------------------------------- the further outputs


def _by_item(port: openvino.Output, batch: int) -> openvino.PartialShape:
    """The port with its batch on axis 0: as it is, its axis moved, or an item's rows split off; None: there is none."""
    from openvino import opset13 as ops

    dims = [d.get_length() if d.is_static else -1 for d in port.get_partial_shape()]
    if dims[:1] == [batch]:
        return port
    if batch in dims:
        axis = dims.index(batch)
        return ops.transpose(port, [axis, *(i for i in range(len(dims)) if i != axis)]).output(0)
    if batch == 1:
        return ops.unsqueeze(port, 0).output(0)
    if not dims or dims[0] % batch or -1 in dims:
        return None
    return ops.reshape(port, [batch, dims[0] // batch, *dims[1:]], False).output(0)


def shape_of(port: openvino.Output) -> Shape:
    """The sizes of a port; a first axis of any size is the batch."""

    def size(axis: int, dim: openvino.Dimension) -> int | Dim:
        if dim.is_static:
            return int(dim.get_length())
        return Dim(
            f"axis_{axis}" if axis else "batch",
            dim.get_min_length(),
            dim.get_max_length() if dim.get_max_length() > 0 else OPEN,
        )

    return tuple(size(axis, dim) for axis, dim in enumerate(port.get_partial_shape()))


def _of_its_own(port: openvino.Output) -> openvino.PartialShape:
    """The port, with one more axis at its end where the model hands it out already: OpenVINO mixes such outputs up."""
    from openvino import opset13 as ops

    handed_out = any(reader.get_node().get_type_name() == "Result" for reader in port.get_target_inputs())
    return ops.unsqueeze(port, -1).output(0) if handed_out else port
