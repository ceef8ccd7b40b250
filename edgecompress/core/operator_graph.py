"""A graph of any format as far as its costs go: tensors, operators, formulas, and who reads what."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import onnx

BITS = {
    "float64": 64,
    "float32": 32,
    "float16": 16,
    "bfloat16": 16,
    "complex64": 64,
    "bool": 8,
    **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (2, 4, 8, 16, 32, 64)},
}
COUNTS = ("int32", "int64", "bool")  # biases, lengths and shapes: never a factor
Shape = tuple[int, ...]
Attribute: TypeAlias = "int | float | str | bytes | onnx.TensorProto | Sequence[int | float | bytes]"


@dataclass(frozen=True)
class Tensor:
    """A tensor of a graph; `constant`: a weight."""

    name: str
    shape: Shape
    dtype: str
    constant: bool = False

    @property
    def bytes(self) -> int:
        """Its size, packed."""
        return math.ceil(math.prod(self.shape) * BITS.get(self.dtype, 8) / 8)


@dataclass(frozen=True)
class Op:
    """An operator with the tensors that it reads and writes; `macs` is None if unknown."""

    name: str
    type: str
    macs: int | None
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]

    @property
    def bytes(self) -> int:
        """Bytes moved."""
        return sum(tensor.bytes for tensor in (*self.reads, *self.writes))

    @property
    def dtype(self) -> str:
        """The narrowest dtype of the factors, signedness ignored; "" without MACs."""
        factors = [t.dtype.removeprefix("u") for t in self.reads if t.dtype not in COUNTS]
        return min(factors, key=lambda dtype: BITS.get(dtype, 8), default="") if self.macs else ""


@dataclass(frozen=True)
class Graph:
    """An artifact's operators, and its input and output tensors."""

    ops: tuple[Op, ...]
    ends: tuple[Tensor, ...]
    weights: tuple[Tensor, ...] = ()  # whole, also those of which an operator picks some rows
    unsized: tuple[str, ...] = ()  # tensors whose shapes are known only at run time: they are in no operator
    views: Mapping[str, str] = field(default_factory=dict)  # what nodes make that move nothing: the tensor that it was


# --------------------------------------------------------------------------- formulas, of shapes


def convolution(weights: Shape, out: Shape) -> int:
    """Weights [out channels, channels of a group, *kernel]."""
    return math.prod(out) * math.prod(weights[1:])


def transposed(data: Shape, weights: Shape) -> int:
    """Weights [in channels, out channels of a group, *kernel]: each input value meets all of its channel's."""
    return math.prod(data) * math.prod(weights[1:])


def product(a: Shape, out: Shape, transposed: bool = False) -> int:
    """Each value of the product is a sum over the inner axis of `a`."""
    return math.prod(out) * a[-2 if transposed else -1]


def recurrent(steps: int, weights: Sequence[Shape]) -> int:
    """Each weight of each gate and direction is used once a step; `steps`: times the batch."""
    return steps * sum(map(math.prod, weights))


def attention(queries: Shape, keys: Shape, out: Shape) -> int:
    """Queries times keys, then their weights times the values."""
    return (math.prod(queries) + math.prod(out)) * keys[-2]


# --------------------------------------------------------------------------- a graph of any format


@dataclass(frozen=True)
class Node:
    """An operator as its file has it: tensors by name, "" where one is left out."""

    name: str
    type: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)


Macs: TypeAlias = "Callable[[Node, Sequence[Shape], Shape], int | None]"


@dataclass(frozen=True)
class Dialect:
    """What the operators of a format are. `macs`: of a node, the shapes it reads (left out: ()) and its output's."""

    macs: Macs
    views: tuple[str, ...] = ()  # they move nothing
    picks: tuple[str, ...] = ()  # they read no more of their first input than they write
    last_steps: tuple[str, ...] = ()  # of the operator before them
    dequantize: tuple[str, ...] = ()  # their readers take the integers
    loops: tuple[str, ...] = ()  # operators with bodies, branches too


def walked(nodes: Sequence[Node], tensors: dict[str, Tensor], ends: Sequence[str], how: Dialect) -> Graph:
    """The operators that move or multiply something."""
    return _Walk(nodes, tensors, ends, how).graph()


