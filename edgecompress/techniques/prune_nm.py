"""Keeps N of each M weights (2 of 4 for NVIDIA's sparse tensor cores) and sets the others to zero.

The M are consecutive along the axis that is summed over: the inputs of a Linear, the input channels of a convolution
at each place of its kernel, as its matrix product has them with the channels last (Mishra et al. 2021,
arXiv:2104.08378). Those of a recurrent layer are its inputs and its hidden state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.techniques import _sparsity

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("torch", "safetensors", "zstandard>=0.22")
EXTRA = "storage"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
ZEROS = True
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How many of how many stay, and where."""

    n: int = 2  # kept
    m: int = 4  # of so many
    layers: tuple[str, ...] = ()  # patterns of layers; none: all but embeddings

    def __post_init__(self) -> None:
        if not 0 < self.n < self.m:
            raise ValueError("n must be at least 1 and below m: n of each m weights are kept")


def apply(request: Request) -> Artifact:
    """The net with the m - n smallest of each m weights zero, of equals the first; they stay it in training.

    input: "model". facts: {"sparsity": see `PrunedWeights`}. Layers whose inputs are no multiple of m are left as they
    are; raises InputError where that is all of them, and for layers that there are not.
    """
    options: Options = request.options
    net = torch_module.rebuild(request.model)
    picked = _sparsity.chosen(_sparsity.weights(net), options.layers)
    left = {weight.layer: why for weight in picked if (why := _unfit(weight, options.m))}
    fit = [weight for weight in picked if weight.layer not in left]
    if not fit:
        reasons = "; ".join(f"{layer}: {why}" for layer, why in left.items())
        raise InputError(f"prune_nm: no layer can keep {options.n} of each {options.m} weights: {reasons}")
    gone = {weight.parameter: pattern(weight.magnitudes, options.n, options.m, _summed(weight)) for weight in fit}
    return _sparsity.zeroed(request, net, gone, left, f"{options.n}:{options.m}")


def pattern(magnitudes: np.ndarray, n: int, m: int, axis: int) -> np.ndarray:
    """Which elements go: of each m consecutive ones along the axis all but the n largest, of equals the first."""
    import numpy as np

    groups = np.moveaxis(magnitudes, axis, -1)
    order = np.argsort(groups.reshape(-1, m), axis=-1, kind="stable")
    mask = np.zeros(order.shape, bool)
    np.put_along_axis(mask, order[:, : m - n], True, axis=-1)
    return np.moveaxis(mask.reshape(groups.shape), -1, axis)


def _summed(weight: _sparsity.Weight) -> int:
    """The axis over which a product sums: [out, in, *kernel], of a transposed convolution [in, out, *kernel]."""
    return 0 if getattr(weight.module, "transposed", False) else 1


def _unfit(weight: _sparsity.Weight, m: int) -> str:
    """Why a weight has no groups of m, or ""."""
    if weight.aside == _sparsity.LOOKED_UP:
        return weight.aside
    axis = _summed(weight)
    inputs = weight.tensor.shape[axis] // (weight.module.groups if axis == 0 else 1)
    return f"it sums over {inputs} inputs, not a multiple of {m}" if inputs % m else ""
