"""Operators that resize, and that read between the places of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch.nn import functional

from edgecompress.extras.onnx_nets.values import Value, axes_of, numbers, operator

if TYPE_CHECKING:
    from edgecompress.extras.onnx_nets.graph import Node

Tensor: TypeAlias = torch.Tensor


@operator("Upsample", known=(1,))
def _upsample(node: Node, x: Tensor, scales: Value = None) -> Tensor:
    factors = numbers(scales) if scales is not None else node.attributes["scales"]
    sizes = [math.floor(n * f) for n, f in zip(x.shape, factors, strict=True)]
    for axis in range(x.ndim):
        x = _along(x, axis, sizes[axis], factors[axis], node.get("mode", "nearest"), ("asymmetric", "floor"), {})
    return x


@operator("Resize", known=(1, 2, 3))
def _resize(node: Node, x: Tensor, *given: Value) -> Tensor:
    roi, scales, sizes = (*given, None, None, None)[:3] if node.opset > 10 else (None, *given, None)[:3]
    axes = axes_of(node, None, x.ndim) or [*range(x.ndim)]
    mode = node.get("mode", "nearest")
    how = node.get("coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric")
    rounds = node.get("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor")
    wanted, factors = _wanted(node, x, axes, scales, sizes)
    borders = numbers(roi)
    if fast := _interpolated(node, x, (axes, wanted, factors), (mode, how, rounds)):
        return fast[0]
    for place, axis in enumerate(axes):
        if wanted[place] == x.shape[axis] and factors[place] == 1 and how != "tf_crop_and_resize":
            continue
        more = {"a": node.get("cubic_coeff_a", -0.75), "exclude": node.get("exclude_outside", 0),
                "antialias": node.get("antialias", 0), "value": node.get("extrapolation_value", 0.0)}  # fmt: skip
        if how == "tf_crop_and_resize":
            more["roi"] = (borders[place], borders[place + len(axes)])
        x = _along(x, axis, wanted[place], factors[place], mode, (how, rounds), more)
    return x


def _wanted(node: Node, x: Tensor, axes: list[int], scales: Value, sizes: Value) -> tuple[list[int], list[float]]:
    """The size and the scale of each axis."""
    own = [x.shape[axis] for axis in axes]
    if sizes is None or not sizes.size:
        factors = [float(f) for f in numbers(scales)]
        return [math.floor(n * f) for n, f in zip(own, factors, strict=True)], factors
    wanted = [int(n) for n in numbers(sizes)]
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        every = [a / b for a, b in zip(wanted, own, strict=True)]
        factor = min(every) if policy == "not_larger" else max(every)
        return [math.floor(n * factor + 0.5) for n in own], [factor] * len(own)
    return wanted, [a / b for a, b in zip(wanted, own, strict=True)]


def _interpolated(
    node: Node, x: Tensor, asked: tuple[list[int], list[int], list[float]], way: tuple[str, str, str]
) -> tuple[Tensor] | None:
    """By torch's own operator, which devices have, where it computes the same."""
    (axes, wanted, factors), (mode, how, rounds) = asked, way
    inner = dict(zip(axes, wanted, strict=True))
    if any(inner.get(axis, x.shape[axis]) != x.shape[axis] for axis in (0, 1)) or x.ndim != 4:
        return None
    if any(f * x.shape[a] != n for a, n, f in zip(axes, wanted, factors, strict=True)) or not x.is_floating_point():
        return None
    if node.get("antialias") or node.get("exclude_outside"):
        return None
    size = [inner.get(axis, x.shape[axis]) for axis in (2, 3)]
    if mode == "nearest" and (how, rounds) == ("asymmetric", "floor"):
        return (functional.interpolate(x, size, mode="nearest"),)
    half = how == "half_pixel" or (how == "pytorch_half_pixel" and min(size) > 1)
    if mode == "linear" and (half or how == "align_corners"):
        return (functional.interpolate(x, size, mode="bilinear", align_corners=how == "align_corners"),)
    if mode == "cubic" and half and node.get("cubic_coeff_a", -0.75) == -0.75:
        return (functional.interpolate(x, size, mode="bicubic", align_corners=False),)
    return None


