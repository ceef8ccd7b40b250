"""Operators whose weights are constants of the file as layers of torch: what is pruned, trained and quantized."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from edgecompress.extras.onnx_nets import recurrent
from edgecompress.extras.onnx_nets.windows import Window, back_pads

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Constants = Sequence["np.ndarray | None"]  # of a node's inputs; None: no constant, or left out
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
BACK = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def _of(array: np.ndarray) -> torch.Tensor:
    return torch.tensor(np.ascontiguousarray(array))


def _is_real(*arrays: np.ndarray | None) -> bool:
    return all(array is None or array.dtype == np.float32 for array in arrays)


class BatchNorm(nn.BatchNorm2d):  # type: ignore[misc]
    """For inputs of any rank: a graph need not state it."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Any."""


class Padded(nn.Module):  # type: ignore[misc]
    """A convolution whose ends have unlike pads."""

    def __init__(self, conv: nn.Module, pads: list[int]) -> None:
        super().__init__()
        self.conv, self.pads = conv, pads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Pads by zeros, then convolves."""
        return self.conv(functional.pad(x, self.pads))


def _conv(node: Node, given: Constants) -> nn.Module | None:
    weight, bias = given[1], given[2] if len(given) > 2 else None
    if weight is None or not _is_real(weight, bias) or weight.ndim - 2 not in CONV or _open(node, given, 2):
        return None
    if node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None  # pads follow from the input's size
    window, groups = Window(node, [1] * (weight.ndim - 2), weight.shape[2:]), node.get("group", 1)
    layer = CONV[weight.ndim - 2](
        weight.shape[1] * groups,
        weight.shape[0],
        tuple(window.kernel),
        tuple(window.strides),
        tuple(window.begins) if window.even else 0,
        tuple(window.dilations),
        groups,
        bias is not None,
    )
    _fill(layer, weight=weight, bias=bias)
    return layer if window.even else Padded(layer, window.flat())


def _conv_transpose(node: Node, given: Constants) -> nn.Module | None:
    weight, bias = given[1], given[2] if len(given) > 2 else None
    if weight is None or not _is_real(weight, bias) or weight.ndim - 2 not in BACK or _open(node, given, 2):
        return None
    if node.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.get("output_shape"):
        return None
    window, cut, more = back_pads(node, [1] * (weight.ndim - 2), weight.shape[2:])
    extra = [m + c for m, c in zip(more, cut, strict=True)]
    if any(not 0 <= e < max(s, d) for e, s, d in zip(extra, window.strides, window.dilations, strict=True)):
        return None
    groups = node.get("group", 1)
    layer = BACK[weight.ndim - 2](
        weight.shape[0],
        weight.shape[1] * groups,
        tuple(window.kernel),
        tuple(window.strides),
        tuple(cut),
        tuple(extra),
        groups,
        bias is not None,
        tuple(window.dilations),
    )
    _fill(layer, weight=weight, bias=bias)
    return layer


def _open(node: Node, given: Constants, place: int) -> bool:
    """Whether an input is there, and is no constant."""
    return len(node.inputs) > place and bool(node.inputs[place]) and given[place] is None


def _batch_norm(node: Node, given: Constants) -> nn.Module | None:
    numbers = given[1:5]
    if any(v is None for v in numbers) or not _is_real(*numbers) or len([name for name in node.outputs if name]) > 1:
        return None
    scale, bias, mean, variance = numbers
    assert scale is not None
    layer = BatchNorm(len(scale), node.get("epsilon", 1e-5), 1 - node.get("momentum", 0.9))
    _fill(layer, weight=scale, bias=bias, running_mean=mean, running_var=variance)
    return layer


def _gemm(node: Node, given: Constants) -> nn.Module | None:
    weight, bias = given[1], given[2] if len(given) > 2 else None
    if weight is None or not _is_real(weight, bias) or node.get("transA") or _open(node, given, 2):
        return None
    weight = weight if node.get("transB") else weight.T
    if bias is not None and (bias.size not in (1, len(weight)) or (bias.ndim > 1 and bias.shape[-1] != bias.size)):
        return None
    return linear(
        weight * np.float32(node.get("alpha", 1.0)),
        None if bias is None else np.broadcast_to(bias.reshape(-1), len(weight)) * np.float32(node.get("beta", 1.0)),
    )


def _mat_mul(node: Node, given: Constants) -> nn.Module | None:
    weight = given[1]
    return linear(weight.T) if weight is not None and weight.ndim == 2 and _is_real(weight) else None


def linear(weight: np.ndarray, bias: np.ndarray | None = None) -> nn.Linear:
    """A layer of a weight [out, in] and a bias [out]."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    _fill(layer, weight=weight, bias=bias)
    return layer


def _layer_norm(node: Node, given: Constants) -> nn.Module | None:
    scale, bias = given[1], given[2] if len(given) > 2 else None
    if scale is None or not _is_real(scale, bias) or _open(node, given, 2) or len(node.outputs) > 1:
        return None
    if node.get("axis", -1) != -scale.ndim or (bias is not None and bias.shape != scale.shape):
        return None
    layer = nn.LayerNorm(scale.shape, node.get("epsilon", 1e-5), bias=bias is not None)
    _fill(layer, weight=scale, bias=bias)
    return layer


def _embedding(node: Node, given: Constants) -> nn.Module | None:
    table = given[0]
    if table is None or table.ndim != 2 or not _is_real(table) or node.get("axis", 0) or given[1] is not None:
        return None
    layer = nn.Embedding(*table.shape)
    _fill(layer, weight=table)
    return layer


def _prelu(node: Node, given: Constants) -> nn.Module | None:
    slope = given[1]
    if slope is None or not _is_real(slope) or slope.ndim < 3 or slope.shape[0] != slope.size:
        return None
    layer = nn.PReLU(slope.size)
    _fill(layer, weight=slope.reshape(-1))
    return layer


def _recurrent(node: Node, given: Constants) -> nn.Module | None:
    w, r, b = (*given, None)[1:4]
    if w is None or r is None or not _is_real(w, r, b) or _open(node, given, 3) or not recurrent.usual(node):
        return None
    return recurrent.Recurrent(node, [None if v is None else _of(v) for v in (w, r, b)])


def _fill(layer: nn.Module, **arrays: np.ndarray | None) -> None:
    for name, array in arrays.items():
        if array is not None:
            getattr(layer, name).data = _of(array)


# How a node becomes a layer, or None where it does not; and which of its inputs the layer is called with.
LAYERS: Mapping[str, tuple[Callable[[Node, Constants], nn.Module | None], tuple[int, ...]]] = {
    "Conv": (_conv, (0,)),
    "ConvTranspose": (_conv_transpose, (0,)),
    "BatchNormalization": (_batch_norm, (0,)),
    "Gemm": (_gemm, (0,)),
    "MatMul": (_mat_mul, (0,)),
    "LayerNormalization": (_layer_norm, (0,)),
    "Gather": (_embedding, (1,)),
    "PRelu": (_prelu, (0,)),
    "LSTM": (_recurrent, (0, 5, 6)),
    "GRU": (_recurrent, (0, 5)),
    "RNN": (_recurrent, (0, 5)),
}
