"""What strangers' ONNX files have and tools stumble over, settled before anything else reads them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.model import Dim, Request, TensorSpec
from edgecompress.data import declared_ends, dynamic_axes
from edgecompress.engines.onnx import branches
from edgecompress.engines.onnx.graph_edits import CONSTANTS
from edgecompress.engines.onnx.session import CPU, options

if TYPE_CHECKING:
    import onnx

FIELDS = ("f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs", "sparse_tensor", "sparse_tensors")
ALIAS = "ai.onnx"  # of the standard's own domain, ""
TABLES = "ai.onnx.ml"
TYPES = {name: number for number, name in enumerate(FIELDS, 1)}  # of an attribute, by the field that has its value


def type_attributes(nodes: Iterable[onnx.NodeProto]) -> None:
    """Gives attributes the type of their value, which some exporters leave undefined; takes those of no value away."""
    for node in nodes:
        for attribute in [a for a in node.attribute if a.HasField("type") and not a.type]:
            value = next((field.name for field, _ in attribute.ListFields() if field.name in TYPES), "")
            if value:
                attribute.type = TYPES[value]
            else:
                node.attribute.remove(attribute)
        for body in bodies(node):
            type_attributes(body)


def one_opset(proto: onnx.ModelProto) -> None:
    """Makes one of a domain that is imported twice, "" and "ai.onnx" among them: the last, as ONNX Runtime does."""
    from onnx import helper

    for owner in (proto, *proto.functions):
        versions: dict[str, int] = {}
        for entry in owner.opset_import:
            versions["" if entry.domain == ALIAS else entry.domain] = entry.version
        del owner.opset_import[:]
        owner.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in versions.items())
    for nodes in (proto.graph.node, *(function.node for function in proto.functions)):
        _drop_alias(nodes)


def _drop_alias(nodes: Iterable[onnx.NodeProto]) -> None:
    for node in nodes:
        node.domain = "" if node.domain == ALIAS else node.domain
        for body in bodies(node):
            _drop_alias(body)


def of_tables(proto: onnx.ModelProto) -> list[str]:
    """What is told of operators that ONNX Runtime alone has: those of the classical models, such as trees."""
    found = Counter(node.op_type for node in proto.graph.node if node.domain == TABLES)
    if not found:
        return []
    named = ", ".join(f"{name} ({count})" for name, count in found.items())
    return [
        f'only ONNX Runtime has the operators {named} of {TABLES}: of a target, its variants with runtime = "onnx" '
        "remain, without int8; --target x86, arm64 or web has some, and package --as android or ios takes what it ships"
    ]


def bodies(node: onnx.NodeProto) -> Iterator[Iterable[onnx.NodeProto]]:
    """The nodes of the graphs within a node: the branches of an If, the body of a Loop."""
    yield from (attribute.g.node for attribute in node.attribute if attribute.HasField("g"))


@contextlib.contextmanager
def some_shape(proto: onnx.ModelProto) -> Iterator[None]:
    """Outputs whose shape the file does not say have one meanwhile: onnx asks for it, no runtime does."""
    import onnx

    kinds = [value.type.tensor_type for value in proto.graph.output if value.type.HasField("tensor_type")]
    without = [kind for kind in kinds if not kind.HasField("shape")]
    if without:
        shaped = onnx.shape_inference.infer_shapes(proto).graph.output
        shapes = {value.name: value.type.tensor_type.shape for value in shaped}
        for value in proto.graph.output:
            if not value.type.tensor_type.HasField("shape"):
                value.type.tensor_type.shape.CopyFrom(shapes[value.name])
    yield
    for kind in without:
        kind.ClearField("shape")


def free_weights(proto: onnx.ModelProto) -> None:
    """Weights are constants: a file from before IR 4 lists them as inputs, which may be fed."""
    weights = {tensor.name for tensor in proto.graph.initializer}
    for value in [value for value in proto.graph.input if value.name in weights]:
        proto.graph.input.remove(value)
    proto.ir_version = max(proto.ir_version, CONSTANTS)


def plain_outputs(graph: onnx.GraphProto) -> list[str]:
    """Makes a classifier's list of {class: probability} the probabilities; text is left out, where there is more."""
    from onnx import TensorProto, helper

    makers = {name: node for node in graph.node for name in node.output}
    for value in graph.output:
        node = makers.get(value.name)
        if node is not None and node.op_type == "ZipMap":
            classes = max(len(a.ints) or len(a.strings) for a in node.attribute)
            node.op_type, node.domain = "Identity", ""
            del node.attribute[:]
            value.CopyFrom(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, ["batch", classes]))
    _gather_labels(graph)
    texts = [value.name for value in graph.output if value.type.tensor_type.elem_type == TensorProto.STRING]
    if len(texts) == len(graph.output):
        return []
    kept = [value for value in graph.output if value.name not in texts]
    del graph.output[:]
    graph.output.extend(kept)
    drop_unread(graph)
    return [f"the output '{name}' is text, and left out" for name in texts]


def _gather_labels(graph: onnx.GraphProto) -> None:
    """Picks a classifier's label out of the row of all by the operator that every runtime has."""
    rows = {tensor.name: tensor for tensor in graph.initializer if len(tensor.dims) == 1}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    for node in graph.node:
        reshaped = {reader.op_type for reader in readers.get(node.output[0], ())} == {"Reshape"}
        if node.op_type == "ArrayFeatureExtractor" and node.input[0] in rows and reshaped:
            node.op_type, node.domain = "Gather", ""


