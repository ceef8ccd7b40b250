"""ONNX graphs as ONNX Runtime's quantizers want them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from edgecompress.errors import InputError, StageFailed

ACTIVATIONS = {"Relu", "Clip", "LeakyRelu", "HardSwish", "HardSigmoid"}  # what a kernel computes with what is before it
RECURRENT = {"LSTM", "GRU", "RNN", "Loop", "Scan", "If"}  # ONNX Runtime's symbolic shapes fail on these


def prepare(source: Path, prepared: Path) -> Path:
    """The graph simplified, in the file `prepared`, without shapes that are stale after that."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    kinds = {node.op_type for node in onnx.load_model(source).graph.node}
    try:
        quant_pre_process(source, prepared, skip_symbolic_shape=bool(kinds & RECURRENT))
    except Exception as error:  # ONNX Runtime's shape inference raises plain Exception
        raise StageFailed(
            f"the graph cannot be prepared for int8: {type(error).__name__}: {first_line(error)}"
        ) from error
    model = onnx.load_model(prepared)
    model.graph.ClearField("value_info")  # the old shape of a transposed weight makes shape inference fail
    for node in model.graph.node:  # what is kept in float is told by name
        node.name = node.name or f"{node.op_type}_{node.output[0]}"
    onnx.save_model(model, prepared)
    return prepared


def first_line(error: Exception) -> str:
    """What an exception says, in one line."""
    return next((line.strip()[:300] for line in str(error).splitlines() if line.strip()), "no message")


def matching(file: Path, patterns: Sequence[str]) -> list[str]:
    """The nodes whose names match one of `patterns`; raises InputError where a pattern matches none."""
    import onnx

    names = [node.name for node in onnx.load_model(file).graph.node]
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InputError(f"skip: no node is called '{pattern}'; the nodes are {', '.join(names[:8])}, ...")
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


def with_activations(file: Path, names: Sequence[str]) -> list[str]:
    """Those nodes, each followed by the activation that alone reads it: what is kept in float is kept to its end."""
    import onnx

    graph = onnx.load_model(file).graph
    nodes = {node.name: node for node in graph.node}
    found = []
    for name in names:
        readers = [n for n in graph.node if nodes[name].output[0] in n.input]
        fused = readers[0].name if len(readers) == 1 and readers[0].op_type in ACTIVATIONS else ""
        found += [n for n in (name, fused) if n and n not in found]
    return found


def order_as(file: Path, source: Path) -> None:
    """Brings the nodes of `file` into the order in which `source` computes the same tensors: tools sort them anew.

    A node that `source` has not comes right before the first one that needs it.
    """
    import onnx

    model, first = onnx.load_model(file), onnx.load_model(source)
    rank = {tensor: index for index, node in enumerate(first.graph.node) for tensor in node.output}
    nodes = list(model.graph.node)
    if any(attribute.HasField("g") for node in nodes for attribute in node.attribute):
        return  # a loop's body reads tensors by their names
    makers = {tensor: index for index, node in enumerate(nodes) for tensor in node.output}
    ranks = [min((rank.get(tensor, len(rank)) for tensor in node.output), default=len(rank)) for node in nodes]
    waiting = sorted(range(len(nodes)), key=ranks.__getitem__, reverse=True)
    done: dict[int, Any] = {}
    while waiting:
        ahead = [makers[t] for t in nodes[waiting[-1]].input if t in makers and makers[t] not in done]
        if ahead:
            waiting += reversed(ahead)
        else:
            index = waiting.pop()
            done.setdefault(index, copy.deepcopy(nodes[index]))
    del model.graph.node[:]
    model.graph.node.extend(done.values())
    onnx.save_model(model, file)
