"""Branches of a graph whose condition is known: the one that is taken, in the place of both.

Nets of TensorFlow 1 have dropout and the like behind a condition "training" that is False where nobody says otherwise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.framework.node_def_pb2 import NodeDef


def settle_defaults(graph: GraphDef, given: Collection[str]) -> None:
    """Puts the default of each placeholder that is not `given` in its place."""
    for node in graph.node:
        if node.op == "PlaceholderWithDefault" and node.name not in given:
            node.op = "Identity"
            node.attr["T"].CopyFrom(node.attr["dtype"])
            for name in [name for name in node.attr if name != "T"]:
                del node.attr[name]


def has_if(graph: GraphDef) -> bool:
    """Whether a condition is known of an If, whose branches are functions: lowered, they are in the graph."""
    nodes = {node.name: node for node in graph.node}
    return any(n.op in ("If", "StatelessIf") and _value(nodes, n.input[0]) is not None for n in graph.node)


def _value(nodes: Mapping[str, NodeDef], reference: str) -> bool | None:
    """What a condition is, where it is a constant; else None."""
    import tensorflow as tf

    node = nodes.get(reference.partition(":")[0])
    while node is not None and node.op == "Identity":
        node = nodes.get(node.input[0].partition(":")[0])
    if node is None or node.op != "Const":
        return None
    return bool(tf.make_ndarray(node.attr["value"].tensor).all())


def take(graph: GraphDef) -> None:
    """Puts the branch that is taken in the place of both, which lie between a Switch and a Merge."""
    nodes = {node.name: node for node in graph.node}
    readers: dict[str, list[NodeDef]] = defaultdict(list)
    for node in graph.node:
        for reference in node.input:
            readers[reference].append(node)
    known = {n.name: v for n in graph.node if n.op == "Switch" and (v := _value(nodes, n.input[1])) is not None}
    dead: set[str] = set()
    todo = [name if taken else f"{name}:1" for name, taken in known.items()]
    while todo:
        reference = todo.pop()
        if reference in dead:
            continue
        dead.add(reference)
        for node in readers[reference]:
            if node.op != "Merge" or dead.issuperset(i for i in node.input if not i.startswith("^")):
                todo += [each for each in readers if each.partition(":")[0].lstrip("^") == node.name] or [node.name]
    for node in graph.node:
        live = [name for name in node.input if name not in dead and not name.startswith("^")]
        if node.op == "Merge" and len(live) == 1:
            node.op, node.input[:] = "Identity", live
        elif node.name in known:
            node.op, node.input[:] = "Identity", node.input[:1]
        for name in [name for name in node.attr if node.op == "Identity" and name != "T"]:
            del node.attr[name]
    for node in graph.node:
        node.input[:] = [i.partition(":")[0] if i.partition(":")[0] in known else i for i in node.input]
