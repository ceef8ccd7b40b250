"""A net of any format, as far as its precision goes: who multiplies what, and which constants that comes from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

UNKNOWN = "unknown"  # what an operator computes in where the file does not say it
DYNAMIC = "-dynamic"  # behind a precision: the numbers are quantized as they come
MATRIX = 2  # axes of a table
WHOLE = ("int32", "int64", "bool", "text", "string")  # lengths, indices, biases: never a weight
FLOATS = ("fp64", "fp32", "bf16", "fp16", "fp8", "fp4")

Does = Literal["multiplies", "picks", "joins", "dequantizes", "hands on", ""]


@dataclass(frozen=True)
class Stored:
    """A constant as its file has it: its precision, its bytes and axes. `key`: equal where the bytes are the same."""

    word: str
    bytes: int
    axes: int
    key: object


@dataclass(frozen=True)
class Node:
    """An operator: tensors by name, "" where one is left out.

    `factors` are the places in `reads` of what is multiplied (or of the tables that are picked from), `packed` of
    weights whose type says nothing of the product. `word` is what it computes in, or dequantizes, where its type alone
    says that; `makes` what its outputs are.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    does: Does = ""
    factors: tuple[int, ...] = ()
    packed: tuple[int, ...] = ()
    word: str = ""
    makes: str = ""


@dataclass
class Net:
    """Operators in the order of computing, those of a body behind the one that has it.

    `words` are the precisions of tensors as declared; `known_as`: what an input of a body is called outside.
    """

    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Stored] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    known_as: dict[str, list[str]] = field(default_factory=dict)


def weights_and_computes(net: Net) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the weights by precision, and the number of operators that multiply by what they compute in."""
    walk = _Walk(net)
    for node in net.nodes:
        walk.take(node)
    sizes: Counter[str] = Counter()
    for stored in walk.weights():
        sizes[stored.word] += stored.bytes
    return dict(sizes), dict(walk.computes)


def bits(word: str) -> int:
    """The bits of a number of a precision; 0 where that says nothing."""
    digits = re.search(r"\d+", word)
    return int(digits[0]) if digits else 0


class _Walk:
    """What is known of each tensor, from the inputs on."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.words = {name: stored.word for name, stored in net.constants.items()} | net.words
        # Tensors that only give integers another form -> their precision
        packed = [name for name, stored in net.constants.items() if stored.word != self.words[name]]
        self.from_integers = {n: w for n in packed if (w := net.constants[n].word) not in (*FLOATS, *WHOLE)}
        self.behind: dict[str, tuple[str, ...]] = {}  # computed from constants alone -> the ones that it has
        self.largest = {name: stored.bytes for name, stored in net.constants.items()}
        self.asked = set[str]()
        self.read: dict[tuple[str, bool], None] = {}  # what is multiplied or (True) picked from
        self.computes: Counter[str] = Counter()

    def take(self, node: Node) -> None:
        """The next operator."""
        for name in node.reads:
            self._outside(name)
        reads = [name for name in node.reads if name]
        if node.does in ("multiplies", "picks"):
            places = (*node.factors, *node.packed)
            named = [node.reads[i] for i in places if i < len(node.reads)]
            self.read.update(dict.fromkeys((name, node.does == "picks") for name in named if name))
        if node.does == "multiplies":
            self.computes[self._computes_in(node)] += 1
        self._made(node, reads)

    def _outside(self, name: str) -> None:
        """Of an input of a body what is known of it outside, where all who call it give a constant."""
        given = self.net.known_as.get(name) if name not in self.asked else None
        self.asked.add(name)
        if given and name not in self.largest and all(each in self.largest for each in given):
            self.behind[name] = tuple(given)
            self.largest[name] = max(self.largest[each] for each in given)
        if given and name not in self.words and given[0] in self.words:
            self.words[name] = self.words[given[0]]
        if given and name not in self.from_integers and given[0] in self.from_integers:
            self.from_integers[name] = self.from_integers[given[0]]

    def _made(self, node: Node, reads: list[str]) -> None:
        """What an operator makes: of which precision, of which constants."""
        constant = bool(reads) and all(name in self.largest for name in reads)
        main = next(iter(reads), "")
        if constant and not node.does:
            main = max(reads, key=lambda name: self.largest[name])
        integers = self._integers(node, main, constant)
        for name in node.writes:
            self.words.setdefault(name, node.makes or self._first_float(reads))
            if integers and self.words[name] in (*FLOATS, ""):
                self.from_integers[name] = integers
            if constant:
                self.behind[name] = tuple(reads) if node.does == "joins" else (main,)
                self.largest[name] = self.largest[main]

    def _integers(self, node: Node, main: str, constant: bool) -> str:
        """The integers that what an operator makes stands for, or ""."""
        if node.does == "dequantizes":
            return node.word or self._whole(main)
        if node.does in ("hands on", "joins"):
            return self.from_integers.get(main, "")
        return (self.from_integers.get(main) or self._whole(main)) if constant else ""

    def _whole(self, name: str) -> str:
        word = self.words.get(name, "")
        return word if word not in (*FLOATS, *WHOLE) else ""

    def _first_float(self, reads: Iterable[str]) -> str:
        """The precision of what an operator makes where nothing declares it."""
        known = [self.words.get(name, "") for name in reads]
        return next((word for word in known if word in FLOATS), next(filter(None, known), ""))

    def _computes_in(self, node: Node) -> str:
        """The widest of integers; where a float is among them it, or they where it is multiplied with them as it is."""
        if node.word:
            return node.word
        named = [node.reads[i] for i in node.factors if i < len(node.reads) and node.reads[i]]
        whole = [self.from_integers.get(name) or self._whole(name) for name in named]
        if all(whole) and whole:
            return max(whole, key=bits)
        direct = [word for name in named if (word := self._whole(name))]
        if direct:
            return max(direct, key=bits) + DYNAMIC
        return next((word for name in named if (word := self.words.get(name, "")) in FLOATS), UNKNOWN)

    def weights(self) -> Iterator[Stored]:
        """Each constant that is multiplied or picked from, once."""
        stack, seen, keys = list(self.read), set(self.read), set[object]()
        while stack:
            name, picked = stack.pop()
            stored = self.net.constants.get(name)
            if stored is None:
                new = [(each, picked) for each in self.behind.get(name, ()) if (each, picked) not in seen]
                seen.update(new)
                stack += new
            elif stored.key not in keys and stored.word not in WHOLE and (stored.axes >= MATRIX or not picked):
                keys.add(stored.key)
                yield stored


def ordered(calls: Mapping[str, Iterable[str]]) -> list[str]:
    """Bodies, each behind all that call it: {body: those that it calls}. Raises CycleError, a ValueError."""
    from graphlib import TopologicalSorter

    return list(TopologicalSorter(calls).static_order())[::-1]
