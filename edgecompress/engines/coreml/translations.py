"""Torch operators that coremltools does not know, or whose numbers would be others: how it is to convert them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from edgecompress.core.operations import words
from edgecompress.engines.coreml import convert
from edgecompress.formats import torch_decompositions, torch_faults

if TYPE_CHECKING:
    import numpy as np
    import torch

# What follows the kernel in a call of a pool, where it does not say: stride, padding, and what the kind adds
AVERAGE = ((), (0,), False, True, None)
MAXIMUM = ((), (0,), (1,), False)


# What coremltools names, and does not convert
UNABLE = words(
    "acosh asinh atanh median fill full_like zeros_like ones_like _cdist_forward grid_sampler lerp dist meshgrid fmod "
    "native_group_norm rms_norm affine_grid_generator margin_ranking_loss multi_margin_loss triplet_margin_loss prod "
    "mh soft_margin_loss _safe_softmax _upsample_bilinear2d_aa _upsample_bicubic2d_aa diagonal logcumsumexp "
    "resize resize_as copy _native_batch_norm_legit_no_training"
)


def _undilated(x: Any, kernel: Any, stride: Any = (), pad: Any = 0, dilation: Any = 1, *ceil: bool) -> bool:
    return {dilation} == {1} if isinstance(dilation, int) else {*dilation} == {1}


# What it converts for some arguments, and else wrongly, without a word, or not: whether it is right for these
RIGHT: Mapping[str, Callable[..., bool]] = {
    "std": lambda x, *how, **more: bool(how),
    "var": lambda x, *how, **more: bool(how),
    "clamp": lambda x, *limits, **more: not any(hasattr(limit, "meta") for limit in limits),
    "round": lambda x, decimals=0: decimals == 0,
    "softplus": lambda x, beta=1, threshold=20: threshold >= 20,
    "nll_loss_nd": lambda x, target, weight=None, *how: weight is None,
    "nll_loss": lambda x, target, weight=None, *how: weight is None,
    "instance_norm": lambda x, *how: x.meta["val"].dim() == 4 and how[4],
    **dict.fromkeys(("max", "min", "mean", "sum"), lambda x, *axes, **more: bool(axes)),
    "pad": lambda x, widths, mode="constant", value=None: (
        min(widths) >= 0 and (mode == "constant" or (mode != "circular" and len(widths) < 5))
    ),
    **dict.fromkeys(  # what it adds to an end it takes from the padding
        [f"conv_transpose{axes}d" for axes in (1, 2, 3)],
        lambda x, weight, bias=None, stride=1, pad=0, more=0, *how: _most(more) <= -_most(pad, -1),
    ),
    "linalg_vector_norm": lambda x, order=2, axes=None, *how, **more: axes is not None,
    "scatter_add": lambda x, axis, index, source: _as_large(x, axis, index, source),
    **{f"max_pool{n}d{more}": _undilated for n in (1, 2, 3) for more in ("", "_with_indices")},
    **dict.fromkeys(("add", "sub"), lambda x, y, *, alpha=1: alpha == 1),
    **dict.fromkeys(("index_put", "index_put_"), lambda x, index, *how: None not in index),
    "einsum": lambda equation, *given, **more: "..." not in equation,
    "scatter_reduce": lambda x, axis, index, source, how, **more: (
        how != "mean" and more.get("include_self", True) and _as_large(x, axis, index, source)
    ),
    "lstm": lambda x, state, weights, *how: not torch_decompositions.projects(weights),
    "col2im": lambda *how: False,
    "upsample_nearest1d": lambda *how: False,
    "upsample_nearest2d": lambda x, size, scales=None, *more: all(
        float(n).is_integer() for n in [*more, *(scales or ())] if n
    ),
    "prelu": lambda x, slope: x.meta["val"].dim() == 4 or slope.meta["val"].numel() == 1,
}


def _most(sizes: int | Sequence[int], sign: int = 1) -> int:
    return max(sign * n for n in ([sizes] if isinstance(sizes, int) else sizes))


def known(node: torch.fx.Node) -> bool:
    """Whether coremltools, once taught, converts an operator, and rightly."""
    teach()
    from coremltools.converters.mil.frontend.torch import torch_op_registry

    name = torch_op_registry.sanitize_op_kind(node.target._schema.name)
    return torch_op_registry._TORCH_OPS_REGISTRY.get_func(name) is not None and _right(node, name)


def require(program: torch.export.ExportedProgram) -> None:
    """Raises ValueError where coremltools would convert an operator, and wrongly."""
    from coremltools.converters.mil.frontend.torch import torch_op_registry

    for node in program.graph.nodes:
        name = torch_op_registry.sanitize_op_kind(node.target._schema.name) if hasattr(node.target, "_schema") else ""
        if name and not _right(node, name):
            raise ValueError(f"for these arguments coremltools makes another operator of '{name}'")


def _right(node: torch.fx.Node, name: str) -> bool:
    if torch_faults.is_complex(node):  # beside complex numbers it would cast real ones
        return len({each.meta["val"].is_complex() for each in node.args if hasattr(each, "meta")}) < 2
    places = "max_pool" in name and torch_decompositions.places_are_read(node)  # which Core ML does not tell
    return name not in UNABLE and not places and (name not in RIGHT or RIGHT[name](*node.args, **node.kwargs))


def _as_large(x: Any, axis: int, index: Any, source: Any) -> bool:
    """Whether a scatter has as many places as numbers, for all of the other axes."""
    sizes, places, given = (list(each.meta["val"].shape) for each in (x, index, source))
    return not sizes or (places == given and places == [*sizes[:axis], places[axis], *sizes[axis:][1:]])


@cache
def teach() -> None:
    """Shows them to coremltools."""
    convert.coremltools()
    from coremltools.converters.mil import register_torch_op
    from coremltools.converters.mil.mil.passes.defs.cleanup import noop_elimination

    noop_elimination._SUPPORTED_OPS.discard("floor_div")  # by 1 it is no copy: it rounds
    aliases: dict[Any, list[str]] = {_average: [f"avg_pool{axes}d" for axes in (1, 2, 3)]}
    aliases[_maximum] = [f"max_pool{axes}d{more}" for axes in (1, 2, 3) for more in ("", "_with_indices")]
    aliases |= {_log: ["log", "log2", "log10"], _log_softmax: ["log_softmax", "_log_softmax"]}
    for function in (_unsafe_chunk, _alias, _clone, _movedim, _reciprocal, _rsqrt):
        aliases[function] = [function.__name__.lstrip("_")]
    for kind, (pool, reduce) in {"avg": ("avg_pool", "reduce_mean"), "max": ("max_pool", "reduce_max")}.items():
        names = [f"adaptive_{kind}_pool{axes}d" for axes in (1, 2, 3)]
        aliases[_adaptive(pool, reduce)] = names + [f"_{name}" for name in names if kind == "avg"]
    aliases[_scatter_reduce] = ["scatter_reduce", "scatter_add"]
    for function, (first, *others) in aliases.items():
        function.__name__ = first  # which coremltools knows it by
        register_torch_op(function, torch_alias=others, override=True)


def _inputs(context: Any, node: Any, defaults: Sequence[object] = ()) -> list[Any]:
    """The first input, and the values of the others, the last ones by their defaults where the node has fewer."""
    from coremltools.converters.mil.frontend.torch import ops

    first, *others = ops._get_inputs(context, node)
    values = [getattr(other, "val", other) for other in others]
    return [first, *values, *defaults[len(values) - 1 :]]


def _unsafe_chunk(context: Any, node: Any) -> None:
    from coremltools.converters.mil import Builder

    tensor, count, axis = _inputs(context, node)
    context.add(Builder.split(x=tensor, num_splits=count, axis=axis), node.name)


def _alias(context: Any, node: Any) -> None:
    context.add(context[node.inputs[0]], node.name)


def _clone(context: Any, node: Any) -> None:
    """An input that is an output would have two names: by an operator that coremltools does not drop."""
    from coremltools.converters.mil import Builder

    x = context[node.inputs[0]]
    context.add(Builder.maximum(x=x, y=x, name=node.name) if x.op is None else x, node.name)


def _reciprocal(context: Any, node: Any) -> None:
    """By a division: Core ML's own inverse adds 1e-4 to what it divides by."""
    from coremltools.converters.mil import Builder

    context.add(Builder.real_div(x=1.0, y=_inputs(context, node)[0]), node.name)


