"""Operators that move numbers: shapes, slices, gathers, joins, padding; and what makes constants."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from edgecompress.extras.onnx_nets.values import (
    NotKnown,
    Value,
    axes_of,
    numbers,
    of_known,
    operator,
    sizes,
    tensor,
    tensors,
)

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node, Sizes

Tensor: TypeAlias = torch.Tensor
LAST = 2**31 - 1  # and beyond: to the end

# --------------------------------------------------------------------------- shapes


@of_known("Shape")
@operator("Shape")
def _shape(node: Node, x: Value) -> np.ndarray:
    return sizes(list(x.shape)[slice(node.get("start", 0), node.get("end"))]) if x is not None else sizes([])


@of_known("Size")
@operator("Size")
def _size(node: Node, x: Value) -> np.ndarray:
    return sizes([math.prod(x.shape)]).reshape(()) if x is not None else sizes([])


def _target(node: Node, shape: Any, given: Value) -> list[Any]:
    wanted = numbers(given) if given is not None else list(node.attributes["shape"])
    if node.get("allowzero"):
        return wanted
    return [shape[i] if type(size) is int and size == 0 else size for i, size in enumerate(wanted)]


@operator("Reshape", known=(1,))
def _reshape(node: Node, x: Value, shape: Value = None) -> Tensor:
    x = tensor(x)
    return x.reshape(_target(node, x.shape, shape))


def relative(before: Sizes, after: Sizes, target: np.ndarray | None) -> list[int] | None:
    """What a Reshape may be told instead: 0 for axes that stay, -1 for what the others become; None where it may not.

    `target` is what the file tells, where that is known, `after` what shape inference makes of it.
    """
    sizes = [*after] if target is None else _named(before, target)
    if not sizes or 0 in (*before, *sizes):
        return None
    kept = 0
    while kept < min(len(before), len(sizes)) and before[kept] == sizes[kept] != "":
        kept += 1
    left = [-1] if len(sizes) == kept + 1 else [size if isinstance(size, int) else -1 for size in sizes[kept:]]
    return [*[0] * kept, *left] if kept and left.count(-1) < 2 else None


def _named(before: Sizes, target: np.ndarray) -> list[int | str]:
    """A target with the input's own sizes, its -1 too where this can only be the one that is open."""
    sizes = [before[i] if size == 0 and i < len(before) else int(size) for i, size in enumerate(target)]
    opened = [size for size in before if isinstance(size, str)]
    fixed = [math.prod(size for size in side if isinstance(size, int)) for side in (before, sizes)]
    if len(opened) == 1 and opened[0] not in sizes and fixed[0] == -fixed[1]:
        sizes[sizes.index(-1)] = opened[0]
    return sizes


@operator("Flatten")
def _flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    if 0 < axis == x.ndim - 1:
        return torch.flatten(x, 0, axis - 1) if axis > 1 else x
    if axis == 1:
        return torch.flatten(x, 1)
    return x.reshape(math.prod(x.shape[:axis]), math.prod(x.shape[axis:]))


@operator("Squeeze", known=(1,))
def _squeeze(node: Node, x: Value, axes: Value = None) -> Tensor:
    x = tensor(x)
    chosen = axes_of(node, axes, x.ndim) or [i for i, size in enumerate(x.shape) if size == 1]
    return x.reshape([size for i, size in enumerate(x.shape) if i not in chosen])  # XNNPACK has no squeeze of int8


@operator("Unsqueeze", known=(1,))
def _unsqueeze(node: Node, x: Value, axes: Value = None) -> Tensor:
    x = tensor(x)
    for axis in sorted(axes_of(node, axes, x.ndim + len(numbers(axes) if axes is not None else node.get("axes", [])))):
        x = torch.unsqueeze(x, axis)
    return x


@operator("Transpose")
def _transpose(node: Node, x: Value) -> Tensor:
    x = tensor(x)
    return torch.permute(x, node.get("perm") or [*range(x.ndim)][::-1])


