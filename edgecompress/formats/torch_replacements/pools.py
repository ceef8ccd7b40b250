"""Pools."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Sizes: TypeAlias = "int | Sequence[int]"


def max_pool(
    axes: int, x: Tensor, kernel: Sizes, stride: Sizes = (), pad: Sizes = 0, step: Sizes = 1, ceil: bool = False
) -> tuple[Tensor, Tensor]:
    """The values, and the place of each in the map, the first one where several are the largest."""
    places = _numbered(x, axes)
    hows = [each_axis(sizes, axes) for sizes in (kernel, stride or kernel, pad, step)]
    for i in range(-1, -axes - 1, -1):
        how = (*(each[i] for each in hows), ceil)
        parts, _ = windows(x, i, how, float("-inf"))
        x = reduce(lambda a, b: a.maximum(b), parts)
        places = _first(parts, windows(places, i, how, 0)[0], x)
    return x, places


def avg_pool3d(
    x: Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    pad: Sizes = 0,
    ceil: bool = False,
    padded: bool = True,
    by: int | None = None,
) -> Tensor:
    """`padded`: the padding counts; `by`: what each sum is divided by, not by how many numbers it has."""
    for i, how in enumerate(zip(*(each_axis(sizes, 3) for sizes in (kernel, stride or kernel, pad)), strict=True)):
        length, width = x.shape[i - 3], how[0]
        parts, first = windows(x, i - 3, (*how, 1, ceil), 0.0)
        x = reduce(lambda a, b: a + b, parts)
        if not by:
            inside = (first + width).clamp(max=length) - first.clamp(min=0)
            count = (first + width).clamp(max=length + how[2]) - first if padded else inside
            x = x / count.to(x.dtype).reshape(-1, *[1] * (2 - i))
    return x / by if by else x


def max_pool2d(
    x: Tensor, kernel: Sizes, stride: Sizes = (), pad: Sizes = 0, step: Sizes = 1, ceil: bool = False
) -> Any:
    """Without `ceil_mode`: behind its end, where the last windows reach to, the last numbers stand once more."""
    import torch

    hows = [each_axis(sizes, 2) for sizes in (kernel, stride or kernel, pad, step)]
    behind = [_reach(x.shape[i], [how[i] for how in hows], ceil)[1] for i in (-2, -1)]
    if not ceil and hows[3] == [1, 1]:
        return NotImplemented
    if hows[3] != [1, 1] or (any(behind) and any(hows[2])):
        return max_pool(2, x, kernel, stride, pad, step, ceil)[0]
    widths = [0, behind[1], 0, behind[0]]
    batch = x if x.dim() == 4 else x.unsqueeze(0)
    more = torch.nn.functional.pad(batch, widths, "replicate") if any(widths) else batch
    made = torch.nn.functional.max_pool2d(more, *hows[:3])
    return made if batch is x else made.squeeze(0)


def adaptive_avg_pool(x: Tensor, sizes: Sequence[int]) -> Tensor:
    import torch

    for axis in range(-1, -len(sizes) - 1, -1):
        parts = [x.narrow(axis, a, b - a).mean(axis, keepdim=True) for a, b in _uneven(x.shape[axis], sizes[axis])]
        x = torch.cat(parts, axis)
    return x


def adaptive_max_pool(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """As `max_pool` of the windows that torch says."""
    import torch

    places = _numbered(x, len(sizes))
    for axis in range(-1, -len(sizes) - 1, -1):
        found = []
        for begin, end in _uneven(x.shape[axis], sizes[axis]):
            best = x.narrow(axis, begin, end - begin).amax(axis, keepdim=True)
            parts, spots = ([t.narrow(axis, i, 1) for i in range(begin, end)] for t in (x, places))
            found.append((best, _first(parts, spots, best)))
        x, places = (torch.cat(each, axis) for each in zip(*found, strict=True))
    return x, places


def _uneven(length: int, windows: int) -> list[tuple[int, int]]:
    """Where each window of an adaptive pool begins and ends."""
    return [(i * length // windows, -(-(i + 1) * length // windows)) for i in range(windows)]


def _numbered(x: Tensor, axes: int) -> Tensor:
    """The places of a map: 0, 1, 2 and so on, along its last axis first."""
    import torch

    return torch.arange(math.prod(x.shape[-axes:])).reshape(x.shape[-axes:])


def _first(parts: Sequence[Tensor], places: Sequence[Tensor], best: Tensor) -> Tensor:
    """The place of the first of some tensors that is the best."""
    found = places[-1].expand(best.shape)
    for part, place in zip(parts[-2::-1], places[-2::-1], strict=True):
        found = place.where(part == best, found)
    return found


def windows(x: Tensor, axis: int, how: tuple[Any, ...], edge: float) -> tuple[list[Tensor], Tensor]:
    """A pool along an axis: for each place of its kernel what is there in all windows, and where each window begins.

    `how`: kernel, stride, padding, dilation and whether the last window may reach beyond the padding.
    """
    import torch

    kernel, stride, pad, step, ceil = how
    length = x.shape[axis]
    out, behind = _reach(length, (kernel, stride, pad, step), ceil)
    end = (out - 1) * stride + 1
    widths = [0] * (2 * (x.dim() - 1 - axis % x.dim())) + [pad, behind]
    if not x.is_floating_point():  # the places of numbers: that of none is never taken
        begins = torch.arange(out) * stride - pad
        return [x.index_select(axis, (begins + i * step).clamp(0, length - 1)) for i in range(kernel)], begins
    padded = torch.nn.functional.pad(x, widths, value=edge) if pad or behind else x
    parts = [torch.ops.aten.slice.Tensor(padded, axis, i * step, i * step + end, stride) for i in range(kernel)]
    return parts, torch.arange(out) * stride - pad


def _reach(length: int, how: Sequence[int], ceil: bool) -> tuple[int, int]:
    """How many windows a pool has along an axis, how far the last one reaches beyond it (`how` as in `windows`)."""
    kernel, stride, pad, step = how
    reach = step * (kernel - 1) + 1
    room = length + 2 * pad - reach
    out = (-(-room // stride) if ceil else room // stride) + 1
    out -= ceil and (out - 1) * stride >= length + pad  # no window begins in the padding behind
    return out, max((out - 1) * stride + reach - length - pad, 0)


def each_axis(sizes: Sizes, axes: int) -> list[int]:
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * axes if len(given) == 1 else given


TABLE: dict[str, Callable[..., Any]] = {
    **{f"max_pool{axes}d_with_indices": partial(max_pool, axes) for axes in (1, 2, 3)},
    "avg_pool3d": avg_pool3d,
    "max_pool2d": max_pool2d,
    "adaptive_avg_pool3d": adaptive_avg_pool,
    "_adaptive_avg_pool3d": adaptive_avg_pool,
    **{f"adaptive_max_pool{axes}d": adaptive_max_pool for axes in (1, 2, 3)},
}
