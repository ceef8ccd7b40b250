"""Products of matrices."""

from __future__ import annotations

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Number, Result, Tensors


def linear(x: Number, weight: Number, bias: Number | None = None) -> Result:
    product = x @ weight.transpose(0, 1)
    return product if bias is None else product + bias


def matmul(x: Number, y: Number, transpose_x: bool = False, transpose_y: bool = False) -> Result:
    return torch.matmul(_turned(x, transpose_x), _turned(y, transpose_y))


def einsum(values: Tensors, equation: str) -> Result:
    return torch.einsum(equation, *values)


def _turned(x: torch.Tensor, turn: bool) -> torch.Tensor:
    return x.transpose(-1, -2) if turn and x.ndim > 1 else x
