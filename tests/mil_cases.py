"""What each MIL op computes, by torch or NumPy in double precision, over random shapes and attributes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

Rng = np.random.Generator
Given = dict[str, Any]
Case = tuple[str, Given, Callable[..., Any]]  # the op, its inputs, what it should compute
CASES: dict[str, list[Callable[[Rng], Case]]] = {}


def t(array: Any) -> torch.Tensor:
    """Double precision: the reference computes in it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.double() if tensor.is_floating_point() else tensor


def normal(rng: Rng, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype(np.float32)


def shape(rng: Rng, low: int = 1, high: int = 4, rank: int | None = None) -> tuple[int, ...]:
    return tuple(int(n) for n in rng.integers(low, high + 1, rank or int(rng.integers(1, 5))))


def case(*names: str, each: Iterable[Any] = ()) -> Callable[[Callable[..., Case]], Callable[..., Case]]:
    """Registers a generator for an op: once for `each` of its modes; or for several that differ in their function."""

    def register(make: Callable[..., Case]) -> Callable[..., Case]:
        for name in names:
            given = [(name,)] if len(names) > 1 else [(mode,) for mode in each] or [()]
            CASES.setdefault(name, []).extend(lambda rng, args=args: make(rng, *args) for args in given)
        return make

    return register


# --------------------------------------------------------------------------- elementwise

UNARY: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float, float]] = {
    "abs": (torch.abs, -3, 3),
    "acos": (torch.acos, -1, 1),
    "asin": (torch.asin, -1, 1),
    "atan": (torch.atan, -5, 5),
    "atanh": (torch.atanh, -0.9, 0.9),
    "ceil": (torch.ceil, -5, 5),
    "cos": (torch.cos, -6, 6),
    "cosh": (torch.cosh, -3, 3),
    "erf": (torch.erf, -3, 3),
    "exp": (torch.exp, -5, 5),
    "exp2": (torch.exp2, -5, 5),
    "floor": (torch.floor, -5, 5),
    "inverse": (lambda x: 1 / (x + 1e-4), 0.1, 5),
    "log": (torch.log, 0.1, 5),
    "round": (torch.round, -5, 5),
    "rsqrt": (torch.rsqrt, 0.1, 5),
    "sign": (torch.sign, -2, 2),
    "sin": (torch.sin, -6, 6),
    "sinh": (torch.sinh, -3, 3),
    "sqrt": (torch.sqrt, 0, 5),
    "square": (torch.square, -3, 3),
    "tan": (torch.tan, -1.4, 1.4),
    "tanh": (torch.tanh, -3, 3),
    "relu": (torch.relu, -3, 3),
    "relu6": (F.relu6, -3, 9),
    "sigmoid": (torch.sigmoid, -6, 6),
    "silu": (F.silu, -6, 6),
    "softplus": (lambda x: torch.log1p(torch.exp(x)), -9, 9),
    "softsign": (F.softsign, -6, 6),
    "identity": (lambda x: x, -3, 3),
}


@case(*UNARY)
def unary(rng: Rng, name: str) -> Case:
    function, low, high = UNARY[name]
    return name, {"x": rng.uniform(low, high, shape(rng)).astype(np.float32)}, lambda x: function(t(x))


SLOPED: dict[str, tuple[Callable[..., Any], int]] = {  # with alpha, or alpha and beta
    "leaky_relu": (lambda x, a: F.leaky_relu(x, a), 1),
    "elu": (lambda x, a: F.elu(x, a), 1),
    "thresholded_relu": (lambda x, a: torch.where(x >= a, x, 0.0), 1),
    "threshold": (lambda x, a: torch.clamp(x, min=a), 1),
    "clamped_relu": (lambda x, a, b: torch.minimum(torch.where(x >= 0, x, a * x), torch.tensor(b).double()), 2),
    "linear_activation": (lambda x, a, b: a * x + b, 2),
    "scaled_tanh": (lambda x, a, b: a * torch.tanh(b * x), 2),
    "sigmoid_hard": (lambda x, a, b: torch.clamp(a * x + b, 0, 1), 2),
    "clip": (lambda x, a, b: torch.clamp(x, a, b), 2),
}


@case(*SLOPED)
def sloped(rng: Rng, name: str) -> Case:
    function, count = SLOPED[name]
    values = [float(np.float16(v)) for v in (rng.uniform(-0.9, 0.9), rng.uniform(1, 3))][:count]
    given = {"x": normal(rng, *shape(rng)) * 2, **dict(zip(("alpha", "beta"), values, strict=False))}
    return name, given, lambda x, **_: function(t(x), *values)


@case("gelu", each=("EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"))
def gelu(rng: Rng, mode: str) -> Case:
    wanted = {
        "EXACT": lambda x: F.gelu(x),
        "TANH_APPROXIMATION": lambda x: F.gelu(x, approximate="tanh"),
        "SIGMOID_APPROXIMATION": lambda x: x * torch.sigmoid(1.702 * x),
    }
    return "gelu", {"x": normal(rng, *shape(rng)) * 3, "mode": mode}, lambda x, mode: wanted[mode](t(x))


@case("prelu")
def prelu(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=4))
    return "prelu", {"x": x, "alpha": normal(rng, x.shape[1])}, lambda x, alpha: F.prelu(t(x), t(alpha))


@case("softplus_parametric")
def softplus_parametric(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=4))

    def wanted(x: Any, alpha: Any, beta: Any) -> torch.Tensor:
        a, b = t(alpha).reshape(1, -1, 1, 1), t(beta).reshape(1, -1, 1, 1)
        return a * torch.log1p(torch.exp(b * t(x)))

    return "softplus_parametric", {"x": x, "alpha": normal(rng, x.shape[1]), "beta": normal(rng, x.shape[1])}, wanted


@case("softmax")
def softmax(rng: Rng) -> Case:
    x = normal(rng, *shape(rng)) * 4
    axis = int(rng.integers(-x.ndim, x.ndim))
    return "softmax", {"x": x, "axis": axis}, lambda x, axis: torch.softmax(t(x), axis)


BINARY: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "floor_div": torch.floor_divide,
    "mod": torch.remainder,
    "maximum": torch.maximum,
    "minimum": torch.minimum,
    "equal": torch.eq,
    "not_equal": torch.ne,
    "greater": torch.gt,
    "greater_equal": torch.ge,
    "less": torch.lt,
    "less_equal": torch.le,
}


def broadcast_pair(rng: Rng) -> tuple[tuple[int, ...], tuple[int, ...]]:
    full = shape(rng)
    some = tuple(1 if rng.random() < 0.3 else n for n in full)
    return full, some[int(rng.integers(0, len(some))) :]


