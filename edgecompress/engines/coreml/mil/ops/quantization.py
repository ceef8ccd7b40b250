"""Activations to 8-bit integers and back."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Float, Result, Whole


def quantize(
    input: Float,
    scale: Float,
    output_dtype: Literal["int8", "uint8"],
    zero_point: Whole | None = None,
    axis: int | None = None,
) -> Result:
    steps = torch.round(input / _along(scale, input, axis))
    if zero_point is not None:
        steps = steps + _along(zero_point, input, axis)
    low, high = (-128, 127) if output_dtype == "int8" else (0, 255)
    return torch.clamp(steps, low, high).to(getattr(torch, output_dtype))


def dequantize(input: Whole, scale: Float, zero_point: Whole | None = None, axis: int | None = None) -> Result:
    steps = input.to(torch.float32)
    if zero_point is not None:
        steps = steps - _along(zero_point, input, axis)
    return steps * _along(scale, input, axis)


def _along(values: torch.Tensor, x: torch.Tensor, axis: int | None) -> torch.Tensor:
    """A value per index of `axis`, so that it is broadcast over `x`; a single one as it is."""
    if axis is None or values.ndim == 0:
        return values
    return values.reshape([-1 if index == axis % x.ndim else 1 for index in range(x.ndim)])
