"""Operators of TensorFlow that engines lack, in a graph, as the simpler ones that compute them.

Each function takes TensorFlow, the operator's attributes and its inputs, by the formula of TensorFlow's documentation.
It returns NotImplemented for what it is not for: the operator then stays.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

SMALL = 1024  # numbers of a constant that is looked at


# --------------------------------------------------------------------------- in a graph


def simpler(graph: GraphDef, lacking: Collection[str]) -> GraphDef:
    """A copy of a graph without operators that are `lacking`, wherever TABLE has a function for their arguments.

    What comes of the sizes of tensors alone is constant in it: a converter may take no other size.
    """
    from tensorflow.python.framework import function_def_to_graph

    made = _settled(graph)
    for nodes, function in ((made.node, None), *((each.node_def, each) for each in made.library.function)):
        found = [node for node in nodes if node.op in lacking and node.op in TABLE]
        if not found:
            continue
        flat, names = (made, {}) if function is None else function_def_to_graph.function_def_to_graph_def(function)
        flat.library.CopyFrom(graph.library)
        known, makers = _imported(flat), {node.name: node for node in nodes}
        for node in found:
            maker = makers.get(node.input[0].partition(":")[0], node)
            joined = node.op in PARTS and maker.op == "RFFT"  # no engine has the numbers between them
            given = [each for each in (maker if joined else node).input if not each.startswith("^")]
            read = [names.get(each, each) for each in given]
            tensors = [known.get_tensor_by_name(each if ":" in each else f"{each}:0") for each in read]
            with contextlib.suppress(Exception):  # of arguments that a function is not for
                _put(nodes, node, (_body(node, tensors), given), function)
    return made


def _imported(graph: GraphDef) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default() as known:
        tf.import_graph_def(graph, name="")
    return known


def _settled(graph: GraphDef) -> GraphDef:
    """A copy of a graph; what comes of sizes alone, and is no other for other numbers of items, is constant in it."""
    import numpy as np
    import tensorflow as tf

    made, known = type(graph).FromString(graph.SerializeToString()), _imported(graph)
    sized, chosen, found = dict[str, bool](), list[Any](), list[Any]()
    for operator in known.get_operations():  # each after those that it reads
        read = [tensor.op for tensor in operator.inputs]
        if operator.type == "Shape":
            sized[operator.name] = True
        elif read and all(each.name in sized or each.type == "Const" for each in read):
            sized[operator.name] = any(sized.get(each.name) for each in read)
            if sized[operator.name] and [0 < (t.shape.num_elements() or 0) <= SMALL for t in operator.outputs] == [
                True
            ]:
                chosen.append(operator.outputs[0])
    ends = [each.outputs[0] for each in known.get_operations() if each.type == "Placeholder"]
    with contextlib.suppress(Exception), tf.compat.v1.Session(graph=known) as session:  # a net may not run here
        for items in (1, 2, 9) if chosen else ():
            given = {end: np.zeros([size or items for size in end.shape], end.dtype.as_numpy_dtype) for end in ends}
            found.append(session.run(chosen, given))
    values = {t.op.name: each for t, *each in zip(chosen, *found, strict=True)} if len(found) == 3 else {}
    for node in made.node:
        one, *more = values.get(node.name, [None])
        if one is not None and all(np.array_equal(one, each) for each in more):
            constant = tf.make_tensor_proto(one)
            node.op, node.input[:] = "Const", []
            node.attr.clear()
            node.attr["dtype"].type = constant.dtype
            node.attr["value"].tensor.CopyFrom(constant)
    return made


def _body(node: NodeDef, tensors: list[Any]) -> Any:
    """What takes an operator's place, as a function of its inputs; raises anything where nothing does."""
    import tensorflow as tf
    from tensorflow.python.framework import op_def_registry

    told: dict[str, Any] = {a.name: a.default_value for a in op_def_registry.get(node.op).attr} | dict(node.attr)
    told["shape"], told["read"] = tensors[0].graph.get_tensor_by_name(f"{node.name}:0").shape, tensors
    known = [tf.get_static_value(t) if 0 < (t.shape.num_elements() or 0) <= SMALL else None for t in tensors]

    def body(*read: Any) -> Any:
        return TABLE[node.op](tf, told, *(r if v is None else v for v, r in zip(known, read, strict=True)))

    types = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors]
    return tf.function(body, autograph=False).get_concrete_function(*types)


