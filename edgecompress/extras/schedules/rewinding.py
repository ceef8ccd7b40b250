"""Rewinding, which Distiller has not: weights and learning rates as they were when an epoch began.

With a pruner at the same epochs it finds lottery tickets (Frankle et al. 2019, arXiv:1903.01611); of the learning rates
alone it is that of Renda et al. 2020, arXiv:2003.02389.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.extras.schedules import arguments
from edgecompress.extras.schedules.learning_rates import LearningRate
from edgecompress.extras.schedules.reader import Policy

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


class Rates(TypedDict):
    """The learning rates of an optimizer's groups, and the schedulers that set them."""

    groups: list[float]
    schedulers: dict[str, dict[str, Json]]


class State(TypedDict):
    """Of a rewinder; `back`: epochs that the learning rates are behind."""

    back: int
    rates: Rates | None


class Rewinder:
    """The policies of one instance, and what it goes back to."""

    def __init__(
        self, policies: Sequence[Policy], model: nn.Module, optimizer: Optimizer, rates: Mapping[str, LearningRate]
    ) -> None:
        """Raises InputError for policies of several instances."""
        self.policies, self.instance = policies, policies[0].instance
        self.where = f"{self.instance.where}: {self.instance.name}"
        if any(policy.instance is not self.instance for policy in policies):
            raise InputError(f"{self.where}: a schedule has at most one Rewinder; remove another")
        assert isinstance(self.instance.arguments, arguments.Rewinding)
        self.given = self.instance.arguments
        self.model, self.optimizer, self.schedulers = model, optimizer, rates
        self.weights, self.moves_rates = self.given.what != "lr", self.given.what != "weights"
        self.back = 0
        self.tensors: dict[str, Tensor] = {}  # all of the model
        self.rates: Rates | None = None

    def begin_epoch(self, epoch: int) -> None:
        """Keeps what is gone back to."""
        if epoch != self.given.epoch:
            return
        if self.weights:
            self.tensors = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        groups = [float(group["lr"]) for group in self.optimizer.param_groups]
        self.rates = {"groups": groups, "schedulers": {name: rate.state() for name, rate in self.schedulers.items()}}

    def rewind(self, epoch: int) -> None:
        """Goes back, as this epoch begins; an optimizer whose weights are others begins anew.

        Raises InputError for an epoch that was not seen.
        """
        if self.rates is None:
            raise InputError(
                f"{self.where}: epoch {self.given.epoch} was not trained under this "
                "schedule; begin there, or load the state of a run that did"
            )
        if self.weights:
            self.model.load_state_dict(self.tensors)
            self.optimizer.state.clear()
        if self.moves_rates:
            for group, rate in zip(self.optimizer.param_groups, self.rates["groups"], strict=True):
                group["lr"] = rate
            for name, scheduler in self.schedulers.items():
                scheduler.restore(self.rates["schedulers"][name])
            self.back = epoch - self.given.epoch

    def state(self) -> State:
        """What it goes back to, without the tensors."""
        return {"back": self.back, "rates": self.rates}

    def restore(self, state: State, tensors: Mapping[str, Tensor]) -> None:
        """The inverse. Raises InputError for tensors that do not fit the model, and rates not the optimizer's."""
        rates = state["rates"]
        if rates and len(rates["groups"]) != len(self.optimizer.param_groups):
            raise InputError("the state goes back to learning rates of another optimizer; load that optimizer's state")
        own = {name: tensor.shape for name, tensor in self.model.state_dict().items()}
        if tensors and own != {name: tensor.shape for name, tensor in tensors.items()}:
            raise InputError("the state goes back to weights that do not fit the model; load that model's state")
        self.back, self.rates, self.tensors = state["back"], rates, dict(tensors)
