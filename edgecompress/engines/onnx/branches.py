"""An ONNX graph without the Ifs that its shapes decide: scripted nets ask for sizes that their export knows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.engines.onnx.session import CPU, options

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Values = np.ndarray  # of objects: numbers, and None where one is not known

IF = "If"
SMALL = 4096  # numbers of a constant that sizes are computed with
COMPARED: Mapping[str, Callable[..., Any]] = {
    "Add": operator.add,
    "And": lambda a, b: a and b,
    "Cast": lambda a: a,
    "Equal": operator.eq,
    "Greater": operator.gt,
    "GreaterOrEqual": operator.ge,
    "Less": operator.lt,
    "LessOrEqual": operator.le,
    "Mul": operator.mul,
    "Not": operator.not_,
    "Or": lambda a, b: a or b,
    "Sub": operator.sub,
}
NOT_FOLDED = {IF, "Loop", "Scan", "RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"}
RESHAPED = {"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"}  # of a single number, or a row as it is


def has(model: onnx.ModelProto) -> bool:
    """Whether it has an If."""
    return any(node.op_type == IF for node in model.graph.node)


def resolved(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, bool]]:
    """The model with the branches that are taken in the place of their Ifs, and which those are: {an output: taken}."""
    copy, taken = copied(model), dict[str, bool]()
    while True:
        _fold(copy)
        graph = _Known(copy)
        known = {
            node.output[0]: bool(value.item())
            for node in copy.graph.node
            if node.op_type == IF
            and (value := graph.value(node.input[0])) is not None
            and value.size == 1
            and value.item() is not None
        }
        if not known:
            return copy, taken
        _take(copy.graph, known)
        taken |= known


def read_by(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node, and the graphs inside of it, read."""
    yield from node.input
    yield from read_inside(node)


def read_inside(node: onnx.NodeProto) -> Iterator[str]:
    """What the graphs inside of a node read, of their own and of the graph around it."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield from (value.name for value in attribute.g.output)
            for inner in attribute.g.node:
                yield from read_by(inner)


def copied(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of its own."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The model with every axis 0 of its inputs that is open, and the axes of the same name, of that size."""
    copy = copied(model)
    first = [value.type.tensor_type.shape.dim[:1] for value in copy.graph.input]
    names = {dim.dim_param for dims in first for dim in dims if dim.dim_param}
    for dims in first:
        for dim in dims:
            if not dim.HasField("dim_value"):
                dim.dim_value = batch
    set_sizes(copy.graph, dict.fromkeys(names, batch))
    return copy


def set_sizes(graph: onnx.GraphProto, sizes: Mapping[str, int]) -> None:
    """Gives the dimensions of those names their sizes, and forgets what was inferred with the names."""
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    del graph.value_info[:]


# --------------------------------------------------------------------------- what is known before it runs


def _fold(model: onnx.ModelProto) -> None:
    """Puts small whole numbers that constants alone lead to into initializers: pads, sizes, axes."""
    import numpy as np
    import onnx
    import onnxruntime

    graph, known = model.graph, {t.name for t in model.graph.initializer if math.prod(t.dims) <= SMALL}
    nodes = []
    for node in graph.node:
        if node.op_type not in NOT_FOLDED and not node.domain and known.issuperset(filter(None, node.input)):
            nodes.append(node)
            known.update(node.output)
    made = [name for node in nodes for name in node.output if name]
    inner = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    inner.graph.name = "constants"
    inner.graph.node.extend(nodes)
    inner.graph.initializer.extend(t for t in graph.initializer if t.name in known)
    inner.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    if not made:
        return
    session = onnxruntime.InferenceSession(inner.SerializeToString(), options(1), providers=[CPU])
    values = dict(zip(made, session.run(made, {}), strict=True))
    whole = {n: v for n, v in values.items() if isinstance(v, np.ndarray) and v.dtype.kind in "iub" and v.size <= SMALL}
    for node in nodes:
        if whole.keys() >= {*filter(None, node.output)}:
            graph.node.remove(node)
            graph.initializer.extend(onnx.numpy_helper.from_array(whole[name], name) for name in node.output if name)


