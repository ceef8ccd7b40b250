"""A layer's weight as the weights of the convolutions that replace it, and these as plain layers of torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgecompress.formats import torch_edits
from edgecompress.techniques._low_rank.rank import Method, Piece, Ranks, Shape, halves

if TYPE_CHECKING:
    import numpy as np
    from torch.nn import Conv2d, Linear, Sequential

Weights = list["np.ndarray"]  # arrays [outputs, inputs or 1, height, width], one for each piece; cores of ttm
ROUNDS = 100  # of alternating least squares, at most
# Of a kernel whose numbers have mean square 1: keeps components from growing against each other (Phan et al. 2020,
# arXiv:2008.05441), on a ResNet-20 at a lower error than without.
RIDGE = 0.1


class Diverged(ValueError):
    """Alternating least squares found no finite factors."""


def matrix(weight: np.ndarray, method: Method) -> list[np.ndarray]:
    """The unfoldings of a kernel [outputs, inputs, height, width] on which a method's ranks depend, in their order."""
    outputs, inputs, height, _ = weight.shape
    if method == "svd":
        return [weight.reshape(outputs, -1)]
    if method == "ttm":
        whole = weight.reshape(*halves(outputs), *halves(inputs)).transpose(0, 2, 1, 3)
        return [whole.reshape(whole.shape[0] * whole.shape[1], -1)]
    outer = [weight.swapaxes(0, 1).reshape(inputs, -1), weight.reshape(outputs, -1)]
    if method != "tt":
        return outer
    middle = weight.transpose(1, 2, 3, 0).reshape(inputs * height, -1)
    return [outer[0], middle, outer[1]]


def spectra(weight: np.ndarray, method: Method) -> list[list[float]]:
    """The singular values of those unfoldings."""
    import numpy as np

    return [np.linalg.svd(each, compute_uv=False).tolist() for each in matrix(weight, method)]


def factorized(weight: np.ndarray, method: Method, ranks: Ranks, seed: int = 0) -> Weights:
    """The weights of `rank.chain`, nearest to the kernel [outputs, inputs, height, width] (float64, numpy).

    Raises Diverged: cp found none.
    """
    import tensorly

    with tensorly.backend_context("numpy"):
        if method == "cp":
            return _cp(weight, ranks[0], seed)
        return {"svd": _svd, "tucker": _tucker, "tt": _tt, "ttm": _ttm}[method](weight, ranks)


def _svd(weight: np.ndarray, ranks: Ranks) -> Weights:
    import numpy as np

    (rank,) = ranks
    outputs, *rest = weight.shape
    u, s, v = np.linalg.svd(weight.reshape(outputs, -1), full_matrices=False)
    root = np.sqrt(s[:rank])
    return [(root[:, None] * v[:rank]).reshape(rank, *rest), (u[:, :rank] * root)[:, :, None, None]]


def _ttm(weight: np.ndarray, ranks: Ranks) -> Weights:
    """The cores [b, rank, a] and [o, rank, i] of formats.torch_tensor_train."""
    import numpy as np

    (rank,), (outputs, inputs, *_) = ranks, weight.shape
    u, s, v = np.linalg.svd(matrix(weight, "ttm")[0], full_matrices=False)
    root = np.sqrt(s[:rank])
    (b, o), (a, i) = halves(outputs), halves(inputs)
    first = (u[:, :rank] * root).reshape(b, a, rank).transpose(0, 2, 1)
    return [first, (root[:, None] * v[:rank]).reshape(rank, o, i).transpose(1, 0, 2)]


def _tucker(weight: np.ndarray, ranks: Ranks) -> Weights:
    from tensorly.decomposition import partial_tucker

    inputs, outputs = ranks
    (core, (after, before)), _ = partial_tucker(weight, rank=[outputs, inputs], modes=[0, 1])
    return [before.T[:, :, None, None], core, after[:, :, None, None]]


def _tt(weight: np.ndarray, ranks: Ranks) -> Weights:
    from tensorly.decomposition import tensor_train

    first, height, width, last = tensor_train(weight.transpose(1, 2, 3, 0), rank=[1, *ranks, 1]).factors
    return [
        first[0].T[:, :, None, None],
        height.transpose(2, 0, 1)[:, :, :, None],
        width.transpose(2, 0, 1)[:, :, None, :],
        last[:, :, 0].T[:, :, None, None],
    ]


