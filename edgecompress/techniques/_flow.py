"""A torch net as the graph of its operations: its layers, who reads what each answers, calibration data run through."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any

from edgecompress import tensors, torch_net
from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Dim, Request
from edgecompress.stages import usercode
from edgecompress.techniques._calibration import SPLIT, inputs_of, spread

BATCH = 16  # items that go through the graph at once, where the net takes any number
SAME = 1e-3  # that the outputs may move, relative, when weights are rescaled: float rounding is far below
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
CUTS = ("relu6", "hardtanh", "clamp")  # positively homogeneous only between their ends
ELEMENTWISE = ("relu", "leaky_relu", "prelu", "dropout", "clone", "contiguous", "alias", "detach")
POOLS = tuple(
    f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg", "adaptive_max") for n in (1, 2, 3)
)  # of spatial axes: the channels' is the second


class Ends(Exception):
    """Why the channels of a tensor cannot be followed any further."""


class Unreadable(Exception):
    """Why there is no graph of a net."""


@dataclass(frozen=True)
class Norm:
    """A BatchNorm in eval mode that alone reads a convolution: the names of its tensors."""

    node: Any
    eps: float
    weight: str
    bias: str
    mean: str
    var: str


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution or matrix product with weights of its own, [outputs, inputs / groups, ...], and the norm behind."""

    name: str
    node: Any
    weight: str
    bias: str
    norm: Norm | None

    @property
    def end(self) -> Any:
        """The operation whose answer is the layer's."""
        return self.norm.node if self.norm else self.node

    @property
    def dense(self) -> bool:
        """Whether it is a matrix product."""
        return operator(self.node) == "linear"

    @property
    def groups(self) -> int:
        """Of a convolution."""
        return 1 if self.dense else int(arguments(self.node)["groups"])

    @property
    def axis(self) -> int:
        """Of the channels in its answer."""
        return len(shape(self.node)) - 1 if self.dense else 1

    @property
    def shift(self) -> str:
        """The parameter that is added to its answer, or nothing."""
        return self.norm.bias if self.norm else self.bias


@dataclass(frozen=True)
class Cut:
    """An activation that cuts what it reads, whose channels lie along `axis`, at both ends."""

    node: Any
    axis: int
    low: float
    high: float


@dataclass(frozen=True)
class Reader:
    """A layer that reads channels; in `repeat` features each, after some cuts."""

    layer: Layer
    repeat: int
    cuts: tuple[Cut, ...]


# --------------------------------------------------------------------------- operations


def operator(node: Any) -> str:
    """ "conv2d" of aten.conv2d.default; that of an in-place one too. Nothing for what is no operation."""
    if node.op != "call_function":
        return str(node.op)
    parts = str(node.target).split(".")
    return parts[1 if parts[0] == "aten" else -1].rstrip("_")


def arguments(node: Any) -> dict[str, Any]:
    """What an operation is called with, by name, defaults included."""
    schema = node.target._schema.arguments
    given = dict(zip((a.name for a in schema), node.args, strict=False))
    return {**{a.name: a.default_value for a in schema}, **given, **node.kwargs}


def shape(node: Any) -> tuple[int, ...]:
    """Of an operation's answer."""
    return tuple(int(n) for n in node.meta["val"].shape)


# --------------------------------------------------------------------------- the graph


