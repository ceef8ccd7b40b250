"""Names of tensors that no tool takes itself: quantizers call what they make after a tensor, whatever else is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.engines.onnx import branches

if TYPE_CHECKING:
    import onnx


def make_safe(model: onnx.ModelProto) -> dict[str, str]:
    """Gives every tensor of the graph a name that begins no other name; returns {safe name: own name}."""
    graph, begin = model.graph, "t"
    own = list(dict.fromkeys(_tensors(graph)))
    while any(name.startswith(begin) for name in (*own, *_inside(graph.node), *(node.name for node in graph.node))):
        begin += "_"
    safe = {name: f"{begin}{index}." for index, name in enumerate(own)}
    _rename(graph, safe)
    return {new: name for name, new in safe.items()}


def safe_copy(file: Path) -> tuple[Path, dict[str, str]]:
    """A copy beside the file with safe names, and {safe name: own name}."""
    import onnx

    model = onnx.load_model(file)
    own = make_safe(model)
    copy = file.with_name("safe.onnx")
    onnx.save_model(model, copy)
    return copy, own


def restore_in(file: Path, names: Mapping[str, str]) -> None:
    """`restore` in a file."""
    import onnx

    model = onnx.load_model(file)
    restore(model, names)
    onnx.save_model(model, file)


def restore(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Gives the tensors of `make_safe` their own names back, and what is called after one a name that is free."""
    graph = model.graph
    _rename(graph, _own(_tensors(graph), names, {*names.values(), *_inside(graph.node)}))
    nodes = _own((node.name for node in graph.node), names, {node.name for node in graph.node})
    for node in graph.node:
        node.name = nodes.get(node.name, node.name)


def _own(made: Iterable[str], names: Mapping[str, str], taken: set[str]) -> dict[str, str]:
    """{name: the own one} of what begins with a safe name; `taken` grows by them."""
    found = dict[str, str]()
    for name in dict.fromkeys(made):
        safe, dot, rest = name.partition(".")
        if safe + dot in names:
            own = names[safe + dot] + rest
            while rest and own in taken:
                own += "_"
            found[name] = own
            taken.add(own)
    return found


def _tensors(graph: onnx.GraphProto) -> Iterator[str]:
    """The names of the graph's own tensors, those of bodies left out."""
    yield from (value.name for value in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)
    yield from (name for node in graph.node for name in node.output if name)


def _inside(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """The names in the bodies of branches and loops."""
    for node in nodes:
        for attribute in (a for a in node.attribute if a.HasField("g")):
            yield from _tensors(attribute.g)
            yield from _inside(attribute.g.node)


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    for node in graph.node:
        branches.rename(node, names)
    sparse = (each.values for each in graph.sparse_initializer)
    for value in (*graph.input, *graph.output, *graph.value_info, *graph.initializer, *sparse):
        value.name = names.get(value.name, value.name)
