"""Pools of 1 to 3 spatial axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from edgecompress.engines.coreml.mil.lazy import functional, torch
from edgecompress.engines.coreml.mil.ops._padding import padding
from edgecompress.engines.coreml.mil.signature import Float, Ints, Result

PadType = Literal["valid", "custom", "same", "same_lower"]
Sides = list[tuple[int, int]]


def max_pool(
    x: Float,
    kernel_sizes: Ints,
    pad_type: PadType,
    strides: Ints | None = None,
    pad: Ints = (),
    ceil_mode: bool = False,
) -> Result:
    strides = strides or (1,) * len(kernel_sizes)
    sides = _sides(x, pad_type, pad, kernel_sizes, strides)
    padded = _padded(x, _overhang(x, sides, kernel_sizes, strides, ceil_mode), -math.inf)
    run = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)[len(kernel_sizes) - 1]
    return run(padded, kernel_sizes, strides)


def avg_pool(
    x: Float,
    kernel_sizes: Ints,
    pad_type: PadType,
    strides: Ints | None = None,
    pad: Ints = (),
    exclude_padding_from_average: bool = False,
    ceil_mode: bool = False,
) -> Result:
    """What a window of `ceil_mode` reaches beyond the edge is padding to Core ML: it counts unless excluded.

    coremltools' documentation says "as PyTorch", which never counts it; the numbers of devices say otherwise.
    """
    strides = strides or (1,) * len(kernel_sizes)
    sides = _overhang(x, _sides(x, pad_type, pad, kernel_sizes, strides), kernel_sizes, strides, ceil_mode)
    mean = _mean(_padded(x, sides, 0.0), kernel_sizes, strides)
    if not exclude_padding_from_average:
        return mean
    return mean / _mean(_padded(torch.ones_like(x[:1, :1]), sides, 0.0), kernel_sizes, strides)


def l2_pool(x: Float, kernel_sizes: Ints, pad_type: PadType, strides: Ints | None = None, pad: Ints = ()) -> Result:
    strides = strides or (1,) * len(kernel_sizes)
    sides = _sides(x, pad_type, pad, kernel_sizes, strides)
    return torch.sqrt(_mean(_padded(x * x, sides, 0.0), kernel_sizes, strides) * math.prod(kernel_sizes))


def _mean(x: torch.Tensor, kernel: Ints, strides: Ints) -> torch.Tensor:
    return (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[len(kernel) - 1](x, kernel, strides)


def _sides(x: torch.Tensor, pad_type: PadType, pad: Ints, kernel: Ints, strides: Ints) -> Sides:
    if pad_type == "same_lower" and len(kernel) == 1:
        raise ValueError("'same_lower' gives wrong numbers in pools of one axis, Apple says")
    return padding(pad_type, pad, x.shape[2:], kernel, strides)


def _padded(x: torch.Tensor, sides: Sequence[tuple[int, int]], value: float) -> torch.Tensor:
    return functional.pad(x, [side for pair in reversed(sides) for side in pair], value=value)


def _overhang(x: torch.Tensor, sides: Sides, kernel: Ints, strides: Ints, ceil_mode: bool) -> Sides:
    """The sides, the last one longer where `ceil_mode` lets a window hang over."""
    if not ceil_mode:
        return sides
    whole = []
    for size, (before, after), k, step in zip(x.shape[2:], sides, kernel, strides, strict=True):
        room = size + before + after
        windows = -(-(room - k) // step) + 1
        if before + after and (windows - 1) * step >= size + before:
            windows -= 1
        whole.append((before, max(after, (windows - 1) * step + k - size - before)))
    return whole
