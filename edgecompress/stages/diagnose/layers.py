"""The source as layers: its values on an item, with an artifact's values put in, and what one layer's error does.

A layer is an operator that computes and what follows it value by value (a norm of its channels, an activation, a view):
what runtimes fuse. Any of its values may stand for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.model import Artifact
from edgecompress.formats import torch_program

if TYPE_CHECKING:
    import torch
    from torch.fx import GraphModule, Interpreter, Node

WRAPPER = "net."  # what a traced program calls the user's own module
VIEWS = {  # the same numbers, or some of them
    *(
        "view",
        "reshape",
        "flatten",
        "unflatten",
        "permute",
        "transpose",
        "t",
        "unsqueeze",
        "squeeze",
        "expand",
        "alias",
    ),
    *("contiguous", "clone", "dropout", "feature_dropout", "detach", "to", "_to_copy", "type_as", "lift_fresh_copy"),
    *("select", "slice", "narrow", "split", "split_with_sizes", "chunk", "unbind", "movedim", "swapaxes", "numpy_T"),
}
NORMS = {"batch_norm", "_native_batch_norm_legit_no_training", "cudnn_batch_norm"}
ACTIVATIONS = {
    *("relu", "relu6", "hardtanh", "hardswish", "hardsigmoid", "sigmoid", "silu", "gelu", "tanh", "leaky_relu", "elu"),
    *("clamp", "clamp_min", "clamp_max", "mish", "softplus", "prelu", "selu", "celu", "abs", "neg", "exp", "sqrt"),
}
WITH_CONSTANT = {"add", "sub", "mul", "div", "rsub"}  # of a layer where all but one side is constant
WHOLE = 255  # steps of eight bits


@dataclass
class SourceLayer:
    """Nodes of the source's graph: the operator, then what follows it."""

    head: Node
    nodes: list[Node]
    name: str = ""
    module: str = ""

    @property
    def type(self) -> str:
        """The operator's name in the source: "conv2d"."""
        return operator(self.head)


def operator(node: Node) -> str:
    """torch's name of what a node computes, without its overload and the mark of one that works in place."""
    name = str(getattr(node.target, "_opname", "") or getattr(node.target, "__name__", node.target))
    return name if name.startswith("_") else name.rstrip("_")


def module_of(node: Node) -> str:
    """The innermost torch module that a node was traced in, by the name that the user's code gives it."""
    stack = node.meta.get("nn_module_stack") or {}
    paths = [str(path).removeprefix(WRAPPER) for path, _ in stack.values()]
    return paths[-1] if paths and f"{paths[-1]}." != WRAPPER else ""


Values: TypeAlias = "dict[Node, torch.Tensor]"  # what each node computes


@dataclass
class SourceProgram:
    """A traced program, run node by node."""

    net: GraphModule
    nodes: list[Node]
    layers: list[SourceLayer] = field(default_factory=list)

    # ------------------------------------------------------------------ runs

    def values(self, leaves: Sequence[torch.Tensor]) -> Values:
        """What every node computes for one run's inputs."""
        return self._run({}, self.nodes, leaves)

    def fed(
        self, leaves: Sequence[torch.Tensor], outputs: Mapping[Node, torch.Tensor]
    ) -> Iterator[tuple[Node, torch.Tensor]]:
        """(node, what it computes) when those before it computed what `outputs` says, as far as that is finite."""
        import torch

        runner = self._runner({}, leaves)
        for node in self.nodes:
            computed = runner.env[node] = runner.run_node(node)
            yield node, computed
            if node in outputs:
                runner.env[node] = torch.where(torch.isfinite(outputs[node]), outputs[node], computed)

    def outputs(self, values: Values, node: Node, changed: torch.Tensor) -> list[torch.Tensor]:
        """The net's outputs when `node` alone is `changed`: only what follows from it is computed."""
        after = self._run({**values, node: changed}, self._after[node], ())
        return self.float_outputs(after)

    def float_outputs(self, values: Values) -> list[torch.Tensor]:
        """The net's outputs that are floats."""
        from torch.utils import _pytree as pytree

        return [leaf for leaf in pytree.tree_leaves(values[self.nodes[-1]]) if _is_float(leaf)]

    def coarse(self, values: Values, layer: SourceLayer, end: Node) -> torch.Tensor:
        """What a layer computes up to `end`, were all that it reads and computes in eight bits, a range per tensor."""
        path = layer.nodes[: layer.nodes.index(end) + 1]
        read = {n: values[n] for n in layer.head.all_input_nodes if _is_float(values[n])}
        rough = {n: _rounded(v) for n, v in read.items() if n.op != "get_attr" or v.dim() > 1}  # a bias is not
        return _rounded(self._run({**values, **rough}, path, ())[end])

    def _run(self, env: Values, nodes: Sequence[Node], leaves: Sequence[torch.Tensor]) -> Values:
        runner = self._runner(env, leaves)
        for node in nodes:
            runner.env[node] = runner.run_node(node)
        return dict(runner.env)

    def _runner(self, env: Values, leaves: Sequence[torch.Tensor]) -> Interpreter:
        import torch

        runner = torch.fx.Interpreter(self.net, garbage_collect_values=False)
        runner.env, runner.args_iter = dict(env), iter(leaves)
        return runner

    @cached_property
    def _after(self) -> dict[Node, list[Node]]:
        """The nodes that follow from each, in the order of computing."""
        after: dict[Node, set[Node]] = {}
        for node in reversed(self.nodes):
            after[node] = set(node.users).union(*(after[user] for user in node.users))
        return {node: [n for n in self.nodes if n in following] for node, following in after.items()}

    # ------------------------------------------------------------------ layers

    @cached_property
    def owner(self) -> dict[Node, SourceLayer]:
        """The layer of each node that is in one."""
        return {node: layer for layer in self.layers for node in layer.nodes}

    def feeding(self, layer: SourceLayer, known: Sequence[SourceLayer]) -> list[SourceLayer]:
        """The layers of `known` that it reads, through others if need be."""
        return self._reached(layer, known, lambda node: node.all_input_nodes)

    def reading(self, layer: SourceLayer) -> set[str]:
        """The operators that read it, as they are or as a view."""
        return {other.type for other in self._reached(layer, self.layers, lambda node: list(node.users))}

    def _reached(
        self, layer: SourceLayer, known: Sequence[SourceLayer], step: Callable[[Node], list[Node]]
    ) -> list[SourceLayer]:
        targets, seen, reached = {id(k) for k in known}, set(layer.nodes), list[SourceLayer]()
        queue = [n for node in layer.nodes for n in step(node)]
        while queue:
            node = queue.pop()
            if node in seen:
                continue
            seen.add(node)
            other = self.owner.get(node)
            if other is not None and id(other) in targets:
                reached += [] if other in reached else [other]
            else:
                queue += step(node)
        return reached


