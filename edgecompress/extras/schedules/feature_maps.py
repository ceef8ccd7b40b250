"""Channels go, and the weights left over are fitted to what the layer computed before.

Least squares over points of the feature maps (He et al. 2017, arXiv:1707.06168, eq. 3), without the layer's bias.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor, nn

POINTS = 10  # of the outputs of each item, as Distiller's examples have it


class FeatureMap:
    """What goes into a layer and what comes out, in the passes in eval mode since the last one in training mode."""

    def __init__(self, model: nn.Module, parameter: str, where: str) -> None:
        """Raises ValueError for a layer that is no Linear or convolution of images without groups."""
        from torch import nn

        self.name, self.where = parameter.rpartition(".")[0], where
        self.layer: Any = model.get_submodule(self.name)
        if not isinstance(self.layer, nn.Linear) and (not isinstance(self.layer, nn.Conv2d) or self.layer.groups > 1):
            raise ValueError(f"'{self.name}' is neither a Linear nor a Conv2d without groups")
        self.products: Tensor | None = None  # of inputs with inputs and outputs [inputs, inputs + outputs]
        self._ended = False
        self._hook = self.layer.register_forward_hook(self._seen)

    def restore(self, products: Tensor | None) -> None:
        """What was seen; None: nothing. Raises InputError for another layer's."""
        outputs = len(self.layer.weight)
        inputs = self.layer.weight.numel() // outputs
        if products is not None and products.shape != (inputs, inputs + outputs):
            raise InputError(f"the state has feature maps that do not fit '{self.name}'; load that model's state")
        self.products = products

    def release(self) -> None:
        """Looks at no pass any more."""
        self._hook.remove()

    def fit(self, stays: Tensor) -> Tensor:
        """The weights of the channels that stay: a weight whose other channels are zero. Raises InputError."""
        import torch

        if self.products is None:
            raise InputError(
                f"{self.where}: no feature maps of '{self.name}' were seen; run the validation, in eval mode, before "
                "the epoch begins"
            )
        shape = self.layer.weight.shape
        inputs = stays.cpu().repeat_interleave(len(self.products) // shape[1]).nonzero().flatten()  # of its kernels
        square, right = self.products[inputs][:, inputs], self.products[inputs, len(self.products) :]
        found = torch.zeros(len(self.products), shape[0], dtype=torch.float64)
        found[inputs] = torch.linalg.pinv(square, hermitian=True) @ right
        return found.T.reshape(shape)

    def _seen(self, layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        import torch

        if layer.training:
            self._ended = True
            return
        if self._ended:
            self.products, self._ended = None, False
        with torch.no_grad():
            read, made = self._points(inputs[0].detach(), output.detach())
            read, made = read.double().cpu(), made.double().cpu()
            new = read.T @ torch.cat([read, made], 1)
        self.products = new if self.products is None else self.products + new

    def _points(self, x: Tensor, output: Tensor) -> tuple[Tensor, Tensor]:
        """What each of some outputs is computed from [points, inputs], and what it is [points, outputs]."""
        import torch
        from torch.nn import functional

        layer = self.layer
        made = output if layer.bias is None else output - layer.bias.reshape([-1] + [1, 1] * (output.dim() == 4))
        if layer.weight.dim() == 2:
            return x.flatten(0, -2), made.flatten(0, -2)
        mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
        x = functional.pad(x, layer._reversed_padding_repeated_twice, mode)
        draw = torch.Generator().manual_seed(0)
        places = [torch.randint(size, (POINTS,), generator=draw).tolist() for size in output.shape[2:]]
        read = []
        for place in zip(*places, strict=True):
            rows, columns = (
                slice(at * step, at * step + (size - 1) * apart + 1, apart)
                for at, step, size, apart in zip(place, layer.stride, layer.kernel_size, layer.dilation, strict=True)
            )
            read.append(x[:, :, rows, columns].flatten(1))
        return torch.cat(read), torch.cat([made[:, :, row, column] for row, column in zip(*places, strict=True)])