def _put(nodes: Any, node: NodeDef, called: tuple[Any, list[str]], function: Any) -> None:
    """The nodes of a body, called with tensors, in the place of a node, which becomes the name of what they compute.

    In the library's functions "name:output:0" is a tensor, in the graph "name:0" or "name".
    """
    (body, given), name = called, node.name
    inside = body.graph.as_graph_def() if function is None else body.function_def
    ends = [tensor.op for tensor in body.inputs] if function is None else inside.signature.input_arg
    outer: dict[str, str] = dict(zip((end.name for end in ends), given, strict=True))
    answer = body.outputs[0].name if function is None else next(iter(inside.ret.values()))

    def told(reference: str) -> str:
        return outer.get(reference.partition(":")[0], f"{name}/{reference}")

    for each in inside.node if function is None else inside.node_def:
        if each.name not in outer:
            copy = nodes.add()
            copy.CopyFrom(each)
            copy.name = f"{name}/{each.name}"
            copy.input[:] = [told(reference) for reference in each.input if not reference.startswith("^")]
    node.Clear()
    node.name, node.op = name, "Identity"
    node.input.append(told(answer))
    node.attr["T"].type = body.outputs[0].dtype.as_datatype_enum
    if function is not None:
        for each in nodes:
            each.input[:] = [f"{name}:output:0" if i.startswith(f"{name}:") else i for i in each.input]
        for end, reference in function.ret.items():
            function.ret[end] = f"{name}:output:0" if reference.startswith(f"{name}:") else reference


# --------------------------------------------------------------------------- the operators


def dense_bincount(tf: Any, told: Mapping[str, Any], x: Any, count: Any, weights: Any) -> Any:
    """How often each number is there, or whether it is; of weights their sums."""
    most = told["read"][1].op
    if tf.is_tensor(count) and most.type == "Minimum" and most.inputs[1].op.type == "Maximum":
        count, least = (tf.get_static_value(each.inputs[0]) for each in (most, most.inputs[1].op))
        count = count if count == least else None
    if count is None or tf.is_tensor(count):
        return NotImplemented
    ones = tf.one_hot(x, int(count), dtype=weights.dtype)
    if told["binary_output"].b:
        return tf.reduce_max(ones, -2)
    return tf.reduce_sum(ones if 0 in weights.shape else ones * weights[..., None], -2)


def pool_3d(pool: str, tf: Any, told: Mapping[str, Any], x: Any) -> Any:
    """A pool over height and width, then one over depth: both may be over fewer numbers at the edges."""
    if told["data_format"].s == b"NCDHW" or None in x.shape[1:]:
        return NotImplemented
    (_, deep, *size, _), (_, far, *stride, _) = told["ksize"].list.i, told["strides"].list.i
    how, (_, depth, *plane, channels), run = told["padding"].s.decode(), x.shape, getattr(tf.nn, pool)
    flat = run(tf.reshape(x, [-1, *plane, channels]), size, stride, how)
    high, wide = flat.shape[1:3]
    line = run(tf.reshape(flat, [-1, depth, high * wide, channels]), (deep, 1), (far, 1), how)
    return tf.reshape(line, [-1, line.shape[1], high, wide, channels])


def conv_3d(tf: Any, told: Mapping[str, Any], x: Any, weights: Any) -> Any:
    """A convolution of channels that come first, or of groups, by those of one group and channels that come last."""
    first, strides = told["data_format"].s == b"NCDHW", list(told["strides"].list.i)
    if first:
        x, strides = tf.transpose(x, (0, 2, 3, 4, 1)), [strides[i] for i in (0, 2, 3, 4, 1)]
    ranks = [tf.TensorShape(each.shape).rank for each in (x, weights)]
    open_ones = None in ranks or None in (x.shape[-1], weights.shape[-2])
    groups = 1 if open_ones else x.shape[-1] // weights.shape[-2]  # in a loop they are not known
    if not first and groups == 1:
        return NotImplemented
    parts = zip(tf.split(x, groups, -1), tf.split(weights, groups, -1), strict=True)
    done = tf.concat([tf.nn.conv3d(part, w, strides, told["padding"].s.decode()) for part, w in parts], -1)
    return tf.transpose(done, (0, 4, 1, 2, 3)) if first else done


def conv_2d_back(tf: Any, told: Mapping[str, Any], _: Any, weights: Any, x: Any) -> Any:
    """A transposed convolution of a known size; what the size has more than the windows is in these, as zeros."""
    size, strides, steps = told["shape"][1:], told["strides"].list.i, told["dilations"].list.i
    if None in size or told["data_format"].s != b"NHWC" or told["padding"].s == b"EXPLICIT" or set(steps) != {1}:
        return NotImplemented
    if told["padding"].s == b"VALID":
        ends = [size[i] - (x.shape[i + 1] - 1) * strides[i + 1] - weights.shape[i] for i in (0, 1)]
        weights = tf.pad(weights, [(0, max(0, ends[0])), (0, max(0, ends[1])), (0, 0), (0, 0)])
    return tf.nn.conv2d_transpose(x, weights, [tf.shape(x)[0], *size], list(strides), told["padding"].s.decode())


