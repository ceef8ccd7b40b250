"""Samples of pictures and volumes."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import product
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def grid_sampler(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """By the 4 pixels or 8 voxels around each place; `mode` 1: the nearest one, 2: cubics of 16 pixels; `padding`:
    zeros, border, reflection."""
    flat, terms, ways = x.flatten(2), [], list[Any]()
    for at, size in zip(grid.unbind(-1), x.shape[:1:-1], strict=True):  # the grid has width, height, depth
        place = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
        place = place if mode == 2 else _inside(place, size, padding, corners)
        low = place.floor()
        if mode == 1:
            taps = [(place.round(), None)]
        elif mode == 2:
            taps = [(_inside(low + i, size, padding, corners), _cubic((place - low - i).abs())) for i in (-1, 0, 1, 2)]
        else:
            taps = [(low + i, 1 - (place - (low + i)).abs()) for i in (0, 1)]
        ways.insert(0, [(tap, weight, size) for tap, weight in taps])  # depth first: its stride is the largest
    for corner in product(*ways):
        weights, index = [], 0 * corner[0][0].long()
        for tap, weight, size in corner:
            inside = ((tap >= 0) & (tap <= size - 1)).to(x.dtype)
            weights.append(inside if weight is None else inside * weight)
            index = index * size + tap.clamp(0, size - 1).long()
        taken = flat.gather(2, index.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1))
        weight = reduce(lambda a, b: a * b, weights).unsqueeze(1)
        terms.append(taken.reshape(*x.shape[:2], *grid.shape[1:-1]) * weight)
    return reduce(lambda a, b: a + b, terms)


def _cubic(off: Tensor) -> Tensor:
    """The weight of a pixel so far off, less than two pixels, by the cubic of torch, whose number is -0.75."""
    near = (1.25 * off - 2.25) * off * off + 1
    far = ((-0.75 * off + 3.75) * off - 6) * off + 3
    return near.where(off <= 1, far)


def _inside(place: Tensor, size: int, padding: int, corners: bool) -> Tensor:
    """A place among `size` voxels, brought back from beyond them as `padding` says."""
    if padding == 2:
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        off = (place - low).abs()
        turns = (off / max(span, 1e-9)).floor()
        rest = off - turns * span
        place = rest.where(turns == 2 * (turns / 2).floor(), span - rest) + low
    return place.clamp(0, size - 1) if padding else place


TABLE: dict[str, Callable[..., Any]] = {
    "grid_sampler_2d": grid_sampler,
    "grid_sampler_3d": grid_sampler,
}