@case(*BINARY)
def binary(rng: Rng, name: str) -> Case:
    (a, b), whole = broadcast_pair(rng), bool(rng.random() < 0.5)
    x, y = (
        rng.integers(0 if name == "mod" else -(10**6), 10**6, a),
        rng.integers(1, 2000, b),
    )  # below zero mod is unsaid
    given = {"x": x, "y": y} if whole else {"x": x // 10**5 / 4, "y": y // 250 / 4 + 0.25}
    typed = {key: one.astype("int32" if whole else "float32") for key, one in given.items()}
    return name, typed, lambda x, y: BINARY[name](t(x), t(y))


@case("real_div")
def real_div(rng: Rng) -> Case:
    a, b = broadcast_pair(rng)
    return "real_div", {"x": normal(rng, *a), "y": normal(rng, *b) + 3}, lambda x, y: t(x) / t(y)


@case("pow")
def power(rng: Rng) -> Case:
    a, b = broadcast_pair(rng)
    given = {"x": np.abs(normal(rng, *a)) + 0.5, "y": rng.integers(-3, 4, b).astype(np.float32)}
    return "pow", given, lambda x, y: t(x) ** t(y)


LOGICAL = {"logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor}


@case(*LOGICAL)
def logical(rng: Rng, name: str) -> Case:
    a, b = broadcast_pair(rng)
    return name, {"x": rng.random(a) < 0.5, "y": rng.random(b) < 0.5}, lambda x, y: LOGICAL[name](x, y)


@case("logical_not")
def logical_not(rng: Rng) -> Case:
    return "logical_not", {"x": rng.random(shape(rng)) < 0.5}, lambda x: ~x


@case("select")
def select(rng: Rng) -> Case:
    a, b = broadcast_pair(rng)
    given = {"cond": rng.random(b) < 0.5, "a": normal(rng, *a), "b": normal(rng, *b)}
    return "select", given, lambda cond, a, b: np.where(cond, a, b)


CASTS = {
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "int32": np.int32,
    "bool": np.bool_,
    "uint16": np.uint16,
}


@case("cast", each=CASTS)
def cast(rng: Rng, dtype: str) -> Case:
    low = 0 if dtype.startswith("u") else -100
    x = rng.uniform(low, 100, shape(rng)).astype(np.float32)
    return "cast", {"x": x, "dtype": dtype}, lambda x, dtype: x.astype(CASTS[dtype])


@case("cast")
def cast_back(rng: Rng) -> Case:
    x = rng.integers(-(2**30), 2**30, shape(rng), dtype=np.int32)
    return "cast", {"x": x, "dtype": "fp32"}, lambda x, dtype: x.astype(np.float32)


# --------------------------------------------------------------------------- linear algebra, convolution, pooling


@case("linear")
def linear(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=int(rng.integers(1, 4))))
    out = int(rng.integers(1, 6))
    given = {"x": x, "weight": normal(rng, out, x.shape[-1])}
    if rng.random() < 0.5:
        given["bias"] = normal(rng, out)
    return "linear", given, lambda x, weight, bias=None: F.linear(t(x), t(weight), None if bias is None else t(bias))


@case("matmul")
def matmul(rng: Rng) -> Case:
    a, b, c = shape(rng, rank=3)
    batch = shape(rng, rank=int(rng.integers(1, 3)))
    tx, ty = bool(rng.random() < 0.5), bool(rng.random() < 0.5)
    x, y = normal(rng, *batch, *((b, a) if tx else (a, b))), normal(rng, *batch[1:], *((c, b) if ty else (b, c)))

    def wanted(x: Any, y: Any, **_: Any) -> Any:
        return np.matmul(x.swapaxes(-1, -2) if tx else x, y.swapaxes(-1, -2) if ty else y, dtype=np.float64)

    return "matmul", {"x": x, "y": y, "transpose_x": tx, "transpose_y": ty}, wanted


@case("matmul")
def whole_matmul(rng: Rng) -> Case:
    given = {
        "x": rng.integers(-3000, 3000, (3, 4), dtype=np.int32),
        "y": rng.integers(-3000, 3000, (4, 2), dtype=np.int32),
    }
    return "matmul", given, lambda x, y: x @ y


@case("einsum")
def einsum(rng: Rng) -> Case:
    n, c, h, w, u = shape(rng, rank=5)
    values = [normal(rng, n, c, h, w), normal(rng, n, w, h, u)]
    equation = "nchw,nwhu->nchu"
    return "einsum", {"values": values, "equation": equation}, lambda values, equation: np.einsum(equation, *values)


PAD_TYPES = ("valid", "custom", "same", "same_lower")


def pads(rng: Rng, axes: int, high: int = 2) -> list[int]:
    return [int(n) for n in rng.integers(0, high + 1, 2 * axes)]


def tf_same(sizes: Any, kernel: Any, strides: Any, lower: bool) -> list[int]:
    """As TensorFlow pads: the output has ceil(size / stride) elements."""
    sides = []
    for n, k, s in zip(sizes, kernel, strides, strict=True):
        total = max((math.ceil(n / s) - 1) * s + k - n, 0)
        less, more = total // 2, math.ceil(total / 2)
        sides += [more, less] if lower else [less, more]
    return sides


def padded(x: torch.Tensor, pad: list[int], fill: float = 0.0) -> torch.Tensor:
    pairs = list(zip(pad[::2], pad[1::2], strict=True))
    return F.pad(x, [n for pair in reversed(pairs) for n in pair], value=fill)


@case("conv", each=PAD_TYPES)
def conv(rng: Rng, pad_type: str) -> Case:
    axes = int(rng.integers(1, 4))
    groups = int(rng.choice([1, 2]))
    strides, dilations, kernel = (shape(rng, high=h, rank=axes) for h in (3, 2, 3))
    x = normal(rng, 2, 2 * groups, *shape(rng, 6, 9, axes))
    given: Given = {"x": x, "weight": normal(rng, 2 * groups, 2, *kernel), "strides": strides, "dilations": dilations}
    given |= {"groups": groups, "pad_type": pad_type}
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pad = {"valid": [0] * 2 * axes, "custom": pads(rng, axes)}.get(given["pad_type"])
    if given["pad_type"] == "custom":
        given["pad"] = pad
    if rng.random() < 0.5:
        given["bias"] = normal(rng, 2 * groups)
    sides = tf_same(x.shape[2:], reach, strides, given["pad_type"] == "same_lower") if pad is None else pad

    def wanted(x: Any, weight: Any, bias: Any = None, **_: Any) -> torch.Tensor:
        run = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
        b = None if bias is None else t(bias)
        return run(padded(t(x), sides), t(weight), b, strides, 0, dilations, groups)

    return "conv", given, wanted


@case("conv_transpose")
def conv_transpose(rng: Rng) -> Case:
    axes, groups = int(rng.integers(1, 4)), int(rng.choice([1, 2]))
    strides, dilations, kernel = (shape(rng, high=h, rank=axes) for h in (3, 2, 3))
    kernel = tuple(k + 2 for k in kernel)
    pad = [n for n in (int(v) for v in rng.integers(0, 3, axes)) for _ in range(2)]
    given = {
        "x": normal(rng, 2, 2 * groups, *shape(rng, 2, 5, axes)),
        "weight": normal(rng, 2 * groups, 2, *kernel),
        "bias": normal(rng, 2 * groups),
        "strides": strides,
        "dilations": dilations,
        "groups": groups,
        "pad_type": "custom",
        "pad": pad,
    }

    def wanted(x: Any, weight: Any, bias: Any, **_: Any) -> torch.Tensor:
        run = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
        return run(t(x), t(weight), t(bias), strides, pad[::2], 0, groups, dilations)

    given["output_shape"] = list(wanted(**given).shape)
    return "conv_transpose", given, wanted


@case("conv_transpose", each=(0, 1, 2, 3))
def conv_transpose_same(rng: Rng, extra: int) -> Case:
    stride = int(rng.integers(1, 4))
    x, weight = normal(rng, 1, 2, int(rng.integers(2, 6))), normal(rng, 2, 3, stride + extra)

    def wanted(x: Any, weight: Any, **_: Any) -> torch.Tensor:
        """The gradient of a convolution padded `same`, whose input has the size of this output."""
        image = torch.zeros(1, 3, x.shape[2] * stride, dtype=torch.float64, requires_grad=True)
        side = tf_same(image.shape[2:], weight.shape[2:], [stride], False)
        F.conv1d(F.pad(image, side), t(weight), stride=stride).backward(t(x))
        return image.grad

    return "conv_transpose", {"x": x, "weight": weight, "strides": [stride], "pad_type": "same"}, wanted


def pool_given(rng: Rng, axes: int) -> Given:
    kernel, strides = shape(rng, 2, 3, axes), shape(rng, 1, 3, axes)
    return {"x": normal(rng, 2, 3, *shape(rng, 5, 9, axes)), "kernel_sizes": kernel, "strides": strides}


def pool_pads(rng: Rng, given: Given, axes: int, kind: str) -> list[int]:
    given["pad_type"] = kind
    if kind == "valid":
        return [0] * 2 * axes
    if kind == "custom":
        given["pad"] = pads(rng, axes, 1)
        return given["pad"]
    return tf_same(given["x"].shape[2:], given["kernel_sizes"], given["strides"], kind == "same_lower")


@case("max_pool", each=PAD_TYPES)
def max_pool(rng: Rng, pad_type: str) -> Case:
    axes = int(rng.integers(1 + (pad_type == "same_lower"), 4))
    given = pool_given(rng, axes)
    sides = pool_pads(rng, given, axes, pad_type)
    run = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[axes - 1]
    return (
        "max_pool",
        given,
        lambda x, kernel_sizes, strides, **_: run(padded(t(x), sides, -math.inf), kernel_sizes, strides),
    )


@case("avg_pool", each=PAD_TYPES)
def avg_pool(rng: Rng, pad_type: str) -> Case:
    axes, exclude = int(rng.integers(1 + (pad_type == "same_lower"), 4)), bool(rng.random() < 0.5)
    given = pool_given(rng, axes)
    sides = pool_pads(rng, given, axes, pad_type)
    given["exclude_padding_from_average"] = exclude
    run = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[axes - 1]

    def wanted(x: Any, kernel_sizes: Any, strides: Any, **_: Any) -> torch.Tensor:
        whole = run(padded(t(x), sides), kernel_sizes, strides)
        count = run(padded(torch.ones_like(t(x)), sides), kernel_sizes, strides)
        return whole / count if exclude else whole

    return "avg_pool", given, wanted


@case("max_pool", "avg_pool")
def ceil_pool(rng: Rng, name: str) -> Case:
    """PyTorch's `ceil_mode`, but that an average divides by the whole kernel beyond the edge, too."""
    kernel, side = int(rng.integers(2, 4)), int(rng.integers(0, 2))
    stride = int(rng.integers(1, kernel + 1))
    given: Given = {"x": normal(rng, 2, 3, *shape(rng, 5, 9, 2)), "kernel_sizes": [kernel] * 2, "strides": [stride] * 2}
    given |= {"pad_type": "custom", "pad": [side] * 4, "ceil_mode": True}
    if name == "max_pool":
        return name, given, lambda x, **_: F.max_pool2d(t(x), kernel, stride, side, ceil_mode=True)
    exclude = bool(rng.random() < 0.5)
    given["exclude_padding_from_average"] = exclude
    divisor = None if exclude else kernel**2
    return name, given, lambda x, **_: F.avg_pool2d(t(x), kernel, stride, side, True, not exclude, divisor)


@case("l2_pool", each=PAD_TYPES)
def l2_pool(rng: Rng, pad_type: str) -> Case:
    axes = int(rng.integers(1 + (pad_type == "same_lower"), 3))
    given = pool_given(rng, axes)
    sides = pool_pads(rng, given, axes, pad_type)
    run = (F.lp_pool1d, F.lp_pool2d)[axes - 1]

    def wanted(x: Any, kernel_sizes: Any, strides: Any, **_: Any) -> torch.Tensor:
        one = (lambda v: v[0]) if axes == 1 else tuple
        return run(padded(t(x), sides), 2, one(kernel_sizes), one(strides))

    return "l2_pool", given, wanted


# --------------------------------------------------------------------------- normalisation and reduction


@case("batch_norm")
def batch_norm(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=int(rng.integers(3, 6))))
    c = x.shape[1]
    given = {"x": x, "mean": normal(rng, c), "variance": np.abs(normal(rng, c)) + 0.5, "epsilon": 0.001953125}
    given |= {"gamma": normal(rng, c), "beta": normal(rng, c)}

    def wanted(x: Any, mean: Any, variance: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
        m, v, g, b = (t(a).reshape(1, -1, *[1] * (x.ndim - 2)) for a in (mean, variance, gamma, beta))
        return (t(x) - m) / torch.sqrt(v + epsilon) * g + b

    return "batch_norm", given, wanted


@case("instance_norm")
def instance_norm(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 4, rank=int(rng.integers(3, 5))))
    given = {"x": x, "gamma": normal(rng, x.shape[1]), "beta": normal(rng, x.shape[1]), "epsilon": 0.015625}
    return (
        "instance_norm",
        given,
        lambda x, gamma, beta, epsilon: F.instance_norm(t(x), weight=t(gamma), bias=t(beta), eps=epsilon),
    )