def scale_and_translate(tf: Any, told: Mapping[str, Any], x: Any, *known: Any) -> Any:
    """To a known size: a product with the weights of the rows, and one with those of the columns."""
    if any(map(tf.is_tensor, known)) or None in x.shape[1:3]:
        return NotImplemented
    kinds = {"kernel_type": told["kernel_type"].s.decode(), "antialias": told["antialias"].b}
    for axis, (size, scale, shift) in enumerate(zip(*known, strict=True)):
        own = x.shape[1 + axis]
        with tf.init_scope():  # of a picture whose columns are a place each
            weights = tf.raw_ops.ScaleAndTranslate(
                images=tf.eye(own)[None, ..., None], size=[size, own], scale=[scale, 1], translation=[shift, 0], **kinds
            ).numpy()[0, ..., 0]
        x = tf.einsum(("ab,nbwc->nawc", "ab,nhbc->nhac")[axis], weights, tf.cast(x, tf.float32))
    return x


def spectrum(part: str, tf: Any, told: Mapping[str, Any], x: Any, length: Any = None) -> Any:
    """A part of the Fourier transform of real numbers: products with its cosines and with its sines."""
    import numpy as np

    if length is None or tf.is_tensor(length) or x.shape[-1] is None:
        return NotImplemented
    many, own = int(length[0]), min(int(length[0]), x.shape[-1])
    angles = 2 * np.pi / many * (np.outer(np.arange(own), np.arange(many // 2 + 1)) % many)
    real, imaginary = (tf.matmul(x[..., :own], tf.constant(w, x.dtype)) for w in (np.cos(angles), -np.sin(angles)))
    return {"Real": real, "Imag": imaginary, "ComplexAbs": tf.sqrt(real * real + imaginary * imaginary)}[part]


def bucketize(tf: Any, told: Mapping[str, Any], x: Any) -> Any:
    edges = tf.constant(list(told["boundaries"].list.f), tf.float32)
    return tf.reduce_sum(tf.cast(tf.cast(x, tf.float32)[..., None] >= edges, tf.int32), -1)


def from_constant(name: str, tf: Any, told: Mapping[str, Any], x: Any, y: Any) -> Any:
    """A difference from a constant, or a quotient of one, with the constant on the right; a quotient of a row.

    Where LiteRT's converter moves a transpose behind these, it turns the two around.
    """
    todo, turned = [told["read"][1].op], False
    while todo:
        maker = todo.pop()
        turned = turned or maker.type == "Transpose" or b"NCHW" in [maker.node_def.attr["data_format"].s]
        todo += [each.op for each in maker.inputs] if maker.type in MOVED else []
    if not turned or tf.is_tensor(x):
        return NotImplemented
    if name == "Sub":
        return y * tf.constant(-1, y.dtype) + x
    return tf.reshape(1 / tf.reshape(y, [-1]), tf.shape(y)) * x


# Behind what a transpose is moved
MOVED = ("Add", "AddV2", "BiasAdd", "FusedBatchNormV3", "Identity", "LeakyRelu", "Mul", "Neg", "Relu", "Relu6", "Sub")
PARTS = ("ComplexAbs", "Imag", "Real")
TABLE: Mapping[str, Callable[..., Any]] = {
    "AvgPool3D": partial(pool_3d, "avg_pool2d"),
    "MaxPool3D": partial(pool_3d, "max_pool2d"),
    "Bucketize": bucketize,
    "Conv2DBackpropInput": conv_2d_back,
    "Conv3D": conv_3d,
    "DenseBincount": dense_bincount,
    "Erfc": lambda tf, told, x: 1 - tf.math.erf(x),
    "Expm1": lambda tf, told, x: tf.tanh(x / 2) * (tf.exp(x) + 1),  # which keeps the digits of small numbers
    **{name: partial(from_constant, name) for name in ("RealDiv", "Sub")},
    "ScaleAndTranslate": scale_and_translate,
    **{part: partial(spectrum, part) for part in PARTS},
}
# That it has no kernel of, or makes of what is another
LITERT = {"AvgPool3D", "Conv3D", "DenseBincount", "MaxPool3D", "RealDiv", "ScaleAndTranslate", "Sub"}
# That it leaves, or makes of what no engine takes
TF2ONNX = {*TABLE} - {"AvgPool3D", "Conv3D", "MaxPool3D", "RealDiv", "Sub"}