def drop_unread(graph: onnx.GraphProto) -> None:
    """Takes away what no output needs any more."""
    while True:
        read = {value.name for value in graph.output} | {name for node in graph.node for name in branches.read_by(node)}
        unread = [node for node in graph.node if read.isdisjoint(node.output)]
        if not unread:
            break
        for node in unread:
            graph.node.remove(node)
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in read]:
        graph.initializer.remove(tensor)


def put_constants(graph: onnx.GraphProto, constants: Mapping[str, object], where: str) -> None:
    """Makes initializers of inputs that are constants. Raises InputError for a name or a value that is not theirs."""
    from onnx import helper, numpy_helper

    declared_ends.check_constants(constants, [value.name for value in graph.input], where)
    for value in [value for value in graph.input if value.name in constants]:
        kind = value.type.tensor_type
        dtype = str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        shape = [dim.dim_value or 1 for dim in kind.shape.dim]
        array = declared_ends.constant(value.name, constants[value.name], dtype, shape, where)
        graph.initializer.append(numpy_helper.from_array(array, value.name))
        graph.input.remove(value)


def close_axes(graph: onnx.GraphProto, dynamic: Mapping[str, Mapping[str, str]]) -> dict[str, dict[int, Dim]]:
    """Gives open axes the one size that they are declared to have; returns the ranges of the others."""
    values = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    dims = dynamic_axes.declared(dynamic, [*values])
    single = {
        name: {axis: dim.min for axis, dim in axes.items() if axis and dim.min == dim.max}
        for name, axes in dims.items()
    }
    _set_sizes(graph, single)
    return {name: {i: dim for i, dim in axes.items() if i not in single[name]} for name, axes in dims.items()}


def _set_sizes(graph: onnx.GraphProto, sizes: Mapping[str, Mapping[int, int]]) -> list[str]:
    """Gives axes of inputs their sizes, and all that have their names; the axes, in words."""
    values = {value.name: value.type.tensor_type.shape.dim for value in graph.input}
    batch = {dims[0].dim_param for dims in values.values() if dims}
    named: dict[str, int] = {}
    for name, axes in sizes.items():
        for axis, size in axes.items():
            dim = values[name][axis]
            named |= {dim.dim_param: size} if dim.dim_param and dim.dim_param not in batch else {}
            dim.dim_value = size
    branches.set_sizes(graph, named)
    return [f"axis {axis} of '{name}' ({size})" for name, axes in sizes.items() for axis, size in axes.items()]


def decide_branches(proto: onnx.ModelProto, request: Request) -> tuple[onnx.ModelProto, list[str]]:
    """The model without the Ifs that its sizes decide, where it answers alike; what is told of sizes that get fixed.

    Sizes that it leaves open are the data's, and the batch that of the context, where an If asks for them.
    """
    batch, told = request.context.batch, list[str]()
    if not branches.has(proto):
        return proto, told
    free, _ = branches.resolved(proto)
    if branches.has(free):
        sized = branches.copied(free)
        fixed = _set_sizes(sized.graph, _sizes_of_data(proto.graph, request))
        closed, taken = branches.resolved(sized)
        if fixed and taken:
            free = closed
            sizes, first = ", ".join(fixed), next(iter(taken))
            told.append(f"an If of the model ('{first}') asks for a size: it is taken for {sizes} as in the data")
    if branches.has(free):
        (one, taken), (_, other) = (branches.resolved(branches.with_batch(free, size)) for size in (batch, batch + 1))
        if differ := [name for name, branch in taken.items() if other.get(name) != branch]:
            free = one
            told.append(f"an If of the model ('{differ[0]}') asks for the batch: it is taken for a batch of {batch}")
    return (free, told) if _alike(proto, free, batch) else (proto, [])


def _sizes_of_data(graph: onnx.GraphProto, request: Request) -> dict[str, dict[int, int]]:
    """The sizes of the data, by input and axis, where the model leaves them open and nobody declared them."""
    data = request.inputs["samples"].inputs if "samples" in request.inputs else ()
    state, dynamic = request.options.get("state", {}), request.options.get("dynamic", {})
    specs = [
        TensorSpec(
            v.name, tuple(d.dim_value if d.HasField("dim_value") else Dim("open") for d in v.type.tensor_type.shape.dim)
        )
        for v in graph.input
        if v.name not in state
    ]
    return dynamic_axes.sizes(specs, data, dynamic_axes.declared(dynamic, [value.name for value in graph.input]))


def _alike(proto: onnx.ModelProto, other: onnx.ModelProto, batch: int) -> bool:
    """Whether two models answer alike to random numbers of the sizes of `other`."""
    import numpy as np
    import onnxruntime
    from onnx import helper

    generator, items = np.random.default_rng(0), dict[str, np.ndarray]()
    try:
        sessions = [
            onnxruntime.InferenceSession(each.SerializeToString(), options(1), providers=[CPU])
            for each in (proto, other)
        ]
        for value in other.graph.input:
            kind = value.type.tensor_type
            shape = [dim.dim_value or (1 if axis else batch) for axis, dim in enumerate(kind.shape.dim)]
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            drawn = generator.normal(size=shape) if dtype.kind == "f" else generator.integers(0, 2, shape)
            items[value.name] = drawn.astype(dtype)
        ours, theirs = (session.run(None, items) for session in sessions)
    except Exception:  # whatever keeps the one or the other from running is told where the source runs
        return False
    return all(np.allclose(a, b, rtol=1e-3, atol=1e-4, equal_nan=True) for a, b in zip(ours, theirs, strict=True))
