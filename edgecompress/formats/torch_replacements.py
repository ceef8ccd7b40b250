"""What computes an operator by others, where torch has no decomposition, or one of operators that engines lack.

Each function takes what its operator in TABLE takes, by the formula of torch's documentation. It returns NotImplemented
for arguments that it is not for: the operator then stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, partial, reduce
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Replacement: TypeAlias = Callable[..., Any]
Sizes: TypeAlias = "int | Sequence[int]"


# --------------------------------------------------------------------------- each number for itself


def acosh(x: Tensor) -> Tensor:
    return (x + (x - 1).sqrt() * (x + 1).sqrt()).log()


def asinh(x: Tensor) -> Tensor:
    size = x.abs()  # of -x it is -asinh(x): no two large numbers are subtracted
    return x.sign() * (size + (size * size + 1).sqrt()).log()


def atanh(x: Tensor) -> Tensor:
    return 0.5 * ((1 + x).log() - (1 - x).log())


def trunc(x: Tensor) -> Tensor:
    return x.sign() * x.abs().floor()


def rounded(x: Tensor, *, decimals: int) -> Tensor:
    return (x * 10.0**decimals).round() * 10.0**-decimals


def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    steep = x * float(beta)
    return x.where(steep > threshold, (1 + steep.exp()).log() * (1 / beta))


def fmax(x: Tensor, y: Tensor) -> Tensor:
    return y.where(x != x, x.where(y != y, x.maximum(y)))


def fmin(x: Tensor, y: Tensor) -> Tensor:
    return y.where(x != x, x.where(y != y, x.minimum(y)))


def signbit(x: Tensor) -> Tensor:
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def angle(x: Tensor) -> Any:
    return NotImplemented if x.is_complex() else (x < 0).to(x.dtype) * math.pi


def added(x: Any, y: Any, *, alpha: float = 1) -> Any:
    return NotImplemented if alpha == 1 else x + y * alpha


def subtracted(x: Any, y: Any, *, alpha: float = 1) -> Any:
    """By a factor of -1: a constant is on the right then."""
    return y * -alpha + x


def reciprocal(x: Tensor) -> Any:
    """Of a row."""
    return x.reshape(-1).reciprocal().reshape(x.shape) if x.dim() > 1 else NotImplemented


def fmod(x: Tensor, y: Tensor | float) -> Any:
    return x - y * trunc(x / y) if x.is_floating_point() else NotImplemented


def exp2(x: Tensor) -> Tensor:
    return (x * math.log(2)).exp()


def floor_divide(x: Tensor, y: Any) -> Any:
    return (x / y).floor() if x.is_floating_point() else NotImplemented


def divided(x: Tensor, y: Any, *, rounding_mode: str | None) -> Any:
    return floor_divide(x, y) if rounding_mode == "floor" else NotImplemented


def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    return (x != 0) != (y != 0)


def hypot(x: Tensor, y: Tensor) -> Tensor:
    return (x * x + y * y).sqrt()


def erfc(x: Tensor) -> Tensor:
    return 1 - x.erf()


def lerp(x: Tensor, y: Tensor, weight: Tensor | float) -> Tensor:
    return x + weight * (y - x)


def full_like(x: Tensor, value: float, *, dtype: Any = None, **_: Any) -> Tensor:
    import torch

    return torch.full(x.shape, value, dtype=dtype or x.dtype)


def zeros_like(x: Tensor, **more: Any) -> Tensor:
    return full_like(x, 0, **more)


def ones_like(x: Tensor, **more: Any) -> Tensor:
    return full_like(x, 1, **more)


def fill(x: Tensor, value: Any) -> Any:
    return value.to(x.dtype).expand(x.shape) if hasattr(value, "expand") else full_like(x, value)


def power(x: Tensor, exponent: float) -> Any:
    """Without axes: engines that have it have it of four at most."""
    return x.reshape(-1).pow(exponent).reshape(x.shape) if x.dim() > 1 else NotImplemented


def logical(name: str) -> Replacement:
    """A bitwise operator on truth values, which engines have as a logical one."""

    def of(*given: Tensor) -> Any:
        truths = all(str(each.dtype) == "torch.bool" for each in given)
        return getattr(given[0], f"logical_{name}")(*given[1:]) if truths else NotImplemented

    return of


# --------------------------------------------------------------------------- sums and products


def var_mean(x: Tensor, axes: Any = None, *, correction: float | None = 1, keepdim: bool = False) -> Any:
    axes = list(range(x.dim())) if axes is None else axes
    mean = x.mean(axes, keepdim=True)
    count = reduce(lambda whole, axis: whole * x.shape[axis], axes, 1) - (1 if correction is None else correction)
    var = ((x - mean) * (x - mean)).sum(axes, keepdim=keepdim) / max(count, 0)
    return var, mean if keepdim else x.mean(axes)


def var(x: Tensor, axes: Any = None, *, correction: float | None = 1, keepdim: bool = False) -> Tensor:
    found: Tensor = var_mean(x, axes, correction=correction, keepdim=keepdim)[0]
    return found


def batch_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, _: float, eps: float
) -> tuple[Tensor, ...]:
    """By the statistics that it has; of its own there are none."""
    mean, scale = (
        t.reshape(-1, *[1] * (x.dim() - 2)) for t in (mean, (var + eps).rsqrt() * (1 if weight is None else weight))
    )
    made = (x - mean) * scale
    if bias is not None:
        made = made + bias.reshape(mean.shape)
    return made, x.new_zeros(0), x.new_zeros(0)


def of_one(made: Callable[[Tensor], Tensor]) -> Replacement:
    """What a reduction along an axis makes of a tensor that has none."""
    return lambda x, *_, **more: NotImplemented if x.dim() else made(x)


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    own: bool,
    _momentum: float,
    eps: float,
    _: bool,
) -> Tensor:
    """By the statistics of each map where `own`, which it keeps none of, else by those that it has."""
    axes = list(range(2, x.dim()))
    if own or mean is None or var is None:
        found = var_mean(x, axes, correction=0, keepdim=True)
    else:
        found = tuple(t.reshape(-1, *[1] * len(axes)) for t in (var, mean))
    made = (x - found[1]) * (found[0] + eps).rsqrt()
    made = made if weight is None else made * weight.reshape(-1, *[1] * len(axes))
    return made if bias is None else made + bias.reshape(-1, *[1] * len(axes))


def vector_norm(x: Tensor, order: float = 2, axes: Any = None, keepdim: bool = False, **more: Any) -> Any:
    """Along axes by name; of a tensor that has none its size."""
    import torch

    if not x.dim():
        return x.abs()
    return (
        NotImplemented if axes is not None else torch.linalg.vector_norm(x, order, [*range(x.dim())], keepdim, **more)
    )


def of_all(name: str) -> Replacement:
    """A reduction of all numbers, along each axis by name."""
    return lambda x, **more: getattr(x, name)(list(range(x.dim())), **more) if x.dim() else NotImplemented


def of_an_axis_of_one(both: bool) -> Replacement:
    """The best number along an axis that has but one, and its place, or the place alone."""

    def found(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Any:
        if axis is None or not x.dim() or x.shape[axis] != 1:
            return NotImplemented
        made = x if keepdim else x.squeeze(axis)
        return (made, _no_places(made)) if both else _no_places(made)

    return found


def logcumsumexp(x: Tensor, axis: int) -> Tensor:
    top = x.amax(axis, keepdim=True)
    return (x - top).exp().cumsum(axis).log() + top


def prod(x: Tensor, axis: int, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if not x.dim() or not x.shape[axis]:
        return NotImplemented
    parts = list((x if dtype is None else x.to(dtype)).split(1, axis))
    while len(parts) > 1:  # in pairs: as many steps as the length has binary digits
        parts = [*(a * b for a, b in zip(parts[::2], parts[1::2], strict=False)), *parts[len(parts) // 2 * 2 :]]
    return parts[0] if keepdim else parts[0].squeeze(axis)


def prod_of_all(x: Tensor, *, dtype: Any = None) -> Any:
    return prod(x.reshape(-1), 0, dtype=dtype)


def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return float(beta) * x + float(alpha) * a.bmm(b).sum(0)


def trilinear(a: Tensor, b: Tensor, c: Tensor, of_a: Any, of_b: Any, of_c: Any, summed: Any, _: int = 1) -> Tensor:
    for axis in sorted({*of_a, *of_b, *of_c}):
        a, b, c = (t.unsqueeze(axis) if axis in of else t for t, of in ((a, of_a), (b, of_b), (c, of_c)))
    return (a * b * c).sum(list(summed))


def dist(x: Tensor, y: Tensor, p: float = 2) -> Any:
    import torch

    return torch.linalg.vector_norm(x - y, p)


def cdist(x: Tensor, y: Tensor, p: float, _: int | None) -> Any:
    import torch

    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


# --------------------------------------------------------------------------- orders and places


def sort(x: Tensor, axis: int = -1, descending: bool = False, most: int = 0) -> tuple[Tensor, Tensor]:
    """By the largest along the last axis, the only ones that all engines find; `most`: of the order's beginning."""
    if not x.dim() or x.shape[axis] == 1:
        return x, _no_places(x)
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
        return x, _no_places(x)
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
    return found, *(_no_places(offsets) for _ in range(3))


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


