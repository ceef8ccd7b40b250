"""Ops on each element of one tensor, or of two that are broadcast."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.dtypes import BY_NAME
from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Bool, Float, Number, Result, Tensor


def abs(x: Number) -> Result:
    return torch.abs(x)


def acos(x: Float) -> Result:
    return torch.acos(x)


def asin(x: Float) -> Result:
    return torch.asin(x)


def atan(x: Float) -> Result:
    return torch.atan(x)


def atanh(x: Float) -> Result:
    return torch.atanh(x)


def ceil(x: Float) -> Result:
    return torch.ceil(x)


def clip(x: Float, alpha: float, beta: float) -> Result:
    return torch.clamp(x, alpha, beta)


def cos(x: Float) -> Result:
    return torch.cos(x)


def cosh(x: Float) -> Result:
    return torch.cosh(x)


def erf(x: Float) -> Result:
    return torch.erf(x)


def exp(x: Float) -> Result:
    return torch.exp(x)


def exp2(x: Float) -> Result:
    return torch.exp2(x)


def floor(x: Float) -> Result:
    return torch.floor(x)


def inverse(x: Float, epsilon: float = 1e-4) -> Result:
    return 1 / (x + epsilon)


def log(x: Float, epsilon: float = 1e-45) -> Result:
    return torch.log(x + epsilon)


def logical_not(x: Bool) -> Result:
    return torch.logical_not(x)


def round(x: Float) -> Result:
    return torch.round(x)


def rsqrt(x: Float, epsilon: float = 1e-12) -> Result:
    return 1 / torch.sqrt(x + epsilon)


def sign(x: Number) -> Result:
    """Of no number: no number, where torch says 0."""
    return torch.where(x == x, torch.sign(x), x)


def sin(x: Float) -> Result:
    return torch.sin(x)


def sinh(x: Float) -> Result:
    return torch.sinh(x)


def sqrt(x: Float) -> Result:
    return torch.sqrt(x)


def square(x: Number) -> Result:
    return x * x


def tan(x: Float) -> Result:
    return torch.tan(x)


def tanh(x: Float) -> Result:
    return torch.tanh(x)


def threshold(x: Float, alpha: float) -> Result:
    return torch.clamp(x, min=alpha)


def cast(x: Tensor, dtype: Literal["int8", "uint8", "int16", "uint16", "int32", "fp16", "fp32", "bool"]) -> Result:
    """Towards zero from a float to an integer, which must hold it; to bool: whether it is not zero."""
    to = BY_NAME[dtype]
    if x.is_floating_point() and to.kind == "int" and x.numel():
        signed = not dtype.startswith("u")
        whole, low, high = torch.trunc(x), -(2 ** (to.bits - 1)) * signed, 2 ** (to.bits - signed)
        if not ((whole >= low) & (whole < high)).all():
            raise ValueError(f"a float is beyond what {dtype} holds, which Core ML does not define")
    return x.to(getattr(torch, to.held))


def add(x: Number, y: Number) -> Result:
    return x + y


def sub(x: Number, y: Number) -> Result:
    return x - y


def mul(x: Number, y: Number) -> Result:
    return x * y


def real_div(x: Float, y: Float) -> Result:
    return x / y


def floor_div(x: Number, y: Number) -> Result:
    return torch.floor_divide(x, y)


def mod(x: Number, y: Number) -> Result:
    """Not below zero: coremltools gives the remainder the sign of `y`, and devices that of `x`."""
    if (x < 0).any() or (y < 0).any():
        raise ValueError("the sign of a remainder of negative numbers is one thing to coremltools, another to devices")
    return torch.remainder(x, y)


def pow(x: Number, y: Number) -> Result:
    return torch.pow(x, y)


def maximum(x: Number, y: Number) -> Result:
    return torch.maximum(x, y)


def minimum(x: Number, y: Number) -> Result:
    return torch.minimum(x, y)


def equal(x: Tensor, y: Tensor) -> Result:
    return x == y


def not_equal(x: Tensor, y: Tensor) -> Result:
    return x != y


def greater(x: Number, y: Number) -> Result:
    return x > y


def greater_equal(x: Number, y: Number) -> Result:
    return x >= y


def less(x: Number, y: Number) -> Result:
    return x < y


def less_equal(x: Number, y: Number) -> Result:
    return x <= y


def logical_and(x: Bool, y: Bool) -> Result:
    return torch.logical_and(x, y)


def logical_or(x: Bool, y: Bool) -> Result:
    return torch.logical_or(x, y)


def logical_xor(x: Bool, y: Bool) -> Result:
    return torch.logical_xor(x, y)


def select(cond: Bool, a: Tensor, b: Tensor) -> Result:
    return torch.where(cond, a, b)
