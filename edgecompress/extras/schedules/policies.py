"""The policies of a schedule that act on weights: when one chooses masks or pulls at weights, and what comes after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import arguments, batch_norms, pruners
from edgecompress.extras.schedules.masks import Mask
from edgecompress.extras.schedules.rates import Moment
from edgecompress.extras.schedules.reader import Policy
from edgecompress.extras.schedules.regularizers import Regularizer

if TYPE_CHECKING:
    from torch import nn


class Pruning:
    """A pruning policy: when it chooses masks, and what becomes of them."""

    def __init__(self, policy: Policy, model: nn.Module, masks: Mapping[int, Mask]) -> None:
        assert isinstance(policy.arguments, arguments.PruningPolicy)
        self.policy = policy
        self.arguments = policy.arguments
        self.pruner = pruners.build(policy, model)
        self.masks = {name: masks[id(parameter)] for name, parameter in self.pruner.parameters.items()}
        self.norms = {}
        if self.arguments.fold_batchnorm:
            self.norms = batch_norms.following(batch_norms.traced(model, f"{policy.where}: fold_batchnorm"), model)
        self.begun = False

    def begin_epoch(self, epoch: int) -> None:
        first, self.begun = not self.begun, True
        for mask in self.masks.values() if first else ():
            mask.forward_only = self.arguments.mask_on_forward_only
            mask.double_copies = self.arguments.use_double_copies
            if self.arguments.mask_gradients:
                mask.mask_gradients()
        if not (first and self.arguments.skip_first_minibatch):
            self._choose(epoch)

    def begin_step(self, epoch: int, step: int, steps: int) -> None:
        number, every = epoch * steps + step, self.arguments.mini_batch_pruning_frequency
        again = step > 0 and every > 0 and number % every == 0
        if again or (self.arguments.skip_first_minibatch and number == 1):
            self._choose(epoch)
        for mask in self.masks.values():
            mask.apply()

    def end_epoch(self, epoch: int) -> None:
        if epoch >= self.policy.epochs[-1]:
            self._look_away()
        if epoch not in self.policy.epochs or epoch != self.policy.ending - 1:
            return
        for mask in self.masks.values():
            if self.arguments.keep_mask:
                mask.forward_only = mask.double_copies = False
                mask.hold()
            mask.release_gradients()

    def release(self) -> None:
        """Takes its hooks off the model."""
        self._look_away()
        for mask in self.masks.values():
            mask.release_gradients()

    def _look_away(self) -> None:
        for activations in self.pruner.activations:
            activations.release()

    def _choose(self, epoch: int) -> None:
        policy = self.policy
        now = Moment(epoch, policy.starting, policy.ending, policy.frequency)
        for name, mask in self.masks.items():
            norm = self.norms.get(name)
            weight = mask.parameter if norm is None else batch_norms.folded(mask.parameter, norm)
            try:
                chosen = self.pruner.rule.mask(name, weight, mask.values, now)
            except ValueError as error:
                what = f"{policy.instance.where}: {policy.instance.name} at epoch {epoch}"
                raise InputError(f"{what}: {name}: {error}") from error
            mask.values = mask.values if chosen is None else chosen


class Regularizing:
    """A regularization policy: its loss, and the threshold after each step, if there is one."""

    def __init__(self, policy: Policy, model: nn.Module, masks: Mapping[int, Mask]) -> None:
        assert isinstance(policy.arguments, arguments.RegularizationPolicy)
        self.policy = policy
        self.keeps = policy.arguments.keep_mask
        self.regularizer = Regularizer(policy.instance, model)
        self.masks = {name: masks[id(parameter)] for name, parameter in self.regularizer.parameters.items()}

    def end_step(self, epoch: int, last: bool) -> None:
        """Sets to zero what is at most the strength; after the last step of all it stays so."""
        for name, mask in self.masks.items() if self.regularizer.criterion else ():
            above = self.regularizer.above(name)
            if last and self.keeps and epoch == self.policy.ending - 1:
                mask.narrow(above)
            else:
                mask.parameter.data.mul_(above)
