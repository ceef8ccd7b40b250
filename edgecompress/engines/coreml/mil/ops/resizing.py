"""Images to another size: the last two axes."""

from __future__ import annotations

from typing import Literal

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Float, Ints, Result

Sampling = Literal["STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "UNALIGN_CORNERS", "DEFAULT", "OFFSET_CORNERS"]


def upsample_nearest_neighbor(x: Float, scale_factor_height: float = 1.0, scale_factor_width: float = 1.0) -> Result:
    return _nearest(_nearest(x, -2, int(x.shape[-2] * scale_factor_height)), -1, int(x.shape[-1] * scale_factor_width))


def resize_nearest_neighbor(x: Float, target_size_height: int, target_size_width: int) -> Result:
    return _nearest(_nearest(x, -2, target_size_height), -1, target_size_width)


def upsample_bilinear(
    x: Float,
    scale_factor_height: float = 1.0,
    scale_factor_width: float = 1.0,
    align_corners: bool = True,
    half_pixel_centers: bool | None = None,
) -> Result:
    half = not align_corners if half_pixel_centers is None else half_pixel_centers
    if half and align_corners:
        raise ValueError("corners cannot be aligned with half-pixel centres")
    mode = "STRICT_ALIGN_CORNERS" if align_corners else "UNALIGN_CORNERS" if half else "DEFAULT"
    sizes = int(x.shape[-2] * scale_factor_height), int(x.shape[-1] * scale_factor_width)
    return _bilinear(x, sizes, mode)


def resize_bilinear(
    x: Float, target_size_height: int = 1, target_size_width: int = 1, sampling_mode: Sampling = "DEFAULT"
) -> Result:
    return _bilinear(x, (target_size_height, target_size_width), sampling_mode)


def resize(
    x: Float,
    shape: Ints,
    resized_dims: int,
    interpolation_mode: Literal["LINEAR"] = "LINEAR",
    sampling_mode: Sampling = "DEFAULT",
) -> Result:
    """The last `resized_dims` axes to the last sizes of `shape`; 0 keeps a size."""
    for axis in range(-resized_dims, 0):
        x = _interpolated(x, axis, _grid(x.shape[axis], shape[axis] or x.shape[axis], sampling_mode))
    return x


def _nearest(x: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    return x.index_select(axis, torch.arange(size) * x.shape[axis] // size)


def _bilinear(x: torch.Tensor, sizes: tuple[int, int], mode: str) -> torch.Tensor:
    for axis, size in zip((-2, -1), sizes, strict=True):
        x = _interpolated(x, axis, _grid(x.shape[axis], size, mode))
    return x


def _grid(have: int, want: int, mode: str) -> torch.Tensor:
    """Where on an axis of `have` elements each of the `want` new ones lies."""
    steps = torch.arange(want, dtype=torch.float64)
    if mode == "UNALIGN_CORNERS":
        points = (steps + 0.5) * have / want - 0.5
    elif mode == "DEFAULT":
        points = steps * have / want
    elif mode == "OFFSET_CORNERS":
        points = (steps + 0.5) * max(1, have - 1) / want
    elif want == 1:
        points = steps + ((have - 1) / 2 if mode == "ALIGN_CORNERS" else 0)
    else:
        points = steps * (have - 1) / (want - 1)
    return torch.clamp(points, 0, have - 1)


def _interpolated(x: torch.Tensor, axis: int, points: torch.Tensor) -> torch.Tensor:
    below = torch.floor(points).to(torch.int64)
    above = torch.clamp(below + 1, max=x.shape[axis] - 1)
    weight = (points - below).to(x.dtype).reshape(-1, *[1] * (-1 - axis))
    return x.index_select(axis, below) * (1 - weight) + x.index_select(axis, above) * weight
