"""SavedModels as this package keeps them: one frozen graph, its weights inside, with one signature of named tensors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = "saved_model"  # of an artifact
FILE = "saved_model.pb"
SIGNATURE = "serving_default"


def tensorflow() -> Any:
    """The library, quiet, on CPUs only, the same numbers on each of them."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    return tf


def write(folder: Path, graph: Any, ends: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
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


def parsed(folder: Path) -> tuple[Any, dict[str, str], dict[str, str]]:
    """What `write` wrote: the graph, and {name: tensor} of its inputs and of its outputs."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((folder / FILE).read_bytes())
    meta = saved.meta_graphs[0]
    signature = meta.signature_def[SIGNATURE]
    ends = ({name: info.name for name, info in side.items()} for side in (signature.inputs, signature.outputs))
    return meta.graph_def, *ends


def numbered(graph: Any) -> Any:
    """The graph with its functions called by their order: TensorFlow numbers them by what the process did before."""
    names = {function.signature.name: f"function_{i}" for i, function in enumerate(graph.library.function)}
    for function in graph.library.function:
        function.signature.name = names[function.signature.name]
    for node in _nodes(graph):
        node.op = names.get(node.op, node.op)
        for attribute in node.attr.values():
            for value in (attribute.func, *attribute.list.func):
                if value.name in names:
                    value.name = names[value.name]
        node.ClearField("experimental_debug_info")
    return graph


def _nodes(graph: Any) -> Iterator[Any]:
    yield from graph.node
    for function in graph.library.function:
        yield from function.node_def
