"""Which channels of a net can only go together, found by Torch-Pruning's dependency graph; what is refused, and why.

The graph (Fang et al., "DepGraph: Towards Any Structural Pruning", CVPR 2023, arXiv:2301.12900) says what depends on
what. Each group is then tried: the net without half of its channels has to compute what the net computes when nothing
reads those channels. A group that does not is refused: a graph misread does no harm.
"""

from __future__ import annotations

import copy
import math
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import StageFailed
from edgecompress.formats import torch_module
from edgecompress.techniques._pruning.channels import CoupledChannels, Size, Slot, narrowed, without

if TYPE_CHECKING:
    import torch
    import torch_pruning as tp
    from torch import Tensor
    from torch.autograd.function import FunctionCtx
    from torch.nn import Linear, Module, MultiheadAttention, Parameter, RNNBase
    from torch.nn.modules.conv import _ConvNd

    State: TypeAlias = Tensor | tuple[Tensor, Tensor]  # of a recurrent layer
    Mask: TypeAlias = Tensor | bool | None  # what attention takes beside its three inputs
    Output: TypeAlias = Tensor | tuple[Tensor, State]

Run: TypeAlias = "Callable[[Module], Sequence[Tensor]]"  # a net -> its outputs for the example, as tensors
Places = Mapping[int, Sequence[int]]  # channel -> where it lies along an axis

EXACT, NOISE = 1e-3, 1e-5  # of the effect of the channels, of the outputs: an RMS below both together is rounding


class Refusal(Exception):
    """Why a group cannot be pruned."""


@dataclass(frozen=True)
class Dependencies:
    """The groups of a net, in its order, and why others are none."""

    groups: tuple[CoupledChannels, ...]
    refused: Mapping[str, str]


def find(net: Module, run: Run) -> Dependencies:
    """The groups of `net` that can be pruned; `run` calls it, or a copy, with real items."""
    groups, refused = [], dict[str, str]()
    with torch_module.plain_attention():
        graph = _DependencyGraph(net, run)
        for root, others in graph.roots():
            try:
                groups.append(_tried(net, graph.group(root), run))
            except Refusal as why:
                refused |= {graph.names[root]: str(why)}
                refused |= {graph.names[layer]: f"it is coupled to {graph.names[root]}" for layer in others}
        return Dependencies(tuple(_in_blocks(groups, residual_blocks(net, run))), refused)


# --------------------------------------------------------------------------- Torch-Pruning's graph


class _DependencyGraph:
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

        draft = _Draft(int(self.graph.get_pruner_of_module(root).get_out_channels(root)))
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


# --------------------------------------------------------------------------- from layers to slots


@dataclass
class _Draft:
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
        return _joined(draft, units)


def _joined(group: CoupledChannels, units: Sequence[Sequence[int]]) -> CoupledChannels:
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


# --------------------------------------------------------------------------- trials


def _tried(net: Module, group: CoupledChannels, run: Run) -> CoupledChannels:
    """The group, or the same in whole attention heads, if the net can do without half of it; raises Refusal."""
    try:
        return _proved(net, group, run)
    except Refusal:
        for whole in _in_heads(net, group):
            with suppress(Refusal):
                return _proved(net, whole, run)
        raise


def _in_heads(net: Module, group: CoupledChannels) -> Iterator[CoupledChannels]:
    """The group in whole heads, by a number of heads that a module around its first layer has."""
    path = group.name.split(".")[:-1]
    around = [".".join(path[:i]) for i in range(len(path), -1, -1)]
    for name, attribute, heads in ((n, *item) for n in around for item in vars(net.get_submodule(n)).items()):
        if "head" not in attribute or not isinstance(heads, int) or not 1 < heads <= group.channels // 2:
            continue
        width, rest = divmod(group.channels, heads)
        if rest or group.units != group.channels:
            continue
        whole = _joined(group, [range(h, h + width) for h in range(0, group.channels, width)])
        number = Size(name, attribute, Fraction(1, width))
        widths = [n for n, v in vars(net.get_submodule(name)).items() if type(v) is int and v == group.channels]
        yield replace(whole, sizes=(*whole.sizes, number))
        yield replace(whole, sizes=(*whole.sizes, number, *(Size(name, n, Fraction(1)) for n in widths)))


