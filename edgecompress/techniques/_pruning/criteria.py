"""How much each unit of a group of channels is worth: what scores least goes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from edgecompress.core.errors import StageFailed
from edgecompress.techniques._pruning.channels import CoupledChannels, Slot, inputs, owner
from edgecompress.techniques._pruning.sensitivity import Batch

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Criterion = Literal["l1", "l2", "bn_scale", "fpgm", "lamp", "taylor", "fisher", "shapley", "activation", "random"]
Scores = dict[str, list[float]]  # group -> a score for each unit
Batches = Callable[[], Iterator[Batch]]  # the calibration data from its start, a batch at a time
Loss: TypeAlias = "Callable[[Module, Batch], Tensor]"  # of a net's outputs for a batch
Run: TypeAlias = "Callable[[Module, Batch], Mapping[str, Tensor]]"  # a net, a batch -> its outputs by name

TIE = 1e-6  # of the magnitude, beside the share of activations that are not zero
ORDERS, PARTS = 8, 16  # random orders that units are taken away in, and parts of a group that go at once, at most
PLAIN = ("lamp", "shapley", "activation", "random")  # not divided by the group's mean: they compare groups as they are


def by_weights(net: Module, groups: Sequence[CoupledChannels], criterion: str) -> Scores:
    """Scores that need no data: "l1", "l2", "bn_scale", "fpgm", "lamp".

    l1, l2: the sum of |w|^p over what makes, carries and reads the unit, the mean over these layers, as
    Torch-Pruning's GroupMagnitudeImportance has it. bn_scale: of batch norms alone (Liu et al. 2017,
    arXiv:1708.06519). lamp: l2 by `lamp`. fpgm: the filters that make it by `fpgm`.
    Raises StageFailed where a score is not finite. A group without a batch norm has no bn_scale: see `scored`.
    """
    weights = {n: p.detach() for n, p in net.named_parameters()}
    scores: dict[str, Callable[[CoupledChannels], Tensor]] = {
        "l1": lambda group: _magnitude(weights, _weighty(weights, group), 1),
        "l2": lambda group: _magnitude(weights, _weighty(weights, group), 2),
        "lamp": lambda group: lamp(_magnitude(weights, _weighty(weights, group), 2)),
        "bn_scale": lambda group: _magnitude(weights, _scales(net, group), 1),
        "fpgm": lambda group: _mean([fpgm(_rows(weights, slot)) for slot in _filters(weights, group)]),
    }
    return _checked({group.name: scores[criterion](group) for group in groups}, criterion)


def scored(net: Module, group: CoupledChannels, criterion: str) -> str:
    """Why the criterion says nothing about a group, or nothing."""
    weights = dict(net.named_parameters())
    if criterion == "bn_scale" and not _scales(net, group):
        return "it has no batch norm with scales (criterion bn_scale)"
    return "" if _weighty(weights, group) else "it has no weights to score it by"


def at_random(groups: Sequence[CoupledChannels], seed: int) -> Scores:
    """Numbers that know nothing of the weights: the control."""
    import torch

    dice = torch.Generator().manual_seed(seed)
    return {group.name: torch.rand(group.units, generator=dice).tolist() for group in groups}


def by_gradient(
    net: Module, groups: Sequence[CoupledChannels], batches: Batches, loss: Loss, criterion: str = "taylor"
) -> Scores:
    """(sum of gradient x weight)^2 of what makes and carries a unit, the mean over the batches: "taylor", "fisher".

    taylor: first order; Molchanov et al. 2019, "Importance Estimation for Neural Network Pruning", arXiv:1906.10771,
    equation 8. fisher: second order, with Fisher's matrix for the Hessian, where batches are of one item; Liu et al.
    2021, "Group Fisher Pruning", arXiv:2108.00708, equation 5.
    """
    import torch

    total = {group.name: torch.zeros(group.units, dtype=torch.float64) for group in groups}
    for batch in batches():
        net.zero_grad(set_to_none=True)
        with torch.enable_grad():
            loss(net, batch).backward()
        moved = {n: (p * p.grad).detach() for n, p in net.named_parameters() if p.grad is not None}
        for group in groups:
            made = [_rows(moved, slot).sum(1) for slot in group.slots if not slot.reads and slot.tensor in moved]
            total[group.name] += torch.stack(made).sum(0).double().square()
    net.zero_grad(set_to_none=True)
    return _checked(total, criterion)


def by_taking_away(net: Module, groups: Sequence[CoupledChannels], batches: Batches, loss: Loss, seed: int) -> Scores:
    """Shapley values: what the loss rises by when a unit goes after others, the mean over random orders.

    Ancona et al. 2020, "Shapley Value as Principled Metric for Structured Network Pruning", arXiv:2006.01795, by
    sampling: ORDERS orders of each group's units, each on a batch of its own. Of more than PARTS units several go at
    once and share what they do.
    """
    import torch

    dice, every = torch.Generator().manual_seed(seed), list(batches())
    total = {group.name: torch.zeros(group.units, dtype=torch.float64) for group in groups}
    for turn in range(ORDERS):
        batch = every[turn % len(every)]
        with torch.no_grad():
            whole = float(loss(net, batch))
            for group in groups:
                before, gone = whole, list[int]()
                for part in torch.randperm(group.units, generator=dice).tensor_split(min(PARTS, group.units)):
                    gone += part.tolist()
                    with _without(net, group, gone):
                        after = float(loss(net, batch))
                    total[group.name][part] += (after - before) / (len(part) * ORDERS)
                    before = after
    return _checked(total, "shapley")


@contextmanager
def _without(net: Module, group: CoupledChannels, gone: Sequence[int]) -> Iterator[None]:
    """What makes and carries those units is zero meanwhile."""
    parameters = dict(net.named_parameters())
    held = [(parameters[s.tensor], s) for s in group.slots if not s.reads and s.tensor in parameters]
    kept = [parameter.detach().clone() for parameter, _ in held]
    for parameter, slot in held:
        parameter.data.movedim(slot.axis, 0)[[place for unit in gone for place in slot.places[unit]]] = 0.0
    try:
        yield
    finally:
        for (parameter, _), before in zip(held, kept, strict=True):
            parameter.data.copy_(before)


def by_activation(net: Module, groups: Sequence[CoupledChannels], batches: Batches, run: Run) -> Scores:
    """1 - APoZ: the share of a unit's activations that are not zero, where the next layers read them.

    Hu et al. 2016, "Network Trimming", arXiv:1607.03250, equation 1. Where as many are zero (nothing is after a tanh
    or GELU), the mean magnitude decides. Raises StageFailed for a group whose readers are no layers.
    """
    seen = _read(net, groups, batches, run, _alive)
    for group in groups:
        if not any(owner(slot) in seen for slot in inputs(group)):
            raise StageFailed(
                f"prune_channels: no layer reads {group.name} (criterion activation); choose another criterion"
            )
    return _checked({group.name: _mean([*_of_units(net, group, seen)]) for group in groups}, "activation")


def means(net: Module, groups: Sequence[CoupledChannels], batches: Batches, run: Run) -> dict[str, Tensor]:
    """{layer: the mean of each channel that goes in} of the layers that read a group."""
    return _read(net, groups, batches, run, lambda x: x.transpose(0, 1).flatten(1).mean(1))


def _read(
    net: Module, groups: Sequence[CoupledChannels], batches: Batches, run: Run, measure: Callable[[Tensor], Tensor]
) -> dict[str, Tensor]:
    """What `measure` says of what goes into the layers that read a group [items, channels, ...]: the batches' mean."""
    import torch
    from torch import nn

    seen: dict[str, list[Tensor]] = {}

    def note(name: str, axis: int) -> Callable[[Module, tuple[Tensor, ...]], None]:
        return lambda module, args: seen.setdefault(name, []).append(measure(args[0].movedim(axis, 1)))

    with ExitStack() as stack, torch.no_grad():
        for name in {owner(slot) for group in groups for slot in inputs(group)}:
            layer = net.get_submodule(name)
            axis = 1 if isinstance(layer, nn.modules.conv._ConvNd) else -1
            stack.callback(layer.register_forward_pre_hook(note(name, axis)).remove)
        for batch in batches():
            run(net, batch)
    return {name: torch.stack(each).mean(0) for name, each in seen.items()}


