"""Weights of few values, where they lie in a model's files: k-means of one dimension (Lloyd 1982).

Han et al. (2016, Deep Compression, arXiv:1510.00149, section 3) share weights so. The file keeps its size and its
operators; its packed form, and any download that is compressed, holds an index of a few bits for each weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import packed_file, stored_tensors

if TYPE_CHECKING:
    import numpy as np

DTYPES = ("float32", "float16", "int8")
MOST = 256  # values: an index of a byte
ROUNDS = 1000


@dataclass(frozen=True)
class Options:
    """How many values a weight has, and which weights."""

    values: int = 32  # of each weight, the zero among them where it has zeros
    min_size: int = 1024  # weights of fewer numbers stay as they are
    skip: tuple[str, ...] = ()  # weights that stay, as patterns of their names

    def __post_init__(self) -> None:
        if not 2 <= self.values <= MOST or self.min_size < 1:
            raise ValueError(f"values must be from 2 to {MOST}, min_size at least 1")


def clustered(request: Request) -> Artifact:
    """The model with weights of few values; input: "model".

    facts: {"clustered": weights, "values": of each, "distance": the RMS of what they moved by, relative to theirs}; or
    "lost" where there is none. Raises InputError where no weight is called as `skip` says.
    """
    options, model = request.options, request.model
    chosen, moves = _chosen(model, options), list[tuple[float, float]]()
    for file in model.files():
        data = bytearray(file.read_bytes())
        moves += [move for array in chosen for move in _replaced(data, array, options.values)]
        made = request.out / file.relative_to(model.path)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_bytes(data)
    facts: dict[str, object] = {"clustered": len(moves), "values": options.values}
    moved, whole = (sum(each) for each in zip((0.0, 0.0), *moves, strict=True))
    facts |= {"distance": (moved / whole) ** 0.5} if whole else {"lost": "the file has no weight of that size"}
    return Artifact(request.out, model.kind, model.inputs, model.outputs, facts).write()


def _chosen(model: Artifact, options: Options) -> list[np.ndarray]:
    """The weights that get few values."""
    read = stored_tensors.reader(model.kind)
    weights = [(name, array) for name, array in (read(model) if read else ()) if array is not None]
    for pattern in options.skip:
        if not any(fnmatchcase(name, pattern) for name, _ in weights):
            raise InputError(f"cluster: skip: no weight '{pattern}'")
    return [
        array
        for name, array in weights
        if array.dtype.name in DTYPES
        and array.size >= options.min_size
        and not any(fnmatchcase(name, pattern) for pattern in options.skip)
    ]


def _replaced(data: bytearray, array: np.ndarray, values: int) -> Iterator[tuple[float, float]]:
    """Puts few values where a weight lies in a file; the square sums of what it moved by, and of its own."""
    import numpy as np

    for start, end, _ in packed_file.places(bytes(data), [stored_tensors.tensor(array)]):
        few = nearest(array, values)
        data[start:end] = stored_tensors.tensor(few)[1]
        own, new = array.astype(np.float64), few.astype(np.float64)
        yield float(np.square(new - own).sum()), float(np.square(own).sum())


def nearest(weight: np.ndarray, values: int) -> np.ndarray:
    """`weight` with at most so many values, each the mean of those nearest to it; zeros stay zero.

    The first values are those that divide the weight's own into equal numbers.
    """
    import numpy as np

    own, where, counts = np.unique(weight, return_inverse=True, return_counts=True)
    kept, few = own != 0, own.astype(np.float64)
    points, often = few[kept], counts[kept].astype(np.float64)
    size = min(values - int(not kept.all()), len(points))
    mass, sums = (np.concatenate([[0.0], np.cumsum(each)]) for each in (often, often * points))
    edges = np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], size + 1)))
    for _ in range(ROUNDS):
        centres = np.diff(sums[edges]) / np.diff(mass[edges])
        new = np.unique([0, *np.searchsorted(points, (centres[1:] + centres[:-1]) / 2), len(points)])
        if np.array_equal(new, edges):
            break
        edges = new
    centres = np.diff(sums[edges]) / np.diff(mass[edges])
    few[kept] = np.repeat(centres, np.diff(edges))
    few = few if weight.dtype.kind == "f" else np.rint(few)
    return few.astype(weight.dtype)[where].reshape(weight.shape)
