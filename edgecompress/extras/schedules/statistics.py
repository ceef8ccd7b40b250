"""What a layer's activations are like in validation: the share of zeros and the mean of each channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from torch import Tensor, nn

LAYER, ACTIVATION = "conv", "relu"  # how a net calls a convolution, and what its output goes through


class Activations:
    """Of the passes in eval mode since the last one in training mode; [items, channels, ...] -> [channels]."""

    def __init__(self, model: nn.Module, parameter: str, where: str, state: dict[str, list[float]]) -> None:
        """`parameter`: conv1.weight, whose activations are the outputs of relu1. Raises InputError.

        `state` holds what was seen, by the layer's name: elements in a channel, and of each channel how many are not
        zero, and their sum.
        """
        layer = parameter.rpartition(".")[0]
        self.name = layer.replace(LAYER, ACTIVATION)
        self.where = where
        self.state = state
        self._ended = False
        modules = dict(model.named_modules())
        if self.name == layer or self.name not in modules:
            near = did_you_mean(self.name, modules)
            hint = near if near.startswith(",") else ""
            raise InputError(
                f"{where}: the activations of '{layer}' are the outputs of '{self.name}', which the model lacks{hint}"
            )
        self._hook = modules[self.name].register_forward_hook(self._seen)

    def release(self) -> None:
        """Looks at no pass any more: what exports the model would run the hook."""
        self._hook.remove()

    def _seen(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        if module.training:
            self._ended = True
            return
        flat = output.detach().double().transpose(0, 1).flatten(1)
        new = [flat.shape[1], *(flat != 0).sum(1).tolist(), *flat.sum(1).tolist()]
        old = [0.0] * len(new) if self._ended else self.state.get(self.name, [0.0] * len(new))
        self.state[self.name] = [a + b for a, b in zip(old, new, strict=True)]
        self._ended = False

    def _of_each(self, part: int) -> list[float]:
        """One of the two numbers of each channel, over the elements."""
        if self.name not in self.state:
            raise InputError(
                f"{self.where}: no activations of '{self.name}' were seen; run the validation, in eval mode, "
                "before the epoch begins"
            )
        count, *numbers = self.state[self.name]
        channels = len(numbers) // 2
        return [number / count for number in numbers[part * channels : (part + 1) * channels]]

    def zeros(self) -> list[float]:
        """The average percentage of zeros, APoZ (Hu et al. 2016, arXiv:1607.03250, eq. 1), as a share."""
        return [1 - share for share in self._of_each(0)]

    def means(self) -> list[float]:
        """The mean activation."""
        return self._of_each(1)
