"""Elements of a weight that are taken together: kernels, filters, channels, rows, columns, blocks, a whole layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# By structure: the axes that number its groups, and how many axes a weight must have
AXES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "2D": ((0, 1), (4,)),
    "3D": ((0,), (3, 4)),
    "Filters": ((0,), (3, 4)),
    "4D": ((), (4,)),
    "Channels": ((1,), (2, 3, 4)),
    "Rows": ((0,), (2,)),
    "Cols": ((1,), (2,)),
}


@dataclass(frozen=True)
class Groups:
    """The groups of a weight of `shape`: in the shape `tiled`, they are numbered by the axes `kept`."""

    shape: tuple[int, ...]
    tiled: tuple[int, ...]
    kept: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return math.prod(self.tiled[axis] for axis in self.kept)

    def rows(self, weight: Tensor) -> Tensor:
        """The elements of each group [groups, elements]."""
        rest = [axis for axis in range(len(self.tiled)) if axis not in self.kept]
        return weight.reshape(self.tiled).permute(*self.kept, *rest).reshape(self.count, -1)

    def spread(self, values: Tensor) -> Tensor:
        """A value for each group [groups], at each of its elements: of the weight's shape."""
        sizes = [size if axis in self.kept else 1 for axis, size in enumerate(self.tiled)]
        return values.reshape(sizes).expand(self.tiled).reshape(self.shape)


def of(structure: str, shape: Sequence[int]) -> Groups:
    """The groups of a weight. Raises ValueError for a weight of other axes."""
    kept, axes = AXES[structure]
    if len(shape) not in axes:
        needed = " or ".join(map(str, axes))
        raise ValueError(f"{structure} needs a weight of {needed} axes, not of shape {list(shape)}")
    return Groups(tuple(shape), tuple(shape), kept)


def blocks(block: Sequence[int], shape: Sequence[int]) -> Groups:
    """Blocks of [filters, channels, height, width]; of a matrix [rows, columns, 1, 1]. Raises ValueError."""
    sides = tuple(block[: len(shape)])
    fits = len(shape) in (2, 4) and all(side == 1 for side in block[len(shape) :])
    if not fits or any(size % side for size, side in zip(shape, sides, strict=True)):
        raise ValueError(f"blocks of {list(block)} do not divide a weight of shape {list(shape)}")
    tiled = [part for size, side in zip(shape, sides, strict=True) for part in (size // side, side)]
    return Groups(tuple(shape), tuple(tiled), tuple(range(0, len(tiled), 2)))


def above(weight: Tensor, structure: str, threshold: float, criterion: str) -> Tensor:
    """1 at each element of a group whose largest or mean magnitude is above the threshold, else 0: as the weight."""
    groups = of(structure, weight.shape)
    sizes = groups.rows(weight.detach()).abs()
    sizes = sizes.amax(1) if criterion == "Max" else sizes.mean(1)
    return groups.spread((sizes > threshold).to(weight.dtype))
