"""What computes an operator by others, where torch has no decomposition, or one of operators that engines lack.

Each function takes what its operator in TABLE takes, by the formula of torch's documentation. It returns NotImplemented
for arguments that it is not for: the operator then stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, reduce
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


def fmod(x: Tensor, y: Tensor | float) -> Any:
    return x - y * trunc(x / y) if x.is_floating_point() else NotImplemented


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
    if not x.dim():
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


def transposed(x: Tensor) -> Any:
    return NotImplemented if x.is_complex() else x.transpose(-2, -1)


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


def max_pool3d(
    x: Tensor, kernel: Sizes, stride: Sizes = (), pad: Sizes = 0, step: Sizes = 1, ceil: bool = False
) -> tuple[Tensor, Tensor]:
    """The values; in the place of theirs, zeros (VALUES)."""
    for i, how in enumerate(zip(_three(kernel), _three(stride or kernel), _three(pad), _three(step), strict=True)):
        parts, _ = _windows(x, i - 3, (*how, ceil), float("-inf"))
        x = reduce(lambda a, b: a.maximum(b), parts)
    return x, _no_places(x)


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
    for i, how in enumerate(zip(_three(kernel), _three(stride or kernel), _three(pad), strict=True)):
        length, width = x.shape[i - 3], how[0]
        parts, first = _windows(x, i - 3, (*how, 1, ceil), 0.0)
        x = reduce(lambda a, b: a + b, parts)
        if not by:
            inside = (first + width).clamp(max=length) - first.clamp(min=0)
            count = (first + width).clamp(max=length + how[2]) - first if padded else inside
            x = x / count.to(x.dtype).reshape(-1, *[1] * (2 - i))
    return x / by if by else x


def adaptive_max_pool(x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The values; in the place of theirs, zeros (VALUES)."""
    import torch

    for axis, size in enumerate(sizes, -len(sizes)):
        length = x.shape[axis]
        ends = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
        x = torch.cat([x.narrow(axis, a, b - a).amax(axis, keepdim=True) for a, b in ends], axis)
    return x, _no_places(x)


def _windows(x: Tensor, axis: int, how: tuple[int, int, int, int, bool], edge: float) -> tuple[list[Tensor], Tensor]:
    """A pool along an axis: for each place of its kernel what is there in all windows, and where each window begins.

    `how`: kernel, stride, padding, dilation and whether the last window may reach beyond the padding.
    """
    import torch

    kernel, stride, pad, step, ceil = how
    length, reach = x.shape[axis], step * (kernel - 1) + 1
    room = length + 2 * pad - reach
    out = (-(-room // stride) if ceil else room // stride) + 1
    out -= ceil and (out - 1) * stride >= length + pad  # no window begins in the padding behind
    end = (out - 1) * stride + 1
    behind = max(end - 1 + reach - length - pad, 0)
    widths = [0] * (2 * (x.dim() - 1 - axis % x.dim())) + [pad, behind]
    padded = torch.nn.functional.pad(x, widths, value=edge) if pad or behind else x
    parts = [torch.ops.aten.slice.Tensor(padded, axis, i * step, i * step + end, stride) for i in range(kernel)]
    return parts, torch.arange(out) * stride - pad


def _three(sizes: Sizes) -> list[int]:
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * 3 if len(given) == 1 else given


# --------------------------------------------------------------------------- samples of volumes


def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
    """By the eight voxels around each place; `mode` 1: the nearest one; `padding`: zeros, border, reflection."""
    sizes = x.shape[:1:-1]  # the grid has width, height, depth
    places = [_place(at, n, padding, corners) for at, n in zip(grid.unbind(-1), sizes, strict=True)]
    flat, terms = x.flatten(2), []
    for corner in range(1 if mode == 1 else 8):
        weights, index = [], 0 * places[0].long()
        for axis in (2, 1, 0):  # depth first: its stride is the largest
            place, size = places[axis], sizes[axis]
            at = place.round() if mode == 1 else place.floor() + (corner >> axis & 1)
            inside = ((at >= 0) & (at <= size - 1)).to(x.dtype)
            weights.append(inside if mode == 1 else inside * (1 - (place - at).abs()))
            index = index * size + at.clamp(0, size - 1).long()
        taken = flat.gather(2, index.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1))
        weight = reduce(lambda a, b: a * b, weights).unsqueeze(1)
        terms.append(taken.reshape(*x.shape[:2], *grid.shape[1:4]) * weight)
    return reduce(lambda a, b: a + b, terms)


def _place(at: Tensor, size: int, padding: int, corners: bool) -> Tensor:
    """Where a coordinate from -1 to 1 is among `size` voxels."""
    place = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
    if padding == 2:
        low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
        off = (place - low).abs()
        turns = (off / max(span, 1e-9)).floor()
        rest = off - turns * span
        place = rest.where(turns == 2 * (turns / 2).floor(), span - rest) + low
    return place.clamp(0, size - 1) if padding else place


# --------------------------------------------------------------------------- all of them

VALUES = ("adaptive_max_pool2d", "adaptive_max_pool3d", "max_pool3d_with_indices")  # these find no places

TABLE: dict[str, Replacement] = {
    "acosh": acosh,
    "asinh": asinh,
    "atanh": atanh,
    "trunc": trunc,
    "round.decimals": rounded,
    "softplus": softplus,
    "fmax": fmax,
    "fmin": fmin,
    "fmod.Tensor": fmod,
    "fmod.Scalar": fmod,
    "lerp.Tensor": lerp,
    "lerp.Scalar": lerp,
    "fill.Tensor": fill,
    "fill.Scalar": fill,
    "full_like": full_like,
    "zeros_like": zeros_like,
    "ones_like": ones_like,
    **{f"bitwise_{name}.Tensor": logical(name) for name in ("and", "or", "xor")},
    "bitwise_not": logical("not"),
    "var_mean.correction": var_mean,
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
    "mH": transposed,
    "take": take,
    "as_strided": as_strided,
    "max_pool3d_with_indices": max_pool3d,
    "avg_pool3d": avg_pool3d,
    "adaptive_max_pool2d": adaptive_max_pool,
    "adaptive_max_pool3d": adaptive_max_pool,
    "grid_sampler_3d": grid_sampler_3d,
}


@cache
def table() -> dict[Any, Replacement]:
    """TABLE by torch's own objects."""
    from torch.ops import aten

    parts = {key: key.partition(".") for key in TABLE}
    return {getattr(getattr(aten, name), kind or "default"): TABLE[key] for key, (name, _, kind) in parts.items()}
