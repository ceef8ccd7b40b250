"""Torch-Pruning's dependency graph of a net: which layers' channels depend on one another."""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import StageFailed
from edgecompress.techniques._pruning.channels import CoupledChannels
from edgecompress.techniques._pruning.drafts import Draft, Places, Refusal, one_line

if TYPE_CHECKING:
    import torch
    import torch_pruning as tp
    from torch import Tensor
    from torch.autograd.function import FunctionCtx
    from torch.nn import Module, MultiheadAttention, Parameter, RNNBase

    State: TypeAlias = Tensor | tuple[Tensor, Tensor]  # of a recurrent layer
    Mask: TypeAlias = Tensor | bool | None  # what attention takes beside its three inputs
    Output: TypeAlias = Tensor | tuple[Tensor, State]

Run: TypeAlias = "Callable[[Module], Sequence[Tensor]]"  # a net -> its outputs for the example, as tensors


class DependencyGraph:
    """The dependency graph of a copy of the net, its layers under the net's own names."""

    def __init__(self, net: Module, run: Run) -> None:
        import torch
        import torch_pruning as tp

        self.copy = copy.deepcopy(net).requires_grad_(True)
        self.names = {module: name for name, module in self.copy.named_modules()}
        names = defaultdict(list)
        for name, parameter in self.copy.named_parameters(remove_duplicate=False):
            names[parameter].append(name)
        # parameters that the net has under two names, under both
        self.shared = {name for each in names.values() if len(each) > 1 for name in each}
        customized = {type(m): _separate_pruner() for m in self.copy.modules() if isinstance(m, torch.nn.RNNBase)}
        customized |= {torch.nn.MultiheadAttention: _one_width()}
        self.shapes: dict[Module, tuple[int, ...]] = {}  # of a layer's output
        with torch.enable_grad(), _opaque(self.copy), _output_shapes_noted(self.copy, self.shapes):
            self.graph = _followed(self.copy, run, customized)
        self.parameters: dict[Parameter, str] = dict(self.graph._param_to_name)
        # Torch-Pruning follows joins of axis 1 only: of tensors [n, steps, channels] it is the last one that counts
        for node in self.graph.module2node.values():
            if node.type == tp.ops.OPTYPE.CONCAT and getattr(node.grad_fn, "_saved_dim", 1) == 2:
                node.grad_fn = None

    def roots(self) -> Iterator[tuple[Module, list[Module]]]:
        """The layers that make channels: the first of each group, and those that go with it."""
        from torch import nn

        makes = (nn.modules.conv._ConvNd, nn.Linear, nn.Embedding, nn.RNNBase)
        seen: set[Module] = set()
        for module in [m for m in self.copy.modules() if m in self.graph.module2node]:
            if isinstance(module, makes) and module not in seen:
                others = [m for m in self._makers(module) if isinstance(m, makes) and m not in {module, *seen}]
                seen |= {module, *others}
                yield module, others

    def _makers(self, root: Module) -> list[Module]:
        try:
            return [dep.layer for dep, _ in self._coupled(root) if self.graph.is_out_channel_pruning_fn(dep.handler)]
        except Refusal:
            return []

    def _coupled(self, root: Module) -> tp.dependency.Group:
        """Torch-Pruning's own group of a layer's outputs."""
        pruner = self.graph.get_pruner_of_module(root)
        channels = range(pruner.get_out_channels(root))
        try:
            return self.graph.get_pruning_group(root, pruner.prune_out_channels, list(channels))
        except Exception as error:  # it raises whatever its index arithmetic comes to
            raise Refusal(
                f"its channels are cut, joined or moved as Torch-Pruning cannot follow ({one_line(error)})"
            ) from error

    def group(self, root: Module) -> CoupledChannels:
        """The group of a layer's outputs, not tried yet; raises Refusal."""
        import torch_pruning as tp

        draft = Draft(int(self.graph.get_pruner_of_module(root).get_out_channels(root)))
        kinds = [re.sub(r"\d+", "*", self.names[root])]
        for item in self._coupled(root).items:
            layer = item.dep.layer
            if item.dep.target.type == tp.ops.OPTYPE.OUTPUT:
                raise Refusal("its channels are an output of the model")
            name = self.parameters.get(layer) or self.names.get(layer)
            if name is not None:
                makes = self.graph.is_out_channel_pruning_fn(item.dep.handler)
                draft.add(name, layer, (_places(name, item), makes, item.dep.target.pruning_dim))
                kinds.append(str((layer, self.shapes[layer]) if layer in self.shapes else tuple(layer.shape)))
        if both := self.shared & {slot.tensor for slot in draft.slots}:
            raise Refusal(f"{min(both)} is shared by two layers")
        return replace(draft.group(self.names[root]), kind="\n".join(kinds))


