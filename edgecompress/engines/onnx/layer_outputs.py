"""An ONNX model once more, with what its layers answer as further outputs: its kernels stay those that they were."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.model import Artifact, Dim, Request, Shape, TensorSpec
from edgecompress.core.watched_graph import WatchedOperator, attributes, written
from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.session import CPU, options

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime

FILE = "model.onnx"
WRAPPER = "net."  # what a traced program calls the user's own module
UNSAFE = re.compile(r"[^\w.-]+")  # in the name of a file
QUANTIZE, DEQUANTIZE, DYNAMIC = "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"
SHAPES = {"Shape", "Size"}  # what is computed from these is no layer's answer
VIEWS = {  # the same numbers, or some of them
    *(QUANTIZE, DEQUANTIZE, DYNAMIC, "Cast", "Dropout", "Expand", "Flatten", "Identity"),
    *("Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"),
}
INTEGER = {"ConvInteger", "MatMulInteger"}  # of dynamic int8: a cast and a scale follow
RENAMED = {*INTEGER, "DynamicQuantizeLSTM"}  # what dynamic int8 puts "_quant" behind
PRODUCTS = {"Conv", "ConvTranspose", "Gemm", "MatMul", "MatMulNBits", *INTEGER}
CLIPS = {"Relu", "Clip"}  # int8 takes these in everywhere
ACTIVATIONS = {"BatchNormalization", "HardSigmoid", "LeakyRelu", "Sigmoid", "Tanh"}  # ONNX Runtime, into Conv and Gemm
FLOATS = {"tensor(float)": "float32", "tensor(float16)": "float16"}
BATCHES = (2, 3)  # that a dynamic model is run on, to see which axis is its batch

Shapes = Sequence[tuple[int, ...]]  # of one tensor, for each batch


@dataclass(frozen=True)
class _OnnxLayerOutput:
    """Where a layer ends: its operator and what is computed with it, their answer, what makes that an integer."""

    nodes: tuple[onnx.NodeProto, ...]
    tensor: str
    quantize: onnx.NodeProto | None = None


@dataclass(frozen=True)
class _Place:
    """How a tensor is handed out: its batch on axis 0."""

    shape: Shape
    move: str = ""  # Transpose, Reshape, or nothing
    how: tuple[int, ...] = ()


def tapped(request: Request) -> Artifact:
    """The input "model" with an output per layer; facts: {"taps": [row]}. Raises StageFailed where none can be had."""
    import onnx

    model = request.model
    proto = external.load(model.file(".onnx"))
    graph = _OnnxGraph(proto.graph)
    layers = list(graph.layer_outputs())
    seen = _seen(proto, [layer.tensor for layer in layers], model)
    rows: list[dict[str, str]] = []
    specs: list[TensorSpec] = []
    for layer in layers:
        dtype, place = seen.get(layer.tensor, ("", None))
        if place is not None:
            row = {**graph.words(layer.nodes), "dtype": graph.integer(layer.quantize) or dtype}
            name = f"tap_{len(rows):03d}_{UNSAFE.sub('_', row['operator'])[:80]}"
            _hand_out(proto.graph, layer, name, place)
            specs.append(TensorSpec(name, place.shape, "float32" if layer.quantize else dtype))
            rows.append({"output": name, **row, "tensor": layer.tensor})
    if not rows:
        raise StageFailed(
            f"runtime onnx: no layer output of {model.path} can be read: none is a float tensor with a row per item"
        )
    onnx.save_model(proto, request.out / FILE)
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {"taps": rows}).write()


# --------------------------------------------------------------------------- where the layers end


@dataclass(frozen=True)
class _OnnxGraph:
    """A graph's nodes by what they read and make."""

    proto: onnx.ModelProto
    taken: set[str] = field(default_factory=set)  # made by nodes that belong to a layer before them

    @cached_property
    def readers(self) -> dict[str, list[onnx.NodeProto]]:
        """The nodes that read a tensor, those that hold a body which reads it among them."""
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.proto.node:
            for tensor in {*node.input, *_read_inside(node)}:
                readers.setdefault(tensor, []).append(node)
        return readers

    @cached_property
    def makers(self) -> dict[str, onnx.NodeProto]:
        return {tensor: node for node in self.proto.node for tensor in node.output}

    @cached_property
    def live(self) -> set[str]:
        """The tensors that follow from the inputs' values."""
        live = {value.name for value in self.proto.input} - {tensor.name for tensor in self.proto.initializer}
        for node in self.proto.node:
            if node.op_type not in SHAPES and live & {*node.input, *_read_inside(node)}:
                live.update(node.output[:1] if node.op_type == DYNAMIC else node.output)  # not its scale
        return live

    @cached_property
    def ends(self) -> set[str]:
        return {value.name for value in self.proto.output}

    def layer_outputs(self) -> Iterator[_OnnxLayerOutput]:
        """The layers' ends, in the order of computing."""
        for node in self.proto.node:
            tensor = self._made(node)
            if tensor in self.live and tensor not in self.taken and node.op_type not in VIEWS:
                yield self._end(node, tensor)

    def _end(self, node: onnx.NodeProto, tensor: str) -> _OnnxLayerOutput:
        nodes = [node]
        while tensor not in self.ends and len(readers := self.readers.get(tensor, [])) == 1:
            (reader,) = readers
            if reader.op_type == QUANTIZE:
                return _OnnxLayerOutput(tuple(nodes), tensor, reader)
            if not self._takes_in(node.op_type, reader, tensor):
                break
            nodes.append(reader)
            tensor = self._made(reader)
            self.taken.add(tensor)
        return _OnnxLayerOutput(tuple(nodes), tensor)

    def _takes_in(self, product: str, reader: onnx.NodeProto, tensor: str) -> bool:
        """Whether what reads a layer's answer is computed with it."""
        kind, others = reader.op_type, {*reader.input} - {tensor}
        if kind in CLIPS or (product in ("Conv", "Gemm") and kind in ACTIVATIONS):
            return bool(reader.input[0] == tensor)
        if product in INTEGER and kind in ("Cast", "Mul"):
            return True
        return product in PRODUCTS and kind in ("Add", "Mul") and len(others) == 1 and others.isdisjoint(self.live)

    @staticmethod
    def _made(node: onnx.NodeProto) -> str:
        """A node's first answer: of recurrent ones it may be left out."""
        return next((str(tensor) for tensor in node.output if tensor), "")

    def name(self, node: onnx.NodeProto) -> str:
        """A node's name, as the float graph has it that `skip` is told of."""
        name = str(node.name) or f"{node.op_type}_{self._made(node)}"
        return name.removesuffix("_quant") if node.op_type in RENAMED else name

    def words(self, nodes: Sequence[onnx.NodeProto]) -> dict[str, str]:
        """A row's words on a layer; its module is that of a weight which is its alone, as torch names those."""
        weights = (w for node in nodes for t in node.input if t not in self.live for w in self._sources(t))
        modules = (
            match[1].removeprefix(WRAPPER)
            for weight in weights
            if (match := re.match(r"(.+)\.(weight|bias)(_|$)", weight))
        )
        words = {"operator": self.name(nodes[0]), "type": str(nodes[0].op_type)}
        return {**words, "layout": "", "module": next(modules, "")}

    def told(self, node: onnx.NodeProto) -> WatchedOperator:
        """A node as `diff` reads it; a constant that others compute from the file's has that one's name."""
        import onnx

        constants, todo = list[str](), [str(t) for t in node.input if t and t not in self.live]
        while todo:
            tensor = todo.pop(0)
            maker = self.makers.get(tensor)
            todo += [str(t) for t in maker.input[:1]] if maker is not None else []
            constants += [] if maker is not None and maker.input else [tensor]
        kept = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute if not a.HasField("g")}
        words = self.words([node])
        return WatchedOperator(
            words["operator"],
            words["type"],
            tuple(str(t) for t in [*node.input, *_read_inside(node)] if t in self.live),
            tuple(str(t) for t in node.output if t in self.live),
            tuple(constants),
            attributes(kept),
            words["module"],
        )

    def _sources(self, tensor: str) -> list[str]:
        """The constant, perhaps dequantized, that one node alone reads."""
        maker = self.makers.get(tensor)
        path = [tensor, maker.input[0]] if maker is not None and maker.op_type == DEQUANTIZE else [tensor]
        return [str(path[-1])] if all(len(self.readers[t]) == 1 for t in path) else []

    def integer(self, quantize: onnx.NodeProto | None) -> str:
        """The dtype that a QuantizeLinear makes, or nothing without one."""
        from onnx import TensorProto, helper

        if quantize is None:
            return ""
        zero = next((t for t in self.proto.initializer if t.name in quantize.input[2:3]), None)
        return str(helper.tensor_dtype_to_np_dtype(zero.data_type if zero is not None else TensorProto.UINT8))


