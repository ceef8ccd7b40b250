"""Normalisations."""

from __future__ import annotations

from edgecompress.engines.coreml.mil.lazy import functional, torch
from edgecompress.engines.coreml.mil.signature import Float, Ints, Result


def batch_norm(
    x: Float,
    mean: Float,
    variance: Float,
    gamma: Float | None = None,
    beta: Float | None = None,
    epsilon: float = 1e-5,
) -> Result:
    return functional.batch_norm(x, mean, variance, gamma, beta, eps=epsilon)


def instance_norm(x: Float, gamma: Float | None = None, beta: Float | None = None, epsilon: float = 1e-5) -> Result:
    scale = None if gamma is None else gamma.reshape(-1, *[1] * (x.ndim - 2))
    offset = None if beta is None else beta.reshape(-1, *[1] * (x.ndim - 2))
    return _normalised(x, tuple(range(2, x.ndim)), scale, offset, epsilon)


def layer_norm(
    x: Float,
    axes: Ints | None = None,
    gamma: Float | None = None,
    beta: Float | None = None,
    epsilon: float = 1e-5,
) -> Result:
    over = tuple(range(x.ndim)) if axes is None else tuple(axis % x.ndim for axis in axes)
    shape = [size if axis in over else 1 for axis, size in enumerate(x.shape)]
    scale = None if gamma is None else gamma.reshape(shape)
    offset = None if beta is None else beta.reshape(shape)
    return _normalised(x, over, scale, offset, epsilon)


def l2_norm(x: Float, epsilon: float = 1e-6) -> Result:
    """Over the last three axes."""
    return x / torch.sqrt((x * x).sum(dim=(-3, -2, -1), keepdim=True) + epsilon)


def local_response_norm(x: Float, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Result:
    if x.ndim != 4 or size % 2 == 0:
        raise ValueError("Apple's numbers of other than four axes are not its formula's, and no even size has any")
    return functional.local_response_norm(x, size, alpha, beta, k)


def _normalised(
    x: torch.Tensor, axes: Ints, scale: torch.Tensor | None, offset: torch.Tensor | None, epsilon: float
) -> torch.Tensor:
    centred = x - x.mean(dim=axes, keepdim=True)
    unit = centred / torch.sqrt((centred * centred).mean(dim=axes, keepdim=True) + epsilon)
    scaled = unit if scale is None else unit * scale
    return scaled if offset is None else scaled + offset