def _followed(net: Module, run: Run, customized: Mapping[type[Module], tp.BasePruningFunc]) -> tp.DependencyGraph:
    import torch_pruning as tp

    try:
        return tp.DependencyGraph().build_dependency(
            net,
            example_inputs=None,
            forward_fn=lambda model, _: [out for out in run(model) if out.grad_fn is not None],
            customized_pruners=dict(customized),
            verbose=False,
        )
    except Exception as error:  # it raises whatever its index arithmetic comes to
        raise StageFailed(f"prune_channels: Torch-Pruning cannot follow the net: {one_line(error)}") from error


@contextmanager
def _output_shapes_noted(net: Module, shapes: dict[Module, tuple[int, ...]]) -> Iterator[None]:
    """Notes the shape of each layer's output."""

    def note(module: Module, _: tuple[Tensor, ...], out: Output) -> None:
        first = out[0] if isinstance(out, tuple) else out  # of a recurrent layer's output and state
        shapes[module] = tuple(getattr(first, "shape", ()))

    with ExitStack() as stack:
        for module in net.modules():
            stack.callback(module.register_forward_hook(note).remove)
        yield


def _places(name: str, item: tp._helpers.GroupItem) -> Places:
    places = defaultdict(list)
    for channel, place in zip(item.root_idxs, item.idxs, strict=True):
        if channel is None:
            raise Refusal(f"Torch-Pruning cannot tell which channels {name} shares with it")
        places[channel].append(place)
    return places


def _separate_pruner() -> tp.BasePruningFunc:
    """Of a recurrent layer: its inputs and its outputs are pruned apart."""
    import torch_pruning as tp

    class Recurrent(tp.ops.DummyPruner):  # type: ignore[misc]
        def get_out_channels(self, layer: RNNBase) -> int:
            return int(layer.hidden_size * (2 if layer.bidirectional else 1))

        def get_in_channels(self, layer: RNNBase) -> int:
            return int(layer.input_size)

        def prune_in_channels(self, layer: RNNBase, idxs: Sequence[int]) -> RNNBase:
            return layer

    return Recurrent()


def _one_width() -> tp.BasePruningFunc:
    """Of nn.MultiheadAttention: a head is as wide in between as the channels before and behind it."""
    import torch_pruning as tp

    class Attention(tp.ops.DummyPruner):  # type: ignore[misc]
        def get_out_channels(self, layer: MultiheadAttention) -> int:
            return int(layer.embed_dim)

        get_in_channels = get_out_channels

    return Attention()


def _whole() -> type[torch.autograd.Function]:
    """An operation of autograd that hides what is computed inside; only the graph is read, nothing goes back."""
    import torch

    class OpaqueCall(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(
            ctx: FunctionCtx,
            run: Callable[..., Tensor | tuple[Tensor, ...]],
            anchor: Tensor,
            *tensors: Tensor,
        ) -> Tensor | tuple[Tensor, ...]:
            return run(*tensors)

    return OpaqueCall


@contextmanager
def _opaque(net: Module) -> Iterator[None]:
    """Recurrent and attention layers as one operation each: the graph is not to look inside them."""
    import torch

    whole = _whole()

    def recurrent(layer: RNNBase, x: Tensor, state: State | None = None) -> Output:
        if not isinstance(x, torch.Tensor):  # packed: the graph does not follow it
            return type(layer).forward(layer, x, state)
        first, *rest = whole.apply(lambda x: _flat(type(layer).forward(layer, x, state)), layer.weight_ih_l0, x)
        return first, rest[0] if len(rest) == 1 else tuple(rest)

    def attention(
        layer: MultiheadAttention, query: Tensor, key: Tensor, value: Tensor, *more: Mask, **options: Mask
    ) -> tuple[Tensor, Tensor | None]:
        weights: list[Tensor | None] = []

        def run(*tensors: Tensor) -> Tensor:
            seen, weight = type(layer).forward(layer, *tensors, *more, **options)
            weights.append(weight)
            return seen.clone()

        return whole.apply(run, layer.out_proj.weight, query, key, value), weights[0]

    kinds = ((torch.nn.RNNBase, recurrent), (torch.nn.MultiheadAttention, attention))
    layers = [(m, stand_in) for m in net.modules() for kind, stand_in in kinds if isinstance(m, kind)]
    for layer, stand_in in layers:
        layer.forward = stand_in.__get__(layer)
    try:
        yield
    finally:
        for layer, _ in layers:
            del layer.forward


def _flat(output: tuple[Tensor, State]) -> tuple[Tensor, ...]:
    """An LSTM's (y, (h, c)) or a GRU's (y, h), new tensors."""
    y, state = output
    return tuple(part.clone() for part in (y, *(state if isinstance(state, tuple) else (state,))))