def _rsqrt(context: Any, node: Any) -> None:
    """By a root and a division: Core ML's own adds 1e-12 to what it takes the root of."""
    from coremltools.converters.mil import Builder

    context.add(Builder.real_div(x=1.0, y=Builder.sqrt(x=_inputs(context, node)[0])), node.name)


def _log(context: Any, node: Any) -> None:
    """Of nothing more: Core ML's own adds 1e-45, and its logarithm of zero is a number."""
    from coremltools.converters.mil import Builder
    from coremltools.converters.mil.mil import types

    x = _inputs(context, node)[0]
    x = x if types.is_float(x.dtype) else Builder.cast(x=x, dtype="fp32")
    logarithm = Builder.log(x=x, epsilon=0.0)
    base = {"log2": 2, "log10": 10}.get(node.kind)
    context.add(Builder.mul(x=logarithm, y=1 / math.log(base)) if base else logarithm, node.name)


def _log_softmax(context: Any, node: Any) -> None:
    """Not the logarithm of a softmax, most of which may be too small for a float."""
    from coremltools.converters.mil import Builder

    x, axis, *_ = _inputs(context, node)
    context.add(Builder.sub(x=x, y=Builder.reduce_log_sum_exp(x=x, axes=[axis], keep_dims=True)), node.name)


