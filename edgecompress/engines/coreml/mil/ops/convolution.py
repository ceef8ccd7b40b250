"""Convolutions of 1 to 3 spatial axes."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.lazy import functional
from edgecompress.engines.coreml.mil.ops._padding import padding
from edgecompress.engines.coreml.mil.signature import Float, Ints, Result


def conv(
    x: Float,
    weight: Float,
    bias: Float | None = None,
    strides: Ints | None = None,
    pad_type: Literal["valid", "custom", "same", "same_lower"] = "valid",
    pad: Ints = (),
    dilations: Ints | None = None,
    groups: int = 1,
) -> Result:
    axes = x.ndim - 2
    strides, dilations = strides or (1,) * axes, dilations or (1,) * axes
    kernel = tuple((size - 1) * step + 1 for size, step in zip(weight.shape[2:], dilations, strict=True))
    sides = padding(pad_type, pad, x.shape[2:], kernel, strides)
    padded = functional.pad(x, [side for pair in reversed(sides) for side in pair])
    run = (functional.conv1d, functional.conv2d, functional.conv3d)[axes - 1]
    return run(padded, weight, bias, strides, 0, dilations, groups)


def conv_transpose(
    x: Float,
    weight: Float,
    bias: Float | None = None,
    strides: Ints | None = None,
    pad_type: Literal["valid", "custom", "same"] = "valid",
    pad: Ints = (),
    dilations: Ints | None = None,
    groups: int = 1,
    output_shape: Ints = (),
) -> Result:
    """Everything that the kernel reaches, cropped by the padding; `same`: to the size of the input times the stride,
    an odd element off the end, or zeros there where the stride is longer than the kernel.

    `output_shape`, whole, is what converters write of that; another one is cut off, or filled, nobody says where.
    """
    axes = x.ndim - 2
    strides, dilations = strides or (1,) * axes, dilations or (1,) * axes
    run = (functional.conv_transpose1d, functional.conv_transpose2d, functional.conv_transpose3d)[axes - 1]
    whole = run(x, weight, bias, strides, 0, 0, groups, dilations)
    crops = [(0, 0)] * axes
    if pad_type == "custom":
        crops = list(zip(pad[::2], pad[1::2], strict=True))
    if pad_type == "same":
        extra = [have - size * step for have, size, step in zip(whole.shape[2:], x.shape[2:], strides, strict=True)]
        crops = [(max(e, 0) // 2, e - max(e, 0) // 2) for e in extra]
    cropped = functional.pad(whole, [-side for pair in reversed(crops) for side in pair])
    if output_shape and tuple(output_shape) != tuple(cropped.shape):
        raise ValueError(f"output_shape {list(output_shape)} of an output {list(cropped.shape)}")
    return cropped
