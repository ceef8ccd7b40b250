"""Channels that can only go together: where they lie in a net's weights, and the net without some of them."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed

if TYPE_CHECKING:
    import torch

Kept = Mapping[str, Sequence[int]]  # group -> its units that stay; a group that is not named stays whole


@dataclass(frozen=True)
class Slot:
    """Where the units of a group lie along one axis of a parameter or buffer."""

    tensor: str
    axis: int
    places: tuple[tuple[int, ...], ...]  # of each unit
    reads: bool  # takes the channels up; else it makes them, or carries them along


@dataclass(frozen=True)
class Size:
    """A whole number of a module that falls by `each` with every channel that goes."""

    module: str
    attribute: str
    each: Fraction


@dataclass(frozen=True)
class CoupledChannels:
    """Channels of several layers that go together, in units: a channel, one of each convolution group, a head."""

    name: str  # the first layer that makes them
    layers: tuple[str, ...]  # that make them
    channels: int
    units: int
    slots: tuple[Slot, ...]
    sizes: tuple[Size, ...]
    norms: tuple[str, ...] = ()  # layers that average over the channels: without some of them they compute otherwise
    shape: str = ""  # the types of all layers that it touches: groups of one shape are isomorphic
    kind: str = ""  # the layers' sizes and places as well: groups of one kind take equally long
    block: str = ""  # the residual block it lies in, which can be the identity
    leads: bool = False  # without channels, the block goes

    @property
    def per_unit(self) -> int:
        """Channels of a unit."""
        return self.channels // self.units


def narrowed(net: torch.nn.Module, groups: Iterable[CoupledChannels], kept: Kept) -> torch.nn.Module:
    """A copy of the net with only the units `kept`; without any of a leading group its block is the identity."""
    import torch

    twin = copy.deepcopy(net)
    gone: dict[tuple[str, int], set[int]] = defaultdict(set)
    groups = list(groups)
    blocks = [group.block for group in groups if group.leads and not len(kept.get(group.name, [0]))]
    for group in groups:
        units = set(range(group.units)) - set(kept.get(group.name, range(group.units)))
        if not units or group.block in blocks:
            continue
        if len(units) == group.units:
            raise StageFailed(f"prune_channels: no channel of {group.name} would be left")
        for slot in group.slots:
            gone[slot.tensor, slot.axis].update(place for unit in units for place in slot.places[unit])
        for size in group.sizes:
            module, by = twin.get_submodule(size.module), int(size.each * len(units) * group.per_unit)
            value = getattr(module, size.attribute)
            setattr(module, size.attribute, (value[0] - by,) if isinstance(value, tuple) else value - by)
    for (name, axis), places in gone.items():
        _select(twin, name, axis, places)
    for block in blocks:
        parent, _, last = block.rpartition(".")
        setattr(twin.get_submodule(parent), last, torch.nn.Identity())
    return twin


def mean_kept(
    net: torch.nn.Module, groups: Iterable[CoupledChannels], kept: Kept, means: Mapping[str, torch.Tensor]
) -> torch.nn.Module:
    """A copy, as wide as it is, whose biases hold what the units that are to go add on average to what reads them.

    `means`: {layer: the mean of each channel that goes in}. Layers without a bias stay as they are (batch norm makes up
    for it behind a convolution), and so do convolutions in groups, transposed ones, and gates of recurrent layers: what
    a gate makes of a mean is not the mean of what it makes.
    """
    import torch

    twin = copy.deepcopy(net)
    known = dict(twin.named_parameters())
    with torch.no_grad():
        for group in groups:
            goes = set(range(group.units)) - set(kept.get(group.name, range(group.units)))
            for slot in (slot for slot in inputs(group) if slot.tensor == f"{owner(slot)}.weight"):
                bias, mean = known.get(f"{owner(slot)}.bias"), means.get(owner(slot))
                weight = known[slot.tensor]
                if bias is not None and mean is not None and slot.axis == 1 and weight.shape[1] == len(mean):
                    places = sorted({place for unit in goes for place in slot.places[unit]})
                    bias += weight.reshape(*weight.shape[:2], -1).sum(2)[:, places] @ mean[places]
    return twin


def owner(slot: Slot) -> str:
    """The layer that a slot is of."""
    return slot.tensor.rpartition(".")[0]


def inputs(group: CoupledChannels) -> list[Slot]:
    """The slots that read what goes into a layer, and not a state inside it."""
    return [s for s in group.slots if s.reads and ("_" not in s.tensor.rpartition(".")[2] or "_l0" in s.tensor)]


def without(net: torch.nn.Module, group: CoupledChannels, units: Iterable[int]) -> torch.nn.Module:
    """A copy of the net, as wide as it is, in which nothing takes those units up."""
    import torch

    twin, units = copy.deepcopy(net), list(units)
    known = {**dict(twin.named_parameters()), **dict(twin.named_buffers())}
    with torch.no_grad():
        for slot in (s for s in group.slots if s.reads):
            places = torch.tensor([place for unit in units for place in slot.places[unit]])
            known[slot.tensor].index_fill_(slot.axis, places, 0.0)
    return twin


def _select(net: torch.nn.Module, name: str, axis: int, gone: set[int]) -> None:
    """The parameter or buffer without some places of an axis."""
    import torch

    owner, _, last = name.rpartition(".")
    module = net.get_submodule(owner)
    old = getattr(module, last)
    stays = torch.tensor([place for place in range(old.shape[axis]) if place not in gone])
    new = old.detach().index_select(axis, stays)
    setattr(module, last, torch.nn.Parameter(new, old.requires_grad) if isinstance(old, torch.nn.Parameter) else new)
