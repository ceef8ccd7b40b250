"""Filters and channels of zeros leave a net, and what reads them or carries them along becomes as narrow."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, first_line
from edgecompress.extras.schedules import arguments, parameters
from edgecompress.extras.schedules.channels import OF_DEPTHWISE, Channels, Gone
from edgecompress.extras.schedules.masks import Mask
from edgecompress.extras.schedules.reader import Policy, Schedule
from edgecompress.formats import torch_edits

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

MIXED = 1e-3  # of the outputs: a larger difference is not rounding


class Thinner:
    """Thins a model in place: its parameters, their gradients, masks and the optimizer's state."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        masks: Mapping[int, Mask],
        inputs: Sequence[Tensor] | None,
        policies: Sequence[Policy],
    ) -> None:
        """`masks`: by id of their parameter. Raises InputError without inputs, or for a model it cannot follow."""
        where = f"{policies[0].where}: {policies[0].instance.name}"
        if inputs is None:
            raise InputError(f"{where}: {policies[0].instance.cls} needs example_inputs, what the model is called with")
        self.model, self.optimizer, self.masks, self.inputs, self.where = model, optimizer, masks, inputs, where
        self.gone: list[Gone] = []
        self._dense = copy.deepcopy(model).to("meta")
        _prove(model, inputs, where)

    def thin(self, policy: Policy) -> None:
        """What a policy removes; warns of what stays, and of what is added out of place. Raises InputError."""
        given = policy.instance.arguments
        assert isinstance(given, arguments.Thinning)
        for removes in ("remove_filters", "remove_channels"):
            if given.thinning_func_str in (removes, "contract_model"):
                channels = Channels(self.model, self.inputs, self.where)
                try:
                    gone = channels.of_zero_filters() if removes == "remove_filters" else channels.unread()
                except ValueError as error:
                    raise InputError(f"{policy.where}: {policy.instance.name}: {error}") from error
                for warning in channels.settle(gone):
                    warnings.warn(f"{policy.where}: {policy.instance.name}: {warning}", stacklevel=2)
                self._remove(channels, gone)

    def replay(self, gone: Sequence[Gone]) -> None:
        """Thins a model as it was thinned before; raises InputError for what does not fit it."""
        for each in gone[len(self.gone) :]:
            channels = Channels(self.model, self.inputs, self.where)
            self._remove(channels, channels.chosen(each))

    def edits(self) -> list[torch_edits.Edit]:
        """What makes the dense net one of these shapes."""
        return torch_edits.resized(self._dense, self.model)

    def _remove(self, channels: Channels, gone: Tensor) -> None:
        went = {name: gone[made].nonzero().flatten().tolist() for name, made in channels.makes.items()}
        if any(went.values()):
            self.gone.append({name: filters for name, filters in went.items() if filters})
            channels.remove(self.model, gone, self._select)

    def _select(self, tensor: Tensor, axis: int, stays: Tensor) -> None:
        """A parameter with part of its places on an axis; hooks and optimizers still hold it."""
        import torch

        if not isinstance(tensor, torch.nn.Parameter):
            _select(tensor, axis, stays)
            return
        shape, gradient = tensor.shape, tensor.grad
        tensor.grad = None
        _select(tensor, axis, stays)
        if gradient is not None:
            tensor.grad = gradient.index_select(axis, stays.to(gradient.device))
        state = self.optimizer.state.get(tensor, {})
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.shape == shape:
                state[key] = value.index_select(axis, stays.to(value.device))
        if id(tensor) in self.masks:
            self.masks[id(tensor)].select(axis, stays)


def _select(tensor: Tensor, axis: int, stays: Tensor) -> None:
    import torch

    new = tensor.data.index_select(axis, stays.to(tensor.device))
    tensor.data = tensor.data.to(torch.float16 if tensor.dtype != torch.float16 else torch.float32)
    tensor.data = new  # of another type in between: autograd forgets the shape that a graph still alive has noted


def _prove(model: nn.Module, inputs: Sequence[Tensor], where: str) -> None:
    """Without every second channel a model computes what it computes where nothing reads them. Raises InputError."""
    import torch

    channels = Channels(model, inputs, where)
    needed = torch.ones(channels.count, dtype=torch.bool)
    for made in channels.makes.values():
        needed[made[1::2]] = False
    gone = channels.together(needed)
    narrow, silent = copy.deepcopy(model).eval(), copy.deepcopy(model).eval()
    channels.remove(narrow, gone, _select)
    channels.silence(silent, gone)
    with torch.no_grad():
        try:
            outputs = narrow(*inputs)
        except Exception as error:  # of the user's own forward
            raise InputError(f"{where}: without some of its filters the model fails: {first_line(error)}") from error
        for one, other in zip(_tensors(outputs), _tensors(silent(*inputs)), strict=True):
            if one.shape != other.shape or (one - other).abs().max() > MIXED * other.abs().max():
                raise InputError(f"{where}: the model mixes channels as thinning cannot follow; leave thinning out")


def _tensors(outputs: Any) -> Iterator[Tensor]:
    from torch.utils import _pytree

    return iter(each for each in _pytree.tree_leaves(outputs) if hasattr(each, "shape"))


# --------------------------------------------------------------------------- before training


def conflicts(model: nn.Module, schedule: Schedule, inputs: Sequence[Tensor]) -> list[str]:
    """What filters of zeros a schedule will make, as far as its thinning leaves them or adds them out of place.

    Raises InputError for a model that cannot be followed.
    """
    import torch

    thinning = [
        instance
        for instance in schedule.instances.get("extensions", {}).values()
        if isinstance(instance.arguments, arguments.Thinning)
        and instance.arguments.thinning_func_str != "remove_channels"
    ]
    if not thinning:
        return []
    where, model = f"{thinning[0].where}: {thinning[0].name}", parameters.unwrapped(model)
    channels = Channels(model, inputs, where)
    gone = torch.zeros(channels.count, dtype=torch.bool)
    found: dict[str, None] = {}
    seed = 0
    for instance in {id(each.instance): each.instance for each in schedule.policies}.values():
        given = instance.arguments
        if isinstance(given, arguments.Ranked) and given.group_type in ("Filters", "3D"):
            for weight in parameters.found(model, given.weights, instance.where).values():
                name = weight.rpartition(".")[0]
                made = channels.makes.get(name)
                if name in channels.carries:
                    found[OF_DEPTHWISE.format(name=name)] = None
                if made is not None:
                    gone[made] = torch.randperm(len(made), generator=torch.Generator().manual_seed(seed)) % 2 == 1
                    seed += given.group_dependency is None
            seed += 1
    return [f"{where}: {each}" for each in (*found, *channels.settle(gone))]