def _along(
    x: Tensor, axis: int, size: int, factor: float, mode: str, way: tuple[str, str], more: dict[str, Any]
) -> Tensor:
    """One axis by a matrix of what each number of the output takes of the input's, or by picking."""
    had = x.shape[axis]
    places = _coordinates(had, size, factor, way[0], more.get("roi"))
    outside = (places < 0) | (places > had - 1) if way[0] == "tf_crop_and_resize" else np.zeros(size, bool)
    if mode == "nearest":
        nearest: dict[str, Callable[[np.ndarray], np.ndarray]] = {
            "floor": np.floor,
            "ceil": np.ceil,
            "round_prefer_floor": lambda v: np.ceil(v - 0.5),
            "round_prefer_ceil": lambda v: np.floor(v + 0.5),
        }
        picked = torch.tensor(np.clip(nearest[way[1]](places), 0, had - 1).astype(np.int64), device=x.device)
        y = torch.index_select(x, axis, picked)
    else:
        matrix = torch.tensor(_weights(places, had, factor, mode, more), dtype=x.dtype, device=x.device)
        y = torch.movedim(torch.matmul(torch.movedim(x, axis, -1), matrix.T), -1, axis)
    if outside.any():
        shape = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
        y = torch.where(torch.tensor(outside, device=x.device).reshape(shape), more["value"], y)
    return y


def _coordinates(had: int, size: int, factor: float, how: str, roi: tuple[float, float] | None) -> np.ndarray:
    """Where in the input each number of the output lies, as the standard's Resize defines it."""
    i, whole = np.arange(size, dtype=np.float64), factor * had
    if how == "align_corners":
        return i * (had - 1) / (whole - 1) if whole != 1 else np.zeros(size)
    if how == "asymmetric":
        return i / factor
    if how == "tf_crop_and_resize":
        assert roi is not None
        begin, end = roi
        span = (end - begin) * (had - 1)
        return begin * (had - 1) + (i * span / (whole - 1) if whole != 1 else np.full(size, span / 2))
    if how == "pytorch_half_pixel" and whole == 1:
        return np.full(size, -0.5)
    if how == "half_pixel_symmetric":
        adjusted = size / whole
        return had / 2 * (1 - adjusted) + (i + 0.5) / factor - 0.5
    return (i + 0.5) / factor - 0.5


def _weights(places: np.ndarray, had: int, factor: float, mode: str, more: dict[str, Any]) -> np.ndarray:
    """[output, input]: linear or cubic weights, wider where a smaller picture is smoothed; borders are repeated."""
    a, narrow = more.get("a", -0.75), min(1.0, factor) if more.get("antialias") else 1.0
    reach = math.ceil((1 if mode == "linear" else 2) / narrow)
    matrix = np.zeros((len(places), had))
    for row, place in enumerate(places):
        first = math.floor(place) - reach + 1
        taps = np.arange(first, first + 2 * reach)
        far = np.abs((taps - place) * narrow)
        if mode == "linear":
            w = np.maximum(0, 1 - far)
        else:
            near = ((a + 2) * far - (a + 3)) * far * far + 1
            wide = ((a * far - 5 * a) * far + 8 * a) * far - 4 * a
            w = np.where(far <= 1, near, np.where(far < 2, wide, 0.0))
        if more.get("exclude"):
            w = np.where((taps >= 0) & (taps < had), w, 0.0)
        w = w / w.sum()
        np.add.at(matrix[row], np.clip(taps, 0, had - 1), w)
    return matrix


@operator("GridSample")
def _grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node.get("mode", "linear"), node.get("mode", "linear"))
    return functional.grid_sample(x, grid, mode, node.get("padding_mode", "zeros"), bool(node.get("align_corners", 0)))
