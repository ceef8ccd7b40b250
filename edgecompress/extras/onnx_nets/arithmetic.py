"""Operators that compute each number by itself, and those that add, compare or choose among many."""

from __future__ import annotations

import functools
import operator as python
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from edgecompress.extras.onnx_nets.values import (
    KNOWN,
    TYPES,
    Value,
    axes_of,
    numbers,
    of_known,
    operator,
    pair,
    tensor,
    tensors,
)

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor

# --------------------------------------------------------------------------- one number by itself

ONE: dict[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "BitwiseNot": torch.bitwise_not, "Ceil": torch.ceil, "Cos": torch.cos,
    "Cosh": torch.cosh, "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "Identity": lambda x: x,
    "IsNaN": torch.isnan, "Log": torch.log, "Mish": functional.mish, "Neg": torch.neg, "Not": torch.logical_not,
    "Reciprocal": torch.reciprocal, "Relu": torch.relu, "Round": torch.round, "Sigmoid": torch.sigmoid,
    "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh, "Softplus": functional.softplus,
    "Softsign": functional.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
    "HardSwish": lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
}  # fmt: skip
for _name, _one in ONE.items():
    operator(_name)(lambda node, x, one=_one: one(tensor(x)))


@operator("Elu")
def _elu(node: Node, x: Tensor) -> Tensor:
    return functional.elu(x, node.get("alpha", 1.0))


@operator("Celu")
def _celu(node: Node, x: Tensor) -> Tensor:
    return functional.celu(x, node.get("alpha", 1.0))


@operator("Selu")
def _selu(node: Node, x: Tensor) -> Tensor:
    alpha, gamma = node.get("alpha", 1.6732632423543772), node.get("gamma", 1.0507009873554805)
    return gamma * torch.where(x > 0, x, alpha * (torch.exp(x) - 1))


@operator("LeakyRelu")
def _leaky_relu(node: Node, x: Tensor) -> Tensor:
    return functional.leaky_relu(x, node.get("alpha", 0.01))


@operator("ThresholdedRelu")
def _thresholded_relu(node: Node, x: Tensor) -> Tensor:
    return torch.where(x > node.get("alpha", 1.0), x, torch.zeros_like(x))


@operator("HardSigmoid")
def _hard_sigmoid(node: Node, x: Tensor) -> Tensor:
    return torch.clamp(node.get("alpha", 0.2) * x + node.get("beta", 0.5), 0, 1)


@operator("Gelu")
def _gelu(node: Node, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate=node.get("approximate", "none"))


@operator("Swish")
def _swish(node: Node, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node.get("alpha", 1.0) * x)


@operator("Shrink")
def _shrink(node: Node, x: Tensor) -> Tensor:
    edge, bias = node.get("lambd", 0.5), node.get("bias", 0.0)
    return torch.where(x < -edge, x + bias, torch.where(x > edge, x - bias, torch.zeros_like(x)))


@operator("IsInf")
def _is_inf(node: Node, x: Tensor) -> Tensor:
    up, down = node.get("detect_positive", 1), node.get("detect_negative", 1)
    ends = [x == end for end, wanted in ((torch.inf, up), (-torch.inf, down)) if wanted]
    return functools.reduce(torch.logical_or, ends) if ends else torch.zeros_like(x, dtype=torch.bool)


@operator("Clip", known=(1, 2))
def _clip(node: Node, x: Value, low: Value = None, high: Value = None) -> Tensor:
    ends = [numbers(v)[0] if v is not None else node.get(name) for v, name in ((low, "min"), (high, "max"))]
    x = tensor(x)
    if all(end is None for end in ends):
        return x
    if ends == [0.0, 6.0]:
        return functional.relu6(x)
    return torch.clamp(x, ends[0], ends[1])


@operator("Cast")
def _cast(node: Node, x: Value) -> Tensor:
    return tensor(x).to(TYPES[node.attributes["to"]])


@operator("CastLike")
def _cast_like(node: Node, x: Value, like: Value) -> Tensor:
    return tensor(x).to(tensor(like).dtype)


@operator("Dropout")
def _dropout(node: Node, x: Tensor, *more: Value) -> tuple[Tensor, ...]:
    return x, torch.ones_like(x, dtype=torch.bool)


@operator("PRelu")
def _prelu(node: Node, x: Tensor, slope: Value) -> Tensor:
    return torch.where(x >= 0, x, x * tensor(slope, x))


# --------------------------------------------------------------------------- two, or many

