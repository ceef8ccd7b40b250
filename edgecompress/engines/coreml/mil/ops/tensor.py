"""Ops that make tensors, order them, or fill them up."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.lazy import functional, torch
from edgecompress.engines.coreml.mil.signature import Ints, Number, Result, Tensor, Whole


def fill(shape: Ints, value: Tensor | None = None) -> Result:
    return _filled(shape, value)


def fill_like(ref_tensor: Tensor, value: Tensor | None = None) -> Result:
    return _filled(ref_tensor.shape, value)


def range_1d(start: Number, end: Number, step: Number) -> Result:
    return torch.arange(start.item(), end.item(), step.item(), dtype=start.dtype)


def one_hot(
    indices: Whole,
    one_hot_vector_size: int,
    axis: int = -1,
    on_value: Tensor | None = None,
    off_value: Tensor | None = None,
) -> Result:
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < one_hot_vector_size:
        raise IndexError(f"an index is out of range for {one_hot_vector_size} places, which Core ML does not define")
    places = torch.arange(one_hot_vector_size)
    hits = (indices.unsqueeze(-1) == places).movedim(-1, axis)
    on = torch.tensor(1, dtype=torch.int32) if on_value is None else on_value
    return torch.where(hits, on, torch.zeros_like(on) if off_value is None else off_value)


def non_zero(x: Tensor) -> Result:
    return torch.nonzero(x)


def band_part(x: Tensor, lower: int = -1, upper: int = -1) -> Result:
    below = torch.arange(x.shape[-2]).unsqueeze(-1) - torch.arange(x.shape[-1])
    inside = torch.logical_and(
        below <= lower if lower >= 0 else below == below, -below <= upper if upper >= 0 else below == below
    )
    return torch.where(inside, x, torch.zeros_like(x))


def cumsum(x: Number, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Result:
    """An exclusive sum leaves its own element out: it begins with 0."""
    forward = torch.flip(x, (axis,)) if reverse else x
    total = torch.cumsum(forward, axis)
    if exclusive:
        first = torch.zeros_like(total.narrow(axis, 0, 1))
        total = torch.cat((first, total.narrow(axis, 0, total.shape[axis] - 1)), axis)
    return torch.flip(total, (axis,)) if reverse else total


def argsort(x: Number, axis: int = -1, ascending: bool = False) -> Result:
    return torch.argsort(x, dim=axis, descending=not ascending, stable=True)


def topk(
    x: Number,
    k: int = 1,
    axis: int = -1,
    ascending: bool = False,
    sort: bool = True,
    return_indices: bool = True,
    output_indices_dtype: Literal["int32", "uint16"] = "int32",
) -> Result:
    """Sorted always, equal elements in their order; k = -1 is all of them."""
    order = torch.argsort(x, dim=axis, descending=not ascending, stable=True)
    order = order if k == -1 else order.narrow(axis, 0, k)
    values = torch.gather(x, axis, order)
    return (values, order) if return_indices else values


def pad(
    x: Tensor,
    pad: Ints,
    mode: Literal["constant", "reflect", "replicate"] = "constant",
    constant_val: float = 0.0,
) -> Result:
    """Pairs of elements before and after, for the last axes."""
    sides = list(zip(pad[::2], pad[1::2], strict=True))
    if mode == "constant":
        return functional.pad(x, [side for pair in reversed(sides) for side in pair], value=constant_val)
    if any(any(pair) for pair in sides[:-2]):
        raise ValueError(f"Core ML pads only the last two axes by '{mode}', and loads no file with more")
    for axis, (before, after) in enumerate(sides, start=x.ndim - len(sides)):
        if max(before, after) > (most := x.shape[axis] - (mode == "reflect")):
            raise ValueError(f"Core ML pads an axis of {x.shape[axis]} elements by at most {most} others of '{mode}'")
        x = x.index_select(axis, _beyond(x.shape[axis], before, after, mode))
    return x


def _beyond(size: int, before: int, after: int, mode: str) -> torch.Tensor:
    """The index of the element that stands for each place of a padded axis."""
    places = torch.arange(-before, size + after)
    if mode == "replicate":
        return torch.clamp(places, 0, size - 1)
    places = torch.abs(places)
    return torch.where(places < size, places, 2 * (size - 1) - places)


def _filled(shape: Ints, value: torch.Tensor) -> torch.Tensor:
    return (torch.zeros(()) if value is None else value).expand(tuple(shape)).clone()