@operator("Expand", known=(1,))
def _expand(node: Node, x: Value, shape: Value) -> Tensor:
    given, wanted = tensor(x), numbers(shape)
    own = [1] * (len(wanted) - given.ndim) + list(given.shape)
    wanted = [1] * (given.ndim - len(wanted)) + wanted
    return given.expand([a if type(b) is int and b == 1 else b for a, b in zip(own, wanted, strict=True)])


@operator("Tile", known=(1,))
def _tile(node: Node, x: Value, repeats: Value) -> Tensor:
    return tensor(x).repeat(numbers(repeats))


# --------------------------------------------------------------------------- joins and parts


@operator("Concat")
def _concat(node: Node, *values: Value) -> Tensor:
    return torch.cat(tensors(*values), node.get("axis", 1))


@of_known("Split")
@operator("Split", known=(1,))
def _split(node: Node, x: Any, parts: Value = None) -> tuple[Any, ...]:
    axis = node.get("axis", 0)
    given = numbers(parts) if parts is not None else node.get("split")
    if not given:
        count = node.get("num_outputs", len(node.outputs))
        step = -(-x.shape[axis] // count)
        given = [min(step, x.shape[axis] - step * i) for i in range(count)]
    if isinstance(x, np.ndarray):
        return tuple(np.split(x, np.cumsum(list(given))[:-1], axis))
    return tuple(torch.split(x, list(given), axis))


def _ranges(node: Node, rank: int, given: tuple[Value, ...]) -> list[tuple[int, Any, Any, int]]:
    """(axis, start, end, step) of a Slice: of attributes before opset 10, then of inputs."""
    if not given:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes, steps = node.get("axes") or [*range(len(starts))], [1] * len(starts)
    else:
        starts, ends = numbers(given[0]), numbers(given[1])
        axes = numbers(given[2]) if len(given) > 2 and given[2] is not None else [*range(len(starts))]
        steps = numbers(given[3]) if len(given) > 3 and given[3] is not None else [1] * len(starts)
    return [(int(axis) % rank, *each) for axis, *each in zip(axes, starts, ends, steps, strict=True)]


def _index(start: Any, end: Any, step: int) -> slice:
    """Python's slice; what lies beyond the ends is cut, and an end before the first is left out."""
    if type(end) is int and (end >= LAST if step > 0 else end <= -LAST):
        end = None
    if type(start) is int and abs(start) >= LAST:
        start = None
    return slice(start, end, step)


@operator("Slice", known=(1, 2, 3, 4))
def _slice(node: Node, x: Value, *given: Value) -> Tensor:
    x = tensor(x)
    for axis, start, end, step in _ranges(node, x.ndim, given):
        part = _index(start, end, step)
        if step > 0:
            x = x[(slice(None),) * axis + (part,)]
        else:  # torch has no steps backwards
            places = torch.tensor([*range(x.shape[axis])[part]], dtype=torch.int64, device=x.device)
            x = torch.index_select(x, axis, places)
    return x


@operator("Gather", numbers=True)
def _gather(node: Node, x: Value, indices: Value) -> Tensor:
    x, axis = tensor(x), node.get("axis", 0)
    axis += x.ndim if axis < 0 else 0
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        return torch.select(x, axis, numbers(indices)[0])
    places = tensor(indices, x).to(torch.int64)
    places = torch.where(places < 0, places + x.shape[axis], places)
    picked = torch.index_select(x, axis, places.reshape(-1))
    return picked.reshape([*x.shape[:axis], *places.shape, *x.shape[axis + 1 :]])


@operator("GatherElements")
def _gather_elements(node: Node, x: Value, indices: Value) -> Tensor:
    x, places = tensors(x, indices)
    axis = node.get("axis", 0)
    return torch.gather(x, axis, torch.where(places < 0, places + x.shape[axis], places))


@operator("GatherND")
def _gather_nd(node: Node, x: Value, indices: Value) -> Tensor:
    x, places = tensors(x, indices)
    batch = node.get("batch_dims", 0)
    own = [
        torch.arange(x.shape[i], device=x.device).reshape([-1 if k == i else 1 for k in range(places.ndim - 1)])
        for i in range(batch)
    ]
    return x[(*own, *(places[..., i] for i in range(places.shape[-1])))]


@operator("ScatterElements", "Scatter")
def _scatter_elements(node: Node, x: Value, indices: Value, updates: Value) -> Tensor:
    x, places, new = tensors(x, indices, updates)
    axis, how = node.get("axis", 0), node.get("reduction", "none")
    places = torch.where(places < 0, places + x.shape[axis], places)
    if how == "none":
        return torch.scatter(x, axis, places, new)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[how]
    return torch.scatter_reduce(x, axis, places, new, name)


@operator("ScatterND")
def _scatter_nd(node: Node, x: Value, indices: Value, updates: Value) -> Tensor:
    x, places, new = tensors(x, indices, updates)
    depth, how = places.shape[-1], node.get("reduction", "none")
    inner = x.shape[depth:]
    flat = x.reshape(-1, *inner)
    steps = [math.prod(x.shape[i + 1 : depth]) for i in range(depth)]
    rows = sum((torch.where(places[..., i] < 0, places[..., i] + x.shape[i], places[..., i]) * step
                for i, step in enumerate(steps)), torch.zeros_like(places[..., 0]))  # fmt: skip
    rows, new = rows.reshape(-1), new.reshape(-1, *inner)
    if how == "none":
        return torch.index_copy(flat, 0, rows, new).reshape(x.shape)
    spread = rows.reshape(-1, *[1] * len(inner)).expand(new.shape)
    name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[how]
    return torch.scatter_reduce(flat, 0, spread, new, name).reshape(x.shape)


@operator("Compress", known=(1,))
def _compress(node: Node, x: Tensor, condition: Value) -> Tensor:
    places = torch.tensor([i for i, on in enumerate(numbers(condition)) if on], dtype=torch.int64, device=x.device)
    axis = node.get("axis")
    return torch.index_select(x.reshape(-1) if axis is None else x, axis or 0, places)


@operator("NonZero")
def _non_zero(node: Node, x: Value) -> Tensor:
    return torch.nonzero(tensor(x)).transpose(0, 1)


@operator("ReverseSequence", known=(1,))
def _reverse_sequence(node: Node, x: Tensor, lengths: Value) -> Tensor:
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    rows = []
    for i, length in enumerate(numbers(lengths)):
        row = torch.select(x, batch, i)
        axis = time - (time > batch)
        begin, end = torch.split(row, [length, row.shape[axis] - length], axis)
        rows.append(torch.cat([torch.flip(begin, [axis]), end], axis))
    return torch.stack(rows, batch)


# --------------------------------------------------------------------------- other orders


@operator("DepthToSpace")
def _depth_to_space(node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    size = node.attributes["blocksize"]
    if node.get("mode", "DCR") == "CRD":
        return functional.pixel_shuffle(x, size)
    parts = x.reshape(n, size, size, c // size**2, h, w)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(n, c // size**2, h * size, w * size)


@operator("SpaceToDepth")
def _space_to_depth(node: Node, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    size = node.attributes["blocksize"]
    parts = x.reshape(n, c, h // size, size, w // size, size)
    order = (0, 1, 3, 5, 2, 4) if node.get("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return parts.permute(order).reshape(n, c * size**2, h // size, w // size)


@operator("Trilu", known=(1,))
def _trilu(node: Node, x: Value, k: Value = None) -> Tensor:
    return (torch.triu if node.get("upper", 1) else torch.tril)(tensor(x), int(numbers(k)[0]) if k is not None else 0)


@operator("Col2Im", known=(1, 2))
def _col2im(node: Node, x: Tensor, image: Value, block: Value) -> Tensor:
    two = len(numbers(image))
    ones, pads = [1] * two, node.get("pads") or [0] * 2 * two
    if two != 2 or pads[:two] != pads[two:]:
        raise NotKnown("Col2Im of other than pictures, or with unlike pads")
    return functional.fold(
        x, numbers(image), numbers(block), node.get("dilations") or ones, pads[:two], node.get("strides") or ones
    )


@operator("Pad", known=(1, 2, 3))
def _pad(node: Node, x: Tensor, pads: Value = None, value: Value = None, axes: Value = None) -> Tensor:
    x = tensor(x)
    given = numbers(pads) if pads is not None else node.get("pads") or node.attributes["paddings"]
    number = numbers(value)[0] if value is not None and value.size else node.get("value", 0)
    chosen = axes_of(node, axes, x.ndim) if axes is not None else [*range(x.ndim)]
    half, mode = len(given) // 2, node.get("mode", "constant")
    ends = {axis: (given[i], given[i + half]) for i, axis in enumerate(chosen)}
    if mode == "constant":
        flat = [end for axis in reversed(range(x.ndim)) for end in ends.get(axis, (0, 0))]
        if x.dtype == torch.bool:
            return functional.pad(x.to(torch.uint8), flat, value=int(number)).to(torch.bool)
        return functional.pad(x, flat, value=number)
    moved = [axis for axis, (a, b) in ends.items() if a or b]
    simple = x.ndim in (3, 4, 5) and min(moved, default=2) >= 2 and mode != "wrap" and x.is_floating_point()
    if simple and all(end >= 0 for axis in moved for end in ends[axis]):
        flat = [end for axis in reversed(range(2, x.ndim)) for end in ends.get(axis, (0, 0))]
        return functional.pad(x, flat, mode={"reflect": "reflect", "edge": "replicate"}[mode])
    for axis in moved:
        places = np.pad(np.arange(x.shape[axis]), [max(0, end) for end in ends[axis]], mode=mode)
        cut = slice(max(0, -ends[axis][0]), len(places) - max(0, -ends[axis][1]))
        x = torch.index_select(x, axis, torch.tensor(places[cut], device=x.device))
    return x


# --------------------------------------------------------------------------- of numbers that are known


@of_known("Gather")
def _known_gather(node: Node, x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.asarray(np.take(x, indices.astype(np.int64), axis=node.get("axis", 0)))


@of_known("Concat")
def _known_concat(node: Node, *arrays: np.ndarray) -> np.ndarray:
    return np.concatenate(arrays, axis=node.get("axis", 1))


@of_known("Slice")
def _known_slice(node: Node, x: np.ndarray, *given: Value) -> np.ndarray:
    for axis, start, end, step in _ranges(node, x.ndim, given):
        x = x[(slice(None),) * axis + (_index(start, end, step),)]
    return x


@of_known("Squeeze")
def _known_squeeze(node: Node, x: np.ndarray, axes: Value = None) -> np.ndarray:
    return np.squeeze(x, tuple(axes_of(node, axes, x.ndim)) or None)


@of_known("Unsqueeze")
def _known_unsqueeze(node: Node, x: np.ndarray, axes: Value = None) -> np.ndarray:
    count = len(numbers(axes) if axes is not None else node.attributes["axes"])
    return np.expand_dims(x, tuple(axes_of(node, axes, x.ndim + count)))


@of_known("Reshape")
def _known_reshape(node: Node, x: np.ndarray, shape: Value = None) -> np.ndarray:
    return x.reshape([int(size) for size in _target(node, x.shape, shape)])


@of_known("Expand")
def _known_expand(node: Node, x: np.ndarray, shape: Value) -> np.ndarray:
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(size) for size in numbers(shape))))