TWO: dict[str, Callable[[Any, Any], Tensor]] = {
    "Add": python.add, "Equal": python.eq, "Greater": python.gt, "GreaterOrEqual": python.ge, "Less": python.lt,
    "LessOrEqual": python.le, "Mul": python.mul, "Sub": python.sub,
}  # fmt: skip
for _name, _two in TWO.items():
    operator(_name, numbers=True)(lambda node, a, b, two=_two: two(*pair(a, b)))

BITS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "And": torch.logical_and, "BitwiseAnd": torch.bitwise_and, "BitwiseOr": torch.bitwise_or,
    "BitwiseXor": torch.bitwise_xor, "Or": torch.logical_or, "Xor": torch.logical_xor,
}  # fmt: skip
for _name, _bits in BITS.items():
    operator(_name)(lambda node, a, b, bits=_bits: bits(*tensors(a, b)))


@operator("Div", numbers=True)
def _div(node: Node, a: Value, b: Value) -> Tensor:
    real = next(v for v in pair(a, b) if isinstance(v, torch.Tensor)).is_floating_point()
    return python.truediv(*pair(a, b)) if real else torch.div(*tensors(a, b), rounding_mode="trunc")


@operator("Pow", numbers=True)
def _pow(node: Node, a: Tensor, b: Tensor) -> Tensor:
    if isinstance(b, np.ndarray) and b.size == 1 and isinstance(a, torch.Tensor) and a.is_floating_point():
        return torch.pow(a, b.item()).reshape(np.broadcast_shapes(a.shape, b.shape))
    a, b = tensors(a, b)
    return torch.pow(a, b).to(a.dtype)


@operator("Mod")
def _mod(node: Node, a: Value, b: Value) -> Tensor:
    return (torch.fmod if node.get("fmod") else torch.remainder)(*tensors(a, b))


@operator("BitShift")
def _bit_shift(node: Node, a: Tensor, b: Tensor) -> Tensor:
    a, b = tensors(a, b)
    shift = torch.bitwise_left_shift if node.get("direction") == "LEFT" else torch.bitwise_right_shift
    return shift(a.to(torch.int64), b.to(torch.int64)).to(a.dtype)


@operator("Max")
def _max(node: Node, *values: Value) -> Tensor:
    return functools.reduce(torch.maximum, tensors(*values))


@operator("Min")
def _min(node: Node, *values: Value) -> Tensor:
    return functools.reduce(torch.minimum, tensors(*values))


@operator("Sum")
def _sum(node: Node, *values: Value) -> Tensor:
    return functools.reduce(torch.add, tensors(*values))


@operator("Mean")
def _mean(node: Node, *values: Value) -> Tensor:
    return _sum(node, *values) / len(values)


@operator("Where")
def _where(node: Node, condition: Value, a: Value, b: Value) -> Tensor:
    return torch.where(*tensors(condition, a, b))


# --------------------------------------------------------------------------- along axes

