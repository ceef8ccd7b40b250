"""The zeros of a net, as Distiller's tables have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from torch import Tensor, nn


class WeightSparsity(TypedDict):
    """One weight: its elements and those that are not zero, and the share (0..1) of its structures that are all zero.

    `rows` and `cols`: of the stored matrix of a Linear, as the tables in published schedules have them. `channels`,
    `filters`: of a convolution. `kernels`: of a convolution, else rows. `fine`: elements.
    """

    name: str
    shape: list[int]
    elements: int
    nonzero: int
    cols: float
    rows: float
    channels: float
    kernels: float
    filters: float
    fine: float
    std: float
    mean: float
    abs_mean: float


def table(net: nn.Module) -> list[WeightSparsity]:
    """The weights of two or four axes, in the net's order; one that has several names is counted once."""
    return [_row(name, weight.detach()) for name, weight in net.named_parameters() if weight.ndim in (2, 4)]


def share(net: nn.Module) -> float:
    """The zeros of all those weights together, over their elements."""
    weights = [weight.detach() for weight in net.parameters() if weight.ndim in (2, 4)]
    elements = sum(weight.numel() for weight in weights)
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / elements if elements else 0.0


def _row(name: str, weight: Tensor) -> WeightSparsity:
    convolution, zero = weight.ndim == 4, weight == 0
    filters, channels = _empty(zero, 0), _empty(zero, 1)
    return {
        "name": name,
        "shape": list(weight.shape),
        "elements": weight.numel(),
        "nonzero": int(weight.count_nonzero()),
        "cols": 0.0 if convolution else channels,
        "rows": 0.0 if convolution else filters,
        "channels": channels if convolution else 0.0,
        "kernels": float(zero.flatten(2).all(2).double().mean()) if convolution else filters,
        "filters": filters if convolution else 0.0,
        "fine": float(zero.double().mean()),
        "std": float(weight.std()),
        "mean": float(weight.mean()),
        "abs_mean": float(weight.abs().mean()),
    }


def _empty(zero: Tensor, axis: int) -> float:
    """The share of the slices along an axis that are all zero."""
    return float(zero.transpose(0, axis).flatten(1).all(1).double().mean())
