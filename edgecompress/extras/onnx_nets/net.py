"""An ONNX file as a torch module that computes its nodes one after the other."""

from __future__ import annotations

import dataclasses
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edgecompress.core.errors import InputError
from edgecompress.extras.onnx_nets import (  # noqa: F401 - the table
    arithmetic,
    constants,
    products,
    recurrent,
    resizing,
    shapes,
    windows,
)
from edgecompress.extras.onnx_nets import graph as graphs
from edgecompress.extras.onnx_nets.graph import Graph, Node
from edgecompress.extras.onnx_nets.layers import LAYERS, linear
from edgecompress.extras.onnx_nets.values import KNOWN, OPERATORS, Value, tensor

MOVES = {
    "Cast",
    "Expand",
    "Identity",
    "Reshape",
    "Slice",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
}  # change no number
BRANCH, LOOP = "If", "Loop"  # what is taken apart, where its condition, and how often it runs, is known
MOST_STEPS = 20_000  # of a loop: nodes of its body times how often it runs
FOLDED = 1 << 24  # numbers of a constant that is computed here, at most
LOUDEST = 4  # missing operators that are named


def load(file: Path) -> OnnxNet:
    """The net in a valid file, in eval mode. Raises InputError: an operator is not known, or depends on values."""
    graph = graphs.read(file)
    if missing := graphs.missing(graph, {*OPERATORS, BRANCH, LOOP}):
        named = ", ".join(f"{op} ({count})" for op, count in [*missing.items()][:LOUDEST])
        more = f" and {len(missing) - LOUDEST} more" if len(missing) > LOUDEST else ""
        raise InputError(f"{file.name}: as a torch net its operators {named}{more} are not known")
    net: OnnxNet = OnnxNet(graph).eval()
    return net


