"""Where activations lie in one block of memory: greedy by size, as the planners of LiteRT and XNNPACK do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """A tensor that is held from the operator `first` to the operator `last`, both included."""

    name: str
    first: int
    last: int
    size: int  # bytes

    def meets(self, other: Lifetime) -> bool:
        """Whether both are held at the same time."""
        return self.first <= other.last and other.first <= self.last


def aligned(size: int, alignment: int) -> int:
    """The next multiple of the alignment."""
    return -(-size // alignment) * alignment


def greedy_by_size(tensors: Sequence[Lifetime], alignment: int) -> int:
    """Bytes of the block: the largest first, each into the smallest gap between those that it meets.

    Algorithm 3 of Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020.
    """
    placed: list[tuple[Lifetime, int]] = []  # with its offset
    for tensor in sorted(tensors, key=lambda t: -t.size):
        around = sorted((at, at + aligned(t.size, alignment)) for t, at in placed if t.meets(tensor))
        placed.append((tensor, _offset(around, aligned(tensor.size, alignment))))
    return max((at + aligned(tensor.size, alignment) for tensor, at in placed), default=0)


def _offset(around: Sequence[tuple[int, int]], size: int) -> int:
    """The beginning of the smallest gap that has room, else the end of all."""
    gaps, end = list[tuple[int, int]](), 0
    for begin, after in around:
        if begin - end >= size:
            gaps.append((begin - end, end))
        end = max(end, after)
    return min(gaps)[1] if gaps else end


def peak(tensors: Sequence[Lifetime]) -> tuple[int, Lifetime | None]:
    """The operator at which most bytes are held, the first of those, and the largest tensor that is held there."""
    steps = sorted({t.first for t in tensors})
    held = {step: [t for t in tensors if t.first <= step <= t.last] for step in steps}
    at = max(steps, key=lambda step: sum(t.size for t in held[step]), default=0)
    return at, max(held[at], key=lambda t: t.size) if steps else None