def _no_places(x: Tensor) -> Tensor:
    import torch

    return torch.zeros(x.shape, dtype=torch.int64)


# --------------------------------------------------------------------------- pools


def max_pool(
    axes: int, x: Tensor, kernel: Sizes, stride: Sizes = (), pad: Sizes = 0, step: Sizes = 1, ceil: bool = False
) -> tuple[Tensor, Tensor]:
    """The values, and the place of each in the map, the first one where several are the largest."""
    places = _numbered(x, axes)
    hows = [each_axis(sizes, axes) for sizes in (kernel, stride or kernel, pad, step)]
    for i in range(-1, -axes - 1, -1):
        how = (*(each[i] for each in hows), ceil)
        parts, _ = _windows(x, i, how, float("-inf"))
        x = reduce(lambda a, b: a.maximum(b), parts)
        places = _first(parts, _windows(places, i, how, 0)[0], x)
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
        parts, first = _windows(x, i - 3, (*how, 1, ceil), 0.0)
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


def _windows(x: Tensor, axis: int, how: tuple[Any, ...], edge: float) -> tuple[list[Tensor], Tensor]:
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
    """How many windows a pool has along an axis, how far the last one reaches beyond it (`how` as in `_windows`)."""
    kernel, stride, pad, step = how
    reach = step * (kernel - 1) + 1
    room = length + 2 * pad - reach
    out = (-(-room // stride) if ceil else room // stride) + 1
    out -= ceil and (out - 1) * stride >= length + pad  # no window begins in the padding behind
    return out, max((out - 1) * stride + reach - length - pad, 0)


def each_axis(sizes: Sizes, axes: int) -> list[int]:
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * axes if len(given) == 1 else given


# --------------------------------------------------------------------------- convolutions


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    step: Sizes = 1,
    groups: int = 1,
) -> Tensor:
    """A convolution of planes for each layer of the kernel, and the sum of them."""
    import torch

    strides, pads, steps = (each_axis(sizes, 3) for sizes in (stride, pad, step))
    batch = x if x.dim() == 5 else x.unsqueeze(0)
    parts, _ = _windows(batch, 2, (weight.shape[2], strides[0], pads[0], steps[0], False), 0.0)
    terms = []
    for i, part in enumerate(parts):
        planes = part.transpose(1, 2).flatten(0, 1)
        made = torch.nn.functional.conv2d(planes, weight[:, :, i], None, strides[1:], pads[1:], steps[1:], groups)
        terms.append(made.unflatten(0, (batch.shape[0], -1)).transpose(1, 2))
    whole = reduce(lambda a, b: a + b, terms)
    whole = whole if bias is None else whole + bias.reshape(-1, 1, 1, 1)
    return whole if batch is x else whole.squeeze(0)


def conv3d_padded(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sizes = 1, padding: str = "valid", *more: Any
) -> Tensor:
    import torch

    if padding == "same":
        reach = [n * (k - 1) for n, k in zip(each_axis(more[0] if more else 1, 3), weight.shape[2:], strict=True)]
        x = torch.nn.functional.pad(x, [n for r in reversed(reach) for n in (r // 2, r - r // 2)])
    return conv3d(x, weight, bias, stride, 0, *more)


def conv_transposed(
    name: str,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    pad: Sizes = 0,
    more: Sizes = 0,
    groups: int = 1,
    step: Sizes = 1,
) -> Any:
    """Without padding, its edges cut off; without groups; without dilation, its weights set apart by zeros.

    Over volumes that have no padding, a convolution of voxels set apart by zeros.
    `more`: what is added to each axis's end, zeros where no padding is.
    """
    import torch

    axes = weight.dim() - 2
    stride, pad, more, step = (each_axis(sizes, axes) for sizes in (stride, pad, more, step))
    rest = [max(0, m - p) for m, p in zip(more, pad, strict=True)]
    batch = x if x.dim() == weight.dim() else x.unsqueeze(0)
    if axes < 3 and batch is x and not any(pad) and not any(rest):
        if groups > 1:
            each = zip(x.chunk(groups, 1), weight.chunk(groups), strict=True)
            made = torch.cat(
                [getattr(torch.nn.functional, name)(a, w, None, stride, 0, 0, 1, step) for a, w in each], 1
            )
            return made if bias is None else made + bias.reshape(-1, *[1] * axes)
        if all(n == 1 for n in step):
            return NotImplemented
        return getattr(torch.nn.functional, name)(x, _set_apart(weight, step), bias, stride)
    if axes == 3 and (any(rest) or not any(pad)):
        made = _set_apart(batch, stride)
        reach = [s * (n - 1) for s, n in zip(step, weight.shape[2:], strict=True)]
        widths = [n for i in (2, 1, 0) for n in (reach[i] - pad[i], reach[i] - pad[i] + more[i])]
        turned = weight.flip([2, 3, 4]).unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        made = torch.nn.functional.conv3d(torch.nn.functional.pad(made, widths), turned, bias, 1, 0, step, groups)
    else:
        made = getattr(torch.nn.functional, name)(
            batch, weight, None if any(rest) else bias, stride, 0, 0, groups, step
        )
        if any(rest):
            made = torch.nn.functional.pad(made, [n for m in reversed(rest) for n in (0, m)])
            made = made if bias is None else made + bias.reshape(-1, *[1] * axes)
        for i in range(-axes, 0):
            size = (x.shape[i] - 1) * stride[i] - 2 * pad[i] + step[i] * (weight.shape[i] - 1) + more[i] + 1
            made = made.narrow(i, pad[i], size)
    return made if batch is x else made.squeeze(0)


def fold(x: Tensor, size: Sizes, kernel: Sizes, step: Sizes, pad: Sizes, stride: Sizes) -> Tensor:
    """A transposed convolution by kernels that are 1 at one place each."""
    import torch

    size, kernel, step, pad, stride = (each_axis(given, 2) for given in (size, kernel, step, pad, stride))
    reach = [n + 2 * p - d * (k - 1) - 1 for n, p, d, k in zip(size, pad, step, kernel, strict=True)]
    windows = [n // s + 1 for n, s in zip(reach, stride, strict=True)]
    more = [n % s for n, s in zip(reach, stride, strict=True)]
    places = math.prod(kernel)
    weight = (torch.arange(places).unsqueeze(1) == torch.arange(places)).reshape(places, 1, *kernel)
    made = torch.nn.functional.conv_transpose2d(
        x.reshape(-1, places, *windows), weight.to(x.dtype), None, stride, pad, more, 1, step
    )
    return made.reshape(*x.shape[:-2], -1, *size)


def convolution(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    pad: Sizes,
    step: Sizes,
    turned: bool,
    more: Sizes,
    groups: int,
) -> Any:
    """Of volumes alone; `turned`: the transposed one."""
    if weight.dim() < 5:
        return NotImplemented
    if turned:
        return conv_transposed("conv_transpose3d", x, weight, bias, stride, pad, more, groups, step)
    return conv3d(x, weight, bias, stride, pad, step, groups)


def _set_apart(x: Tensor, stride: Sequence[int]) -> Tensor:
    """With zeros between the numbers of the last axes, as many as makes them `stride` apart."""
    import torch

    for i, n in enumerate(stride, -len(stride)):
        last = x.movedim(i, -1)
        apart = torch.nn.functional.pad(last.reshape(-1, last.shape[-1], 1), [0, n - 1])
        x = apart.reshape(*last.shape[:-1], -1).narrow(-1, 0, (last.shape[-1] - 1) * n + 1).movedim(-1, i)
    return x


# --------------------------------------------------------------------------- samples of pictures and volumes


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


# --------------------------------------------------------------------------- all of them

TABLE: dict[str, Replacement] = {
    "acosh": acosh,
    "asinh": asinh,
    "atanh": atanh,
    "trunc": trunc,
    "round.decimals": rounded,
    "softplus": softplus,
    "fmax": fmax,
    "fmin": fmin,
    "square": lambda x: x * x,
    "exp2": exp2,
    "add.Tensor": added,
    "add.Scalar": added,
    "sub.Tensor": subtracted,
    "sub.Scalar": subtracted,
    "rsub.Tensor": lambda x, y, *, alpha=1: subtracted(y, x, alpha=alpha),
    "rsub.Scalar": lambda x, y, alpha=1: subtracted(y, x, alpha=alpha),
    "reciprocal": reciprocal,
    "div.Tensor": lambda x, y: y.reciprocal() * x,
    "floor_divide": floor_divide,
    "floor_divide.Scalar": floor_divide,
    "div.Tensor_mode": divided,
    "div.Scalar_mode": divided,
    "logical_xor": logical_xor,
    "hypot": hypot,
    "erfc": erfc,
    "signbit": signbit,
    "angle": angle,
    "fmod.Tensor": fmod,
    "fmod.Scalar": fmod,
    "lerp.Tensor": lerp,
    "lerp.Scalar": lerp,
    "fill.Tensor": fill,
    "fill.Scalar": fill,
    "full_like": full_like,
    "zeros_like": zeros_like,
    "ones_like": ones_like,
    "pow.Tensor_Scalar": power,
    **{f"bitwise_{name}.Tensor": logical(name) for name in ("and", "or", "xor")},
    "bitwise_not": logical("not"),
    "var_mean.correction": var_mean,
    "var.correction": var,
    "sum.dim_IntList": of_one(lambda x: x.clone()),
    "logsumexp": of_one(lambda x: x.clone()),
    "instance_norm": instance_norm,
    "linalg_vector_norm": vector_norm,
    **{name: of_all(along) for name, along in {"max": "amax", "min": "amin", "mean": "mean", "sum": "sum"}.items()},
    "pad": padded,
    "_native_batch_norm_legit_no_training": batch_norm,
    **{name: of_an_axis_of_one("dim" in name) for name in ("argmax", "argmin", "max.dim", "min.dim")},
    "logcumsumexp": logcumsumexp,
    "prod": prod_of_all,
    "prod.dim_int": prod,
    "addbmm": addbmm,
    "_trilinear": trilinear,
    "dist": dist,
    "_cdist_forward": cdist,
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
    "scatter_add": scatter_add,
    "scatter_reduce.two": scatter_reduce,
    "index_reduce": index_reduce,
    "index_put": index_put,
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
    **{f"max_pool{axes}d_with_indices": partial(max_pool, axes) for axes in (1, 2, 3)},
    "avg_pool3d": avg_pool3d,
    "convolution": convolution,
    "conv3d": conv3d,
    "conv3d.padding": conv3d_padded,
    "max_pool2d": max_pool2d,
    "adaptive_avg_pool3d": adaptive_avg_pool,
    "_adaptive_avg_pool3d": adaptive_avg_pool,
    **{f"adaptive_max_pool{axes}d": adaptive_max_pool for axes in (1, 2, 3)},
    **{
        f"conv_transpose{k}": partial(conv_transposed, f"conv_transpose{k[:2]}") for k in ("1d", "2d.input", "3d.input")
    },
    "col2im": fold,
    "grid_sampler_2d": grid_sampler,
    "grid_sampler_3d": grid_sampler,
}


@cache
def table() -> dict[Any, Replacement]:
    """TABLE by torch's own objects; what a replacement makes lies in memory as what it replaces: views of it follow."""
    from torch.ops import aten
    from torch.utils import _pytree as pytree

    def straight(replacement: Replacement, *given: Any, **named: Any) -> Any:
        made = replacement(*given, **named)
        return pytree.tree_map(lambda x: x.contiguous() if hasattr(x, "contiguous") else x, made)

    parts = {key: key.partition(".") for key in TABLE}
    return {
        getattr(getattr(aten, name), kind or "default"): partial(straight, TABLE[key])
        for key, (name, _, kind) in parts.items()
    }
