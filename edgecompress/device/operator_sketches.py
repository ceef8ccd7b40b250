"""Sketches: a few numbers of an array from which the distance of two arrays is told. Runs on devices with Python 3.10.

Each element is added, with a random sign, to one of WIDTH random sums: the square of the distance of two such sketches
estimates that of the arrays, within a third or so (Charikar, Chen, Farach-Colton: Finding Frequent Items, 2002).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias, TypedDict

if TYPE_CHECKING:
    import numpy as np

WIDTH = 16  # a power of two, at most 128: sum and sign are drawn as one byte

Step: TypeAlias = "tuple[str, str, np.ndarray]"  # of an inference: the operator's name, its type, its output


class Line(TypedDict):
    """What a trace keeps of an operator's outputs; `norm` is None where it is not finite."""

    name: str
    type: str
    size: int
    norm: float | None
    sketch: list[float]


@dataclass
class _OperatorSketch:
    """What is kept of an operator's outputs over the inferences so far."""

    name: str
    type: str
    size: int = 0
    square: float = 0.0
    sums: list[float] = field(default_factory=lambda: [0.0] * WIDTH)

    def add(self, values: np.ndarray, seed: int) -> None:
        """One more output; each inference has other signs, so that no two can cancel each other."""
        import numpy as np

        flat = values.reshape(-1).astype(np.float64)
        drawn = np.frombuffer(np.random.RandomState(seed).bytes(flat.size), np.uint8)  # a stream fixed for all time
        signed = np.where(drawn & 128, flat, -flat)
        sums = np.bincount(drawn % WIDTH, signed, WIDTH)
        self.size += flat.size
        self.square += float(np.dot(flat, flat))
        self.sums = [a + float(b) for a, b in zip(self.sums, sums, strict=False)]

    def line(self) -> Line:
        """As JSON."""
        sound = math.isfinite(self.square)
        norm, sketch = (math.sqrt(self.square), self.sums) if sound else (None, [])
        return {"name": self.name, "type": self.type, "size": self.size, "norm": norm, "sketch": sketch}


def trace(inferences: Iterable[Iterable[Step]]) -> list[Line]:
    """A line per operator over some inferences, in the order in which they are computed; only numbers count."""
    import numpy as np

    operators: dict[str, _OperatorSketch] = {}
    for seed, steps in enumerate(inferences):
        for name, kind, output in steps:
            values = np.asarray(output)
            if values.dtype.kind in "fiub":
                operators.setdefault(name, _OperatorSketch(name, kind)).add(values, seed)
    return [operator.line() for operator in operators.values()]


def parted(before: Sequence[Line], after: Sequence[Line], limit: float) -> Line | None:
    """The first operator whose output moved by more than `limit`, relative to its size, between traces of one net.

    Operators are compared by name; None where no two are there that can be compared, or none moved so far.
    """
    known = {line["name"]: line for line in before}
    both = ((known[line["name"]], line) for line in after if line["name"] in known)
    return next((line for old, line in both if old["size"] == line["size"] and _moved(old, line) > limit), None)


def _moved(old: Line, new: Line) -> float:
    """The norm of the change over the norm, estimated."""
    if old["norm"] is None or new["norm"] is None:
        return 0.0 if old["norm"] == new["norm"] else math.inf
    change = math.dist(old["sketch"], new["sketch"])
    return change / old["norm"] if old["norm"] else math.inf if change else 0.0