class OnnxNet(nn.Module):  # type: ignore[misc]
    """Takes its inputs by the file's names, returns its outputs by theirs.

    Layers are modules under the file's names; what else is constant and real is a parameter, whole numbers are known.
    """

    folded = True  # its batch norms are inside its convolutions
    flat_names = True  # they are called with whole names, dots and all

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.layers = nn.Module()
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.known: dict[str, np.ndarray] = dict(graph.constants)
        self.shapes = graph.shapes
        self.zeros: set[str] = set()  # tensors of zeros, whatever their size
        self.steps: list[tuple[Node, str]] = []  # a node, and the layer that computes it or ""
        self.places: dict[str, str] = {}  # constant -> parameter
        self.biased: dict[str, str] = {}  # output of a product -> what it is called with its bias
        self._take(graph)
        self._hold()

    # ------------------------------------------------------------------ from the graph

    def _take(self, graph: Graph) -> None:
        """The nodes, as steps: what is known already is computed, branches that are known are followed."""
        by_input = {name: node for node in graph.nodes for name in node.inputs}
        done: set[str] = set()
        for node in graph.nodes:
            if node.name in done:
                continue
            if node.op == BRANCH:
                condition = self.known.get(node.inputs[0])
                if condition is None:
                    raise InputError(
                        f"the operator If '{node.name}' depends on its inputs: a torch net keeps one branch"
                    )
                branch = node.attributes["then_branch" if condition.item() else "else_branch"]
                body = graphs.inside(branch, f"{node.name}/", {})
                self._body(body)
                for inner, outer in zip(body.outputs, node.outputs, strict=True):
                    self._called(node, inner, outer)
            elif node.op == LOOP:
                self._loop(node)
            elif not self._fold(node):
                self._add(node, graph, by_input, done)

    def _loop(self, node: Node) -> None:
        """Its body as often as it runs, its scanned outputs stacked."""
        body: Graph = node.attributes["body"]
        count, go = ((*node.inputs, "", "")[i] for i in (0, 1))
        times = self.known.get(count)
        if times is None or (go and go not in self.known) or times.item() * len(body.nodes) > MOST_STEPS:
            raise InputError(f"the operator Loop '{node.name}' depends on its inputs: a torch net has no loops")
        carried, scanned = list(node.inputs[2:]), [list[str]() for _ in node.outputs[len(node.inputs) - 2 :]]
        for i in range(int(times.item()) if not go or self.known[go].item() else 0):
            prefix = f"{node.name}/{i}/"
            step, on = f"{prefix}<step>", f"{prefix}<go>"  # names that no tensor has
            self.known |= {step: np.asarray(i, np.int64), on: np.asarray(True)}
            inner = graphs.inside(body, prefix, dict(zip(body.inputs, (step, on, *carried), strict=True)))
            self._body(inner)
            if (still := self.known.get(inner.outputs[0])) is None:
                raise InputError(f"the operator Loop '{node.name}' ends by its values: a torch net has no loops")
            carried, rows = list(inner.outputs[1 : 1 + len(carried)]), inner.outputs[1 + len(carried) :]
            for values, name in zip(scanned, rows, strict=True):
                values.append(name)
            if not still.item():
                break
        for name, outer in zip(carried, node.outputs, strict=False):
            self._called(node, name, outer)
        for values, outer in zip(scanned, node.outputs[len(carried) :], strict=True):
            self._stacked(node, values, outer)

    def _body(self, body: Graph) -> None:
        self.known |= body.constants
        self._take(body)

    def _called(self, node: Node, inner: str, outer: str) -> None:
        """A tensor of a body under the name that it has outside."""
        if outer:
            self._step(Node(f"{node.name}.{outer}", "Identity", (inner,), (outer,), {}, node.opset))

    def _stacked(self, node: Node, values: Sequence[str], outer: str) -> None:
        if not outer:
            return
        if not values:
            raise InputError(f"the operator Loop '{node.name}' never runs, so its output '{outer}' has no shape")
        for name in values:
            self._step(Node(f"{name}.row", "Unsqueeze", (name,), (f"{name}.row",), {"axes": [0]}, 11))
        rows = tuple(f"{name}.row" for name in values)
        self._step(Node(f"{node.name}.{outer}", "Concat", rows, (outer,), {"axis": 0}, node.opset))

    def _step(self, node: Node) -> None:
        if not self._fold(node):
            self.steps.append((node, ""))

    def _fold(self, node: Node) -> bool:
        """Whether the node's inputs are known, or the shape that it asks for, so that its outputs are, too."""
        shape = self.shapes.get(node.inputs[0]) if node.op == "Shape" else None
        if shape is not None and all(isinstance(size, int) for size in shape):
            self.known[node.outputs[0]] = np.asarray(shape[node.get("start", 0) : node.get("end")], np.int64)
            return True
        if any(name and name not in self.known for name in node.inputs):
            return False
        with torch.no_grad():
            found = _computed(node, [self.known[name] if name else None for name in node.inputs])
        arrays = [v.numpy() if isinstance(v, torch.Tensor) else v for v in found]
        if sum(a.size for a in arrays if a is not None) > FOLDED:
            return False
        self.known |= {name: a for name, a in zip(node.outputs, arrays, strict=False) if name and a is not None}
        return True

    def _add(self, node: Node, graph: Graph, by_input: Mapping[str, Node], done: set[str]) -> None:
        node = self._following(self._from_zero(node))
        make, _ = LAYERS.get(node.op, (None, ()))
        given = [self.known.get(name) if name else None for name in node.inputs]
        layer = make(node, given) if make else None
        if isinstance(layer, nn.Linear) and node.op == "MatMul":
            layer, node = self._with_bias(layer, node, graph, by_input, done)
        self.steps.append((node, self._put(layer, node) if layer is not None else ""))

    def _from_zero(self, node: Node) -> Node:
        """A recurrent layer whose first state is zeros takes none: its size is then the layer's own.

        What zeros of any size become is known here, too.
        """
        first = node.inputs[0] if node.inputs else ""
        if node.op == "ConstantOfShape" and not np.any(node.get("value", 0)):
            self.zeros.update(node.outputs)
        if node.op in MOVES and self._is_zero(first):
            self.zeros.update(node.outputs)
        if node.op not in recurrent.GATES:
            return node
        inputs = [name if i not in (5, 6) or not self._is_zero(name) else "" for i, name in enumerate(node.inputs)]
        return dataclasses.replace(node, inputs=tuple(inputs))

    def _is_zero(self, name: str) -> bool:
        return name in self.zeros or (name in self.known and not self.known[name].any())

    def _following(self, node: Node) -> Node:
        """A Reshape by the sizes of its input, so that it follows when channels are removed."""
        before = self.shapes.get(node.inputs[0]) if node.op == "Reshape" else None
        if not before or len(node.inputs) < 2:
            return node
        told = self.known.get(node.inputs[1])
        target = shapes.relative(before, self.shapes.get(node.outputs[0], ()), told)
        if target is None or (node.get("allowzero") and told is not None and 0 in told):
            return node
        self.known[place := f"{node.outputs[0]}/<shape>"] = np.asarray(target, np.int64)
        return dataclasses.replace(node, inputs=(node.inputs[0], place), attributes={})

    def _with_bias(
        self, layer: nn.Linear, node: Node, graph: Graph, by_input: Mapping[str, Node], done: set[str]
    ) -> tuple[nn.Linear, Node]:
        """A product with the Add of a constant behind it, which nothing else reads: one layer."""
        after = by_input.get(node.outputs[0])
        if after is None or after.op != "Add" or graph.readers[node.outputs[0]] != 1:
            return layer, node
        bias = next((self.known[name] for name in after.inputs if name in self.known), None)
        if bias is None or bias.dtype != np.float32 or bias.shape != (layer.out_features,):
            return layer, node
        done.add(after.name)
        whole = linear(layer.weight.detach().numpy(), bias)
        return whole, Node(node.name, node.op, node.inputs, after.outputs, node.attributes, node.opset)

    def _put(self, layer: nn.Module, node: Node) -> str:
        """A layer at the place that the file names; returns it."""
        # by its weight's name where this is a name of torch or Keras, else by the node's
        marks = (re.search(r"[./](weight|kernel|weight_v|table)\b", n) for n in node.inputs if n in self.known)
        stem = next((mark.string[: mark.start()] for mark in marks if mark), "")
        *above, last = _words(stem) or _words(node.name) or [node.op]
        home = self.layers
        for word in above:
            name = word
            if type(home._modules.get(word)) is not nn.Module:  # not there, or a layer, which has no parts of ours
                name = _free(home, word)
                home.add_module(name, nn.Module())
            home = home.get_submodule(name)
        home.add_module(_free(home, last), layer)
        return str(next(where for where, module in self.layers.named_modules() if module is layer))

    def _hold(self) -> None:
        """Real constants of several numbers, which steps read as tensors, as parameters; what no step reads goes."""
        read: set[str] = set(self.outputs)
        for node, layer in self.steps:
            read |= {name for _, name in _read(node, layer)}
            known = OPERATORS[node.op].known if not layer else frozenset()
            for place, name in _read(node, layer):
                array = self.known.get(name)
                if array is not None and place not in known and array.dtype == np.float32 and array.size > 1:
                    self.places.setdefault(name, "")
        self.known = {name: array for name, array in self.known.items() if name in read}
        home = nn.ParameterDict()
        for name in self.places:
            word = _free(home, "_".join(_words(name)))
            home[word] = nn.Parameter(torch.tensor(np.ascontiguousarray(self.known[name])))
            self.places[name] = word
        self.constants = home

    # ------------------------------------------------------------------ running

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        """The outputs by name."""
        last: dict[str, torch.Tensor] = {}
        for values in self.walk(inputs):
            last = values
        return {name: tensor(last[name]) for name in self.outputs}

    def walk(self, inputs: Mapping[str, torch.Tensor]) -> Iterator[dict[str, Any]]:
        """All values that are known after each step, by name."""
        values: dict[str, Any] = {**self.known, **inputs}
        yield values
        for node, layer in self.steps:
            if layer:
                called = [values[n] if n else None for _, n in _read(node, layer)]
                while called and called[-1] is None:
                    called.pop()
                found = self.layers.get_submodule(layer)(*(tensor(v) if v is not None else None for v in called))
                found = found if isinstance(found, tuple) else (found,)
            else:
                found = _computed(node, [self._value(values, node, i) for i in range(len(node.inputs))])
            values.update({name: v for name, v in zip(node.outputs, found, strict=False) if name})
            yield values

    def _value(self, values: Mapping[str, Any], node: Node, place: int) -> Value:
        name = node.inputs[place]
        if name in self.places and place not in OPERATORS[node.op].known:
            return self.constants[self.places[name]]
        return values[name] if name else None


