"""Where the channels of a net come from and go to, and the net without some of them.

A filter makes a channel. What is added to a channel, position by position, is another channel: the two go together,
or, as in Distiller, each layer loses its own, and those that are left over are added to each other.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

Gone = dict[str, list[int]]  # by convolution: its filters that went
SIZES = ("num_features", "num_parameters")  # what a layer that carries channels calls their number
OF_DEPTHWISE = (
    "the filters of zeros of {name} stay in the net: the convolution before it makes its channels; prune that"
)


class Channels:
    """The channels of a net, each a number, and the layers that make, read and carry them."""

    def __init__(self, model: nn.Module, inputs: Sequence[Tensor], where: str) -> None:
        """Follows them by torch.fx, on the example inputs; raises InputError for a model that cannot be traced."""
        import torch

        self.model = model
        self.count = 0
        self.makes: dict[str, Tensor] = {}  # by convolution: the channel of each filter
        self.reads: dict[str, Tensor] = {}  # by convolution or Linear: the channel of each input
        self.carries: dict[str, Tensor] = {}  # by batch norm or depthwise convolution
        self.joins: list[tuple[str, Tensor, Tensor]] = []  # channels at one position, and what puts them there
        self.held: list[tuple[str, Tensor]] = []  # channels that cannot go, and what needs them
        try:
            with torch.no_grad():
                _follower(copy.deepcopy(model).eval(), self).run(*inputs)
        except Exception as error:  # whatever the code of a model does with a proxy
            raise InputError(f"{where}: the model cannot be traced: {first_line(error)}") from error

    def new(self, count: int) -> Tensor:
        """As many channels."""
        import torch

        self.count += count
        return torch.arange(self.count - count, self.count)

    def layer(self, name: str) -> Any:
        """The layer of a name, with the attributes of its kind."""
        return self.model.get_submodule(name)

    def makers(self, channels: Tensor) -> list[str]:
        """The convolutions that make any of the channels."""
        import torch

        return [name for name, made in self.makes.items() if torch.isin(made, channels).any()]

    # ------------------------------------------------------------------- what goes

    def of_zero_filters(self) -> Tensor:
        """Whether each channel goes as its filter is zero. Raises ValueError for a convolution of zeros."""
        import torch

        gone = torch.zeros(self.count, dtype=torch.bool)
        for name, made in self.makes.items():
            zero = self.layer(name).weight.detach().flatten(1).eq(0).all(1).cpu()
            if zero.all():
                raise ValueError(f"{name}.weight: all of its filters are zero, none would be left; prune fewer of them")
            gone[made] = zero
        return gone

    def unread(self) -> Tensor:
        """Whether each channel goes as all that reads it multiplies it by zero. Raises ValueError as above."""
        import torch

        needed = torch.ones(self.count, dtype=torch.bool)
        for made in self.makes.values():
            needed[made] = False
        for name, read in self.reads.items():
            weight: Tensor = self.layer(name).weight.detach()  # which inputs it multiplies by anything but zero
            needed[read[weight.ne(0).transpose(0, 1).flatten(1).any(1).cpu()]] = True
        gone = self.together(needed)
        for name, made in self.makes.items():
            if gone[made].all():
                raise ValueError(f"{name}.weight: all that reads it is zero, none of it would be left; prune fewer")
        return gone

    def chosen(self, filters: Gone) -> Tensor:
        """Whether each channel goes as its filter is named. Raises InputError for filters that are not there."""
        import torch

        gone = torch.zeros(self.count, dtype=torch.bool)
        for name, numbers in filters.items():
            count = len(self.makes.get(name, ()))
            if not all(isinstance(n, int) and 0 <= n < count for n in numbers) or len({*numbers}) >= count:
                raise InputError(f"the state has removed filters of '{name}' that the model lacks; load that model's")
            gone[self.makes[name][numbers]] = True
        return gone

    def together(self, needed: Tensor) -> Tensor:
        """What goes where channels at one position stay if any of them is needed."""
        for _, channels in self.held:
            needed[channels] = True
        before = -1
        while before != int(needed.sum()):
            before = int(needed.sum())
            for _, one, other in self.joins:
                either = needed[one] | needed[other]
                needed[one[either]] = True
                needed[other[either]] = True
        return ~needed

    def settle(self, gone: Tensor) -> Iterator[str]:
        """Lets filters stay that something needs; says which, and which channels are added out of place."""
        stays: dict[str, str] = {}
        before = -1
        while before != int(gone.sum()):
            before = int(gone.sum())
            for why, channels in self.held:
                self._keep(gone, channels, why, stays)
            for why, one, other in self.joins:
                if gone[one].sum() != gone[other].sum():
                    self._keep(gone, one, why, stays)
                    self._keep(gone, other, why, stays)
        for name, why in stays.items():
            yield f"the filters of zeros of {name} stay in the net: {why} needs all of its channels"
        for name, carried in self.carries.items():
            weight: Tensor = self.layer(name).weight.detach()
            if weight.dim() > 2 and (weight.flatten(1).eq(0).all(1).cpu() & ~gone[carried]).any():
                yield OF_DEPTHWISE.format(name=name)
        added: dict[str, None] = {}
        for _, one, other in self.joins:
            if (gone[one] != gone[other]).any():
                added |= dict.fromkeys((*self.makers(one), *self.makers(other)))
        if added:
            yield (
                f"{', '.join(added)} lose different filters, and what they compute is added: channels meet that did "
                "not belong together, as in Distiller, and training has to make up for it; prune them with "
                "group_dependency: Leader"
            )

    def _keep(self, gone: Tensor, channels: Tensor, why: str, stays: dict[str, str]) -> None:
        for name in self.makers(channels[gone[channels]]):
            gone[self.makes[name]] = False
            stays[name] = why

    # ------------------------------------------------------------------- the narrower net

    def remove(self, model: nn.Module, gone: Tensor, select: Any) -> None:
        """Narrows a model of this kind; `select(tensor, axis, what stays)` narrows a tensor."""
        for table, axis in ((self.makes, 0), (self.reads, 1), (self.carries, 0)):
            for name, channels in table.items():
                if gone[channels].any():
                    stays = (~gone[channels]).nonzero().flatten()
                    _narrow(model.get_submodule(name), axis, stays, name in self.carries, select)

    def silence(self, model: nn.Module, gone: Tensor) -> None:
        """Nothing reads the channels any more; the model stays as wide as it is."""
        for name, read in self.reads.items():
            weight = model.get_parameter(f"{name}.weight")
            weight.data[:, gone[read].to(weight.device)] = 0


def _narrow(layer: Any, axis: int, stays: Tensor, carries: bool, select: Any) -> None:
    """A layer with part of its filters (axis 0) or inputs (1); one that carries channels loses both."""
    tensors = [*layer.parameters(recurse=False), *layer.buffers(recurse=False)] if axis == 0 else [layer.weight]
    for tensor in tensors:
        if tensor.dim():
            select(tensor, axis, stays)
    names = ("out_channels",) if axis == 0 else ("in_channels", "in_features")
    for name in (*SIZES, "in_channels", "out_channels", "groups") if carries else names:
        if hasattr(layer, name):
            setattr(layer, name, len(stays))


def _follower(model: nn.Module, channels: Channels) -> fx.Interpreter:
    """What runs a model and notes the channels of each value, which lie on axis 1."""
    import torch
    from torch import fx, nn
    from torch.nn.modules.batchnorm import _NormBase

    class Follower(fx.Interpreter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(fx.symbolic_trace(model))
            self.of: dict[fx.Node, Tensor] = {}
            self.shapes: dict[fx.Node, torch.Size] = {}

        def run_node(self, node: fx.Node) -> Any:
            result = super().run_node(node)
            values = [each for each in node.all_input_nodes if each in self.of]
            tensor = isinstance(result, torch.Tensor) and result.dim() > 1 and node.op != "output"
            found = self.follow(node, result, values) if tensor and values else None
            if found is None and not isinstance(result, (int, torch.Size, torch.device, torch.dtype)):
                what = "the net's output" if node.op == "output" else str(node.name)
                channels.held.extend((what, self.of[each]) for each in values)
            if tensor:
                self.shapes[node] = result.shape
                self.of[node] = channels.new(result.shape[1]) if found is None else found
            return result

        def follow(self, node: fx.Node, result: Tensor, values: list[fx.Node]) -> Tensor | None:
            """The channels of a value that is made of others; None: they cannot be followed."""
            if node.op == "call_module":
                layer, read = self.fetch_attr(node.target), self.of[values[0]]
                if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
                    return self.convolution(str(node.target), layer, read)
                if isinstance(layer, nn.Linear) and result.dim() == 2:
                    self.note(channels.reads, str(node.target), read)
                    return channels.new(layer.out_features)
                if isinstance(layer, _NormBase) or (isinstance(layer, nn.PReLU) and layer.num_parameters > 1):
                    self.note(channels.carries, str(node.target), read)
                    return read
                if any(parameter.dim() and len(parameter) > 1 for parameter in layer.parameters()):
                    return None
            if node.target in (torch.cat, torch.concat, torch.concatenate):
                axis = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else 0)
                return torch.cat([self.of[each] for each in node.args[0]]) if axis % result.dim() == 1 else None
            return self.elements(node, result, values)

        def convolution(self, name: str, layer: Any, read: Tensor) -> Tensor | None:
            if layer.groups == 1:
                self.note(channels.reads, name, read)
                return channels.makes.setdefault(name, channels.new(layer.out_channels))
            if layer.groups == layer.in_channels == layer.out_channels:
                self.note(channels.carries, name, read)
                return read
            return None

        def elements(self, node: fx.Node, result: Tensor, values: list[fx.Node]) -> Tensor | None:
            """Of an operation on each channel alone, of a sum, of a flattening."""
            shapes = [self.shapes[each] for each in values]
            flat = (shapes[0][0], math.prod(shapes[0][1:]))
            if len(values) == 1 and result.dim() == 2 and tuple(result.shape) == flat:
                return self.of[values[0]].repeat_interleave(math.prod(shapes[0][2:]))
            wide = [self.of[each] for each in values if len(self.of[each]) == result.shape[1]]
            if not wide or any(len(self.of[each]) not in (1, len(wide[0])) for each in values):
                return None
            channels.joins.extend((str(node.name), wide[0], other) for other in wide[1:])
            channels.held.extend((str(node.name), self.of[each]) for each in values if len(self.of[each]) == 1)
            return wide[0]

        def note(self, table: dict[str, Tensor], name: str, read: Tensor) -> None:
            """What a layer reads; called twice, it reads the same both times."""
            if not torch.equal(table.setdefault(name, read), read):
                channels.joins.append((name, table[name], read))

    return Follower()
