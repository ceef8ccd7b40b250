"""What half precision does to the tensors of a graph, and which nodes stay in fp32 for it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

LARGEST = 65504.0  # of a half-precision number
ROUNDS = 8  # of keeping more nodes in fp32
ROUNDING_DB = 50.0  # a tensor loses more only where its numbers are too small for half precision: else it is 70


@dataclass
class Tally:
    """One tensor over all samples, in fp32 and in half precision; numbers that fp32 has not either do not count."""

    largest: float = 0.0
    signal: float = 0.0
    noise: float = 0.0
    broken: int = 0  # numbers that half precision made infinite or NaN

    def add(self, full: Array, half: Array) -> None:
        """One more sample."""
        import numpy as np

        finite = np.isfinite(full)
        numbers, other = full[finite].astype(np.float64), half[finite].astype(np.float64)
        kept = np.isfinite(other)
        self.broken += int((~kept).sum())
        self.largest = max(self.largest, float(np.abs(numbers).max(initial=0.0)))
        self.signal += float((numbers**2).sum())
        self.noise += float(((numbers - other)[kept] ** 2).sum())

    @property
    def db(self) -> float:
        """Signal to noise: infinite where nothing was lost, minus infinity where numbers broke."""
        if self.broken:
            return -math.inf
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


Tallies = Mapping[str, Tally]  # by tensor


def rounded(arrays: Iterable[Mapping[str, Array]]) -> dict[str, Tally]:
    """The tensors of each sample against themselves, rounded to half precision."""
    import numpy as np

    def halved(values: Array) -> Array:
        with np.errstate(over="ignore"):
            return values.astype(np.float16)

    return tallied({name: (values, halved(values)) for name, values in each.items()} for each in arrays)


def tallied(pairs: Iterable[Mapping[str, tuple[Array, Array]]]) -> dict[str, Tally]:
    """The tensors of each sample, in fp32 and in half precision, sample by sample."""
    found: dict[str, Tally] = {}
    for each in pairs:
        for name, (full, half) in each.items():
            found.setdefault(name, Tally()).add(full, half)
    return found


def unfit(tallies: Tallies, headroom: float) -> set[str]:
    """The tensors that half precision cannot hold: too near its end for other data, or too small for its steps."""
    return {n for n, t in tallies.items() if t.largest * headroom > LARGEST or t.db < ROUNDING_DB}


def largest(tallies: Tallies) -> dict[str, Any]:
    """The tensor with the largest number, for the facts."""
    name = max(tallies, key=lambda n: tallies[n].largest, default="")
    return {"tensor": name, "value": tallies[name].largest} if name else {}


# --------------------------------------------------------------------------- the ladder


@dataclass(frozen=True)
class Graph:
    """Nodes in the order they run: the tensors that each reads and makes."""

    reads: Mapping[str, Sequence[str]]
    makes: Mapping[str, Sequence[str]]
    outputs: Sequence[str] = ()  # tensors
    made_by: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "made_by", {t: node for node, made in self.makes.items() for t in made})

    def touching(self, tensors: set[str]) -> set[str]:
        """The nodes that read or make one of `tensors`."""
        return {n for n in self.makes if not tensors.isdisjoint((*self.reads[n], *self.makes[n]))}

    def before(self, node: str) -> Iterator[str]:
        """The nodes whose tensors it reads."""
        return (self.made_by[t] for t in self.reads[node] if t in self.made_by)


@dataclass(frozen=True)
class Settled:
    """How it ended: the nodes in fp32, and why half precision is out (empty: it is not)."""

    kept: set[str]
    lost: str = ""


def settle(graph: Graph, kept: set[str], floor_db: float, judge: Callable[[set[str]], Tallies]) -> Settled:
    """Keeps more nodes in fp32 until every output is finite and above the floor, a bounded number of times.

    `judge` says what each tensor loses when `kept` stay in fp32 and all other nodes do not.
    """
    for _ in range(ROUNDS):
        tallies = judge(kept)
        failing = _failing(graph, tallies, floor_db)
        if not failing:
            return Settled(kept)
        more = kept | _blamed(graph, kept, failing)
        if more == kept:
            break
        kept = more
    return Settled(kept, _why(graph, tallies, floor_db))


def _failing(graph: Graph, tallies: Tallies, floor_db: float) -> set[str]:
    """The tensors to mend: those that broke, else, where an output is below the floor, all that are."""
    broken = {name for name, tally in tallies.items() if tally.broken}
    low = {name for name, tally in tallies.items() if tally.db < floor_db}
    return broken or (low if low & set(graph.outputs) else set())


def _blamed(graph: Graph, kept: set[str], failing: set[str]) -> set[str]:
    """The nodes where it first goes wrong; of those in fp32 already, the nearest before them that are not."""
    nodes = {graph.made_by[t] for t in failing if t in graph.made_by}
    first = [n for n in nodes if nodes.isdisjoint(graph.before(n))]
    return {found for node in first for found in _nearest(graph, kept, node)}


def _nearest(graph: Graph, kept: set[str], node: str) -> Iterator[str]:
    stack, seen = [node], {node}
    while stack:
        at = stack.pop()
        if at not in kept:
            yield at
            continue
        more = [n for n in graph.before(at) if n not in seen]
        seen.update(more)
        stack += more


def _why(graph: Graph, tallies: Tallies, floor_db: float) -> str:
    broken = next((n for n, t in tallies.items() if t.broken), "")
    if broken:
        return f"half precision makes '{broken}' infinite or NaN on the calibration data"
    worst = min((n for n in graph.outputs if n in tallies), key=lambda n: tallies[n].db)
    return f"half precision leaves '{worst}' {tallies[worst].db:.1f} dB on the calibration data (floor {floor_db:g} dB)"
