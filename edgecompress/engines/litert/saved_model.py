"""A SavedModel as TFLiteConverter takes it: one function of named tensors, its batch fixed."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import first_line
from edgecompress.core.model import Artifact
from edgecompress.formats import tensorflow_replacements

if TYPE_CHECKING:
    from tensorflow.core.framework.node_def_pb2 import NodeDef

FOLDER, FILE, SIGNATURE = "saved_model", "saved_model.pb", "serving_default"  # as savedmodel.write has them
LISTS = "TensorList"  # how operators of lists begin: the steps of an LSTM or GRU are items of one


def fault(error: Exception) -> str:
    """What the converter raised, in one line: the operators that LiteRT has no kernel of, where it is for those."""
    named = re.findall(r"'tf\.(\w+)' op is neither a custom op nor a flex op", str(error))
    named += [name for names in re.findall(r"(?:TF Select|Custom) ops: (.+)", str(error)) for name in names.split(", ")]
    if not named:
        return first_line(error)
    return (
        f"LiteRT has no kernel for TensorFlow's {', '.join(dict.fromkeys(named))}; compute it by other operators, or "
        "outside of the net"
    )


def call(model: Artifact, batch: int) -> tuple[Any, Any]:
    """The function, and the object that keeps it alive.

    A list of steps was traced with items of any batch, which the converter refuses: they get the one that is asked for.
    """
    import tensorflow as tf
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((model.path / FOLDER / FILE).read_bytes())
    graph = saved.meta_graphs[0].graph_def
    graph.CopyFrom(tensorflow_replacements.simpler(graph, tensorflow_replacements.LITERT))
    for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
        for shape in _item_shapes(nodes):
            sizes = tf.make_ndarray(shape.attr["value"].tensor).tolist()
            if isinstance(sizes, list) and sizes[:1] == [-1] and -1 not in sizes[1:]:
                fixed = tf.make_tensor_proto([batch, *sizes[1:]], tf.as_dtype(shape.attr["dtype"].type))
                shape.attr["value"].tensor.CopyFrom(fixed)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FILE).write_bytes(saved.SerializeToString())
        loaded = tf.saved_model.load(folder)
    serve = loaded.signatures[SIGNATURE]
    specs = {s.name: tf.TensorSpec(s.concrete(batch), s.dtype, s.name) for s in model.inputs}
    return tf.function(lambda **named: serve(**named)).get_concrete_function(**specs), loaded


def loops(model: Artifact) -> bool:
    """Whether the steps of an LSTM or GRU are a loop in it."""
    from tensorflow.core.protobuf import saved_model_pb2

    saved = saved_model_pb2.SavedModel.FromString((model.path / FOLDER / FILE).read_bytes())
    return any(node.op.startswith(LISTS) for node in saved.meta_graphs[0].graph_def.node)


def _item_shapes(nodes: Any) -> Iterator[NodeDef]:
    """The constants that say of which shape the items of a list are."""
    constants = {node.name: node for node in nodes if node.op == "Const"}
    for node in nodes:
        if node.op.startswith(LISTS):
            read = (reference.partition(":")[0] for reference in node.input)
            yield from (constants[name] for name in read if name in constants)
