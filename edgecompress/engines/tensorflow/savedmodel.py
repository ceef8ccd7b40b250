"""SavedModels as this package keeps them: one frozen graph, its weights inside, with one signature of named tensors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tensorflow.core.framework.function_pb2 import FunctionDef
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef

FOLDER = "saved_model"  # of an artifact
FILE = "saved_model.pb"
SIGNATURE = "serving_default"


def tensorflow() -> Any:
    """The library, quiet, on CPUs only, the same numbers on each of them."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    os.environ["KERAS_BACKEND"] = "tensorflow"  # whichever one its author works with: a file is the same
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    return tf


def write(folder: Path, graph: GraphDef, ends: tuple[Mapping[str, object], Mapping[str, object]]) -> None:
    """A graph and {name: tensor info} of its inputs and outputs: the same bytes for the same net.

    TensorFlow's own writer would add a fingerprint, functions numbered by the process, and files of variables.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    meta = saved.meta_graphs.add()
    meta.meta_info_def.tags.append("serve")
    meta.graph_def.CopyFrom(graph)
    signature = meta.signature_def[SIGNATURE]
    signature.method_name = "tensorflow/serving/predict"
    for side, tensors in zip((signature.inputs, signature.outputs), ends, strict=True):
        for name, info in tensors.items():
            side[name].CopyFrom(info)
    folder.mkdir()
    (folder / FILE).write_bytes(saved.SerializeToString(deterministic=True))


def info(tensor: Any) -> object:
    """What a signature says of a tensor."""
    from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

    return TensorInfo(name=tensor.name, dtype=tensor.dtype.as_datatype_enum, tensor_shape=tensor.shape.as_proto())


def loadable(folder: Path, copy: Path) -> Path:
    """A user's folder, or a copy without what its optimizer keeps of each variable, and without functions of XLA.

    TensorFlow makes those slots by the optimizer's own class, which Keras 3 no longer has. What XLA is to compile, such
    as Keras' convolution in groups, is not put in the graph, and no converter looks into it.
    """
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((folder / FILE).read_bytes())
    nodes = [node for meta in saved.meta_graphs for node in meta.object_graph_def.nodes if node.slot_variables]
    functions = [function for meta in saved.meta_graphs for function in meta.graph_def.library.function]
    looped = any(node.op.endswith("While") for function in functions for node in function.node_def)  # no shapes inside
    compiled = [each for f in functions for each in (f, *f.node_def) if "_XlaMustCompile" in each.attr and not looped]
    if not nodes and not compiled:
        return folder
    for node in nodes:
        node.ClearField("slot_variables")
    for each in compiled:
        for mark in ("_XlaMustCompile", "_noinline"):
            each.attr.pop(mark, None)
    copy.mkdir()
    for part in folder.iterdir():
        if part.name != FILE:
            (copy / part.name).symlink_to(part.resolve())
    (copy / FILE).write_bytes(saved.SerializeToString())
    return copy


def parsed(folder: Path) -> tuple[GraphDef, dict[str, str], dict[str, str]]:
    """What `write` wrote: the graph, and {name: tensor} of its inputs and of its outputs."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((folder / FILE).read_bytes())
    meta = saved.meta_graphs[0]
    signature = meta.signature_def[SIGNATURE]
    ends = ({name: info.name for name, info in side.items()} for side in (signature.inputs, signature.outputs))
    return meta.graph_def, *ends


def numbered(graph: GraphDef) -> GraphDef:
    """The graph with its functions and their arguments called by their order, and in it.

    TensorFlow numbers them by what the process did before, and lists them in no order at all.
    """
    functions = {function.signature.name: function for function in graph.library.function}
    used = list(dict.fromkeys(_used(graph.node, functions)))
    names = {name: f"function_{i}" for i, name in enumerate(used)}
    ordered = [functions[name] for name in used]
    for node in (*graph.node, *(n for function in ordered for n in function.node_def)):
        node.ClearField("experimental_debug_info")
        node.op = names.get(node.op, node.op)
        for value in _references(node):
            value.name = names.get(value.name, value.name)
    for function in ordered:
        function.signature.name = names[function.signature.name]
        _number_arguments(function)
    kept = [type(function).FromString(function.SerializeToString()) for function in ordered]
    del graph.library.function[:]
    graph.library.function.extend(kept)
    return graph


def called(nodes: Iterable[NodeDef], graph: GraphDef) -> Iterator[NodeDef]:
    """Those nodes, and those of the functions that they call."""
    functions = {function.signature.name: function for function in graph.library.function}
    nodes = list(nodes)
    yield from nodes
    for name in dict.fromkeys(_used(nodes, functions)):
        yield from functions[name].node_def


def _used(nodes: Any, functions: Mapping[str, Any]) -> Iterator[str]:
    """The functions that nodes call, those that these call right after them."""
    for node in nodes:
        for name in (node.op, *(value.name for value in _references(node))):
            if name in functions:
                yield name
                yield from _used(functions[name].node_def, functions)


def _references(node: NodeDef) -> Iterator[Any]:
    for _, attribute in sorted(node.attr.items()):
        yield from (attribute.func,) if attribute.HasField("func") else attribute.list.func


def _number_arguments(function: FunctionDef) -> None:
    names = {argument.name: f"argument_{i}" for i, argument in enumerate(function.signature.input_arg)}

    def new(reference: str) -> str:
        """Of a tensor: "name", or "name:output:0"."""
        name, colon, rest = reference.partition(":")
        return names.get(name, name) + colon + rest

    for argument in function.signature.input_arg:
        argument.name = names[argument.name]
    for node in function.node_def:
        for index, reference in enumerate(node.input):
            node.input[index] = new(reference)
    for name, reference in list(function.ret.items()):
        function.ret[name] = new(reference)