REDUCE: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceSum": lambda x, axes, keep: torch.sum(x, axes, keepdim=keep).to(x.dtype),
    "ReduceMean": lambda x, axes, keep: torch.mean(x, axes, keepdim=keep),
    "ReduceL1": lambda x, axes, keep: torch.sum(torch.abs(x), axes, keepdim=keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt(torch.sum(x * x, axes, keepdim=keep)),
    "ReduceLogSum": lambda x, axes, keep: torch.log(torch.sum(x, axes, keepdim=keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
    "ReduceSumSquare": lambda x, axes, keep: torch.sum(x * x, axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: _extreme(x, axes, keep, torch.amax, False),
    "ReduceMin": lambda x, axes, keep: _extreme(x, axes, keep, torch.amin, True),
    "ReduceProd": lambda x, axes, keep: _product(x, axes, keep),
}


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted(axes, reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def _extreme(x: Tensor, axes: list[int], keep: bool, best: Callable[..., Tensor], least: bool) -> Tensor:
    """The largest of nothing is the smallest number of the type."""
    if all(x.shape[axis] for axis in axes):
        return best(x, axes, keepdim=keep)
    ends = torch.finfo(x.dtype) if x.is_floating_point() else torch.iinfo(x.dtype)
    low, high = (-torch.inf, torch.inf) if x.is_floating_point() else (ends.min, ends.max)
    return torch.sum(x, axes, keepdim=keep).to(x.dtype).fill_(high if least else low)


def _reduced(node: Node, x: Tensor, axes: Value, reduce: Callable[[Tensor, list[int], bool], Tensor]) -> Tensor:
    x = tensor(x)
    chosen = axes_of(node, axes, x.ndim)
    if not chosen:
        if node.get("noop_with_empty_axes"):
            return x
        chosen = [*range(x.ndim)]
    if x.dtype == torch.bool:  # since opset 20 the largest and the smallest of booleans
        return reduce(x.to(torch.uint8), chosen, bool(node.get("keepdims", 1))).to(torch.bool)
    return reduce(x, chosen, bool(node.get("keepdims", 1))) if chosen else x


for _name, _reduce in REDUCE.items():
    operator(_name, known=(1,))(lambda node, x, axes=None, reduce=_reduce: _reduced(node, x, axes, reduce))


def _arg(node: Node, x: Tensor, best: Callable[..., Tensor]) -> Tensor:
    axis, keep = node.get("axis", 0), bool(node.get("keepdims", 1))
    if not node.get("select_last_index"):
        return best(x, axis, keepdim=keep)
    return x.shape[axis] - 1 - best(torch.flip(x, [axis]), axis, keepdim=keep)


operator("ArgMax")(lambda node, x: _arg(node, x, torch.argmax))
operator("ArgMin")(lambda node, x: _arg(node, x, torch.argmin))


@operator("TopK", known=(1,))
def _top_k(node: Node, x: Tensor, k: Value = None) -> tuple[Tensor, Tensor]:
    count = int(numbers(k)[0]) if k is not None else node.attributes["k"]
    found = torch.topk(x, count, node.get("axis", -1), bool(node.get("largest", 1)), bool(node.get("sorted", 1)))
    return found.values, found.indices


@operator("CumSum", known=(1,))
def _cum_sum(node: Node, x: Tensor, axis: Value) -> Tensor:
    at = int(numbers(axis)[0])
    turned = torch.flip(x, [at]) if node.get("reverse") else x
    added = torch.cumsum(turned, at).to(x.dtype)
    added = added - turned if node.get("exclusive") else added
    return torch.flip(added, [at]) if node.get("reverse") else added


def _softmax_axis(node: Node, x: Tensor, apply: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Before opset 13 everything from `axis` on is one row."""
    axis = node.get("axis", 1 if node.opset < 13 else -1)
    if node.opset >= 13 or axis % x.ndim == x.ndim - 1:
        return apply(x, axis)
    return apply(torch.flatten(x, axis % x.ndim), -1).reshape(x.shape)


operator("Softmax")(lambda node, x: _softmax_axis(node, x, torch.softmax))
operator("LogSoftmax")(lambda node, x: _softmax_axis(node, x, torch.log_softmax))
operator("Hardmax")(lambda node, x: _softmax_axis(node, x, _hardmax))


def _hardmax(x: Tensor, axis: int) -> Tensor:
    places = torch.arange(x.shape[axis], device=x.device).reshape(
        [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    )
    return (places == torch.argmax(x, axis, keepdim=True)).to(x.dtype)


# --------------------------------------------------------------------------- of numbers that are known


PLAIN: dict[str, Callable[..., Any]] = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Neg": np.negative, "Abs": np.abs,
    "Identity": lambda x: x, "Equal": np.equal, "Not": np.logical_not, "And": np.logical_and, "Or": np.logical_or,
    "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal, "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
for _name, _run in PLAIN.items():
    KNOWN[_name] = lambda node, *arrays, run=_run: np.asarray(run(*arrays))
for _name, _run in {"Max": np.maximum, "Min": np.minimum, "Sum": np.add}.items():
    KNOWN[_name] = lambda node, *arrays, run=_run: np.asarray(functools.reduce(run, arrays))


@of_known("Div")
def _known_div(node: Node, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of whole numbers without their fraction: sizes are not negative."""
    whole = a.dtype == object or a.dtype.kind in "iu"
    return np.asarray(np.floor_divide(a, b) if whole else np.divide(a, b)).astype(a.dtype, copy=False)


@of_known("Cast")
def _known_cast(node: Node, x: np.ndarray) -> Value:
    kind = TYPES[node.attributes["to"]]
    if x.dtype == object:  # symbols of sizes: whole numbers stay what they are
        return x if not kind.is_floating_point else tensor(x).to(kind)
    return np.asarray(x).astype(str(kind).removeprefix("torch."))


@of_known("Where")
def _known_where(node: Node, condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(condition.astype(bool), a, b)


@of_known("ReduceProd")
def _known_prod(node: Node, x: np.ndarray, axes: Value = None) -> np.ndarray:
    chosen = tuple(axes_of(node, axes, x.ndim)) or None
    return np.asarray(np.prod(x, axis=chosen, keepdims=bool(node.get("keepdims", 1))))