@case("layer_norm")
def layer_norm(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 4))
    axes = sorted(int(a) for a in rng.choice(x.ndim, int(rng.integers(1, x.ndim + 1)), replace=False))
    inner = [x.shape[a] for a in axes]
    given: Given = {"x": x, "axes": [a - x.ndim if rng.random() < 0.5 else a for a in axes], "epsilon": 0.015625}
    if rng.random() < 0.7:
        given |= {"gamma": normal(rng, *inner), "beta": normal(rng, *inner)}

    def wanted(x: Any, gamma: Any = None, beta: Any = None, **_: Any) -> Any:
        last = list(range(x.ndim - len(axes), x.ndim))
        moved = t(x).movedim(axes, last)
        g, b = (None if p is None else t(p) for p in (gamma, beta))
        return F.layer_norm(moved, inner, g, b, 0.015625).movedim(last, axes)

    return "layer_norm", given, wanted


@case("l2_norm")
def l2_norm(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=int(rng.integers(3, 6))))

    def wanted(x: Any, epsilon: float) -> Any:
        flat = t(x).flatten(-3)
        return (flat / torch.sqrt(torch.linalg.vector_norm(flat, dim=-1, keepdim=True) ** 2 + epsilon)).reshape(x.shape)

    return "l2_norm", {"x": x, "epsilon": 0.015625}, wanted


