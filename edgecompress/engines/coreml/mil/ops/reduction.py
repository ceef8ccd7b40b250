"""Reductions: over some axes, or all of them."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Float, Ints, Number, Result

IndexType = Literal["int32", "uint16"]


def reduce_argmax(x: Number, axis: int = -1, keep_dims: bool = False, output_dtype: IndexType = "int32") -> Result:
    return torch.argmax(x, axis, keep_dims)


def reduce_argmin(x: Number, axis: int = -1, keep_dims: bool = False, output_dtype: IndexType = "int32") -> Result:
    return torch.argmin(x, axis, keep_dims)


def reduce_l1_norm(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.abs(x).sum(_axes(x, axes), keep_dims)


def reduce_l2_norm(x: Float, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.sqrt((x * x).sum(_axes(x, axes), keep_dims))


def reduce_log_sum(x: Float, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.log(x.sum(_axes(x, axes), keep_dims))


def reduce_log_sum_exp(x: Float, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.logsumexp(x, _axes(x, axes), keep_dims)


def reduce_max(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.amax(x, _axes(x, axes), keep_dims)


def reduce_mean(x: Float, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return x.mean(_axes(x, axes), keep_dims)


def reduce_min(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return torch.amin(x, _axes(x, axes), keep_dims)


def reduce_prod(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    for axis in sorted(_axes(x, axes), reverse=True):
        x = x.prod(axis, keep_dims)
    return x


def reduce_sum(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return x.sum(_axes(x, axes), keep_dims)


def reduce_sum_square(x: Number, axes: Ints | None = None, keep_dims: bool = False) -> Result:
    return (x * x).sum(_axes(x, axes), keep_dims)


def _axes(x: torch.Tensor, axes: Ints | None) -> Ints:
    return tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