class _Known:
    """The numbers of a graph that its sizes tell."""

    def __init__(self, model: onnx.ModelProto) -> None:
        import onnx

        shaped = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self.shapes = {
            value.name: [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
            for value in (*shaped.input, *shaped.value_info, *shaped.output)
            if (kind := value.type.tensor_type).HasField("shape")
        }
        self.shapes |= {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
        self.constants = {t.name: t for t in model.graph.initializer if math.prod(t.dims) <= SMALL}
        self.makers = {name: node for node in model.graph.node for name in node.output}

    def value(self, name: str) -> Values | None:
        """The numbers of a tensor, as far as they are known; None where it is nothing of sizes."""
        import numpy as np
        from onnx import helper, numpy_helper

        if name in self.constants:
            return np.asarray(numpy_helper.to_array(self.constants[name]), object)
        node = self.makers.get(name)
        if node is None:
            return None
        if node.op_type in ("Shape", "Size"):
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            shape = self.shapes.get(node.input[0])
            if shape is None:
                return None
            if node.op_type == "Shape":
                return np.array(shape[attributes.get("start", 0) : attributes.get("end")], object)
            return np.array(None if None in shape else math.prod(size for size in shape if size is not None), object)
        given = [self.value(read) for read in node.input if read]
        known = [each for each in given if each is not None]
        return self._computed(node.op_type, known, name) if known and len(known) == len(given) else None

    def _computed(self, kind: str, given: Sequence[Values], name: str) -> Values | None:
        import numpy as np

        if kind in COMPARED:
            apply = COMPARED[kind]
            each = np.frompyfunc(lambda *n: None if None in n else apply(*n), len(given), 1)
            return np.asarray(each(*given), object)
        if kind == "Gather" and given[0].ndim == 1 and None not in given[1].ravel().tolist():
            return np.asarray(given[0][given[1].astype(np.int64)], object)
        if kind == "Concat" and all(each.ndim == 1 for each in given):
            row: Values = np.concatenate(given)
            return row
        if kind in RESHAPED and given[0].size == 1:
            one: Values = np.reshape(given[0], [1] * len(self.shapes.get(name, ())))
            return one
        return None


# --------------------------------------------------------------------------- the branch that is taken


def _take(graph: onnx.GraphProto, known: Mapping[str, bool]) -> None:
    """Puts the branches that are taken in the places of their Ifs."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        if node.op_type == IF and node.output[0] in known:
            wanted = "then_branch" if known[node.output[0]] else "else_branch"
            nodes += _unpacked(next(a.g for a in node.attribute if a.name == wanted), node, graph)
        else:
            nodes.append(node)
    kept = [type(node).FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(kept)


def _unpacked(branch: onnx.GraphProto, node: onnx.NodeProto, graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """A branch's nodes with names of their own, and what hands its outputs on; its weights become the graph's."""
    from onnx import helper

    made = [*(t.name for t in branch.initializer), *(name for inner in branch.node for name in inner.output if name)]
    names = {name: f"{node.output[0]}.{name}" for name in made}
    for tensor in branch.initializer:
        tensor.name = names[tensor.name]
        graph.initializer.append(tensor)
    for inner in branch.node:
        rename(inner, names)
    ends = zip(branch.output, node.output, strict=True)
    handed = [helper.make_node("Identity", [names.get(v.name, v.name)], [end], end) for v, end in ends if end]
    return [*branch.node, *handed]


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Gives the tensors that a node reads and makes, and those that graphs inside of it read, their new names."""
    for side in (node.input, node.output):
        side[:] = [names.get(name, name) for name in side]
    for attribute in node.attribute:
        for inner in attribute.g.node if attribute.HasField("g") else ():
            rename(inner, names)
        for value in attribute.g.output if attribute.HasField("g") else ():
            value.name = names.get(value.name, value.name)
