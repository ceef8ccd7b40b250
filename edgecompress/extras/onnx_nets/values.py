"""What goes between the operators of an imported graph: tensors, and numbers that are known without running it.

Shapes and what is computed from them are arrays of NumPy (of objects where torch.export traces symbols), so that a
Reshape, Slice or Expand gets plain sizes wherever the graph allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import torch

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Value: TypeAlias = Union["torch.Tensor", "np.ndarray", None]  # None: an input that is left out
Function: TypeAlias = Callable[..., Any]  # (node, *values) -> a value, or a tuple of them

TYPES: Mapping[int, torch.dtype] = {
    1: torch.float32,
    2: torch.uint8,
    3: torch.int8,
    4: torch.uint16,
    5: torch.int16,
    6: torch.int32,
    7: torch.int64,
    9: torch.bool,
    10: torch.float16,
    11: torch.float64,
    12: torch.uint32,
    13: torch.uint64,
    16: torch.bfloat16,
}  # by the number of TensorProto.DataType; fmt: skip


@dataclass(frozen=True)
class Operator:
    """How an operator is computed; `known` are the inputs that it takes as numbers, not as tensors.

    `numbers`: it takes any input as it is, as one that is known makes a simpler operator.
    """

    run: Function
    known: frozenset[int] = frozenset()
    numbers: bool = False


OPERATORS: dict[str, Operator] = {}
KNOWN: dict[str, Function] = {}  # operators of numbers that are known: (node, *arrays) -> array


def operator(*names: str, known: Sequence[int] = (), numbers: bool = False) -> Callable[[Function], Function]:
    """Enters a function into the table, under one or several names."""

    def enter(run: Function) -> Function:
        for name in names:
            OPERATORS[name] = Operator(run, frozenset(known), numbers)
        return run

    return enter


def of_known(name: str) -> Callable[[Function], Function]:
    """Enters a function into the table of what is computed where all its numbers are known."""

    def enter(run: Function) -> Function:
        KNOWN[name] = run
        return run

    return enter


class NotKnown(ValueError):
    """A size depends on the values of tensors."""


def tensor(value: Value, like: torch.Tensor | None = None) -> torch.Tensor:
    """A value as a tensor on the device of `like`."""
    if isinstance(value, torch.Tensor):
        return value
    assert value is not None
    device = like.device if like is not None else None
    if value.dtype == object:
        parts = [torch.scalar_tensor(v, dtype=torch.int64) for v in value.reshape(-1)]
        made = torch.stack(parts).reshape(value.shape) if parts else torch.zeros(value.shape, dtype=torch.int64)
        return made.to(device) if device else made
    return torch.tensor(np.ascontiguousarray(value).reshape(value.shape), device=device)


def tensors(*values: Value) -> list[torch.Tensor]:
    """Values as tensors of one device."""
    like = next((v for v in values if isinstance(v, torch.Tensor)), None)
    return [tensor(value, like) for value in values]


def pair(a: Value, b: Value) -> list[Any]:
    """Two values to compute with; one number that is known beside a tensor of as many axes is a plain number."""
    for x, y, turned in ((a, b, False), (b, a, True)):
        if isinstance(x, torch.Tensor) and isinstance(y, np.ndarray) and y.size == 1 and y.ndim <= x.ndim:
            return [numbers(y)[0], x] if turned else [x, numbers(y)[0]]
    return tensors(a, b)


def numbers(value: Value) -> list[Any]:
    """The numbers of a value that is known, in a flat list; sizes may be symbols of torch.export."""
    if isinstance(value, torch.Tensor):
        try:
            return list(value.reshape(-1).tolist())
        except Exception as error:
            raise NotKnown("a size depends on the values of its inputs") from error
    return [] if value is None else [v if value.dtype == object else v.item() for v in value.reshape(-1)]


def sizes(shape: Sequence[Any]) -> np.ndarray:
    """A shape as numbers: of int64, or of objects where some are symbols."""
    plain = all(type(size) is int for size in shape)
    return np.array([*shape], np.int64 if plain else object)


def axes_of(node: Node, given: Value, rank: int) -> list[int]:
    """The axes of an attribute or, in newer opsets, of an input, from 0 on; empty where none are given."""
    named = node.get("axes")
    return [int(axis) % rank if rank else 0 for axis in (numbers(given) if given is not None else named or [])]
