"""Ops that take or put elements at given indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Number, Result, Tensor, Whole

Mode = Literal["update", "add", "sub", "mul", "div", "max", "min"]


def gather(
    x: Tensor, indices: Whole, axis: int = 0, batch_dims: int = 0, validate_indices: bool | None = None
) -> Tensor:
    axis %= x.ndim
    if batch_dims:
        pairs = zip(x.flatten(0, batch_dims - 1), indices.flatten(0, batch_dims - 1), strict=True)
        rows = [gather(one, index, axis - batch_dims, 0, validate_indices) for one, index in pairs]
        return torch.stack(rows).reshape([*x.shape[:batch_dims], *rows[0].shape])
    flat = _checked(indices, x.shape[axis], validate_indices).reshape(-1)
    return x.index_select(axis, flat).reshape([*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]])


def gather_along_axis(x: Tensor, indices: Whole, axis: int = 0, validate_indices: bool | None = None) -> Result:
    return torch.gather(x, axis, _checked(indices, x.shape[axis], validate_indices))


def gather_nd(x: Tensor, indices: Whole, batch_dims: int = 0, validate_indices: bool | None = None) -> Tensor:
    if batch_dims:
        pairs = zip(x.flatten(0, batch_dims - 1), indices.flatten(0, batch_dims - 1), strict=True)
        rows = [gather_nd(one, index, 0, validate_indices) for one, index in pairs]
        return torch.stack(rows).reshape([*x.shape[:batch_dims], *rows[0].shape])
    return x[tuple(_places(indices, x.shape, validate_indices))]


def scatter(
    data: Number,
    indices: Whole,
    updates: Number,
    axis: int = 0,
    mode: Mode = "add",
    validate_indices: bool | None = None,
) -> Result:
    axis %= data.ndim
    front, change = data.movedim(axis, 0), updates.movedim(axis, 0)
    rows = front.reshape(front.shape[0], -1)
    index = _checked(indices, rows.shape[0], validate_indices)
    result = _put(rows, index.reshape(-1), change.reshape(-1, rows.shape[1]), mode)
    return result.reshape(front.shape).movedim(0, axis)


def scatter_along_axis(
    data: Number,
    indices: Whole,
    updates: Number,
    axis: int = 0,
    mode: Mode = "add",
    validate_indices: bool | None = None,
) -> Result:
    axis %= data.ndim
    places = [torch.arange(size) for size in indices.shape]
    grid = list(torch.meshgrid(*places, indexing="ij"))
    grid[axis] = _checked(indices, data.shape[axis], validate_indices)
    index = _linear(grid, data.shape)
    return _put(data.reshape(-1, 1), index.reshape(-1), updates.reshape(-1, 1), mode).reshape(data.shape)


def scatter_nd(
    data: Number, indices: Whole, updates: Number, mode: Mode = "add", validate_indices: bool | None = None
) -> Result:
    depth = indices.shape[-1]
    index = _linear(_places(indices, data.shape, validate_indices), data.shape[:depth])
    rows = data.reshape(math.prod(data.shape[:depth]), -1)
    return _put(rows, index.reshape(-1), updates.reshape(-1, rows.shape[1]), mode).reshape(data.shape)


def _put(rows: torch.Tensor, index: torch.Tensor, updates: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "update":
        return rows.index_put((index,), updates)
    if mode in ("add", "sub"):
        return rows.index_add(0, index, updates, alpha=1 if mode == "add" else -1)
    if mode == "div":
        return rows / torch.ones_like(rows).index_reduce(0, index, updates, "prod")
    return rows.index_reduce(0, index, updates, {"mul": "prod", "max": "amax", "min": "amin"}[mode])


def _places(indices: torch.Tensor, shape: Sequence[int], validate: bool | None) -> list[torch.Tensor]:
    """The index into each axis, of indices that have them along their last axis."""
    return [_checked(index, size, validate) for index, size in zip(indices.unbind(-1), shape, strict=False)]


def _linear(places: Sequence[torch.Tensor], shape: Sequence[int]) -> torch.Tensor:
    total = torch.zeros_like(places[0])
    for index, size in zip(places, shape, strict=True):
        total = total * size + index
    return total


def _checked(indices: torch.Tensor, size: int, validate: bool | None) -> torch.Tensor:
    """Indices inside an axis. Those below 0 count from its end in programs before iOS 17, which know no `validate`."""
    wrapped = torch.where(indices < 0, indices + size, indices) if validate is None else indices
    if wrapped.numel() and (int(wrapped.min()) < 0 or int(wrapped.max()) >= size):
        raise IndexError(f"an index is out of range for an axis of size {size}, which Core ML does not define")
    return wrapped.to(torch.int64)