def _is_float(value: torch.Tensor) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel() > 0


def _rounded(value: torch.Tensor) -> torch.Tensor:
    """A tensor in 256 steps between its extremes, zero one of them."""
    low, high = min(float(value.min()), 0.0), max(float(value.max()), 0.0)
    step = (high - low) / WHOLE
    return (value / step).round() * step if step and math.isfinite(step) else value


# --------------------------------------------------------------------------- from a program


def load(artifact: Artifact) -> SourceProgram:
    """The layers of a "program"."""

    program = torch_program.load(artifact.file(".pt2"))
    schemas = (getattr(node.target, "_schema", None) for node in program.graph.nodes)
    if any(getattr(schema, "is_mutable", False) for schema in schemas):  # a value would be gone after the next node
        program = program.run_decompositions({})
    net = program.module(check_guards=False)
    source = SourceProgram(net, list(net.graph.nodes))
    source.layers = _named(_grouped(source.nodes))
    return source


def _grouped(nodes: Sequence[Node]) -> list[SourceLayer]:
    """The layers in the order of computing. Constants, and views of what several read, are in none."""
    owner: dict[Node, SourceLayer] = {}
    live: set[Node] = set()
    for node in nodes:
        read = [n for n in node.all_input_nodes if n in live]
        if node.op == "placeholder" or read:
            live.add(node)
        value = node.meta.get("val")
        first = value[0] if isinstance(value, (tuple, list)) and value else value
        floats = getattr(getattr(first, "dtype", None), "is_floating_point", False)
        if node.op != "call_function" or not read or not floats:
            continue
        before = owner.get(read[0]) if len(read) == 1 else None
        if before is not None and _follows(node, read[0]):
            before.nodes.append(node)
            owner[node] = before
        elif operator(node) not in {*VIEWS, "getitem"}:
            owner[node] = SourceLayer(node, [node])
    return list({id(layer): layer for layer in owner.values()}.values())


def _follows(node: Node, before: Node) -> bool:
    """Whether a node is of the layer of the one node that it reads."""
    kind = operator(node)
    if kind == "getitem":  # the first of several results is the layer's
        return bool(node.args[1] == 0) and operator(before) not in VIEWS
    alone = len(before.users) == 1
    return alone and kind in {*VIEWS, *NORMS, *ACTIVATIONS, *WITH_CONSTANT}


def _named(layers: list[SourceLayer]) -> list[SourceLayer]:
    """Each with its module, and a name that is its alone: the module's path, where nothing else is in it."""
    for layer in layers:
        layer.module = module_of(layer.head)
    used = [layer.module for layer in layers]
    for layer in layers:
        path = layer.module
        shared = used.count(path) > 1 or any(other.startswith(f"{path}.") for other in used)
        layer.name = f"{path}/{layer.head.name}" if path and shared else path or layer.head.name
    return layers