def _read_inside(node: onnx.NodeProto) -> Iterator[str]:
    """What the bodies of a loop or a branch read."""
    for attribute in node.attribute:
        for inner in attribute.g.node if attribute.HasField("g") else ():
            yield from inner.input
            yield from _read_inside(inner)


# --------------------------------------------------------------------------- their types and shapes, seen in a run


def _seen(proto: onnx.ModelProto, tensors: Sequence[str], model: Artifact) -> dict[str, tuple[str, _Place | None]]:
    """The dtype of each tensor of floats, and how it is handed out: None where it has no rows for each item."""
    import numpy as np

    least, most = (model.batch,) * 2 if isinstance(model.batch, int) else (model.batch.min, model.batch.max)
    # the batches to run: two where the model takes any
    sizes: tuple[int, ...] = BATCHES if least <= BATCHES[0] and most >= BATCHES[1] else (least,)
    session = _session(proto, tensors)
    values = {v.name: v for v in session.get_outputs() if v.type in FLOATS and v.name in {*tensors}}
    shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in values}
    for size in sizes if values else ():
        zeros = {s.name: np.zeros(s.concrete(size), s.dtype) for s in model.inputs}
        try:
            outputs: Sequence[np.ndarray] = session.run(list(values), zeros)
        except Exception as error:
            why = f"the model with added layer outputs does not run: {first_line(error)}"
            raise StageFailed(f"runtime onnx: {why}") from error
        for name, array in zip(values, outputs, strict=True):
            shapes[name].append(array.shape)
    dims = {d.name: d for spec in model.inputs for d in spec.shape if isinstance(d, Dim)}
    batch = model.batch if len(sizes) > 1 else sizes[0]
    return {
        name: (FLOATS[value.type], _placed(_named(value.shape, shapes[name][0], dims), shapes[name], sizes, batch))
        for name, value in values.items()
    }


