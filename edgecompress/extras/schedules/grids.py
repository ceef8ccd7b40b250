"""The grids that quantizers put tensors on; every function is differentiable, the rounding straight through."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.extras.schedules.quantizer_arguments import Clip, Mode, Modes

if TYPE_CHECKING:
    from torch import Tensor

FLOAT = 32  # as many bits, and none given, are floating point
Weights = Callable[["Tensor"], "Tensor"]
# alpha of 0, 1, ... 9 bits, in units of the spread (Banner et al. 2019, arXiv:1810.05723); half a range has a bit more
ACIQ: Mapping[Clip, tuple[float, ...]] = {
    "LAPLACE": (1.05, 1.86, 2.83, 3.89, 5.03, 6.2, 7.41, 8.64, 9.89, 11.16),
    "GAUSS": (0.0, 1.24, 1.71, 2.15, 2.55, 2.93, 3.28, 3.61, 3.92, 4.2),
}


@dataclass(frozen=True)
class Statistics:
    """Of a tensor: `avg_min`, `avg_max` are means over the items of a batch, `b` is the mean distance from the mean."""

    min: float
    max: float
    avg_min: float
    avg_max: float
    mean: float
    std: float
    b: float | None = None


def straight(x: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the gradient of `x`."""
    return rounded.detach() + (x - x.detach())


def mode_of(given: Mode | Modes, kind: str) -> Mode:
    """The mode of "activations" or "weights"."""
    return (getattr(given, kind) or "SYMMETRIC") if isinstance(given, Modes) else given


# --------------------------------------------------------------------------- linear grids


def fitted(bits: int, mode: Mode, least: Tensor, most: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Step, lowest and highest multiple of the grid over a range; of tensors of ranges, of each.

    Krishnamoorthi 2018, arXiv:1806.08342, eq. 2 to 9. Zero is on the grid; a range that is a point has a step of 1.
    """
    import torch

    if mode in ("SYMMETRIC", "SYMMETRIC_RESTRICTED"):
        top = 2 ** (bits - 1) - 1
        parts = (2**bits - 1) / 2 if mode == "SYMMETRIC" else top
        step = torch.maximum(least.abs(), most.abs()) / parts
        high = torch.full_like(step, top)
        low = -high - int(mode == "SYMMETRIC")
    else:
        least = least.clamp(max=0)
        step = (most.clamp(min=0) - least) / (2**bits - 1)
        low = torch.round(least / torch.where(step == 0, 1, step))
        high = low + (2**bits - 1)
    return torch.where(step == 0, 1, step), low, high


def ends(
    seen: Statistics, bits: int, mode: Mode, clip: Clip, stds: float | None = None, half: bool = False
) -> tuple[float, float]:
    """The range that a clip mode leaves of what was seen. Raises ValueError for what the mode lacks."""
    if clip == "AVG":
        return seen.avg_min, seen.avg_max
    if clip == "N_STD":
        if stds is None or stds <= 0:
            raise ValueError("clip_acts N_STD needs clip_n_stds, above 0")
        return max(seen.min, seen.mean - stds * seen.std), min(seen.max, seen.mean + stds * seen.std)
    if clip not in ACIQ:
        return seen.min, seen.max
    if bits > 8:
        raise ValueError(f"clip_acts {clip} is of at most 8 bits, not {bits}")
    spread = seen.std if clip == "GAUSS" else seen.b
    if spread is None:
        raise ValueError("clip_acts LAPLACE needs the statistic 'b'; give batches instead")
    symmetric = mode in ("SYMMETRIC", "SYMMETRIC_RESTRICTED")
    alpha = spread * ACIQ[clip][bits + (half and not symmetric)]
    if symmetric:
        return -abs(seen.mean) - alpha, abs(seen.mean) + alpha
    least = max(seen.avg_min, seen.mean - alpha)
    return least, least + (alpha if half else 2 * alpha)


def linear(weight: Tensor, bits: int, mode: Mode, per_channel: bool) -> Tensor:
    """A weight on the grid of its range; with `per_channel` on one of each row of its first axis."""
    import torch

    from edgecompress.formats.torch_levels import levels

    with torch.no_grad():
        flat = weight.flatten(1) if per_channel else weight.reshape(1, -1)
        least, most = torch.aminmax(flat, dim=1)
        shape = (-1, *[1] * (weight.dim() - 1)) if per_channel else ()
        grid = [part.reshape(shape) for part in fitted(bits, mode, least, most)]
        rounded = levels(weight, *grid)
    return straight(weight, rounded)


def approximated(scale: float, bits: int) -> float:
    """The scale as an integer of so many bits over a power of two, as hardware multiplies and shifts."""
    shift = math.floor(math.log2((2**bits - 1) / scale))
    return math.floor(scale * 2.0**shift) / 2.0**shift


# --------------------------------------------------------------------------- low bits


def unit(x: Tensor, bits: int) -> Tensor:
    """From 0 to 1, on 2**bits levels (Zhou et al. 2016, arXiv:1606.06160, eq. 5)."""
    import torch

    parts = 2**bits - 1
    return straight(x, torch.round(x * parts) / parts)


def dorefa(weight: Tensor, bits: int) -> Tensor:
    """On 2**bits levels from -1 to 1 (arXiv:1606.06160, eq. 9); of one bit, its sign times its mean magnitude."""
    import torch

    if bits == 1:
        return signs(weight)
    bounded = torch.tanh(weight)
    largest = bounded.abs().max().clamp(min=torch.finfo(weight.dtype).tiny)
    return 2 * unit(bounded / (2 * largest) + 0.5, bits) - 1


def signs(weight: Tensor) -> Tensor:
    """The sign of each element, + of zero, times the mean magnitude (arXiv:1606.06160, eq. 8)."""
    import torch

    scale = weight.abs().mean()
    return straight(weight, torch.where(weight >= 0, scale, -scale))


def wrpn(weight: Tensor, bits: int) -> Tensor:
    """Clipped to [-1, 1], on 2**bits - 1 levels (Mishra et al. 2017, arXiv:1709.01134, section 4)."""
    import torch

    if bits == 1:
        return signs(weight)
    parts = 2 ** (bits - 1) - 1
    clipped = weight.clamp(-1, 1)
    return straight(clipped, torch.round(clipped * parts) / parts)
