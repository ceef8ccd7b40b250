"""Multiply-accumulates of a Core ML program, by the precision that they are computed in."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coremltools.converters.mil.mil import Operation, Program

BRANCHES = ("cond", "while_loop")  # how often their bodies run is not known before they do


def by_dtype(program: Program) -> dict[str, int]:
    """The MACs of coremltools' program by the dtype of what is multiplied: {"fp16": n, "fp32": m}.

    A product added to a sum counts once, as He et al. (2015) count. Raises ValueError, with the reason, where a size or
    an operator is known only at run time.
    """
    macs: dict[str, int] = {}
    for op in program.functions["main"].operations:
        if op.op_type in BRANCHES:
            raise ValueError(f"the number of iterations of the body of {op.op_type} is known only at run time")
        if op.op_type in MACS:
            read = op.query if op.op_type == "scaled_dot_product_attention" else op.x
            dtype = str(read.dtype.__name__)
            try:
                macs[dtype] = macs.get(dtype, 0) + int(MACS[op.op_type](op))
            except TypeError as error:  # a symbol is no number
                raise ValueError(f"the shape of '{op.outputs[0].name}' is known only at run time") from error
    return macs


def _product(op: Operation) -> int:
    """Each value of the product is a sum over the inner axis of `x`."""
    inner = -2 if op.transpose_x is not None and op.transpose_x.val else -1
    return int(math.prod(op.outputs[0].shape) * op.x.shape[inner])


def _attention(op: Operation) -> int:
    """Queries times keys, then their weights times the values."""
    return int((math.prod(op.query.shape) + math.prod(op.outputs[0].shape)) * op.key.shape[-2])


def _cells(op: Operation) -> int:
    """Each weight of each gate and direction once a step, for each item: `x` is [steps, batch, features]."""
    names = ("weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back")
    weights = [op.inputs[name] for name in names if op.inputs.get(name) is not None]
    return int(math.prod(op.x.shape[:2]) * sum(math.prod(weight.shape) for weight in weights))


MACS: Mapping[str, Callable[[Operation], int]] = {
    "conv": lambda op: math.prod(op.outputs[0].shape) * math.prod(op.weight.shape[1:]),
    "conv_transpose": lambda op: math.prod(op.x.shape) * math.prod(op.weight.shape[1:]),
    "linear": lambda op: math.prod(op.outputs[0].shape) * op.weight.shape[1],
    "matmul": _product,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("lstm", "gru", "rnn"), _cells),
}