def _proved(net: Module, group: CoupledChannels, run: Run) -> CoupledChannels:
    """The group, if the net without half of its units computes what it computes when nothing reads these.

    Which half is drawn: of every second one, both parts of a split would lose as many, which others do not.
    """
    import torch

    net = copy.deepcopy(net)
    for name in group.norms:  # narrowed or not, they would not compute the same
        net.get_submodule(name).forward = lambda x: x
    goes = sorted(random.Random(0).sample(range(group.units), group.units // 2))
    stays = [unit for unit in range(group.units) if unit not in goes]
    with torch.no_grad():
        try:
            outputs = run(narrowed(net, [group], {group.name: stays}))
            expected, dense = run(without(net, group, goes)), run(net)
        except Exception as error:  # of the user's own forward
            raise Refusal(f"with channels removed, the net raises {one_line(error)}") from error
    for a, b, c in zip(outputs, expected, dense, strict=True):
        if a.shape != b.shape:
            raise Refusal(f"with channels removed, an output has shape {list(a.shape)} instead of {list(b.shape)}")
        if not _rms(a, b) <= EXACT * _rms(c, b) + NOISE * _rms(b):
            raise Refusal("with channels removed, the net's outputs differ from those with the channels masked")
    return group


def _rms(x: Tensor, y: Tensor | None = None) -> float:
    """Of a tensor, or of the difference of two."""
    return float((x.double() - (0 if y is None else y.double())).square().mean().sqrt())


def one_line(error: BaseException) -> str:
    """An error in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:160]}" if lines else type(error).__name__


# --------------------------------------------------------------------------- residual blocks


def residual_blocks(net: Module, run: Run) -> list[str]:
    """The submodules that are exactly the identity, on real activations, once the last layer of a branch gives zeros.

    The innermost of those that lie in one another.
    """
    import torch

    with torch.no_grad():
        calls = _calls(net, run)
        blocks: list[str] = []
        for name in sorted(calls, key=lambda name: -name.count(".")):
            holds = any(other.startswith(f"{name}.") for other in blocks)
            if not holds and _is_residual(net, name, calls[name]) and _can_go(net, name, run):
                blocks.append(name)
    return [name for name, _ in net.named_modules() if name in blocks]


def _calls(net: Module, run: Run) -> dict[str, tuple[Tensor, str]]:
    """{submodule: (what went in, the last layer with weights that ran inside)} of those that keep a tensor's shape."""
    import torch

    calls: dict[str, tuple[Tensor, str]] = {}
    ran: list[str] = []
    begun: dict[str, list[int]] = defaultdict(list)
    hooks = []
    for name, module in net.named_modules():

        def before(module: Module, args: Sequence[Tensor], kwargs: Mapping[str, Tensor], name: str = name) -> None:
            begun[name].append(len(ran))

        def after(
            module: Module, args: Sequence[Tensor], kwargs: Mapping[str, Tensor], out: Tensor, name: str = name
        ) -> None:
            if any(True for _ in module.parameters(recurse=False)):
                ran.append(name)
            one = len(args) == 1 and not kwargs and all(isinstance(t, torch.Tensor) for t in (*args, out))
            if one and args[0].shape == out.shape and len(ran) > begun[name][-1]:
                calls[name] = (args[0].clone(), ran[-1])

        hooks.append(module.register_forward_pre_hook(before, with_kwargs=True))
        hooks.append(module.register_forward_hook(after, with_kwargs=True))
    try:
        run(net)
    finally:
        for hook in hooks:
            hook.remove()
    once = {name for name, times in begun.items() if len(times) == 1}
    return {name: call for name, call in calls.items() if name and name in once and call[1] != name}


def _is_residual(net: Module, name: str, call: tuple[Tensor, str]) -> bool:
    import torch

    x, last = call
    block = copy.deepcopy(net.get_submodule(name))
    for parameter in block.get_submodule(last.removeprefix(f"{name}.")).parameters(recurse=False):
        parameter.zero_()
    return bool(torch.equal(block(x), x))


def _can_go(net: Module, name: str, run: Run) -> bool:
    """Whether the net runs with the identity in its place."""
    block = CoupledChannels(name, (), 0, 0, (), (), block=name, leads=True)
    shapes = [out.shape for out in run(net)]
    try:
        return [out.shape for out in run(narrowed(net, [block], {name: ()}))] == shapes
    except Exception:  # the user's forward reads an attribute of the block
        return False


def _in_blocks(groups: Sequence[CoupledChannels], blocks: Sequence[str]) -> Iterator[CoupledChannels]:
    """The groups, those that lie in a residual block with its name; the first of each leads."""
    led: set[str] = set()
    for group in groups:
        touched = [*(slot.tensor for slot in group.slots), *(size.module for size in group.sizes)]
        block = next((b for b in blocks if all(name.startswith(f"{b}.") for name in touched)), "")
        yield replace(group, block=block, leads=bool(block) and block not in led)
        led.add(block)
