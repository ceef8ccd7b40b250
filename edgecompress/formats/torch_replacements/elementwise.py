"""Operators on each number for itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


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


def logical(name: str) -> Callable[..., Any]:
    """A bitwise operator on truth values, which engines have as a logical one."""

    def of(*given: Tensor) -> Any:
        truths = all(str(each.dtype) == "torch.bool" for each in given)
        return getattr(given[0], f"logical_{name}")(*given[1:]) if truths else NotImplemented

    return of


TABLE: dict[str, Callable[..., Any]] = {
    "abs": lambda x: x.maximum(-x),
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
}
