"""Sums, products and norms."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING, Any

from edgecompress.formats.torch_replacements.places import no_places

if TYPE_CHECKING:
    from torch import Tensor


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


def of_one(made: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
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


def of_all(name: str) -> Callable[..., Any]:
    """A reduction of all numbers, along each axis by name."""
    return lambda x, **more: getattr(x, name)(list(range(x.dim())), **more) if x.dim() else NotImplemented


def of_an_axis_of_one(both: bool) -> Callable[..., Any]:
    """The best number along an axis that has but one, and its place, or the place alone."""

    def found(x: Tensor, axis: int | None = None, keepdim: bool = False) -> Any:
        if axis is None or not x.dim() or x.shape[axis] != 1:
            return NotImplemented
        made = x if keepdim else x.squeeze(axis)
        return (made, no_places(made)) if both else no_places(made)

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


TABLE: dict[str, Callable[..., Any]] = {
    "var_mean.correction": var_mean,
    "var.correction": var,
    "sum.dim_IntList": of_one(lambda x: x.clone()),
    "logsumexp": of_one(lambda x: x.clone()),
    "instance_norm": instance_norm,
    "linalg_vector_norm": vector_norm,
    **{name: of_all(along) for name, along in {"max": "amax", "min": "amin", "mean": "mean", "sum": "sum"}.items()},
    "_native_batch_norm_legit_no_training": batch_norm,
    **{name: of_an_axis_of_one("dim" in name) for name in ("argmax", "argmin", "max.dim", "min.dim")},
    "logcumsumexp": logcumsumexp,
    "prod": prod_of_all,
    "prod.dim_int": prod,
    "addbmm": addbmm,
    "_trilinear": trilinear,
    "dist": dist,
    "_cdist_forward": cdist,
}