class Flow:
    """A net's graph for batches of `size` items; parameters are read from the net itself. Raises Unreadable."""

    def __init__(self, net: Any, request: Request) -> None:
        self.net, self.request = net, request
        self.size = _size(request)
        self._module = _exported(net, request, self.size)
        self.nodes = list(self._module.graph.nodes)
        known = {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())}
        names = {n: n.target.removeprefix("net.") for n in self.nodes if n.op == "get_attr"}
        self.names = {node: name for node, name in names.items() if name in known}
        self._tensors = known
        self._uses = Counter(id(known[name]) for node, name in self.names.items() for _ in node.users)

    def tensor(self, name: str) -> Any:
        """The net's own parameter or buffer of that name."""
        return self._tensors[name]

    def own(self, node: Any) -> str:
        """The name of the parameter that a graph node gets for one operation alone, or nothing."""
        name = self.names.get(node, "")
        return name if name and self._uses[id(self._tensors[name])] == 1 else ""

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        """In the order of computing; those that share a weight are left out."""
        return tuple(layer for node in self.nodes if (layer := self._layer(node)))

    @cached_property
    def shared(self) -> dict[str, str]:
        """The layers that are left out of `layers`, and why."""
        found = {}
        for node in self.nodes:
            if operator(node) in (*CONVOLUTIONS, "linear") and self._layer(node) is None:
                name = self.names.get(arguments(node)["weight"])
                found[_short(name) if name else node.name] = "others use its weight too" if name else "it is computed"
        return found

    def _layer(self, node: Any) -> Layer | None:
        if operator(node) not in (*CONVOLUTIONS, "linear"):
            return None
        given = arguments(node)
        weight, bias = self.own(given["weight"]), given.get("bias")
        if not weight or (bias is not None and not self.own(bias)):
            return None
        return Layer(_short(weight), node, weight, self.own(bias) if bias is not None else "", self._norm(node))

    def _norm(self, node: Any) -> Norm | None:
        after, axes = [*node.users], len(shape(node))
        if len(after) != 1 or operator(after[0]) != "batch_norm" or (operator(node) == "linear" and axes > 2):
            return None
        given = arguments(after[0])
        names = [self.own(given[n]) for n in ("weight", "bias", "running_mean", "running_var")]
        return None if given["training"] or not all(names) else Norm(after[0], float(given["eps"]), *names)

    @cached_property
    def _by_node(self) -> dict[Any, Layer]:
        return {layer.node: layer for layer in self.layers}

    def gain(self, layer: Layer) -> Any:
        """What the norm behind a layer multiplies each of its channels by, in double precision."""
        import torch

        if layer.norm is None:
            return torch.ones(len(self.tensor(layer.weight)), dtype=torch.float64)
        weight, var = (self.tensor(name).detach().double() for name in (layer.norm.weight, layer.norm.var))
        return weight / (var + layer.norm.eps).sqrt()

    def divide(self, names: Sequence[str], scale: Any) -> None:
        """Divides parameters by a scale of each output channel."""
        import torch

        with torch.no_grad():
            for tensor in map(self.tensor, names):
                tensor.copy_(tensor.double() / scale.reshape(-1, *[1] * (tensor.ndim - 1)))

    def multiply(self, layer: Layer, scale: Any) -> None:
        """Multiplies a layer's weight by a scale of each input channel."""
        import torch

        tensor = self.tensor(layer.weight)
        scaled = tensor.detach().double().contiguous()
        view = by_input(scaled, layer.groups, len(scale))
        view *= scale.reshape(len(view), 1, -1, 1)
        with torch.no_grad():
            tensor.copy_(scaled)

    # ------------------------------------------------------------------ who reads a tensor

    def readers(self, node: Any, axis: int, repeat: int = 1, cuts: tuple[Cut, ...] = ()) -> list[Reader]:
        """The layers behind `node`, all reached unchanged by a scale of each channel along `axis`; raises Ends."""
        if not node.users:
            raise Ends("nothing reads it")
        return [reader for user in node.users for reader in self._through(node, user, (axis, repeat, cuts))]

    def _through(self, node: Any, user: Any, at: tuple[int, int, tuple[Cut, ...]]) -> list[Reader]:
        axis, repeat, cuts = at
        if layer := self._by_node.get(user):
            if user.args[0] is not node or axis != (len(shape(node)) - 1 if layer.dense else 1):
                raise Ends(f"{layer.name} reads it along another axis")
            return [Reader(layer, repeat, cuts)]
        if len(node.users) > 1 and not self._by_node.keys() >= set(node.users):
            raise Ends(f"{' and '.join(sorted({operator(each) for each in node.users}))} read it")
        if operator(user) in CUTS:
            cuts = (*cuts, _cut(user, node, axis))
        elif operator(user) not in ELEMENTWISE:
            axis, repeat = _moved(user, node, axis, repeat)
        return self.readers(user, axis, repeat, cuts)

    # ------------------------------------------------------------------ data

    def batches(self, limit: int | None) -> list[dict[str, Any]]:
        """Calibration items as the graph takes them, at most `limit`, the last batch filled up."""
        import torch

        chosen = spread(self.request, limit, self.size)
        return [{n: torch.from_numpy(a) for n, a in inputs_of(self.request, batch).items()} for batch in chosen]

    def answers(self, batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """What the net itself, not its graph, answers."""
        return [torch_net.outputs(self.net, self.request.model, batch) for batch in batches]

    def constant(self, node: Any) -> Any:
        """What a node of the graph holds: the net's own tensor, or what the export put there."""
        name = self.names.get(node)
        return self._tensors[name] if name else attrgetter(node.target)(self._module)


def _size(request: Request) -> int:
    first = request.model.inputs[0].shape[0]
    if isinstance(first, Dim):
        return max(1, min(BATCH, first.max, tensors.count(request.inputs["samples"], SPLIT)))
    return first


def _exported(net: Any, request: Request, size: int) -> Any:
    import torch

    model = request.model  # a copy is traced: an LSTM's weights are not what they were afterwards
    named = torch_net.example(model, request.inputs["samples"], size)
    flat = torch_net.flat(copy.deepcopy(net), list(named), [spec.name for spec in model.outputs])
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # attention as the products it is made of
    try:
        return torch.export.export(flat, tuple(named.values())).module(check_guards=False)
    except Exception as error:
        raise Unreadable(f"torch.export cannot trace the net: {usercode.said(error)}") from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _short(name: str) -> str:
    return name.removesuffix(".weight")


def _cut(user: Any, node: Any, axis: int) -> Cut:
    given = arguments(user)
    if operator(user) == "relu6":
        return Cut(node, axis, 0.0, 6.0)
    low, high = (given["min"], given["max"]) if operator(user) == "clamp" else (given["min_val"], given["max_val"])
    low, high = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    if low > 0 or high <= 0:
        raise Ends(f"'{operator(user)}' cuts it above zero")
    return Cut(node, axis, low, high)


def _moved(user: Any, node: Any, axis: int, repeat: int) -> tuple[int, int]:
    """Where the channels lie behind an operation, in how many features each; raises Ends where it mixes them."""
    what, before = operator(user), shape(node)
    after = shape(user) if hasattr(user.meta.get("val"), "shape") else ()
    given = arguments(user) if hasattr(user.target, "_schema") else {}
    if what in POOLS and axis == 1 and len(before) > 2:
        return axis, repeat
    if what == "mean" and given.get("dim"):
        gone = {d % len(before) for d in given["dim"]}
        if axis not in gone:
            return axis if given["keepdim"] else axis - sum(d < axis for d in gone), repeat
    homogeneous = what == "pad" and (given["mode"] != "constant" or not given["value"])
    if homogeneous and 2 * (len(before) - axis) > len(given["pad"]):
        return axis, repeat
    if what == "slice" and given["dim"] % len(before) != axis:
        return axis, repeat
    if what in ("flatten", "view", "reshape", "squeeze") and axis == 1 and after == (before[0], math.prod(before[1:])):
        return 1, repeat * math.prod(before[2:])
    if what in ("view", "reshape", "flatten") and axis == len(before) - 1 and after[-1] == before[-1]:
        return len(after) - 1, repeat
    if what == "permute":
        return [d % len(before) for d in given["dims"]].index(axis), repeat
    if what == "transpose":
        swapped = dict(zip(pair := [given[d] % len(before) for d in ("dim0", "dim1")], pair[::-1], strict=True))
        return swapped.get(axis, axis), repeat
    raise Ends("it is an output of the model" if user.op == "output" else f"'{what}' reads it")


# --------------------------------------------------------------------------- data through the graph


@dataclass
class Walk:
    """Batches through the graph side by side, operation after operation; what nothing will read is let go."""

    flow: Flow
    batches: Sequence[Mapping[str, Any]]
    instead: dict[str, Any] = field(default_factory=dict)  # tensors other than the net's, by name

    def __post_init__(self) -> None:
        self._values: list[dict[Any, Any]] = [{} for _ in self.batches]
        self._rest = {node: len(node.users) for node in self.flow.nodes}
        self._inputs = iter(spec.name for spec in self.flow.request.model.inputs)

    def of(self, node: Any) -> list[Any]:
        """An operation's answer to each batch."""
        return [values[node] for values in self._values]

    def step(self, node: Any) -> None:
        """Computes the next operation."""
        import torch

        if node.op == "output":
            return
        name = next(self._inputs) if node.op == "placeholder" else ""
        with torch.no_grad():
            for batch, values in zip(self.batches, self._values, strict=True):
                values[node] = batch[name].clone() if name else self._computed(node, values)
        for read in node.all_input_nodes:
            self._rest[read] -= 1
        for read in [each for each in (*node.all_input_nodes, node) if not self._rest[each]]:
            self._drop(read)

    def _computed(self, node: Any, values: Mapping[Any, Any]) -> Any:
        from torch.fx.node import map_arg

        if node.op == "get_attr":
            own = self.instead.get(self.flow.names.get(node, ""))
            return self.flow.constant(node) if own is None else own
        return node.target(*map_arg(node.args, values.get), **map_arg(node.kwargs, values.get))

    def _drop(self, node: Any) -> None:
        for values in self._values:
            values.pop(node, None)


# --------------------------------------------------------------------------- what techniques share


def unchanged(request: Request, why: str) -> Artifact:
    """The module as it came, lost: there is nothing to do, and why."""
    return torch_net.save(torch_net.rebuild(request.model), request, [], {"lost": why})


def check_same(flow: Flow, batches: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]]) -> float:
    """How far the net's outputs moved, relative (RMS); raises StageFailed for more than SAME."""
    found = moved(before, flow.answers(batches))
    if not found <= SAME:
        raise StageFailed(
            f"{torch_net.reference(flow.request.model)}: rescaled, the net answers otherwise (by {found:.2g} of its "
            "outputs): its forward reads a weight beside the layer that has it; leave this step out"
        )
    return found


