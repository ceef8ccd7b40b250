"""Convolutions, and what is one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from edgecompress.formats.torch_replacements.pools import Sizes, each_axis, windows

if TYPE_CHECKING:
    from torch import Tensor


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
    parts, _ = windows(batch, 2, (weight.shape[2], strides[0], pads[0], steps[0], False), 0.0)
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


TABLE: dict[str, Callable[..., Any]] = {
    "convolution": convolution,
    "conv3d": conv3d,
    "conv3d.padding": conv3d_padded,
    **{
        f"conv_transpose{k}": partial(conv_transposed, f"conv_transpose{k[:2]}") for k in ("1d", "2d.input", "3d.input")
    },
    "col2im": fold,
}