def _scatter_reduce(context: Any, node: Any) -> None:
    """Of constants, as torch does: coremltools forgets what is reduced."""
    import torch
    from coremltools.converters.mil import Builder

    how = _inputs(context, node)[4] if node.kind == "scatter_reduce" else "sum"
    x, axis, index, source = (context[name] for name in node.inputs[:4])
    if any(each.val is None for each in (x, index, source)):
        mode = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}[how]
        made = Builder.scatter_along_axis(data=x, indices=index, updates=source, axis=axis, mode=mode, name=node.name)
    else:
        data, places, numbers = (torch.tensor(each.val) for each in (x, index, source))
        value = data.scatter_reduce(int(axis.val), places.long(), numbers, how)
        made = Builder.const(val=value.numpy(), name=node.name)
    context.add(made)


def _movedim(context: Any, node: Any) -> None:
    import numpy
    from coremltools.converters.mil import Builder

    tensor, *places = _inputs(context, node)
    source, destination = ([int(i) % tensor.rank for i in numpy.ravel(place)] for place in places)
    order = [axis for axis in range(tensor.rank) if axis not in source]
    for to, axis in sorted(zip(destination, source, strict=True)):
        order.insert(to, axis)
    context.add(Builder.transpose(x=tensor, perm=order), node.name)


# --------------------------------------------------------------------------- pools


def _average(context: Any, node: Any) -> None:
    """Never by `ceil_mode`: Core ML divides what lies beyond the edge by the whole kernel, torch by what is inside."""
    import numpy
    from coremltools.converters.mil import Builder

    x, kernel, stride, pad, ceil, include, divisor = _inputs(context, node, AVERAGE)
    kernel, stride, pad = _each_axis(kernel, stride, pad)
    more: dict[str, Any] = {"ceil_mode": bool(ceil), "count_include_pad": bool(include)}
    if divisor is not None:
        more["divisor_override"] = int(divisor)
    size = x.shape[x.rank - len(kernel) :]
    torch_says = _of_ones("avg", size, kernel, stride, padding=pad, **more)
    sides = _sides(size, torch_says.shape, kernel, stride, pad)
    scale = torch_says / _of_ones("avg", size, kernel, stride, sides)
    pads = numpy.ravel(sides)
    pool: dict[str, Any] = {"kernel_sizes": kernel, "strides": stride, "pad_type": "custom", "pad": pads}
    plain = bool(numpy.allclose(scale, 1, atol=1e-5))
    if not plain and divisor is None and sides == [(p, p) for p in pad]:  # Core ML's own words for it
        pool["exclude_padding_from_average"] = plain = True
    factors = scale.flat[0] if numpy.ptp(scale) == 0 else scale[None, None]

    def made(x: Any, **name: str) -> Any:
        if plain:
            return Builder.avg_pool(x=x, **pool, **name)
        return Builder.mul(x=Builder.avg_pool(x=x, **pool), y=factors, **name)

    context.add(_on_batches(x, kernel, made, node), node.name)


