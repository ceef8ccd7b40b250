"""From the layers that Torch-Pruning couples to slots of tensors: a group that is being put together, not tried yet."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from edgecompress.core.errors import brief
from edgecompress.techniques._pruning.channels import CoupledChannels, Size, Slot

if TYPE_CHECKING:
    from torch.nn import Linear, Module, MultiheadAttention, Parameter, RNNBase
    from torch.nn.modules.conv import _ConvNd

Places = Mapping[int, Sequence[int]]  # channel -> where it lies along an axis


class Refusal(Exception):
    """Why a group cannot be pruned."""


@dataclass
class Draft:
    """A group that is being put together, channel by channel."""

    channels: int
    slots: list[Slot] = field(default_factory=list)
    sizes: list[Size] = field(default_factory=list)
    makers: list[str] = field(default_factory=list)
    norms: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    parts: int = 1  # equal parts of the channels, of which each loses as many
    head: int = 0  # channels of an attention head

    def add(self, name: str, layer: Module | Parameter, how: tuple[Places, bool, int]) -> None:
        """A layer or parameter with the places of the channels in it, whether it makes them, and their axis."""
        from torch import nn

        places, makes, axis = how
        if len(places) < self.channels:  # of a split or chunk: each part loses as many, so that they stay equal
            first, several = min(places), len(places)
            if self.channels % several or first % several or max(places) - first + 1 > several:
                raise Refusal(f"{name} reads {several} of its {self.channels} channels, which is no equal part of them")
            self.parts = math.lcm(self.parts, self.channels // several)
        self.kinds.append(f"{type(layer).__name__}{'>' if makes else '<'}")
        if isinstance(layer, nn.Parameter):
            self.slots.append(self._slot(name, axis, places, True))
        elif isinstance(layer, nn.modules.conv._ConvNd):
            self._conv(name, layer, places, makes)
        elif isinstance(layer, nn.Linear):
            self._matrix(name, layer, places, makes)
        elif isinstance(layer, nn.RNNBase):
            self._recurrent(name, layer, places, makes)
        elif isinstance(layer, nn.MultiheadAttention):
            self._attention(name, layer, places)
        else:
            self._carrier(name, layer, places)

    def _slot(self, tensor: str, axis: int, places: Places, reads: bool) -> Slot:
        return Slot(tensor, axis, tuple(tuple(places.get(c, ())) for c in range(self.channels)), reads)

    def _all(self, name: str, layer: Module, tensors: str, how: tuple[int, Places, bool]) -> None:
        """The same places along an axis of all those tensors that the layer has."""
        axis, places, reads = how
        have = [t for t in tensors.split() if getattr(layer, t, None) is not None]
        self.slots += [self._slot(f"{name}.{t}", axis, places, reads) for t in have]

    def _size(self, name: str, attributes: str, each: int | Fraction = 1) -> None:
        self.sizes += [Size(name, attribute, Fraction(each)) for attribute in attributes.split()]

    def _times(self, places: Places) -> Fraction:
        """How often a channel occurs: once for each pixel of a flattened image; half as often behind a split of two."""
        return Fraction(sum(map(len, places.values())), self.channels)

    def _conv(self, name: str, layer: _ConvNd, places: Places, makes: bool) -> None:
        groups, widths = layer.groups, (layer.in_channels, layer.out_channels)
        _check(name, places, widths[makes])
        if groups == widths[0] == widths[1] and groups > 1:  # depthwise: what goes in comes out
            self._all(name, layer, "weight bias", (0, places, False))
            return self._size(name, "in_channels out_channels groups", self._times(places))
        self.parts = math.lcm(self.parts, groups)
        axis = int(makes == layer.transposed)  # of a transposed one the inputs come first
        local = {c: [p % layer.weight.shape[axis] for p in each] for c, each in places.items()}
        self._all(name, layer, "weight", (axis, local, not makes))
        self._size(name, "out_channels" if makes else "in_channels", self._times(places))
        self._made(name, layer, places, makes)

    def _matrix(self, name: str, layer: Linear, places: Places, makes: bool) -> None:
        _check(name, places, layer.out_features if makes else layer.in_features)
        self._all(name, layer, "weight", (0 if makes else 1, places, not makes))
        self._size(name, "out_features" if makes else "in_features", self._times(places))
        self._made(name, layer, places, makes)

    def _made(self, name: str, layer: Module, places: Places, makes: bool) -> None:
        if makes:
            self.makers.append(name)
            self._all(name, layer, "bias", (0, places, False))

    def _recurrent(self, name: str, layer: RNNBase, places: Places, makes: bool) -> None:
        """nn.LSTM, GRU, RNN: a hidden unit is a row in each gate, a column of what reads the state, in each layer."""
        directions = [f"_l0{end}" for end in ("", "_reverse")][: 1 + layer.bidirectional]
        if not makes:
            _check(name, places, layer.input_size)
            self._all(name, layer, " ".join(f"weight_ih{end}" for end in directions), (1, places, True))
            return self._size(name, "input_size", self._times(places))
        if layer.proj_size:
            raise Refusal(f"{name} projects its state (proj_size)")
        self.makers.append(name)
        self.parts, hidden = math.lcm(self.parts, len(directions)), layer.hidden_size
        gates = layer.weight_hh_l0.shape[0] // hidden
        rows = {c: [g * hidden + p % hidden for p in each for g in range(gates)] for c, each in places.items()}
        columns = {c: [p % hidden for p in each] for c, each in places.items()}
        for end in (end.replace("l0", f"l{i}") for i in range(layer.num_layers) for end in directions):
            self._all(name, layer, f"weight_ih{end} weight_hh{end} bias_ih{end} bias_hh{end}", (0, rows, False))
            self._all(name, layer, f"weight_hh{end}", (1, columns, True))
            self._all(name, layer, "" if end in directions else f"weight_ih{end}", (1, places, True))
        self._size(name, "hidden_size", Fraction(1, len(directions)))

    def _attention(self, name: str, layer: MultiheadAttention, places: Places) -> None:
        """nn.MultiheadAttention: its heads are parts of the channels before and behind it."""
        if not layer._qkv_same_embed_dim or layer.bias_k is not None:
            raise Refusal(f"{name}: its keys or values have a different width, or a separate bias")
        self.head, width = layer.head_dim, layer.embed_dim
        rows = {c: [part * width + p for p in each for part in range(3)] for c, each in places.items()}
        self._all(name, layer, "in_proj_weight in_proj_bias", (0, rows, False))
        self._all(name, layer, "in_proj_weight", (1, places, True))
        self._all(f"{name}.out_proj", layer.out_proj, "weight bias", (0, places, False))
        self._all(f"{name}.out_proj", layer.out_proj, "weight", (1, places, True))
        self._size(name, "embed_dim kdim vdim")
        self._size(name, "num_heads", Fraction(1, self.head))
        self._size(f"{name}.out_proj", "in_features out_features")

    def _carrier(self, name: str, layer: Module, places: Places) -> None:
        """A norm, an embedding, a PReLU: channels come in as they go out."""
        from torch import nn

        kinds: tuple[tuple[type[Module], str], ...] = (
            (nn.modules.batchnorm._BatchNorm, "num_features"),
            (nn.modules.instancenorm._InstanceNorm, "num_features"),
            (nn.LayerNorm, "normalized_shape"),
            (nn.GroupNorm, "num_channels"),
            (nn.PReLU, "num_parameters"),
            (nn.Embedding, "embedding_dim"),
        )
        size = next((attribute for kind, attribute in kinds if isinstance(layer, kind)), "")
        if not size:
            raise Refusal(f"{name}: channels cannot be removed from a {type(layer).__name__}")
        if isinstance(layer, nn.PReLU) and layer.num_parameters == 1:
            return
        if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) > 1:
            raise Refusal(f"{name} normalizes over more axes than the channels")
        if isinstance(layer, (nn.LayerNorm, nn.GroupNorm)):
            self.norms.append(name)
            self.parts = math.lcm(self.parts, getattr(layer, "num_groups", 1))
        table = isinstance(layer, nn.Embedding)
        self._all(name, layer, "weight bias running_mean running_var", (int(table), places, False))
        self._size(name, size, self._times(places))
        self.makers += [name] * table

    def group(self, name: str) -> CoupledChannels:
        """The group, its channels in units; raises Refusal when they do not divide into such."""
        if self.channels % self.parts or (self.head and self.parts > 1):
            raise Refusal(f"its {self.channels} channels cannot be divided into {self.parts} equal parts")
        step = self.channels // self.parts
        units = [range(u, self.channels, step) for u in range(step)]
        if self.head:
            units = [range(h, h + self.head) for h in range(0, self.channels, self.head)]
        if len(units) < 2:
            raise Refusal("its channels can only be removed all together")
        draft = CoupledChannels(
            *(name, tuple(dict.fromkeys(self.makers)), self.channels, self.channels),
            *(tuple(self.slots), tuple(self.sizes), tuple(self.norms), " ".join(sorted(self.kinds))),
        )
        return joined(draft, units)


def joined(group: CoupledChannels, units: Sequence[Sequence[int]]) -> CoupledChannels:
    """The group with its channels in those units."""
    slots = tuple(
        replace(slot, places=tuple(tuple(sorted({p for c in unit for p in slot.places[c]})) for unit in units))
        for slot in group.slots
    )
    return replace(group, units=len(units), slots=slots)


def _check(name: str, places: Places, channels: int) -> None:
    if max(p for each in places.values() for p in each) >= channels:
        raise Refusal(
            f"its channels are cut, joined or moved as Torch-Pruning cannot follow: it counts more than the {channels} "
            f"of {name}"
        )


def one_line(error: BaseException) -> str:
    """An error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {brief(lines[0])}" if lines else type(error).__name__
