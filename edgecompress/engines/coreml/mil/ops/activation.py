"""Activations."""

from __future__ import annotations

import math
from typing import Literal

from edgecompress.engines.coreml.mil.lazy import functional, torch
from edgecompress.engines.coreml.mil.signature import Float, Result


def clamped_relu(x: Float, alpha: float, beta: float) -> Result:
    return torch.clamp(torch.where(x >= 0, x, alpha * x), max=beta)


def elu(x: Float, alpha: float) -> Result:
    return torch.where(x > 0, x, alpha * torch.expm1(x))


def gelu(x: Float, mode: Literal["EXACT", "TANH_APPROXIMATION", "SIGMOID_APPROXIMATION"] = "EXACT") -> Result:
    if mode == "SIGMOID_APPROXIMATION":
        return x * torch.sigmoid(1.702 * x)
    if mode == "TANH_APPROXIMATION":
        return functional.gelu(x, approximate="tanh")
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))  # torch's own of infinity is no number


def leaky_relu(x: Float, alpha: float) -> Result:
    return torch.where(x >= 0, x, alpha * x)


def linear_activation(x: Float, alpha: float, beta: float) -> Result:
    return alpha * x + beta


def prelu(x: Float, alpha: Float) -> Result:
    if x.ndim != 4 and bool((alpha != alpha[0]).any()):
        raise ValueError("Core ML takes a slope for each channel in four axes only")
    return torch.where(x > 0, x, _per_channel(alpha, x) * x)


def relu(x: Float) -> Result:
    return torch.relu(x)


def relu6(x: Float) -> Result:
    return torch.clamp(x, 0, 6)


def scaled_tanh(x: Float, alpha: float, beta: float) -> Result:
    return alpha * torch.tanh(beta * x)


def sigmoid(x: Float) -> Result:
    return torch.sigmoid(x)


def sigmoid_hard(x: Float, alpha: float, beta: float) -> Result:
    return torch.clamp(alpha * x + beta, 0, 1)


def silu(x: Float) -> Result:
    return x * torch.sigmoid(x)


def softmax(x: Float, axis: int = -1) -> Result:
    return torch.softmax(x, axis)


def softplus(x: Float) -> Result:
    return _softplus(x)


def softplus_parametric(x: Float, alpha: Float, beta: Float) -> Result:
    return _per_channel(alpha, x) * _softplus(_per_channel(beta, x) * x)


def softsign(x: Float) -> Result:
    return x / (1 + torch.abs(x))


def thresholded_relu(x: Float, alpha: float) -> Result:
    return torch.where(x < alpha, torch.zeros_like(x), x)


def _softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _per_channel(vector: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """A value per channel, the second axis, so that it is broadcast over `x`."""
    return vector.reshape(1, -1, *[1] * (x.ndim - 2))