def _maximum(context: Any, node: Any) -> None:
    import numpy
    from coremltools.converters.mil import Builder

    x, kernel, stride, pad, dilation, ceil = _inputs(context, node, MAXIMUM)
    if any(numpy.ravel(dilation) != 1):
        raise ValueError("Core ML has no maximum pool with a dilation; take one without")
    kernel, stride, pad = _each_axis(kernel, stride, pad)
    size = x.shape[x.rank - len(kernel) :]
    windows = _of_ones("max", size, kernel, stride, padding=pad, ceil_mode=bool(ceil)).shape
    pads = numpy.ravel(_sides(size, windows, kernel, stride, pad))
    pool = {"kernel_sizes": kernel, "strides": stride, "pad_type": "custom", "pad": pads}
    made = _on_batches(x, kernel, partial(Builder.max_pool, **pool), node)
    several = node.kind.endswith("_with_indices")  # the indices are not to be had
    context.add((made, None) if several else made, node.name)


def _each_axis(kernel: np.ndarray, *others: np.ndarray) -> list[list[int]]:
    """The kernel, its stride and its padding, a number for each axis; no stride is the kernel."""
    import numpy

    sizes = [numpy.ravel(each).tolist() for each in (kernel, *others)]
    return [(each or sizes[0]) * (len(sizes[0]) if len(each) == 1 else 1) for each in sizes]


def _of_ones(
    kind: str,
    size: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    sides: Sequence[tuple[int, int]] = (),
    **more: Any,
) -> np.ndarray:
    """What torch's pool gives of ones, after zeros on their sides."""
    import torch

    ones = torch.nn.functional.pad(torch.ones(1, 1, *size), [n for pair in reversed(sides) for n in pair])
    pool = getattr(torch.nn.functional, f"{kind}_pool{len(kernel)}d")
    found: np.ndarray = pool(ones, kernel, stride, **more)[0, 0].numpy()
    return found


def _sides(
    size: Sequence[int], windows: Sequence[int], kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int]
) -> list[tuple[int, int]]:
    """The padding before and after each axis that gives so many windows without `ceil_mode`."""
    ends = [(n - 1) * s + k - p for n, k, s, p in zip(windows, kernel, stride, pad, strict=True)]
    return [(p, max(p, end - n)) for n, end, p in zip(size, ends, pad, strict=True)]


def _on_batches(x: Any, kernel: Sequence[int], make: Callable[..., Any], node: Any) -> Any:
    """What `make` gives of a tensor with its batch; of one without, too."""
    from coremltools.converters.mil import Builder

    if x.rank == len(kernel) + 2:
        return make(x=x, name=node.name)
    return Builder.squeeze(x=make(x=Builder.expand_dims(x=x, axes=[0])), axes=[0], name=node.name)


def _adaptive(pool: str, reduce: str) -> Callable[[Any, Any], None]:
    """The pool to sizes: all at once where they divide the map, else each axis for itself, window for window."""

    def adaptive(context: Any, node: Any) -> None:
        from coremltools.converters.mil import Builder

        x, sizes = _inputs(context, node)
        axes = range(x.rank - len(sizes), x.rank)
        divides = all(x.shape[axis] % n == 0 for axis, n in zip(axes, sizes, strict=True))
        if all(n == 1 for n in sizes):
            x = getattr(Builder, reduce)(x=x, axes=[*axes], keep_dims=True, name=node.name)
        elif divides:
            kernel = [x.shape[axis] // n for axis, n in zip(axes, sizes, strict=True)]
            how = {"kernel_sizes": kernel, "strides": kernel, "pad_type": "valid"}
            x = _on_batches(x, kernel, partial(getattr(Builder, pool), **how), node)
        else:
            for axis, windows in zip(axes, sizes, strict=True):
                last = {"name": node.name} if axis == axes[-1] else {}
                parts = []
                for n in range(windows):
                    begin, end = [0] * x.rank, list(x.shape)
                    begin[axis], end[axis] = n * end[axis] // windows, -(-(n + 1) * end[axis] // windows)
                    part = Builder.slice_by_index(x=x, begin=begin, end=end)
                    parts.append(getattr(Builder, reduce)(x=part, axes=[axis], keep_dims=True))
                x = Builder.concat(values=parts, axis=axis, **last)
        context.add(x, node.name)

    return adaptive