def _session(proto: onnx.ModelProto, tensors: Sequence[str]) -> onnxruntime.InferenceSession:
    """A session that answers `tensors` too."""
    import onnx
    import onnxruntime

    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    known = {value.name for value in copy.graph.output}
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in tensors if name not in known)
    try:
        return onnxruntime.InferenceSession(copy.SerializeToString(), options(1), providers=[CPU])
    except Exception as error:  # ONNX Runtime has a class per status, and no common one but Exception
        raise StageFailed(
            f"runtime onnx: the layer outputs cannot be added to the model: {first_line(error)}"
        ) from error


def _named(known: Sequence[int | str | None], sizes: tuple[int, ...], dims: Mapping[str, Dim]) -> Shape:
    """A tensor's shape, its dynamic axes by the inputs' names; behind a branch not even how many there are is known."""
    names = known if len(known) == len(sizes) else [None] * len(sizes)
    return tuple(
        size if isinstance(name, int) else dims.get(name or "", size) for name, size in zip(names, sizes, strict=True)
    )


def _placed(shape: Shape, shapes: Shapes, sizes: tuple[int, ...], batch: int | Dim) -> _Place | None:
    """How to bring the batch to axis 0: as it is, by moving its axis, or by splitting the rows of an item off."""
    axes = list(range(len(shape)))
    axis = next((i for i in axes if tuple(s[i] for s in shapes) == sizes), None)
    if axis is not None:
        order = (axis, *(i for i in axes if i != axis))
        rest = tuple(shape[i] for i in order[1:])
        return _Place((batch, *rest), "Transpose" if axis else "", order if axis else ())
    if sizes == (1,):
        return _Place((1, *shape), "Reshape", (1, *shapes[0]))
    rows = {s[0] / size for s, size in zip(shapes, sizes, strict=True)} if axes else set()
    fixed = [d for d in shape[1:] if isinstance(d, int)]
    if len(rows) != 1 or not (each := rows.pop()).is_integer() or len(fixed) < len(shape) - 1:
        return None
    return _Place((batch, int(each), *fixed), "Reshape", (-1, int(each), *fixed))


