"""A frozen graph once more, with every real number that it computes as a further output."""

from __future__ import annotations

import re
from typing import Any

from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.core.watched_graph import WatchedOperator, attributes, written
from edgecompress.engines.tensorflow import savedmodel

OUTER = re.compile(r"(StatefulPartitionedCall|PartitionedCall|Func|functional|sequential|model)(_\d+)*(_\d+)?$")
FLOATS = ("float32", "float16", "float64", "bfloat16")


def watched(request: Request) -> Artifact:
    """The input "model" with each real number that it computes as a further output; see core.watched_graph."""
    model, tf = request.model, savedmodel.tensorflow()
    graph, inputs, outputs = savedmodel.parsed(model.path / savedmodel.FOLDER)
    with tf.Graph().as_default() as net:
        tf.import_graph_def(graph, name="")
    live, operators = set(inputs.values()), list[WatchedOperator]()
    values, specs = list[tuple[str, str]](), list[TensorSpec]()
    further: dict[str, Any] = {}
    for op in net.get_operations():
        reads = [tensor.name for tensor in op.inputs]
        if live.isdisjoint(reads):
            continue
        made = [tensor.name for tensor in op.outputs]
        live.update(made)
        constants = [_origin(tensor) for tensor in op.inputs if tensor.name not in live]
        told = {key: op.get_attr(key) for key in op.node_def.attr if not key.startswith("_")}
        kept = (tuple(n for n in reads if n in live), tuple(made), tuple(constants))
        operators.append(WatchedOperator(op.name, op.type, *kept, attributes(told), module_of(op.name)))
        for tensor in op.outputs:
            if tensor.dtype.name in FLOATS:
                specs.append(TensorSpec(f"value_{len(specs)}", (), "float32", "NHWC" if tensor.shape.rank == 4 else ""))
                values.append((specs[-1].name, tensor.name))
                further[specs[-1].name] = tensor
    every = ({**inputs}, {**outputs, **{name: tensor.name for name, tensor in further.items()}})
    ends = [{name: savedmodel.info(net.get_tensor_by_name(tensor)) for name, tensor in side.items()} for side in every]
    savedmodel.write(request.out / savedmodel.FOLDER, graph, (ends[0], ends[1]))
    held = {op.name: tf.make_ndarray(op.get_attr("value")) for op in net.get_operations() if op.type == "Const"}
    told_of = written(request.out, values, [*outputs.items()], operators, held)
    return Artifact(request.out, model.kind, model.inputs, (*model.outputs, *specs), {**told_of}).write()


def module_of(name: str) -> str:
    """The Keras layer in the name of a node: the first scope that is no model's and no call's, without its number."""
    scopes = [part for part in name.split("/")[:-1] if not OUTER.match(part)]
    return re.sub(r"_1$", "", scopes[0]) if scopes else ""


def _origin(tensor: Any) -> str:
    """The constant that a tensor is computed from."""
    op = tensor.op
    while op.type != "Const" and op.inputs:
        op = op.inputs[0].op
    return str(op.name)