def _read(node: Node, layer: str) -> list[tuple[int, str]]:
    """The inputs that a step is computed from, with their places: the weights of a layer are in it."""
    places = LAYERS[node.op][1] if layer else range(len(node.inputs))
    return [(i, node.inputs[i]) for i in places if i < len(node.inputs)]


def _computed(node: Node, values: Sequence[Value]) -> tuple[Any, ...]:
    """The outputs of one operator: as numbers where all that it reads is known."""
    run = OPERATORS[node.op].run
    if node.op in KNOWN and (node.op in ("Shape", "Size") or all(not isinstance(v, torch.Tensor) for v in values)):
        run = KNOWN[node.op]
    elif not OPERATORS[node.op].numbers:
        known = OPERATORS[node.op].known
        values = [v if v is None or i in known else tensor(v) for i, v in enumerate(values)]
    found = run(node, *values)
    return found if isinstance(found, tuple) else (found,)


# --------------------------------------------------------------------------- names


def _words(name: str) -> list[str]:
    """The parts of a name as names of Python: torch writes code with them."""
    words = [re.sub(r"\W", "_", word) for word in re.split(r"[./]", name) if word.strip()]
    return [f"{word}_" if keyword.iskeyword(word) else word for word in words]


def _free(home: nn.Module, word: str) -> str:
    """A name that the module has not."""
    inside = {*home} if isinstance(home, nn.ParameterDict) else set[str]()
    name, count = word, 1
    while hasattr(home, name) or name in inside:
        name, count = f"{word}_{count}", count + 1
    return name
