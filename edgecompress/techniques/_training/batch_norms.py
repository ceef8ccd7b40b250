"""Batch norms for the training of an imported net: exporters have put those of its author into the convolutions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from edgecompress.formats import torch_module
from edgecompress.techniques._training.loop import Training

if TYPE_CHECKING:
    import torch

FEWEST = 8  # items of a batch; with fewer a batch norm loses much (Wu & He 2018, "Group Normalization", figure 1)


@contextlib.contextmanager
def apart(net: torch.nn.Module, training: Training) -> Iterator[None]:
    """An imported net without any has one behind each convolution, and in the end it is inside the convolution again.

    Each begins with the statistics of a batch as its own mean and spread: the net answers as before.
    """
    from torch import nn
    from torch.nn.utils import fusion

    convolutions = _convolutions(net, training.size)
    norms = {name: _norm(convolutions[name], *seen) for name, seen in _seen(net, convolutions, training).items()}
    for name, norm in norms.items():
        net.set_submodule(name, nn.Sequential(convolutions[name], norm))
    try:
        yield
    finally:
        for name, norm in norms.items():
            layer = convolutions[name]
            # the convolution with what the norm does to its answers
            weight, bias = fusion.fuse_conv_bn_weights(
                layer.weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            layer.weight.data.copy_(weight)
            layer.bias.data.copy_(bias)
            net.set_submodule(name, convolutions[name])


def _convolutions(net: torch.nn.Module, size: int) -> dict[str, torch.nn.Module]:
    """Those of an imported net that has no batch norm, with the numbers that one behind them would go into.

    None where batches are of few items: their means and spreads are not those of the data.
    """
    from torch import nn

    known = (
        getattr(net, "folded", False)
        and size >= FEWEST
        and not any(isinstance(m, nn.modules.batchnorm._BatchNorm) for m in net.modules())
    )
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    return {n: m for n, m in net.named_modules() if known and type(m) in kinds and m.bias is not None}


def _seen(
    net: torch.nn.Module, convolutions: Mapping[str, torch.nn.Module], training: Training
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Each convolution that a batch goes through, with the mean and the variance of its channels."""
    import numpy as np
    import torch

    found: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
    if not convolutions:
        return found

    def noted(name: str) -> Callable[..., None]:
        def hook(layer: torch.nn.Module, _: object, y: torch.Tensor) -> None:
            axes = [axis for axis in range(y.ndim) if axis != 1]
            if y[:, 0].numel() >= FEWEST:  # behind a pool a channel of an item is one number
                found[name] = y.mean(axes), y.var(axes, correction=0)

        return hook

    handles = [layer.register_forward_hook(noted(name)) for name, layer in convolutions.items()]
    inputs, _ = training.items.take(np.arange(training.size))
    with torch.no_grad():
        torch_module.call(net.eval(), inputs)
    for handle in handles:
        handle.remove()
    return found


def _norm(layer: torch.nn.Module, mean: torch.Tensor, variance: torch.Tensor) -> torch.nn.Module:
    """A batch norm that changes nothing yet."""
    from torch import nn

    kind = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d}[type(layer)]
    norm: torch.nn.Module = kind(len(mean)).to(mean.device)
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    norm.bias.data.copy_(mean)
    norm.weight.data.copy_((variance + norm.eps).sqrt())
    return norm
