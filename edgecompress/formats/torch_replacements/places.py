"""Orders, and what is read from places or written to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def sort(x: Tensor, axis: int = -1, descending: bool = False, most: int = 0) -> tuple[Tensor, Tensor]:
    """By the largest along the last axis, the only ones that all engines find; `most`: of the order's beginning."""
    if not x.dim() or x.shape[axis] == 1:
        return x, no_places(x)
    last = x.movedim(axis, -1)
    values, places = (last if descending else -last).topk(most or x.shape[axis])
    return (values if descending else -values).movedim(-1, axis), places.movedim(-1, axis)


def sort_stable(x: Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    return sort(x, dim, descending)


def kthvalue(x: Tensor, k: int, axis: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = sort(x, axis, most=k)
    if not x.dim():
        return values, places
    found = values.narrow(axis, k - 1, 1), places.narrow(axis, k - 1, 1)
    return found if keepdim else (found[0].squeeze(axis), found[1].squeeze(axis))


def median(x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return kthvalue(x, (x.shape[axis] + 1) // 2 if x.dim() else 1, axis, keepdim)


def median_of_all(x: Tensor) -> Tensor:
    return kthvalue(x.reshape(-1), (x.numel() + 1) // 2, 0)[0]


def diagonal(x: Tensor, offset: int = 0, first: int = 0, second: int = 1) -> Any:
    import torch

    x = x.movedim((first, second), (-2, -1))
    height, width = x.shape[-2:]
    begin, length = max(-offset, 0) * width + max(offset, 0), min(height + min(offset, 0), width - max(offset, 0))
    if length <= 0:
        return NotImplemented
    return x.reshape(*x.shape[:-2], -1).index_select(-1, torch.arange(length) * (width + 1) + begin)


def cumulative(best: Callable[[Tensor, Tensor], Tensor], x: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """The best so far, and the last place that has it: of twice as many each time."""
    import torch

    if not x.dim():
        return x, no_places(x)
    x, step = x.movedim(axis, -1), 1
    places = torch.arange(x.shape[-1]).expand(x.shape)
    while step < x.shape[-1]:
        (before, now), (old, new) = ((t[..., :-step], t[..., step:]) for t in (x, places))
        values = best(before, now)
        x = torch.cat([x[..., :step], values], -1)
        places = torch.cat([places[..., :step], new.where(values == now, old)], -1)
        step *= 2
    return x.movedim(-1, axis), places.movedim(-1, axis)


def cumprod(x: Tensor, axis: int, *, dtype: Any = None) -> Tensor:
    import torch

    x, step = x if dtype is None else x.to(dtype), 1
    while x.dim() and step < x.shape[axis]:
        length = x.shape[axis] - step
        x = torch.cat([x.narrow(axis, 0, step), x.narrow(axis, step, length) * x.narrow(axis, 0, length)], axis)
        step *= 2
    return x


def flip(x: Tensor, axes: Sequence[int]) -> Any:
    """One axis after the other."""
    return NotImplemented if len(axes) == 1 else reduce(lambda turned, axis: turned.flip([axis]), axes, x)


def padded(x: Tensor, widths: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """By which of the numbers each place has: again from the other end, the last one, or in a mirror."""
    import torch

    if mode == "constant":  # what is cut off first
        for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True), 1):
            begin, end = max(-before, 0), x.shape[-axis] - max(-after, 0)
            x = x.narrow(-axis, begin, end - begin)
        more = [max(n, 0) for n in widths]
        return NotImplemented if more == [*widths] else torch.nn.functional.pad(x, more, value=value)
    for axis, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True), 1):
        last = x.shape[-axis] - 1
        places = torch.arange(-before, last + 1 + after)
        mirrored = last - (last - places.abs()).abs()
        found = {"circular": places % (last + 1), "replicate": places.clamp(0, last), "reflect": mirrored}[mode]
        x = x.index_select(-axis, found) if before or after else x
    return x


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    mask = mask.expand(x.shape)
    places = (mask.reshape(-1).long().cumsum(0) - 1).clamp(0, source.numel() - 1)
    return source.reshape(-1).index_select(0, places).reshape(x.shape).where(mask, x)


def transposed(x: Tensor) -> Any:
    return NotImplemented if x.is_complex() else x.transpose(-2, -1)


def one_hot(index: Tensor, classes: int = -1) -> Any:
    import torch

    return NotImplemented if classes < 0 else (index.unsqueeze(-1) == torch.arange(classes)).to(index.dtype)


def bucketize(x: Tensor, edges: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """How many edges lie below each number, or as far as it where `right`."""
    import torch

    below = edges <= x.unsqueeze(-1) if right else edges < x.unsqueeze(-1)
    return below.to(torch.int32 if out_int32 else torch.int64).sum(-1)


def searchsorted(
    edges: Tensor, x: Tensor, *, right: bool = False, side: str | None = None, sorter: Any = None, **_: Any
) -> Any:
    """As `bucketize`, by edges of each row's own where there are such."""
    if sorter is not None:
        return NotImplemented
    rows = edges if edges.dim() == 1 else edges.unsqueeze(-2)
    return bucketize(x, rows, right=right or side == "right")


def scatter_add(x: Tensor, axis: int, index: Tensor, source: Tensor) -> Any:
    """Of as much of the source as the index has."""
    if index.shape == source.shape:
        return NotImplemented
    return x.scatter_add(axis, index, source[tuple(slice(n) for n in index.shape)])


# What changes nothing that it is reduced with
EMPTY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}


def scatter_reduce(x: Tensor, axis: int, index: Tensor, source: Tensor, how: str, *, include_self: bool = True) -> Any:
    import torch

    if how not in ("sum", "mean") and include_self and index.shape == source.shape:
        return NotImplemented
    source = source[tuple(slice(n) for n in index.shape)]
    kept = x if include_self else x.scatter(axis, index, EMPTY[how])
    if how not in ("sum", "mean"):
        return kept.scatter_reduce(axis, index, source, how)
    total = kept.scatter_add(axis, index, source)
    if how == "sum":
        return total
    ones = torch.ones_like(x) if include_self else torch.ones_like(x).scatter(axis, index, 0.0)
    return total / ones.scatter_add(axis, index, torch.ones_like(source)).clamp(min=1)


def index_reduce(x: Tensor, axis: int, index: Tensor, source: Tensor, how: str, *, include_self: bool = True) -> Tensor:
    places = index.reshape([-1 if i == axis % x.dim() else 1 for i in range(x.dim())]).expand(source.shape)
    return x.scatter_reduce(axis, places, source, how, include_self=include_self)


def index_put(x: Tensor, index: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    """One number where a mask of the first axes is true; behind whole axes: into the tensor with those axes last."""
    import torch

    axes = [axis for axis, each in enumerate(index) if each is not None]
    given = [each for each in index if each is not None]
    if any(str(each.dtype) == "torch.bool" for each in given):
        if len(index) > 1 or values.numel() != 1 or accumulate:
            return NotImplemented
        mask = given[0].reshape(*given[0].shape, *[1] * (x.dim() - given[0].dim()))
        return values.to(x.dtype).reshape(()).where(mask, x)
    if len(axes) == len(index):
        return NotImplemented
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    turned = x.permute(axes + rest)
    places = torch.broadcast_shapes(*(each.shape for each in given))
    before = axes[0] if axes[-1] - axes[0] + 1 == len(axes) else 0  # the whole axes in front of the places
    sizes = [x.shape[axis] for axis in rest]
    values = values.expand(*sizes[:before], *places, *sizes[before:])
    values = values.movedim([*range(before, before + len(places))], [*range(len(places))])
    made = turned.index_put(given, values, accumulate)
    return made.permute([(axes + rest).index(axis) for axis in range(x.dim())])


def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    return x.reshape(-1).index_put([index.reshape(-1)], source.reshape(-1), accumulate).reshape(x.shape)


def copied(x: Tensor, y: Tensor, _: bool = False) -> Tensor:
    return y.to(x.dtype).expand(x.shape)


def unfold(x: Tensor, axis: int, size: int, step: int) -> Tensor:
    import torch

    if not x.dim():
        return x.reshape(1).narrow(0, 0, size)
    axis %= x.dim()
    places = torch.arange((x.shape[axis] - size) // step + 1).unsqueeze(1) * step + torch.arange(size)
    return x.index_select(axis, places.flatten()).unflatten(axis, places.shape).movedim(axis + 1, -1)


def embedding_bag(
    weight: Tensor,
    index: Tensor,
    offsets: Tensor,
    _scaled: bool = False,
    mode: int = 0,
    _sparse: bool = False,
    factors: Tensor | None = None,
    last: bool = False,
    padding: int = -1,
) -> tuple[Tensor, ...]:
    """Sums (`mode` 0), means or largest of the rows of each bag, by which rows lie in it."""
    import torch

    begins = (offsets[:-1] if last else offsets).unsqueeze(1)
    bag = (begins <= torch.arange(index.numel())).long().sum(0) - 1
    inside = torch.arange(begins.shape[0]).unsqueeze(1) == bag
    if padding >= 0:
        inside = inside & (index != padding)
    rows = weight.index_select(0, index)
    rows = rows if factors is None else rows * factors.unsqueeze(1)
    number = inside.to(rows.dtype).sum(1, keepdim=True)
    if mode == 2:
        most = rows.where(inside.unsqueeze(2), float("-inf")).amax(1)
        found = most.where(number > 0, 0.0)
    else:
        found = inside.to(rows.dtype).matmul(rows)
        found = found / number.clamp(min=1.0) if mode == 1 else found
    return found, *(no_places(offsets) for _ in range(3))


def squeeze(x: Tensor, axes: int | Sequence[int]) -> Tensor:
    """Of the axes that have one place alone."""
    one = {axis % x.dim() for axis in ([axes] if isinstance(axes, int) else axes) if x.dim()}
    return x.reshape([n for axis, n in enumerate(x.shape) if n != 1 or axis not in one])


def split(x: Tensor, size: int, axis: int = 0) -> list[Tensor]:
    length = x.shape[axis]
    return [x.narrow(axis, begin, min(size, length - begin)) for begin in range(0, length, size)]


def take(x: Tensor, index: Tensor) -> Tensor:
    return x.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)


def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None = None) -> Any:
    import torch

    if not x.is_contiguous() or x.storage_offset():
        return NotImplemented  # the strides are those of memory that the graph does not show
    places = torch.full((), offset or 0)
    for length, step in zip(size, stride, strict=True):
        places = places.unsqueeze(-1) + torch.arange(length) * step
    return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(size)


def no_places(x: Tensor) -> Tensor:
    import torch

    return torch.zeros(x.shape, dtype=torch.int64)


TABLE: dict[str, Callable[..., Any]] = {
    "pad": padded,
    "sort": sort,
    "sort.stable": sort_stable,
    "kthvalue": kthvalue,
    "median": median_of_all,
    "median.dim": median,
    "cummax": partial(cumulative, lambda a, b: a.maximum(b)),
    "cummin": partial(cumulative, lambda a, b: a.minimum(b)),
    "cumprod": cumprod,
    "diagonal": diagonal,
    "flip": flip,
    "masked_scatter": masked_scatter,
    "mH": transposed,
    "one_hot": one_hot,
    "bucketize.Tensor": bucketize,
    "searchsorted.Tensor": searchsorted,
    "scatter_add": scatter_add,
    "scatter_reduce.two": scatter_reduce,
    "index_reduce": index_reduce,
    "index_put": index_put,
    "put": put,
    "copy": copied,
    "squeeze.dim": squeeze,
    "squeeze.dims": squeeze,
    "split.Tensor": split,
    "unsafe_split.Tensor": split,
    "unfold": unfold,
    "_embedding_bag": embedding_bag,
    "_embedding_bag_forward_only": embedding_bag,
    "take": take,
    "as_strided": as_strided,
}
