"""Operators whose tensors come from no other: constants, ranges, what is filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import torch

from edgecompress.extras.onnx_nets.values import (
    TYPES,
    Value,
    numbers,
    of_known,
    operator,
    tensor,
)

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor


@operator("Constant")
def _constant(node: Node) -> np.ndarray:
    value = next(iter(node.attributes.values()))
    if isinstance(value, np.ndarray):
        return value
    kind = np.float32 if any("float" in name for name in node.attributes) else np.int64
    return np.asarray(value, kind)


@operator("ConstantOfShape", known=(0,))
def _constant_of_shape(node: Node, shape: Value) -> Tensor:
    value = node.get("value", np.zeros(1, np.float32))
    return torch.full(numbers(shape), value.item(), dtype=torch.from_numpy(np.atleast_1d(value)).dtype)


@operator("Range", known=(0, 1, 2))
def _range(node: Node, start: Value, end: Value, step: Value) -> Tensor:
    kind = next((v.dtype for v in (start, end, step) if isinstance(v, np.ndarray) and v.dtype != object), np.int64)
    ends = [numbers(v)[0] for v in (start, end, step)]
    return torch.arange(*ends, dtype=torch.from_numpy(np.zeros(1, kind)).dtype)


@operator("EyeLike")
def _eye_like(node: Node, x: Tensor) -> Tensor:
    kind = TYPES[node.attributes["dtype"]] if "dtype" in node.attributes else x.dtype
    shift = node.get("k", 0)
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape)
    return (columns[None, :] == rows[:, None] + shift).to(kind)


@operator("OneHot", known=(1, 2))
def _one_hot(node: Node, indices: Value, depth: Value, values: Tensor) -> Tensor:
    x, count, axis = tensor(indices).to(torch.int64), int(numbers(depth)[0]), node.get("axis", -1)
    off, on = numbers(values)
    axis += x.ndim + 1 if axis < 0 else 0
    places = torch.arange(count, device=x.device).reshape([-1 if i == axis else 1 for i in range(x.ndim + 1)])
    x = torch.unsqueeze(torch.where(x < 0, x + count, x), axis)
    kind = tensor(values).dtype if isinstance(values, np.ndarray) else values.dtype
    return torch.where(x == places, torch.tensor(on, dtype=kind), torch.tensor(off, dtype=kind))


@of_known("ConstantOfShape")
def _known_full(node: Node, shape: np.ndarray) -> Value:
    wanted = numbers(shape)
    if any(type(size) is not int for size in wanted):
        return _constant_of_shape(node, shape)
    value = node.get("value", np.zeros(1, np.float32))
    return np.full(wanted, value.item(), value.dtype)
