"""An ONNX file as nodes with plain attributes and constants, functions inlined and branches that are known taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import onnx

Sizes: TypeAlias = "tuple[int | str, ...]"  # of axes; one that is open has a name, "" where nobody named it
DOMAINS = ("", "ai.onnx")  # the standard's own


@dataclass(frozen=True)
class Node:
    """One call of an operator. `opset` is the version of its domain; an input that is left out has the name ""."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    opset: int

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what it is when it is left out."""
        return self.attributes.get(name, default)


@dataclass
class Graph:
    """Nodes in the order of computing; the constants that the file holds; the names that go in and come out."""

    nodes: list[Node]
    constants: dict[str, np.ndarray]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    readers: Counter[str] = field(default_factory=Counter)
    shapes: Mapping[str, Sizes] = field(default_factory=dict)

    def count(self) -> None:
        """How many nodes read each tensor; an output of the net counts as read."""
        self.readers = Counter(name for node in self.nodes for name in node.inputs if name)
        self.readers.update(self.outputs)


def read(file: Path) -> Graph:
    """The graph of a valid file. Raises ValueError for a domain that is not the standard's own."""
    import onnx

    return of(onnx.load_model(file))


def of(model: onnx.ModelProto) -> Graph:
    """The graph of a valid model. Raises ValueError for a domain that is not the standard's own."""
    from onnx import inliner

    if model.functions:
        model = inliner.inline_local_functions(model)
    model = _with_shapes(model)
    opset = next((entry.version for entry in model.opset_import if entry.domain in DOMAINS), 1)
    constants = _constants(model.graph)
    nodes = list(_nodes(model.graph, opset))
    inputs = tuple(value.name for value in model.graph.input if value.name not in constants)
    graph = Graph(nodes, constants, inputs, tuple(value.name for value in model.graph.output))
    graph.shapes = dict(_shapes(model.graph))
    graph.count()
    return graph


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the shapes that can be inferred; where inference fails, with those that the file states."""
    from onnx import shape_inference

    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # onnx raises its own class, and protobuf ValueError above 2 GiB
        return model


def _shapes(graph: onnx.GraphProto) -> Iterator[tuple[str, Sizes]]:
    """The shapes that are known."""
    for value in (*graph.input, *graph.value_info, *graph.output):
        kind = value.type.tensor_type
        if kind.HasField("shape"):
            yield (
                value.name,
                tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param for dim in kind.shape.dim),
            )


def _constants(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    from onnx import numpy_helper

    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return constants | {sparse.values.name: _dense(sparse) for sparse in graph.sparse_initializer}


def _dense(sparse: onnx.SparseTensorProto) -> np.ndarray:
    import numpy as np
    from onnx import numpy_helper

    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    whole = np.zeros(tuple(sparse.dims), values.dtype)
    places = tuple(indices.T) if indices.ndim == 2 else np.unravel_index(indices, tuple(sparse.dims))
    whole[places] = values
    return whole


def _nodes(graph: onnx.GraphProto, opset: int, prefix: str = "") -> Iterator[Node]:
    for index, node in enumerate(graph.node):
        name = node.name or f"{node.op_type}_{index}"
        op = node.op_type if node.domain in DOMAINS else f"{node.domain}.{node.op_type}"
        attributes = {a.name: _value(a, opset) for a in node.attribute if a.type or a.ref_attr_name}
        yield Node(prefix + name, op, tuple(node.input), tuple(node.output), attributes, opset)


def _value(attribute: onnx.AttributeProto, opset: int) -> Any:
    """An attribute as numbers, text, arrays, or a graph."""
    from onnx import helper, numpy_helper

    value = helper.get_attribute_value(attribute)
    kind = attribute.type
    if kind == attribute.STRING:
        return value.decode(errors="replace")
    if kind == attribute.STRINGS:
        return [text.decode(errors="replace") for text in value]
    if kind == attribute.TENSOR:
        return numpy_helper.to_array(value)
    if kind == attribute.SPARSE_TENSOR:
        return _dense(value)
    if kind == attribute.GRAPH:
        return branch(value, opset)
    return list(value) if kind in (attribute.INTS, attribute.FLOATS) else value


def branch(graph: onnx.GraphProto, opset: int) -> Graph:
    """The body of a condition or a loop."""
    inside = Graph(
        list(_nodes(graph, opset)),
        _constants(graph),
        tuple(value.name for value in graph.input),
        tuple(value.name for value in graph.output),
    )
    inside.count()
    return inside


def missing(graph: Graph, known: Iterable[str]) -> dict[str, int]:
    """The operators that are not `known`, with how often they occur, those of bodies too."""
    every = Counter(node.op for node in _every(graph))
    return {op: n for op, n in every.most_common() if op not in {*known}}


def _every(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _every(value)


def inside(body: Graph, prefix: str, given: Mapping[str, str]) -> Graph:
    """A body with names of its own: what it makes and holds begins with `prefix`, its inputs are called as in `given`.

    What it reads from outside keeps its name.
    """
    own = {name for node in body.nodes for name in node.outputs if name} | {*body.constants}
    names = {**{name: prefix + name for name in own}, **given}

    def renamed(node: Node) -> Node:
        inputs, outputs = (tuple(names.get(name, name) for name in side) for side in (node.inputs, node.outputs))
        attributes = {key: nested(value) for key, value in node.attributes.items()}
        return Node(prefix + node.name, node.op, inputs, outputs, attributes, node.opset)

    def nested(value: Any) -> Any:
        if not isinstance(value, Graph):
            return value
        hidden = {*value.inputs, *value.constants, *(name for node in value.nodes for name in node.outputs)}
        outer = {name: new for name, new in names.items() if name not in hidden}
        nodes = [
            Node(n.name, n.op, tuple(outer.get(i, i) for i in n.inputs), n.outputs, n.attributes, n.opset)
            for n in value.nodes
        ]
        kept = Graph(nodes, value.constants, value.inputs, tuple(outer.get(o, o) for o in value.outputs))
        kept.count()
        return kept

    constants = {names[name]: array for name, array in body.constants.items()}
    made = Graph([renamed(node) for node in body.nodes], constants, (), tuple(names.get(n, n) for n in body.outputs))
    made.count()
    return made
