"""Matrix products, attention, and the operators of quantized numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from edgecompress.extras.onnx_nets import windows
from edgecompress.extras.onnx_nets.values import TYPES, Value, numbers, operator, tensor, tensors

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor

# --------------------------------------------------------------------------- products


@operator("MatMul")
def _mat_mul(node: Node, a: Value, b: Value) -> Tensor:
    return torch.matmul(*tensors(a, b))


@operator("Gemm")
def gemm(node: Node, a: Value, b: Value, c: Value = None) -> Tensor:
    """alpha A B + beta C, of which A and B may be transposed."""
    a, b = tensors(a, b)
    a, b = a.T if node.get("transA") else a, b.T if node.get("transB") else b
    alpha, beta = node.get("alpha", 1.0), node.get("beta", 1.0)
    y = torch.matmul(a, b)
    y = y if alpha == 1 else y * alpha
    if c is None:
        return y
    more = tensor(c, y)
    return y + (more if beta == 1 else more * beta)


@operator("Einsum")
def _einsum(node: Node, *values: Value) -> Tensor:
    return torch.einsum(node.attributes["equation"].replace(" ", ""), *tensors(*values))


@operator("Det")
def _det(node: Node, x: Tensor) -> Tensor:
    return torch.linalg.det(x)


# --------------------------------------------------------------------------- attention


@operator("Attention", known=(6,))
def _attention(node: Node, q: Tensor, k: Tensor, v: Tensor, *more: Value) -> tuple[Tensor, ...]:
    """Scaled dot products of opset 23: heads of [n, heads, steps, size], or packed as [n, steps, heads * size]."""
    mask, past_k, past_v, lengths = (*more, None, None, None, None)[:4]
    packed = q.ndim == 3
    if packed:
        q = _heads(q, node.attributes["q_num_heads"])
        k, v = (_heads(each, node.attributes["kv_num_heads"]) for each in (k, v))
    if past_k is not None:
        k, v = torch.cat([tensor(past_k, k), k], 2), torch.cat([tensor(past_v, v), v], 2)
    present_k, present_v = k, v
    if (groups := q.shape[1] // k.shape[1]) > 1:
        k, v = (torch.repeat_interleave(each, groups, 1) for each in (k, v))
    root = math.sqrt(node.get("scale") or 1 / math.sqrt(q.shape[-1]))
    scores = torch.matmul(q * root, (k * root).transpose(2, 3))
    cap = node.get("softcap", 0.0)
    capped = cap * torch.tanh(scores / cap) if cap else scores
    bias = _bias(node, scores, mask, lengths, 0 if past_k is None else tensor(past_k).shape[2])
    masked = capped if bias is None else capped + bias
    p = torch.softmax(masked, -1)
    if bias is not None:  # a step that sees nothing answers zeros
        p = torch.where(torch.amax(bias, -1, keepdim=True) == -math.inf, torch.zeros_like(p), p)
    y = torch.matmul(p, v)
    told = {0: scores, 1: capped, 2: masked, 3: p}[node.get("qk_matmul_output_mode", 0)]
    if packed:
        y = y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1)
    return y, present_k, present_v, told


def _heads(x: Tensor, count: int) -> Tensor:
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(1, 2)


def _bias(node: Node, scores: Tensor, mask: Value, lengths: Value, past: int) -> Tensor | None:
    """What is added to the scores: the mask, and what lies ahead of each step."""
    steps, whole = scores.shape[-2:]
    bias: Tensor | None = None
    if node.get("is_causal"):
        before = torch.tensor(numbers(lengths))[:, None, None, None] - steps if lengths is not None else past
        ahead = torch.arange(whole)[None, :] > torch.arange(steps)[:, None] + before
        bias = torch.zeros(ahead.shape, dtype=scores.dtype).masked_fill(ahead, -math.inf)
    if mask is not None:
        given = tensor(mask, scores)
        if given.dtype == torch.bool:
            given = torch.zeros(given.shape, dtype=scores.dtype).masked_fill(~given, -math.inf)
        if given.shape[-1] < whole:
            given = functional.pad(given, [0, whole - given.shape[-1]], value=-math.inf)
        bias = given if bias is None else bias + given
    if lengths is not None:
        behind = torch.arange(whole)[None, :] >= torch.tensor(numbers(lengths))[:, None]
        more = torch.zeros(behind.shape, dtype=scores.dtype).masked_fill(behind, -math.inf)[:, None, None, :]
        bias = more if bias is None else bias + more
    return bias


@operator("RotaryEmbedding")
def _rotary(node: Node, x: Tensor, cosines: Value, sines: Value, places: Value = None) -> Tensor:
    packed = x.ndim == 3
    x = _heads(x, node.attributes["num_heads"]) if packed else x
    c, s = tensor(cosines, x), tensor(sines, x)
    if places is not None:
        at = tensor(places, x)
        c, s = c[at], s[at]
    size = node.get("rotary_embedding_dim") or x.shape[-1]
    moved, rest = x[..., :size], x[..., size:]
    c, s = c[:, None, :, : size // 2], s[:, None, :, : size // 2]
    if node.get("interleaved"):
        a, b = moved[..., 0::2], moved[..., 1::2]
        turned = torch.stack([a * c - b * s, a * s + b * c], -1).reshape(moved.shape)
    else:
        a, b = moved[..., : size // 2], moved[..., size // 2 :]
        turned = torch.cat([a * c - b * s, a * s + b * c], -1)
    y = torch.cat([turned, rest], -1)
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], -1) if packed else y


# --------------------------------------------------------------------------- quantized numbers

LIMITS = {
    torch.uint8: (0, 255),
    torch.int8: (-128, 127),
    torch.uint16: (0, 65535),
    torch.int16: (-32768, 32767),
    torch.int32: (-(2**31), 2**31 - 1),
}


def _spread(node: Node, x: Tensor, each: Value) -> Tensor:
    """A scale or zero point as it lies over the numbers: one for all, one along an axis, or one of each block."""
    value, axis, block = tensor(each, x), node.get("axis", 1), node.get("block_size", 0)
    axis += x.ndim if axis < 0 else 0
    if value.ndim == 0 or (value.numel() == 1 and not block):
        return value.reshape(())
    if block:
        return torch.repeat_interleave(value, block, axis).narrow(axis, 0, x.shape[axis])
    return value.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


@operator("QuantizeLinear")
def _quantize(node: Node, x: Tensor, scale: Value, zero: Value = None) -> Tensor:
    x = tensor(x)
    asked = TYPES.get(node.get("output_dtype", 0), torch.uint8)
    kind = tensor(zero).dtype if zero is not None else asked
    low, high = LIMITS[kind]
    shift = _spread(node, x, zero).to(torch.float32) if zero is not None else 0
    return torch.clamp(torch.round(x / _spread(node, x, scale)) + shift, low, high).to(kind)


@operator("DequantizeLinear")
def _dequantize(node: Node, x: Tensor, scale: Value, zero: Value = None) -> Tensor:
    x = tensor(x)
    wide = x.to(torch.int32)
    wide = wide - _spread(node, x, zero).to(torch.int32) if zero is not None else wide
    factor = _spread(node, x, scale)
    return wide.to(factor.dtype) * factor


@operator("DynamicQuantizeLinear")
def _dynamic_quantize(node: Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    low, high = torch.clamp(torch.amin(x), max=0), torch.clamp(torch.amax(x), min=0)
    scale = (high - low) / 255
    zero = torch.clamp(torch.round(-low / scale), 0, 255)
    return torch.clamp(torch.round(x / scale) + zero, 0, 255).to(torch.uint8), scale, zero.to(torch.uint8)


def _centred(x: Value, zero: Value, rows: bool) -> Tensor:
    """Whole numbers less their zero point, exact in float64."""
    wide = tensor(x).to(torch.float64)
    if zero is None:
        return wide
    shift = tensor(zero).to(torch.float64)
    return wide - (shift[..., None] if rows and shift.ndim and shift.numel() > 1 else shift)


@operator("MatMulInteger")
def _mat_mul_integer(node: Node, a: Value, b: Value, a_zero: Value = None, b_zero: Value = None) -> Tensor:
    return torch.matmul(_centred(a, a_zero, True), _centred(b, b_zero, False)).to(torch.int32)


@operator("ConvInteger")
def _conv_integer(node: Node, x: Value, w: Value, x_zero: Value = None, w_zero: Value = None) -> Tensor:
    weight = tensor(w).to(torch.float64)
    if w_zero is not None:
        weight = weight - tensor(w_zero).to(torch.float64).reshape(-1, *[1] * (weight.ndim - 1))
    return windows.conv(node, _centred(x, x_zero, False), weight).to(torch.int32)


def _requantized(y: Tensor, scales: Sequence[Tensor], scale: Value, zero: Value) -> Tensor:
    kind = tensor(zero).dtype
    low, high = LIMITS[kind]
    factor = scales[0].to(torch.float64) * scales[1].to(torch.float64) / tensor(scale).to(torch.float64)
    return torch.clamp(torch.round(y * factor) + tensor(zero).to(torch.float64), low, high).to(kind)


@operator("QLinearMatMul")
def _q_linear_mat_mul(node: Node, *given: Value) -> Tensor:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = given
    scales = [tensor(a_scale), tensor(b_scale)]
    scales[0] = scales[0][..., None] if scales[0].ndim and scales[0].numel() > 1 else scales[0]
    return _requantized(torch.matmul(_centred(a, a_zero, True), _centred(b, b_zero, False)), scales, scale, zero)


@operator("QLinearConv")
def _q_linear_conv(node: Node, *given: Value) -> Tensor:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero, bias = (*given, None)[:9]
    weight = tensor(w).to(torch.float64)
    weight = weight - tensor(w_zero).to(torch.float64).reshape(-1, *[1] * (weight.ndim - 1))
    y = windows.conv(node, _centred(x, x_zero, False), weight, None if bias is None else tensor(bias).to(torch.float64))
    each = tensor(w_scale).reshape(-1)
    factors = each.reshape(1, -1, *[1] * (y.ndim - 2)) if each.numel() > 1 else each
    return _requantized(y, [tensor(x_scale), factors], scale, zero)


# --------------------------------------------------------------------------- windows of signals


def _cosines(node: Node, size: Value, weights: Sequence[float]) -> Tensor:
    count = int(numbers(size)[0])
    turns = 2 * math.pi * np.arange(count) / (count if node.get("periodic", 1) else count - 1)
    return torch.tensor(sum(w * np.cos(k * turns) for k, w in enumerate(weights)), dtype=torch.float32)


operator("HannWindow", known=(0,))(lambda node, size: _cosines(node, size, (0.5, -0.5)))
operator("HammingWindow", known=(0,))(lambda node, size: _cosines(node, size, (25 / 46, -21 / 46)))
operator("BlackmanWindow", known=(0,))(lambda node, size: _cosines(node, size, (0.42, -0.5, 0.08)))
