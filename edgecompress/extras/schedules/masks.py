"""The mask of a parameter: what it does to the weights before a forward pass, and what is left of it after the step."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

FORWARD, COPIES, GRADIENTS = "forward_only", "double_copies", "gradients"  # its switches, as a state calls them


@dataclass
class Mask:
    """What the elements of a parameter are multiplied by, and when."""

    parameter: nn.Parameter
    values: Tensor | None = None
    forward_only: bool = False  # after a step the weights are what the optimizer made of them
    double_copies: bool = False  # the step is applied to the weights as they were without the mask
    _dense: Tensor | None = None
    _hook: RemovableHandle | None = None
    _quiet: RemovableHandle | None = None

    def apply(self) -> None:
        """Multiplies the weights, for a forward pass."""
        if self.values is not None:
            if self.double_copies and self._dense is None:
                self._dense = self.parameter.detach().clone()
            self.hold()

    def hold(self) -> None:
        """Multiplies the weights, for good."""
        if self.values is not None:
            self.parameter.data.mul_(self.values)

    def revert(self) -> None:
        """The weights as they were before `apply`, where there are two copies."""
        if self._dense is not None:
            self.parameter.data.copy_(self._dense)
            self._dense = None

    def mask_gradients(self) -> None:
        """From now on the gradients are multiplied as well."""
        if self._hook is None:
            self._hook = self.parameter.register_hook(lambda grad: grad if self.values is None else grad * self.values)

    def release_gradients(self) -> None:
        """The gradients are as they are."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def quiet(self) -> None:
        """From now on what is masked for good has no gradient."""
        if self._quiet is None:
            self._quiet = self.parameter.register_hook(self._of_what_stays)

    def _of_what_stays(self, grad: Tensor) -> Tensor:
        if self.values is None or self.forward_only or self.double_copies:
            return grad
        return grad.masked_fill(self.values == 0, 0)

    def loud(self) -> None:
        """The end of `quiet`."""
        if self._quiet is not None:
            self._quiet.remove()
            self._quiet = None

    @property
    def flags(self) -> list[str]:
        """Which of its switches are on."""
        on = {FORWARD: self.forward_only, COPIES: self.double_copies, GRADIENTS: self._hook is not None}
        return [name for name, value in on.items() if value]

    def switch(self, flags: Collection[str]) -> None:
        """Turns its switches on or off."""
        self.forward_only, self.double_copies = FORWARD in flags, COPIES in flags
        if GRADIENTS in flags:
            self.mask_gradients()
        else:
            self.release_gradients()

    def keeps_zeros(self) -> bool:
        """Sets what it masks to zero; whether that is anything."""
        if self.values is None:
            return False
        kept = self.values != 0
        self.parameter.data.mul_(kept)
        return not bool(kept.all())

    def select(self, axis: int, stays: Tensor) -> None:
        """Part of the places on an axis, as the parameter has them now."""
        stays = stays.to(self.parameter.device)
        if self.values is not None:
            self.values = self.values.index_select(axis, stays)
        if self._dense is not None:
            self._dense = self._dense.index_select(axis, stays)

    def narrow(self, values: Tensor) -> None:
        """What `values` masks is masked from now on, besides what was."""
        self.values = values if self.values is None else self.values * values
        self.forward_only = self.double_copies = False
        self.hold()