def _alive(x: Tensor) -> Tensor:
    """The share of each channel that is not zero, and a little of its magnitude [channels]."""
    size = x.abs().double().transpose(0, 1).flatten(1).mean(1)
    return 1 - apoz(x) + TIE * size / max(float(size.max()), TIE)


def _of_units(net: Module, group: CoupledChannels, seen: Mapping[str, Tensor]) -> Iterator[Tensor]:
    """The mean over the channels of each unit, of each layer that reads it."""
    import torch

    for slot in (slot for slot in inputs(group) if owner(slot) in seen):
        values, width = seen[owner(slot)], net.get_parameter(slot.tensor).shape[slot.axis]
        whole = [[p + k for p in unit for k in range(0, len(values), width)] for unit in slot.places]  # of groups
        yield torch.stack([values[unit].mean() for unit in whole])


# --------------------------------------------------------------------------- the published formulas


def lamp(squares: Tensor) -> Tensor:
    """Each square over the sum of those that are at least as large [units].

    Lee et al. 2021, "Layer-adaptive Sparsity for the Magnitude-based Pruning", arXiv:2010.07611, equation 1.
    """
    order = squares.argsort(stable=True)
    rest = squares[order].flip(0).cumsum(0).flip(0)
    shares = squares.new_zeros(len(squares))
    shares[order] = (squares[order] / rest).where(rest != 0, 0.0)
    return shares