@case("local_response_norm")
def local_response_norm(rng: Rng) -> Case:
    x = normal(rng, 2, 7, *shape(rng, rank=2))
    given = {"x": x, "size": int(rng.choice([1, 3, 5])), "alpha": 0.5, "beta": 0.75, "k": 1.5}
    return (
        "local_response_norm",
        given,
        lambda x, size, alpha, beta, k: F.local_response_norm(t(x), size, alpha, beta, k),
    )


REDUCE: dict[str, Callable[..., Any]] = {
    "reduce_l1_norm": lambda x, a, k: np.abs(x).sum(a, keepdims=k),
    "reduce_l2_norm": lambda x, a, k: np.sqrt((x * x).sum(a, keepdims=k)),
    "reduce_log_sum": lambda x, a, k: np.log(x.sum(a, keepdims=k)),
    "reduce_log_sum_exp": lambda x, a, k: np.log(np.exp(x).sum(a, keepdims=k)),
    "reduce_max": lambda x, a, k: x.max(a, keepdims=k),
    "reduce_mean": lambda x, a, k: x.mean(a, keepdims=k),
    "reduce_min": lambda x, a, k: x.min(a, keepdims=k),
    "reduce_prod": lambda x, a, k: x.prod(a, keepdims=k),
    "reduce_sum": lambda x, a, k: x.sum(a, keepdims=k),
    "reduce_sum_square": lambda x, a, k: (x * x).sum(a, keepdims=k),
}
REDUCE_INTS = ("reduce_max", "reduce_min", "reduce_sum", "reduce_prod", "reduce_l1_norm", "reduce_sum_square")


def reduce_axes(rng: Rng, x: np.ndarray) -> tuple[Given, tuple[int, ...] | None]:
    if rng.random() < 0.25:
        return {}, None
    axes = rng.choice(x.ndim, int(rng.integers(1, x.ndim + 1)), replace=False)
    return {"axes": [int(a) - x.ndim if rng.random() < 0.5 else int(a) for a in axes]}, tuple(int(a) for a in axes)


@case(*REDUCE)
def reduce(rng: Rng, name: str) -> Case:
    x, keep = np.abs(normal(rng, *shape(rng, high=3))) + 0.25, bool(rng.random() < 0.5)
    x = rng.integers(-5, 6, x.shape, "int32") if name in REDUCE_INTS and rng.random() < 0.5 else x
    given, axes = reduce_axes(rng, x)
    exact = np.int64 if x.dtype.kind == "i" else np.float64
    return name, {"x": x, "keep_dims": keep, **given}, lambda x, **_: REDUCE[name](x.astype(exact), axes, keep)


@case("reduce_argmax", "reduce_argmin")
def reduce_arg(rng: Rng, name: str) -> Case:
    x = rng.permutation(int(np.prod(size := shape(rng)))).reshape(size).astype(np.float32)
    axis, dtype = int(rng.integers(-x.ndim, x.ndim)), str(rng.choice(["int32", "uint16"]))
    function = np.argmax if name == "reduce_argmax" else np.argmin
    given = {"x": x, "axis": axis, "keep_dims": True, "output_dtype": dtype}
    return name, given, lambda x, **_: function(x, axis, keepdims=True).astype(dtype)


# --------------------------------------------------------------------------- shapes


@case("shape")
def shape_of(rng: Rng) -> Case:
    return "shape", {"x": normal(rng, *shape(rng))}, lambda x: np.array(x.shape, np.int32)


@case("reshape")
def reshape(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, rank=3))
    choices = [[-1], [0, -1, 0], [0, 0, -1], list(x.shape[::-1]), [x.shape[0], -1], [1, 0, -1, 0], [-1, 0]]
    target = choices[int(rng.integers(0, len(choices)))]
    right = [1] * (len(target) - 3) + list(x.shape)[-len(target) :]
    sizes = [keep if n == 0 else n for n, keep in zip(target, right, strict=True)]
    return "reshape", {"x": x, "shape": target}, lambda x, shape: x.reshape(sizes)


@case("reshape_like")
def reshape_like(rng: Rng) -> Case:
    a, b, c = shape(rng, rank=3)
    given = {"x": normal(rng, a * b, c), "ref_tensors": [normal(rng, a, b, 7), normal(rng, 2, c)]}
    given |= {
        "begins": [np.int32(0), np.int32(1)],
        "ends": [np.int32(2), np.int32(0)],
        "end_masks": [np.False_, np.True_],
    }
    return "reshape_like", given, lambda x, **_: x.reshape(a, b, c)