class _Walk:
    """A graph whose tensors have shapes, and who makes and who reads each."""

    def __init__(self, nodes: Sequence[Node], tensors: dict[str, Tensor], ends: Sequence[str], how: Dialect) -> None:
        self.nodes, self.tensors, self.ends, self.how = nodes, tensors, ends, how
        self.makers = {name: node for node in nodes for name in node.writes}
        self.readers: dict[str, list[Node]] = {}
        for node in nodes:
            for name in filter(None, node.reads):
                self.readers.setdefault(name, []).append(node)
        for node in nodes:
            if all(self._constant(name) for name in node.reads if name):  # computed once, when it is loaded
                known = {name: tensors[name] for name in node.writes if name in tensors}
                tensors |= {name: dataclasses.replace(tensor, constant=True) for name, tensor in known.items()}

    def graph(self) -> Graph:
        last = {name for node in self.nodes for name in self._behind(node)}
        counted = [node for node in self.nodes if not last.intersection(node.writes) and not self._still(node)]
        named = [name for node in counted for name in (*node.reads, *self._left(node))]
        unsized = tuple(dict.fromkeys(n for n in (*named, *self.ends) if n and n not in self.tensors))
        ends = [self.tensors[name] for name in self.ends if name in self.tensors]
        # weights: the constants that are factors or are added; no scalars, no scales, no shapes
        computing = [node for node in self.nodes if not self._still(node) and node.type not in self.how.dequantize]
        read = [self._stored(name) for node in computing for name in node.reads if name and self._constant(name)]
        weights = tuple({t.name: t for t in read if t.shape and t.dtype not in ("int64", "bool")}.values())
        views: dict[str, str] = {}
        for node in self.nodes:
            live = [name for name in node.reads if name and not self._constant(name)]
            if live and self._still(node):
                views |= dict.fromkeys(node.writes, views.get(live[0], live[0]))
        return Graph(tuple(map(self._op, counted)), tuple(t for t in ends if not t.constant), weights, unsized, views)

    def _left(self, node: Node) -> list[str]:
        """What is there after a node and the last steps behind it."""
        return [*node.writes, *self._behind(node)][-1:] if len(node.writes) == 1 else list(filter(None, node.writes))

    def _constant(self, name: str) -> bool:
        return name in self.tensors and self.tensors[name].constant

    def _still(self, node: Node) -> bool:
        """Whether a node moves nothing: a view, a constant, or numbers that their readers take as they are stored."""
        read_inside = all(self.readers.get(name) and name not in self.ends for name in node.writes)
        inner = node.type in self.how.dequantize and read_inside
        return node.type in self.how.views or inner or all(map(self._constant, filter(None, node.writes)))

    def _behind(self, node: Node) -> list[str]:
        """The tensors that a node's only output becomes in the last steps behind it."""
        behind: list[str] = []
        if node.type in self.how.dequantize or self._still(node):
            return behind
        place = node.writes
        while len(place) == 1 and place[0] not in self.ends:
            readers = self.readers.get(place[0], [])
            if len(readers) != 1 or not self._is_last_step(readers[0], place[0]):
                break
            place = readers[0].writes
            behind += place
        return behind

    def _is_last_step(self, node: Node, data: str) -> bool:
        """Whether a node changes `data` value by value, with nothing but constants beside it."""
        return node.type in self.how.last_steps and all(self._constant(r) for r in node.reads if r and r != data)

    def _stored(self, name: str) -> Tensor:
        """What is there in memory for a tensor that is read: where it was dequantized or computed at load from."""
        maker, tensor = self.makers.get(name), self.tensors[name]
        if maker is None or not (tensor.constant or maker.type in self.how.dequantize) or not maker.reads:
            return tensor
        if maker.reads[0] not in self.tensors:
            return tensor
        origin = self._stored(maker.reads[0])
        return origin if math.prod(origin.shape) == math.prod(tensor.shape) else tensor

    def _op(self, node: Node) -> Op:
        reads = [self._stored(name) for name in node.reads if name in self.tensors]
        writes = [self.tensors[name] for name in self._left(node) if name in self.tensors]
        if node.type in self.how.picks and node.reads[0] in self.tensors and writes:
            reads[0] = Tensor(f"rows of {reads[0].name}", writes[0].shape, reads[0].dtype, reads[0].constant)
        return Op(node.name, node.type, self._macs(node), tuple(reads), tuple(writes))

    def _macs(self, node: Node) -> int | None:
        """None for a node with a body: how often it runs is known only then; and for products of unknown sizes."""
        if node.type in self.how.loops:
            return None
        unsized = any(name and name not in self.tensors for name in (*node.reads, node.writes[0]))
        shapes = [self.tensors[name].shape if name in self.tensors else () for name in (*node.reads, node.writes[0])]
        try:
            macs = self.how.macs(node, shapes[:-1], shapes[-1])
        except (LookupError, ValueError):
            if not unsized:
                raise
            return None
        return None if unsized and macs else macs