def fpgm(filters: Tensor) -> Tensor:
    """The sum of a filter's distances to all others [units, weights] -> [units]: the least is what others stand for.

    He et al. 2019, "Filter Pruning via Geometric Median", arXiv:1811.00250, equation 5.
    """
    import torch

    return torch.cdist(filters[None], filters[None], compute_mode="donot_use_mm_for_euclid_dist")[0].sum(1)


def apoz(activations: Tensor) -> Tensor:
    """The share of zeros of each channel [items, channels, ...] -> [channels]; arXiv:1607.03250, equation 1."""
    return (activations == 0).double().transpose(0, 1).flatten(1).mean(1)


# --------------------------------------------------------------------------- what they share


def _rows(tensors: Mapping[str, Tensor], slot: Slot) -> Tensor:
    """What belongs to each unit in a slot [units, numbers]."""
    import torch

    moved = tensors[slot.tensor].movedim(slot.axis, 0)
    return torch.stack([moved[list(places)].flatten() for places in slot.places])


def _weighty(weights: Mapping[str, Tensor], group: CoupledChannels) -> list[Slot]:
    """Weights and scales; biases and statistics say little of what a channel does."""
    return [s for s in group.slots if s.tensor in weights and "bias" not in s.tensor.rpartition(".")[2]]


def _filters(weights: Mapping[str, Tensor], group: CoupledChannels) -> list[Slot]:
    made = [s for s in _weighty(weights, group) if not s.reads and weights[s.tensor].ndim > 1]
    return made or _weighty(weights, group)


def _scales(net: Module, group: CoupledChannels) -> list[Slot]:
    from torch import nn

    def normed(slot: Slot) -> bool:
        owner, _, last = slot.tensor.rpartition(".")
        return last == "weight" and isinstance(net.get_submodule(owner), nn.modules.batchnorm._BatchNorm)

    return [slot for slot in group.slots if normed(slot)]


def _magnitude(weights: Mapping[str, Tensor], slots: Sequence[Slot], p: int) -> Tensor:
    return _mean([_rows(weights, slot).abs().pow(p).sum(1) for slot in slots])


def _mean(parts: Sequence[Tensor]) -> Tensor:
    import torch

    return torch.stack([part.double() for part in parts]).mean(0)


def _checked(totals: Mapping[str, Tensor], criterion: str) -> Scores:
    """The scores as numbers, each group's mean 1 where the criterion is not PLAIN; raises StageFailed: not finite."""
    scores: Scores = {}
    for name, values in totals.items():
        if not values.isfinite().all():
            raise StageFailed(f"prune_channels: {criterion} scores of {name} are not finite; choose another criterion")
        mean = float(values.mean())
        scores[name] = (values / mean if criterion not in PLAIN and mean else values).tolist()
    return scores
