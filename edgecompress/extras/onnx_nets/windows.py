"""Operators that go over windows: convolutions with weights that are computed, pools, normalizations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.nn import functional

from edgecompress.extras.onnx_nets.values import NotKnown, Value, numbers, operator, tensor, tensors

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor
CONV = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
BACK = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
MAX: dict[int, Any] = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
AVERAGE = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}

# --------------------------------------------------------------------------- windows


class Window:
    """A kernel's size, strides, dilations, and the pads at the begin and end of each axis, for inputs of a shape."""

    def __init__(self, node: Node, shape: Sequence[int], kernel: Sequence[int]) -> None:
        rank = len(kernel)
        self.kernel = list(kernel)
        self.strides = list(node.get("strides") or [1] * rank)
        self.dilations = list(node.get("dilations") or [1] * rank)
        auto, pads = node.get("auto_pad", "NOTSET"), node.get("pads") or [0] * 2 * rank
        if auto == "VALID":
            pads = [0] * 2 * rank
        elif auto.startswith("SAME"):
            whole = [
                max(0, (-(-size // s) - 1) * s + (k - 1) * d + 1 - size)
                for size, s, k, d in zip(shape, self.strides, self.kernel, self.dilations, strict=True)
            ]
            small = [each // 2 for each in whole]
            large = [a - b for a, b in zip(whole, small, strict=True)]
            pads = [*small, *large] if auto == "SAME_UPPER" else [*large, *small]
        self.begins, self.ends = list(pads[:rank]), list(pads[rank:])

    @property
    def even(self) -> bool:
        """Whether both ends of each axis have the same pad."""
        return self.begins == self.ends

    def flat(self) -> list[int]:
        """The pads as torch's `pad` takes them: the last axis first."""
        return [end for pair in reversed([*zip(self.begins, self.ends, strict=True)]) for end in pair]

    def behind(self, shape: Sequence[int]) -> list[int]:
        """How far the windows of `ceil_mode` reach behind the end pads: none begins in these."""
        spans = [(k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        axes = zip(shape, self.begins, self.ends, spans, self.strides, strict=True)
        last = [(n + a, min(-(-(n + a + b - span) // s), (n + a - 1) // s) * s + span, b) for n, a, b, span, s in axes]
        return [max(0, end - n - b) for n, end, b in last]


@operator("Conv")
def conv(node: Node, x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    """A convolution whose weights are no constants."""
    weight, bias = tensor(weight, x), tensor(bias, x) if bias is not None else None
    window = Window(node, x.shape[2:], weight.shape[2:])
    x, pads = (x, window.begins) if window.even else (functional.pad(x, window.flat()), 0)
    return CONV[weight.ndim - 2](x, weight, bias, window.strides, pads, window.dilations, node.get("group", 1))


def back_pads(node: Node, shape: Sequence[int], kernel: Sequence[int]) -> tuple[Window, list[int], list[int]]:
    """Of a transposed convolution: its window, what is cut at the begin, and what the output is longer at the end."""
    window = Window(node, shape, kernel)
    extra = list(node.get("output_padding") or [0] * len(kernel))
    steps = zip(shape, window.strides, window.kernel, window.dilations, strict=True)
    whole = [(size - 1) * s + (k - 1) * d + 1 for size, s, k, d in steps]
    auto, wanted = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if wanted or auto.startswith("SAME"):
        sizes = wanted[-len(kernel) :] if wanted else [n * s for n, s in zip(shape, window.strides, strict=True)]
        cut = [n + more - size for n, more, size in zip(whole, extra, sizes, strict=True)]
        small, large = [c // 2 for c in cut], [c - c // 2 for c in cut]
        window.begins, window.ends = (large, small) if auto != "SAME_UPPER" else (small, large)
    return window, window.begins, [more - end for more, end in zip(extra, window.ends, strict=True)]


@operator("ConvTranspose")
def conv_transpose(node: Node, x: Tensor, weight: Value, bias: Value = None) -> Tensor:
    """A transposed convolution, computed whole, then cut to its pads."""
    weight, bias = tensor(weight, x), tensor(bias, x) if bias is not None else None
    window, cut, more = back_pads(node, x.shape[2:], weight.shape[2:])
    rank, groups = weight.ndim - 2, node.get("group", 1)
    extra = [m + c for m, c in zip(more, cut, strict=True)]  # beside a cut of the same size at both ends
    if min(cut) >= 0 and all(
        0 <= e < max(s, d) for e, s, d in zip(extra, window.strides, window.dilations, strict=True)
    ):
        return BACK[rank](x, weight, bias, window.strides, cut, extra, groups, window.dilations)
    y = BACK[rank](x, weight, bias, window.strides, 0, 0, groups, window.dilations)
    if min(*cut, *(-m for m in more)) < 0:
        longer = [(max(0, -c), max(0, m)) for c, m in zip(cut, more, strict=True)]
        y = functional.pad(y, [end for pair in reversed(longer) for end in pair])
    for axis, (c, m) in enumerate(zip(cut, more, strict=True), 2):  # Core ML and ExecuTorch have no pads below 0
        y = y.narrow(axis, max(0, c), y.shape[axis] - max(0, c) - max(0, -m))
    return y


@operator("MaxPool")
def _max_pool(node: Node, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    window = Window(node, x.shape[2:], node.attributes["kernel_shape"])
    rank, ceil = len(window.kernel), bool(node.get("ceil_mode", 0))
    indices = len(node.outputs) > 1 and bool(node.outputs[1])
    whole, x = x, x if x.is_floating_point() else x.to(torch.float32)
    fits = window.even and all(2 * p <= k for p, k in zip(window.begins, window.kernel, strict=True))
    if not fits and indices:
        raise NotKnown("MaxPool with indices and unlike pads")
    pads: Any = window.begins
    if not fits:
        behind = window.behind(x.shape[2:]) if ceil else [0] * rank
        window.ends = [end + more for end, more in zip(window.ends, behind, strict=True)]
        x, pads, ceil = functional.pad(x, window.flat(), value=-math.inf), 0, False
    found = MAX[rank](x, window.kernel, window.strides, pads, window.dilations, ceil, indices)
    if not indices:
        return found.to(whole.dtype)
    values, places = found
    if node.get("storage_order"):
        h, w = whole.shape[2:]
        places = places % w * h + places // w
    planes = torch.arange(math.prod(whole.shape[:2]), device=x.device).reshape(*whole.shape[:2], *[1] * rank)
    return values.to(whole.dtype), places + planes * math.prod(whole.shape[2:])


@operator("MaxUnpool", known=(2,))
def _max_unpool(node: Node, x: Tensor, places: Tensor, shape: Value = None) -> Tensor:
    window = Window(node, x.shape[2:], node.attributes["kernel_shape"])
    sizes = [
        (n - 1) * s + k - a - b
        for n, s, k, a, b in zip(x.shape[2:], window.strides, window.kernel, window.begins, window.ends, strict=True)
    ]
    flat = x.new_zeros(math.prod([*x.shape[:2], *sizes]))
    if shape is None:
        return flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *sizes)
    wanted = numbers(shape)
    whole = x.new_zeros(wanted)
    small = flat.scatter(0, places.reshape(-1), x.reshape(-1)).reshape(*x.shape[:2], *sizes)
    whole[tuple(slice(n) for n in small.shape)] = small
    return whole


@operator("AveragePool")
def _average_pool(node: Node, x: Tensor) -> Tensor:
    window = Window(node, x.shape[2:], node.attributes["kernel_shape"])
    rank, ceil, count = len(window.kernel), bool(node.get("ceil_mode", 0)), bool(node.get("count_include_pad", 0))
    fits = window.even and all(2 * p <= k for p, k in zip(window.begins, window.kernel, strict=True))
    if fits and set(window.dilations) == {1} and (not ceil or not any(window.begins) or not count):
        return AVERAGE[rank](x, window.kernel, window.strides, window.begins, ceil, count)
    inside = torch.ones_like(x[:1, :1])
    padded, mask = (functional.pad(each, window.flat()) for each in (x, inside))
    mask = torch.ones_like(mask) if count else mask
    if ceil:
        ends = [end for m in reversed(window.behind(x.shape[2:])) for end in (0, m)]
        padded, mask = functional.pad(padded, ends), functional.pad(mask, ends)
    ones = x.new_ones((1, 1, *window.kernel))
    n, c = padded.shape[:2]
    sums = CONV[rank](padded.reshape(n * c, 1, *padded.shape[2:]), ones, None, window.strides, 0, window.dilations)
    counts = CONV[rank](mask, ones, None, window.strides, 0, window.dilations)
    return (sums / counts).reshape(n, c, *sums.shape[2:])


@operator("LpPool")
def _lp_pool(node: Node, x: Tensor) -> Tensor:
    window = Window(node, x.shape[2:], node.attributes["kernel_shape"])
    p, rank = node.get("p", 2), len(window.kernel)
    padded = functional.pad(x, window.flat())
    if node.get("ceil_mode"):
        padded = functional.pad(padded, [end for m in reversed(window.behind(x.shape[2:])) for end in (0, m)])
    ones = x.new_ones((1, 1, *window.kernel))
    flat = torch.abs(padded.reshape(-1, 1, *padded.shape[2:])) ** p
    sums = CONV[rank](flat, ones, None, window.strides, 0, window.dilations)
    return (sums ** (1 / p)).reshape(*x.shape[:2], *sums.shape[2:])


@operator("GlobalAveragePool")
def _global_average_pool(node: Node, x: Tensor) -> Tensor:
    if x.ndim == 4:
        return functional.adaptive_avg_pool2d(x, 1)
    return torch.mean(x, [*range(2, x.ndim)], keepdim=True)


@operator("GlobalMaxPool")
def _global_max_pool(node: Node, x: Tensor) -> Tensor:
    return torch.amax(x, [*range(2, x.ndim)], keepdim=True)


@operator("GlobalLpPool")
def _global_lp_pool(node: Node, x: Tensor) -> Tensor:
    p = node.get("p", 2)
    return torch.sum(torch.abs(x) ** p, [*range(2, x.ndim)], keepdim=True) ** (1 / p)


# --------------------------------------------------------------------------- normalizations


@operator("BatchNormalization")
def batch_norm(node: Node, x: Tensor, scale: Value, bias: Value, mean: Value, variance: Value) -> Tensor:
    """With numbers that are no constants."""
    scale, bias, mean, variance = tensors(scale, bias, mean, variance)
    return functional.batch_norm(x, mean, variance, scale, bias, False, 0.0, node.get("epsilon", 1e-5))


@operator("InstanceNormalization")
def _instance_norm(node: Node, x: Tensor, scale: Value, bias: Value) -> Tensor:
    scale, bias = tensors(scale, bias)
    return functional.instance_norm(x, weight=scale, bias=bias, eps=node.get("epsilon", 1e-5))


@operator("LayerNormalization")
def _layer_norm(node: Node, x: Tensor, scale: Value, bias: Value = None) -> Tensor | tuple[Tensor, ...]:
    axis = node.get("axis", -1) % x.ndim
    weight, shift = tensor(scale, x), tensor(bias, x) if bias is not None else None
    shape, eps = x.shape[axis:], node.get("epsilon", 1e-5)
    y = functional.layer_norm(x, shape, weight.expand(shape), shift.expand(shape) if shift is not None else None, eps)
    if len(node.outputs) == 1:
        return y
    axes = [*range(axis, x.ndim)]
    mean = torch.mean(x, axes, keepdim=True)
    return y, mean, torch.rsqrt(torch.mean((x - mean) ** 2, axes, keepdim=True) + eps)


@operator("RMSNormalization")
def _rms_norm(node: Node, x: Tensor, scale: Value) -> Tensor:
    axes = [*range(node.get("axis", -1) % x.ndim, x.ndim)]
    return x * torch.rsqrt(torch.mean(x * x, axes, keepdim=True) + node.get("epsilon", 1e-5)) * tensor(scale, x)


@operator("GroupNormalization")
def _group_norm(node: Node, x: Tensor, scale: Value, bias: Value) -> Tensor:
    groups = node.attributes["num_groups"]
    scale, bias = tensors(scale, bias)
    if node.opset < 21:  # of each group, not yet of each channel
        scale, bias = (torch.repeat_interleave(v, x.shape[1] // groups) for v in (scale, bias))
    return functional.group_norm(x, groups, scale, bias, node.get("epsilon", 1e-5))


@operator("LRN")
def _lrn(node: Node, x: Tensor) -> Tensor:
    size = node.attributes["size"]
    square, before = (x * x).reshape(x.shape[0], 1, x.shape[1], -1), (size - 1) // 2
    padded = functional.pad(square, [0, 0, before, size - 1 - before])
    sums = functional.avg_pool2d(padded, [size, 1], 1).reshape(x.shape) * size
    return x / (node.get("bias", 1.0) + node.get("alpha", 1e-4) / size * sums) ** node.get("beta", 0.75)


@operator("LpNormalization")
def _lp_normalization(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", -1)
    norm = torch.sum(torch.abs(x), axis, keepdim=True) if node.get("p", 2) == 1 else torch.sqrt(
        torch.sum(x * x, axis, keepdim=True))  # fmt: skip
    return torch.where(norm == 0, torch.zeros_like(x), x / torch.where(norm == 0, torch.ones_like(norm), norm))


@operator("MeanVarianceNormalization")
def _mean_variance(node: Node, x: Tensor) -> Tensor:
    axes = node.get("axes") or [0, 2, 3]
    mean = torch.mean(x, axes, keepdim=True)
    deviation = torch.sqrt(torch.mean(x * x, axes, keepdim=True) - mean * mean)
    return (x - mean) / (deviation + 1e-9)