@case("expand_dims")
def expand_dims(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    axes = [int(a) for a in rng.choice(x.ndim + 2, 2, replace=False)]
    given = [a - x.ndim - 2 if rng.random() < 0.5 else a for a in axes]
    return "expand_dims", {"x": x, "axes": given}, lambda x, axes: np.expand_dims(x, tuple(axes))


@case("squeeze")
def squeeze(rng: Rng) -> Case:
    x = normal(rng, 1, 3, 1, 2, 1)
    axes = [[0], [2, -1], [0, 1, 2], [-5, 4]][int(rng.integers(0, 4))]
    real = tuple(a for a in axes if x.shape[a] == 1)
    if rng.random() < 0.2:
        return "squeeze", {"x": x}, lambda x: np.squeeze(x)
    return "squeeze", {"x": x, "axes": axes}, lambda x, axes: np.squeeze(x, real)


@case("flatten2d")
def flatten2d(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    axis = int(rng.integers(-x.ndim, x.ndim))
    return "flatten2d", {"x": x, "axis": axis}, lambda x, axis: x.reshape(math.prod(x.shape[:axis]), -1)


@case("transpose")
def transpose(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    perm = [int(a) - x.ndim if rng.random() < 0.3 else int(a) for a in rng.permutation(x.ndim)]
    return "transpose", {"x": x, "perm": perm}, lambda x, perm: np.transpose(x, perm)


@case("concat", each=(False, True))
def concat(rng: Rng, interleave: bool) -> Case:
    size = list(shape(rng, 2, 4))
    axis = int(rng.integers(-len(size), len(size)))
    values = []
    for _ in range(3):
        size[axis] = size[axis] if interleave else int(rng.integers(0, 4))
        values.append(normal(rng, *size))

    def wanted(values: Any, axis: int, interleave: bool) -> Any:
        whole = np.concatenate(values, axis)
        for index, part in enumerate(values if interleave else []):
            np.moveaxis(whole, axis, 0)[index :: len(values)] = np.moveaxis(part, axis, 0)
        return whole

    return "concat", {"values": values, "axis": axis, "interleave": interleave}, wanted


@case("stack")
def stack(rng: Rng) -> Case:
    size = shape(rng)
    axis = int(rng.integers(-len(size) - 1, len(size) + 1))
    given = {"values": [normal(rng, *size) for _ in range(3)], "axis": axis}
    return "stack", given, lambda values, axis: np.stack(values, axis)


@case("split")
def split(rng: Rng) -> Case:
    size = list(shape(rng))
    axis = int(rng.integers(-len(size), len(size)))
    size[axis] = 6
    if rng.random() < 0.5:
        given = {"x": normal(rng, *size), "axis": axis, "num_splits": int(rng.choice([1, 2, 3]))}
        return "split", given, lambda x, axis, num_splits: tuple(np.split(x, num_splits, axis))
    given = {"x": normal(rng, *size), "axis": axis, "split_sizes": [1, 3, 2]}
    return "split", given, lambda x, axis, split_sizes: tuple(np.split(x, [1, 4], axis))


@case("tile")
def tile(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    return "tile", {"x": x, "reps": [int(n) for n in rng.integers(1, 4, x.ndim)]}, lambda x, reps: np.tile(x, reps)


@case("reverse")
def reverse(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    axes = [int(a) for a in rng.choice(x.ndim, int(rng.integers(1, x.ndim + 1)), replace=False)]
    if rng.random() < 0.2:
        return "reverse", {"x": x}, lambda x: np.flip(x)
    return "reverse", {"x": x, "axes": axes}, lambda x, axes: np.flip(x, axes)


@case("reverse_sequence")
def reverse_sequence(rng: Rng) -> Case:
    x = normal(rng, 5, 3, 2)
    lengths = rng.integers(0, 6, 3).astype(np.int32)

    def wanted(x: Any, lengths: Any, **_: Any) -> Any:
        result = x.copy()
        for item, length in enumerate(lengths):
            result[:length, item] = x[:length, item][::-1]
        return result

    return "reverse_sequence", {"x": x, "lengths": lengths, "seq_axis": 0, "batch_axis": 1}, wanted


def random_slice(rng: Rng, x: np.ndarray) -> tuple[Given, tuple[Any, ...]]:
    """The arguments of a slice, and the Python index that takes the same."""
    given: Given = {key: [] for key in ("begin", "end", "stride", "begin_mask", "end_mask", "squeeze_mask")}
    index: list[Any] = []
    for size in x.shape:
        squeezed = bool(rng.random() < 0.2)
        begin, end, step = (
            int(rng.integers(-size, size)),
            int(rng.integers(-size, size + 3)),
            int(rng.choice([-2, -1, 1, 2])),
        )
        open_begin, open_end = bool(rng.random() < 0.4) and not squeezed, bool(rng.random() < 0.4)
        for key, v in zip(given, (begin, end, step, open_begin, open_end, squeezed), strict=True):
            given[key].append(v)
        index.append(begin if squeezed else slice(None if open_begin else begin, None if open_end else end, step))
    return given, tuple(index)


@case("slice_by_index")
def slice_by_index(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 5))
    given, index = random_slice(rng, x)
    return "slice_by_index", {"x": x, **given}, lambda x, **_: np.asarray(x[index])


@case("slice_update")
def slice_update(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 5))
    given, index = random_slice(rng, x)
    update = normal(rng, *np.asarray(x[index]).shape)

    def wanted(x: Any, update: Any, **_: Any) -> Any:
        result = x.copy()
        result[index] = update
        return result

    return "slice_update", {"x": x, "update": update, **given}, wanted


@case("slice_by_size")
def slice_by_size(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 5))
    begin = [int(rng.integers(0, n)) for n in x.shape]
    size = [-1 if rng.random() < 0.3 else int(rng.integers(1, n - b + 1)) for n, b in zip(x.shape, begin, strict=True)]
    index = tuple(slice(b, None if s == -1 else b + s) for b, s in zip(begin, size, strict=True))
    shifted = [b - n if rng.random() < 0.3 else b for b, n in zip(begin, x.shape, strict=True)]
    return "slice_by_size", {"x": x, "begin": shifted, "size": size}, lambda x, **_: x[index]


@case("sliding_windows")
def sliding_windows(rng: Rng) -> Case:
    x, axis = normal(rng, 3, 7, 2), int(rng.choice([1, -2]))

    def wanted(x: Any, **_: Any) -> Any:
        return np.stack([x[:, i : i + 3] for i in range(0, 5, 2)], 1)

    return "sliding_windows", {"x": x, "axis": axis, "size": 3, "stride": 2}, wanted


@case("pixel_shuffle")
def pixel_shuffle(rng: Rng) -> Case:
    x = normal(rng, 2, 12, *shape(rng, rank=2))
    return "pixel_shuffle", {"x": x, "upscale_factor": 2}, lambda x, upscale_factor: F.pixel_shuffle(t(x), 2)


@case("pixel_unshuffle")
def pixel_unshuffle(rng: Rng) -> Case:
    x = normal(rng, 2, 3, 4, 6)
    return "pixel_unshuffle", {"x": x, "downscale_factor": 2}, lambda x, **_: F.pixel_unshuffle(t(x), 2)


@case("space_to_depth")
def space_to_depth(rng: Rng) -> Case:
    x = normal(rng, 1, 3, 4, 6)

    def wanted(x: Any, block_size: int) -> Any:
        """As TensorFlow: each place of a block is a group of all channels."""
        return np.concatenate([x[:, :, i::2, j::2] for i in range(2) for j in range(2)], 1)

    return "space_to_depth", {"x": x, "block_size": 2}, wanted


@case("depth_to_space")
def depth_to_space(rng: Rng) -> Case:
    x = normal(rng, 1, 12, 2, 3)

    def wanted(x: Any, block_size: int) -> Any:
        whole = np.empty((1, 3, 4, 6), x.dtype)
        for group, (i, j) in enumerate(itertools.product(range(2), range(2))):
            whole[:, :, i::2, j::2] = x[:, 3 * group : 3 * group + 3]
        return whole

    return "depth_to_space", {"x": x, "block_size": 2}, wanted


@case("space_to_batch")
def space_to_batch(rng: Rng) -> Case:
    x = normal(rng, 2, 3, 3, 5)

    def wanted(x: Any, **_: Any) -> Any:
        whole = np.pad(x, ((0, 0), (0, 0), (1, 0), (0, 1)))
        return np.concatenate([whole[:, :, i::2, j::3] for i in range(2) for j in range(3)], 0)

    return "space_to_batch", {"x": x, "block_shape": [2, 3], "paddings": [[1, 0], [0, 1]]}, wanted


@case("batch_to_space")
def batch_to_space(rng: Rng) -> Case:
    x = normal(rng, 12, 3, 2, 2)

    def wanted(x: Any, **_: Any) -> Any:
        whole = np.empty((2, 3, 4, 6), x.dtype)
        for block, (i, j) in enumerate(itertools.product(range(2), range(3))):
            whole[:, :, i::2, j::3] = x[2 * block : 2 * block + 2]
        return whole[:, :, 1:, :5]

    return "batch_to_space", {"x": x, "block_shape": [2, 3], "crops": [[1, 0], [0, 1]]}, wanted


@case("crop")
def crop(rng: Rng) -> Case:
    x = normal(rng, 2, 5, 6)
    return "crop", {"x": x, "crop_height": [1, 0], "crop_width": [2, 1]}, lambda x, **_: x[:, 1:, 2:5]


# --------------------------------------------------------------------------- tensors, indices


@case("fill")
def fill(rng: Rng) -> Case:
    size = list(shape(rng))
    value: Any = [2.5, 7, True][int(rng.integers(0, 3))]
    dtype = {float: np.float32, int: np.int32, bool: np.bool_}[type(value)]
    return "fill", {"shape": size, "value": value}, lambda shape, value: np.full(size, value, dtype)


@case("fill_like")
def fill_like(rng: Rng) -> Case:
    return (
        "fill_like",
        {"ref_tensor": normal(rng, *shape(rng)), "value": 7},
        lambda ref_tensor, value: np.full(ref_tensor.shape, 7, np.int32),
    )


@case("range_1d")
def range_1d(rng: Rng) -> Case:
    start, end, step = (np.array(n, np.int32) for n in (rng.integers(0, 4), rng.integers(5, 20), rng.integers(1, 4)))
    given = {"start": start, "end": end, "step": step}
    return "range_1d", given, lambda start, end, step: np.arange(start, end, step, np.int32)


@case("one_hot")
def one_hot(rng: Rng) -> Case:
    indices = rng.integers(0, 4, shape(rng)).astype(np.int32)
    axis = int(rng.integers(-1, indices.ndim + 1))
    given = {"indices": indices, "one_hot_vector_size": 5, "axis": axis, "on_value": 3.0, "off_value": -1.0}
    return "one_hot", given, lambda indices, **_: np.moveaxis(np.where(np.eye(5)[indices] > 0, 3.0, -1.0), -1, axis)


@case("non_zero")
def non_zero(rng: Rng) -> Case:
    x = rng.integers(0, 2, shape(rng, rank=3)).astype(np.float32)
    return "non_zero", {"x": x}, lambda x: np.argwhere(x).astype(np.int32)


@case("band_part")
def band_part(rng: Rng) -> Case:
    x = normal(rng, *shape(rng, 2, 5, 3))
    lower, upper = int(rng.integers(-1, 3)), int(rng.integers(-1, 3))

    def wanted(x: Any, **_: Any) -> Any:
        low = x if lower < 0 else np.triu(x, -lower)
        return low if upper < 0 else np.tril(low, upper)

    return "band_part", {"x": x, "lower": lower, "upper": upper}, wanted


@case("cumsum", each=itertools.product((False, True), repeat=2))
def cumsum(rng: Rng, kind: tuple[bool, bool]) -> Case:
    x, (exclusive, reverse) = normal(rng, *shape(rng, 2, 4)), kind
    axis = int(rng.integers(0, x.ndim))

    def wanted(x: Any, **_: Any) -> Any:
        whole = np.flip(x, axis) if reverse else x
        total = np.cumsum(whole, axis, dtype=np.float64) - (whole if exclusive else 0)
        return np.flip(total, axis) if reverse else total

    return "cumsum", {"x": x, "axis": axis, "exclusive": exclusive, "reverse": reverse}, wanted


def distinct(rng: Rng) -> np.ndarray:
    size = shape(rng)
    return rng.permutation(math.prod(size)).reshape(size).astype(np.float32)


@case("argsort")
def argsort(rng: Rng) -> Case:
    x, ascending = distinct(rng), bool(rng.random() < 0.5)
    axis = int(rng.integers(-x.ndim, x.ndim))
    given = {"x": x, "axis": axis, "ascending": ascending}
    return "argsort", given, lambda x, **_: np.argsort(x if ascending else -x, axis).astype(np.int32)


@case("topk")
def topk(rng: Rng) -> Case:
    x, ascending = distinct(rng), bool(rng.random() < 0.5)
    axis = int(rng.integers(-x.ndim, x.ndim))
    k, dtype = int(rng.choice([-1, *range(1, x.shape[axis] + 1)])), str(rng.choice(["int32", "uint16"]))

    def wanted(x: Any, **_: Any) -> Any:
        order = np.argsort(x if ascending else -x, axis).take(range(x.shape[axis] if k == -1 else k), axis)
        return np.take_along_axis(x, order, axis), order.astype(dtype)

    return "topk", {"x": x, "k": k, "axis": axis, "ascending": ascending, "output_indices_dtype": dtype}, wanted


@case("pad", each=("constant", "reflect", "replicate"))
def pad(rng: Rng, mode: str) -> Case:
    x = normal(rng, *shape(rng, 3, 5))
    axes = int(rng.integers(1, (x.ndim if mode == "constant" else min(2, x.ndim)) + 1))
    sides = pads(rng, axes)
    width = [(0, 0)] * (x.ndim - axes) + list(zip(sides[::2], sides[1::2], strict=True))
    options: Given = {"constant_values": 1.5} if mode == "constant" else {}
    given = {"x": x, "pad": sides, "mode": mode, "constant_val": 1.5}
    return "pad", given, lambda x, **_: np.pad(x, width, "edge" if mode == "replicate" else mode, **options)


@case("gather")
def gather(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    axis = int(rng.integers(-x.ndim, x.ndim))
    indices = rng.integers(0, x.shape[axis], shape(rng, rank=int(rng.integers(1, 3)))).astype(np.int32)
    if rng.random() < 0.2:
        indices = np.array(0, np.int32)
    return "gather", {"x": x, "indices": indices, "axis": axis}, lambda x, indices, axis: np.take(x, indices, axis)


@case("gather_along_axis")
def gather_along_axis(rng: Rng) -> Case:
    x = normal(rng, *shape(rng))
    axis = int(rng.integers(-x.ndim, x.ndim))
    size = list(x.shape)
    size[axis] = 3
    indices = rng.integers(-x.shape[axis], x.shape[axis], size).astype(np.int32)
    given = {"x": x, "indices": indices, "axis": axis}
    return "gather_along_axis", given, lambda x, indices, axis: np.take_along_axis(x, indices, axis)


@case("gather_nd")
def gather_nd(rng: Rng) -> Case:
    x = normal(rng, 3, 4, 2)
    depth = int(rng.integers(1, 4))
    indices = np.stack([rng.integers(0, n, (2, 3)) for n in x.shape[:depth]], -1).astype(np.int32)
    return "gather_nd", {"x": x, "indices": indices}, lambda x, indices: x[tuple(np.moveaxis(indices, -1, 0))]


MODES: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda a, b: b,
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": np.maximum,
    "min": np.minimum,
}


@case("scatter", each=MODES)
def scatter(rng: Rng, mode: str) -> Case:
    data = normal(rng, *shape(rng, 2, 4))
    axis = int(rng.integers(-data.ndim, data.ndim))
    n = data.shape[axis]
    indices = rng.permutation(n).astype(np.int32)[:2] if mode == "update" else rng.integers(0, n, 3).astype(np.int32)
    size = list(data.shape)
    size[axis] = len(indices)
    updates = np.abs(normal(rng, *size)) + 0.5

    def wanted(data: Any, indices: Any, updates: Any, **_: Any) -> Any:
        result = data.astype(np.float64)
        rows, changes = np.moveaxis(result, axis, 0), np.moveaxis(updates.astype(np.float64), axis, 0)
        for place, change in zip(indices, changes, strict=True):
            rows[place] = MODES[mode](rows[place], change)
        return result

    return "scatter", {"data": data, "indices": indices, "updates": updates, "axis": axis, "mode": mode}, wanted


@case("scatter_along_axis", each=[mode for mode in MODES if mode != "update"])
def scatter_along_axis(rng: Rng, mode: str) -> Case:
    data = normal(rng, 3, 4)
    indices, updates = rng.integers(0, 4, (3, 5)).astype(np.int32), np.abs(normal(rng, 3, 5)) + 0.5

    def wanted(data: Any, indices: Any, updates: Any, **_: Any) -> Any:
        result = data.astype(np.float64)
        for i, j in itertools.product(range(3), range(5)):
            result[i, indices[i, j]] = MODES[mode](result[i, indices[i, j]], updates[i, j])
        return result

    return "scatter_along_axis", {"data": data, "indices": indices, "updates": updates, "axis": 1, "mode": mode}, wanted


@case("scatter_nd", each=MODES)
def scatter_nd(rng: Rng, mode: str) -> Case:
    data = normal(rng, 3, 4, 2)
    depth = int(rng.integers(1, 4))
    places = list(itertools.product(*(range(n) for n in data.shape[:depth])))
    indices = np.array([places[i] for i in rng.permutation(len(places))[:3]], np.int32)
    updates = np.abs(normal(rng, len(indices), *data.shape[depth:])) + 0.5

    def wanted(data: Any, indices: Any, updates: Any, mode: str) -> Any:
        result = data.astype(np.float64)
        for place, change in zip(indices, updates, strict=True):
            result[tuple(place)] = MODES[mode](result[tuple(place)], change)
        return result

    return "scatter_nd", {"data": data, "indices": indices, "updates": updates, "mode": mode}, wanted


# --------------------------------------------------------------------------- resizing


@case("upsample_nearest_neighbor")
def upsample_nearest(rng: Rng) -> Case:
    h, w = (int(n) for n in rng.integers(1, 4, 2))
    given = {"x": normal(rng, 2, 3, 4, 5), "scale_factor_height": h, "scale_factor_width": float(w)}
    return "upsample_nearest_neighbor", given, lambda x, **_: F.interpolate(t(x), scale_factor=(h, w), mode="nearest")


@case("resize_nearest_neighbor")
def resize_nearest(rng: Rng) -> Case:
    size = shape(rng, 1, 9, 2)
    given = {"x": normal(rng, 2, 3, 4, 5), "target_size_height": size[0], "target_size_width": size[1]}
    return "resize_nearest_neighbor", given, lambda x, **_: F.interpolate(t(x), size=size, mode="nearest")


@case("upsample_bilinear", each=(False, True))
def upsample_bilinear(rng: Rng, align: bool) -> Case:
    h, w = (int(n) for n in rng.integers(1, 4, 2))
    given = {"x": normal(rng, 2, 3, 4, 5), "scale_factor_height": h, "scale_factor_width": w, "align_corners": align}
    return (
        "upsample_bilinear",
        given,
        lambda x, **_: F.interpolate(
            t(x), scale_factor=(h, w), mode="bilinear", align_corners=align, recompute_scale_factor=True
        ),
    )


def sampled(x: Any, size: tuple[int, int], mode: str) -> Any:
    """The grid points as coremltools documents them, then NumPy's linear interpolation."""

    def points(have: int, want: int) -> np.ndarray:
        i = np.arange(want)
        if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS") and want > 1:
            return i * (have - 1) / (want - 1)
        if mode == "ALIGN_CORNERS":
            return np.array([(have - 1) / 2])
        if mode == "UNALIGN_CORNERS":
            spacing = have / want
            return i * spacing + 0.5 * spacing - 0.5
        if mode == "OFFSET_CORNERS":
            delta = max(1, have - 1) / want
            return 0.5 * delta + i * delta
        return i * ((have - have / want) / (want - 1) if want > 1 else 0)

    for axis, want in zip((-2, -1), size, strict=True):
        at = np.clip(points(x.shape[axis], want), 0, x.shape[axis] - 1)
        x = np.apply_along_axis(lambda row, at=at: np.interp(at, np.arange(len(row)), row), axis, x.astype(np.float64))
    return x


SAMPLING = ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS")


@case("resize_bilinear", each=[(mode, one) for mode in SAMPLING for one in (False, True)])
def resize_bilinear(rng: Rng, kind: tuple[str, bool]) -> Case:
    """Also to a single element, which the modes differ about."""
    (mode, one), (h, w) = kind, shape(rng, 1, 9, 2)
    h = 1 if one else h
    given = {"x": normal(rng, 2, 4, 5), "target_size_height": h, "target_size_width": w, "sampling_mode": mode}
    return "resize_bilinear", given, lambda x, **_: sampled(x, (h, w), mode)


@case("resize", each=SAMPLING)
def resize(rng: Rng, mode: str) -> Case:
    h, w = shape(rng, 0, 9, 2)
    given: Given = {"x": normal(rng, 2, 4, 5), "shape": [1, h, w], "resized_dims": np.array(2, np.uint32)}
    given |= {"interpolation_mode": "LINEAR", "sampling_mode": mode}
    return "resize", given, lambda x, **_: sampled(x, (h or 4, w or 5), mode)


# --------------------------------------------------------------------------- recurrent, attention, quantization


def reordered(weight: Any, order: str) -> torch.Tensor:
    """The gates of Core ML's LSTM in torch's order."""
    parts = dict(zip(order, t(weight).chunk(len(order)), strict=True))
    return torch.cat([parts[gate] for gate in "ifzo"])


@case("lstm", each=("forward", "reverse", "bidirectional"))
def lstm(rng: Rng, direction: str) -> Case:
    s, b, i, h = shape(rng, 2, 5, 4)
    both, whole = direction == "bidirectional", bool(rng.random() < 0.5)
    given: Given = {"x": normal(rng, s, b, i), "direction": direction, "output_sequence": whole}
    given |= {name: normal(rng, b, h * (1 + both)) for name in ("initial_h", "initial_c")}
    for back in ("", "_back") if both else ("",):
        given |= {f"weight_ih{back}": normal(rng, 4 * h, i), f"weight_hh{back}": normal(rng, 4 * h, h)}
        given[f"bias{back}"] = normal(rng, 4 * h)

    def wanted(x: Any, initial_h: Any, initial_c: Any, **given: Any) -> Any:
        net = torch.nn.LSTM(i, h, bidirectional=both).double()
        for back, suffix in (("", ""), ("_back", "_reverse")) if both else (("", ""),):
            for part in ("ih", "hh"):
                getattr(net, f"weight_{part}_l0{suffix}").data = reordered(given[f"weight_{part}{back}"], "ifoz")
            getattr(net, f"bias_ih_l0{suffix}").data = reordered(given[f"bias{back}"], "ifoz")
            getattr(net, f"bias_hh_l0{suffix}").data.zero_()
        states = [torch.stack(t(a).chunk(1 + both, -1)) for a in (initial_h, initial_c)]
        y, (hn, cn) = net(t(x).flip(0) if direction == "reverse" else t(x), tuple(states))
        y = y.flip(0) if direction == "reverse" else y
        hn, cn = (torch.cat(tuple(a), -1) for a in (hn, cn))
        return y.detach() if whole else hn.detach()[None], hn.detach(), cn.detach()

    return "lstm", given, wanted


@case("lstm")
def lstm_peephole(rng: Rng) -> Case:
    b, i, h = shape(rng, rank=3)
    given = {"x": normal(rng, 1, b, i), "initial_h": normal(rng, b, h), "initial_c": normal(rng, b, h)}
    given |= {"weight_ih": normal(rng, 4 * h, i), "weight_hh": normal(rng, 4 * h, h), "peephole": normal(rng, 3 * h)}

    def wanted(x: Any, initial_h: Any, initial_c: Any, weight_ih: Any, weight_hh: Any, peephole: Any) -> Any:
        gi, gf, go, gz = np.split(x[0] @ weight_ih.T.astype(np.float64) + initial_h @ weight_hh.T, 4, -1)
        pi, pf, po = np.split(peephole, 3)
        sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
        c = sigmoid(gf + pf * initial_c) * initial_c + sigmoid(gi + pi * initial_c) * np.tanh(gz)
        out = sigmoid(go + po * c) * np.tanh(c)
        return out[None], out, c

    return "lstm", given, wanted


@case("gru")
def gru(rng: Rng) -> Case:
    s, b, i, h = shape(rng, rank=4)
    given = {"x": normal(rng, s, b, i), "initial_h": normal(rng, b, h), "output_sequence": True}
    given |= {"weight_ih": normal(rng, 3 * h, i), "weight_hh": normal(rng, 3 * h, h), "bias": normal(rng, 3 * h)}

    def wanted(x: Any, initial_h: Any, weight_ih: Any, weight_hh: Any, bias: Any, **_: Any) -> Any:
        """Not as torch.nn.GRU, whose reset acts after the product."""
        state, (hr, ho, hz), seen = t(initial_h), t(weight_hh).chunk(3), []
        for item in t(x):
            r, o, z = (item @ t(weight_ih).T + t(bias)).chunk(3, -1)
            r, z = torch.sigmoid(r + state @ hr.T), torch.sigmoid(z + state @ hz.T)
            state = (1 - z) * torch.tanh(o + (r * state) @ ho.T) + z * state
            seen.append(state)
        return torch.stack(seen), state

    return "gru", given, wanted


@case("rnn", each=("forward", "reverse"))
def rnn(rng: Rng, direction: str) -> Case:
    s, b, i, h = shape(rng, 2, 5, 4)
    act = str(rng.choice(["tanh", "relu"]))
    given = {"x": normal(rng, s, b, i), "initial_h": normal(rng, b, h), "activation": act, "direction": direction}
    given |= {"weight_ih": normal(rng, h, i), "weight_hh": normal(rng, h, h), "bias": normal(rng, h)}
    given["output_sequence"] = True

    def wanted(x: Any, initial_h: Any, weight_ih: Any, weight_hh: Any, bias: Any, **_: Any) -> Any:
        net = torch.nn.RNN(i, h, nonlinearity=act).double()
        net.weight_ih_l0.data, net.weight_hh_l0.data, net.bias_ih_l0.data = t(weight_ih), t(weight_hh), t(bias)
        net.bias_hh_l0.data.zero_()
        y, hn = net(t(x).flip(0) if direction == "reverse" else t(x), t(initial_h)[None])
        return (y.flip(0) if direction == "reverse" else y).detach(), hn[0].detach()

    return "rnn", given, wanted


@case("scaled_dot_product_attention", each=(0, 1, 2))
def attention(rng: Rng, kind: int) -> Case:
    b, n, s, m, e = shape(rng, rank=5)
    given = {"query": normal(rng, b, n, s, e), "key": normal(rng, b, n, m, e), "value": normal(rng, b, n, m, e)}
    if kind:
        mask = rng.random((s, m)) < 0.7
        mask[:, 0] = True
        given["attn_mask"] = mask if kind == 1 else normal(rng, s, m)

    def wanted(query: Any, key: Any, value: Any, attn_mask: Any = None) -> torch.Tensor:
        mask = None if attn_mask is None else t(attn_mask)
        return F.scaled_dot_product_attention(t(query), t(key), t(value), mask)

    return "scaled_dot_product_attention", given, wanted


def quantizer(rng: Rng, size: int, per_axis: bool) -> tuple[Given, np.ndarray, np.ndarray]:
    """Scale, zero point and type, as arguments and as they are broadcast along axis 1 of three."""
    dtype = str(rng.choice(["int8", "uint8"]))
    low = -20 if dtype == "int8" else 100
    scale = np.float32(2.0 ** -rng.integers(3, 6, size if per_axis else ()))
    zero = rng.integers(low, low + 40, size if per_axis else ()).astype(dtype)
    given: Given = {"scale": scale, "zero_point": zero}
    if per_axis:
        given["axis"] = int(rng.choice([1, -2]))
        return given, scale.reshape(1, -1, 1), zero.reshape(1, -1, 1)
    return {**given, "scale": np.array(scale), "zero_point": np.array(zero)}, scale, zero


@case("quantize", each=(False, True))
def quantize(rng: Rng, per_axis: bool) -> Case:
    x = normal(rng, 2, 3, 4) * 9
    given, scale, zero = quantizer(rng, 3, per_axis)
    dtype = zero.dtype.name
    limits = np.iinfo(dtype)
    given |= {"input": x, "output_dtype": dtype}
    return (
        "quantize",
        given,
        lambda input, **_: np.clip(
            np.rint(input.astype(np.float32) / scale) + zero.astype(np.float32), limits.min, limits.max
        ).astype(dtype),
    )


@case("dequantize", each=(False, True))
def dequantize(rng: Rng, per_axis: bool) -> Case:
    given, scale, zero = quantizer(rng, 3, per_axis)
    limits = np.iinfo(zero.dtype)
    x = rng.integers(limits.min, limits.max + 1, (2, 3, 4)).astype(zero.dtype)
    return (
        "dequantize",
        {"input": x, **given},
        lambda input, **_: (input.astype(np.float64) - zero.astype(np.float64)) * scale,
    )