def _cp(weight: np.ndarray, rank: int, seed: int) -> Weights:
    import numpy as np
    from tensorly.decomposition import parafac

    scale = float(np.sqrt(np.mean(weight**2))) or 1.0
    how = {"n_iter_max": ROUNDS, "init": "random", "random_state": seed, "tol": 1e-6, "l2_reg": RIDGE}
    try:
        _, components = parafac(weight / scale, rank, **how)
    except np.linalg.LinAlgError as error:
        raise Diverged(str(error)) from error
    if not all(np.isfinite(factor).all() for factor in components):
        raise Diverged("factors are not finite")
    # the factors of `scale` times the tensor, each component with the same norm in all of them
    norms = [np.maximum(np.linalg.norm(factor, axis=0), 1e-30) for factor in components]
    each = (scale * norms[0] * norms[1] * norms[2] * norms[3]) ** 0.25
    outputs, inputs, height, width = [factor / norm * each for factor, norm in zip(components, norms, strict=True)]
    return [
        inputs.T[:, :, None, None],
        height.T[:, None, :, None],
        width.T[:, None, None, :],
        outputs[:, :, None, None],
    ]


def error(weight: np.ndarray, weights: Weights) -> float:
    """The norm of the difference between a kernel and what its pieces compute, over the norm of the kernel."""
    import numpy as np

    norm = float(np.linalg.norm(weight))
    return float(np.linalg.norm(composed(weights) - weight)) / max(norm, 1e-30)


def composed(weights: Weights) -> np.ndarray:
    """The kernel [outputs, inputs, height, width] of convolutions one after another; no axis is in two of them."""
    import numpy as np

    whole, *rest = weights
    if whole.ndim == 3:  # the cores of a tensor train
        train: np.ndarray = np.einsum("bka,oki->boai", whole, rest[0])
        return train.reshape(train.shape[0] * train.shape[1], -1, 1, 1)
    for weight in rest:
        if weight.shape[1] == 1 and len(whole) > 1:  # depthwise
            joined = np.einsum("oab,oicd->oiacbd", weight[:, 0], whole)
        else:
            joined = np.einsum("omab,micd->oiacbd", weight, whole, optimize=True)
        outputs, inputs, a, c, b, d = joined.shape
        whole = joined.reshape(outputs, inputs, a * c, b * d)
    return whole


# --------------------------------------------------------------------------- as layers


def layers(
    layer: Linear | Conv2d, shape: Shape, pieces: Sequence[Piece]
) -> list[tuple[str, torch_edits.LinearOptions | torch_edits.ConvOptions | torch_edits.TensorTrainOptions]]:
    """What stands in for a Linear or Conv2d in an edit: (class, options) of each piece."""
    from torch import nn

    if pieces[0].rows > 1:
        ends, rank = [list(halves(n)) for n in (shape.inputs, shape.outputs)], pieces[0].outputs // pieces[-1].rows
        train = torch_edits.TensorTrainOptions(inputs=ends[0], outputs=ends[1], rank=rank, bias=shape.bias)
        return [("TensorTrainLinear", train)]
    if isinstance(layer, nn.Linear):
        named = [torch_edits.LinearOptions(in_features=p.inputs, out_features=p.outputs, bias=p.bias) for p in pieces]
        return [("Linear", options) for options in named]
    return [("Conv2d", _options(layer, shape, piece)) for piece in pieces]


def _options(layer: Conv2d, shape: Shape, piece: Piece) -> torch_edits.ConvOptions:
    """Stride, padding and dilation belong to the piece that spans their axis; the others have none."""
    words = isinstance(layer.padding, str)
    padding = layer.padding if words else _along(piece, layer.padding, 0)
    spans = any(piece.axes)
    return {
        "in_channels": piece.inputs,
        "out_channels": piece.outputs,
        "kernel_size": list(piece.kernel(shape)),
        "stride": _along(piece, layer.stride, 1),
        "padding": padding if spans else 0,
        "dilation": _along(piece, layer.dilation, 1),
        "groups": piece.inputs if piece.depthwise else 1,
        "bias": piece.bias,
        "padding_mode": layer.padding_mode if spans else "zeros",
    }


def _along(piece: Piece, values: Sequence[int], other: int) -> list[int]:
    return [value if axis else other for value, axis in zip(values, piece.axes, strict=True)]


def fill(chain: Sequential, layer: Linear | Conv2d, weights: Weights) -> None:
    """Puts the weights into the layers that replace `layer`, and its bias into the last one."""
    import torch

    with torch.no_grad():
        for each, weight in zip(chain, weights, strict=True):
            each.weight.copy_(torch.from_numpy(weight.copy()).reshape(each.weight.shape))
        chain.to(layer.weight.dtype)
        if layer.bias is not None:
            (chain[-1] if chain[-1].bias is not None else chain).bias.copy_(layer.bias)


def kernel(layer: Linear | Conv2d) -> np.ndarray:
    """The weight of a Linear or Conv2d as an array [outputs, inputs, height, width] of float64."""
    weight: np.ndarray = layer.weight.detach().double().numpy()
    return weight if weight.ndim == 4 else weight[:, :, None, None]
