"""Sketches: a few numbers of an array from which the distance of two arrays is told. Runs on Python 3.9: devices do it.

A sketch is WIDTH projections on random signs, each divided by the square root of the array's size; the root mean square
of the difference of two sketches estimates that of the arrays, within a third or so (Johnson and Lindenstrauss, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

WIDTH = 16
BLOCK = 1 << 16  # elements projected at once

Line = Mapping[str, Any]  # of a trace: name, type, size, rms, sketch


def trace(steps: Iterable[tuple[str, str, Any]]) -> Iterator[dict[str, Any]]:
    """(name, type, array) of each operator's output -> what is kept of it, as JSON; whole numbers count as numbers."""
    import numpy as np

    for name, kind, array in steps:
        values = np.asarray(array)
        if values.dtype.kind not in "fiub":
            continue
        flat = values.reshape(-1).astype(np.float64)
        sound = bool(np.isfinite(flat).all())
        rms = math.sqrt(float(np.square(flat).mean())) if sound and flat.size else 0.0 if sound else None
        yield {"name": name, "type": kind, "size": flat.size, "rms": rms, "sketch": of(flat) if sound else []}


def of(flat: Array) -> list[float]:
    """The sketch of a vector; the signs are always the same."""
    import numpy as np

    found = np.zeros(WIDTH)
    draw = np.random.RandomState(0)  # its stream is fixed for all versions of numpy
    for begin in range(0, flat.size, BLOCK):
        block = flat[begin : begin + BLOCK]
        bits = np.unpackbits(np.frombuffer(draw.bytes(BLOCK * WIDTH // 8), np.uint8)).reshape(WIDTH, BLOCK)
        found += np.where(bits[:, : block.size], block, -block).sum(axis=1)
    return [float(x) for x in found / math.sqrt(flat.size or 1)]


def parted(before: Sequence[Line], after: Sequence[Line], limit: float) -> Line | None:
    """The first operator whose output moved by more than `limit` (relative RMS) between two traces of one net.

    Operators are compared by name; None where no two are there that can be compared, or none moved so far.
    """
    known = {line["name"]: line for line in before}
    both = ((known[line["name"]], line) for line in after if line["name"] in known)
    return next((line for old, line in both if old["size"] == line["size"] and _moved(old, line) > limit), None)


def _moved(old: Line, new: Line) -> float:
    """Relative RMS of the change, estimated."""
    if old["rms"] is None or new["rms"] is None:
        return 0.0 if old["rms"] == new["rms"] else math.inf
    change = math.sqrt(sum((a - b) ** 2 for a, b in zip(old["sketch"], new["sketch"])) / WIDTH)  # noqa: B905 (3.9)
    return change / old["rms"] if old["rms"] else math.inf if change else 0.0