def moved(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> float:
    """How far answers are from those before, relative (RMS): of the output that moved furthest."""
    return max(_distance([a[name] for a in before], [b[name] for b in after]) for name in before[0])


def _distance(before: Sequence[Any], after: Sequence[Any]) -> float:
    if not before[0].is_floating_point():
        return float(any((a != b).any() for a, b in zip(before, after, strict=True)))
    noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(before, after, strict=True))
    return math.sqrt(noise / max(sum(float(a.double().square().sum()) for a in before), 1e-30))


def by_channel(value: Any, axis: int) -> Any:
    """[channels, all the rest] of a tensor."""
    return value.movedim(axis, 0).flatten(1)


def by_input(weight: Any, groups: int, channels: int) -> Any:
    """[groups, outputs of each, inputs of each, all the rest] of a weight: a view of it, if it lies so in memory."""
    return weight.view(groups, len(weight) // groups, channels // groups, -1)


def rounded(weight: Any, bits: int) -> Any:
    """On the grid of a symmetric quantizer per output channel: steps of max|w| / (2^(bits - 1) - 1) (Nagel, eq. 2).

    A channel of zeros stays zero.
    """
    step = steps(weight, bits)
    return (weight / step).round() * step


def steps(weight: Any, bits: int) -> Any:
    """The step of that grid, [outputs, 1, ...]; 1 for a channel of zeros, or of what is hardly more."""
    import torch

    largest = weight.abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.ndim - 1))
    found = largest / (2 ** (bits - 1) - 1)
    return torch.where(found > torch.finfo(found.dtype).tiny, found, torch.ones_like(found))