# --------------------------------------------------------------------------- the further outputs


def _hand_out(graph: onnx.GraphProto, layer: _OnnxLayerOutput, name: str, place: _Place) -> None:
    """A node of its own makes the output: what the layer's answer feeds is fused as before."""
    import onnx
    from onnx import helper, numpy_helper

    inner = f"{name}_inner" if place.move else name
    if layer.quantize is None:
        graph.node.append(helper.make_node("Identity", [layer.tensor], [inner], inner))
    else:
        back = helper.make_node(DEQUANTIZE, [layer.quantize.output[0], *layer.quantize.input[1:]], [inner], inner)
        back.attribute.extend(a for a in layer.quantize.attribute if a.name in ("axis", "block_size"))
        graph.node.append(back)
    if place.move == "Transpose":
        graph.node.append(helper.make_node("Transpose", [inner], [name], name, perm=place.how))
    elif place.move:
        import numpy as np

        graph.initializer.append(numpy_helper.from_array(np.array(place.how, np.int64), f"{name}_shape"))
        graph.node.append(helper.make_node("Reshape", [inner, f"{name}_shape"], [name], name))
    graph.output.append(onnx.ValueInfoProto(name=name))


# --------------------------------------------------------------------------- every value


def watched(request: Request) -> Artifact:
    """The input "model" with each real number that it computes as a further output; see core.watched_graph.

    The kernels are those of each operator alone: ONNX Runtime fuses nothing whose inner values are handed out. Raises
    StageFailed where it does not run so.
    """
    import onnx
    from onnx import helper

    model = request.model
    proto = external.load(model.file(".onnx"))
    graph = _OnnxGraph(proto.graph)
    made = [str(t) for node in proto.graph.node for t in node.output if t in graph.live and t not in graph.ends]
    typed = {value.name: FLOATS.get(value.type, "") for value in _session(proto, made).get_outputs()}
    operators = [graph.told(node) for node in proto.graph.node if graph.live & {*node.output}]
    ends = [(spec.name, spec.name) for spec in model.outputs]
    values, specs = [*ends], list[TensorSpec]()
    for tensor in filter(typed.get, made):
        name = f"value_{len(specs)}"
        proto.graph.node.append(helper.make_node("Identity", [tensor], [name], name))
        proto.graph.output.append(onnx.ValueInfoProto(name=name))
        specs.append(TensorSpec(name, (), typed[tensor]))
        values.append((name, tensor))
    onnx.save_model(proto, request.out / FILE)
    held = {each.name: onnx.numpy_helper.to_array(each) for each in proto.graph.initializer}
    held |= {
        str(node.output[0]): onnx.numpy_helper.to_array(a.t)
        for node in proto.graph.node
        for a in node.attribute
        if node.op_type == "Constant" and a.name == "value"
    }
    told = written(request.out, values, ends, operators, held)
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {**told}).write()
