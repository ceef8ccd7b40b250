"""A torch net as the graph of its operations: its layers, what reads each output, calibration data run through."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from edgecompress.core import user_code
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Dim, Request
from edgecompress.data import tensors
from edgecompress.formats import torch_module
from edgecompress.techniques._calibration import SPLIT, inputs_of, spread

if TYPE_CHECKING:
    import torch

    Named = Mapping[str, torch.Tensor]  # inputs or outputs by name
    Batches = Sequence[Named]

BATCH = 16  # items that go through the graph at once, where the net takes any number
SAME = 1e-3  # that the outputs may move, relative, when weights are rescaled: float rounding is far below
CONVOLUTIONS = ("conv1d", "conv2d", "conv3d")
CUTS = ("relu6", "hardtanh", "clamp")  # positively homogeneous only between their limits
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

    node: torch.fx.Node
    eps: float
    weight: str
    bias: str
    mean: str
    var: str


@dataclass(frozen=True, eq=False)
class WeightedLayer:
    """A convolution or matrix product with weights of its own, [outputs, inputs / groups, ...], and the norm behind."""

    name: str
    node: torch.fx.Node
    weight: str
    bias: str
    norm: Norm | None

    @property
    def end(self) -> torch.fx.Node:
        """The operation whose output is the layer's."""
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
        """Of the channels in its output."""
        return len(shape(self.node)) - 1 if self.dense else 1

    @property
    def shift(self) -> str:
        """The parameter that is added to its output, or nothing."""
        return self.norm.bias if self.norm else self.bias


@dataclass(frozen=True)
class ActivationCut:
    """An activation that cuts what it reads, whose channels lie along `axis`, at both limits."""

    node: torch.fx.Node
    axis: int
    low: float
    high: float


@dataclass(frozen=True)
class Reader:
    """A layer that reads channels; in `repeat` features each, after some cuts."""

    layer: WeightedLayer
    repeat: int
    cuts: tuple[ActivationCut, ...]


# --------------------------------------------------------------------------- operations


def operator(node: torch.fx.Node) -> str:
    """ "conv2d" of aten.conv2d.default; that of an in-place one too. Nothing for what is no operation."""
    if node.op != "call_function":
        return str(node.op)
    parts = str(node.target).split(".")
    return parts[1 if parts[0] == "aten" else -1].rstrip("_")


def arguments(node: torch.fx.Node) -> dict[str, Any]:
    """What an operation is called with, by name, defaults included."""
    schema = node.target._schema.arguments
    passed = dict(zip((a.name for a in schema), node.args, strict=False))
    return {**{a.name: a.default_value for a in schema}, **passed, **node.kwargs}


def shape(node: torch.fx.Node) -> tuple[int, ...]:
    """Of an operation's output."""
    return tuple(int(n) for n in node.meta["val"].shape)


# --------------------------------------------------------------------------- the graph


class Flow:
    """A net's graph for batches of `size` items; parameters are read from the net itself. Raises Unreadable."""

    def __init__(self, net: torch.nn.Module, request: Request) -> None:
        self.net, self.request = net, request
        batch = request.model.batch
        if isinstance(batch, Dim):
            batch = max(1, min(BATCH, batch.max, tensors.count(request.inputs["samples"], SPLIT)))
        self.size = batch
        self._module = _exported(net, request, self.size)
        self.nodes = list(self._module.graph.nodes)
        known = {**dict(net.named_parameters(remove_duplicate=False)), **dict(net.named_buffers())}
        names = {n: n.target.removeprefix("net.") for n in self.nodes if n.op == "get_attr"}
        self.names = {node: name for node, name in names.items() if name in known}
        self._tensors = known
        self._uses = Counter(id(known[name]) for node, name in self.names.items() for _ in node.users)

    def tensor(self, name: str) -> torch.Tensor:
        """The net's own parameter or buffer of that name."""
        return self._tensors[name]

    def own(self, node: torch.fx.Node) -> str:
        """The name of the parameter that a graph node gets for one operation alone, or nothing."""
        name = self.names.get(node, "")
        return name if name and self._uses[id(self._tensors[name])] == 1 else ""

    @cached_property
    def layers(self) -> tuple[WeightedLayer, ...]:
        """In the order of computing; those that share a weight are left out."""
        return tuple(layer for node in self.nodes if (layer := self._layer(node)))

    @cached_property
    def shared(self) -> dict[str, str]:
        """The layers that are left out of `layers`, and why."""
        reasons = {}
        for node in self.nodes:
            if operator(node) in (*CONVOLUTIONS, "linear") and self._layer(node) is None:
                name = self.names.get(arguments(node)["weight"])
                reasons[_short(name) if name else node.name] = (
                    "its weight is shared with other layers" if name else "it is computed"
                )
        return reasons

    def _layer(self, node: torch.fx.Node) -> WeightedLayer | None:
        if operator(node) not in (*CONVOLUTIONS, "linear"):
            return None
        args = arguments(node)
        weight, bias = self.own(args["weight"]), args.get("bias")
        if not weight or (bias is not None and not self.own(bias)):
            return None
        return WeightedLayer(_short(weight), node, weight, self.own(bias) if bias is not None else "", self._norm(node))

    def _norm(self, node: torch.fx.Node) -> Norm | None:
        after, axes = [*node.users], len(shape(node))
        if len(after) != 1 or operator(after[0]) != "batch_norm" or (operator(node) == "linear" and axes > 2):
            return None
        args = arguments(after[0])
        names = [self.own(args[n]) for n in ("weight", "bias", "running_mean", "running_var")]
        return None if args["training"] or not all(names) else Norm(after[0], float(args["eps"]), *names)

    @cached_property
    def _by_node(self) -> dict[torch.fx.Node, WeightedLayer]:
        return {layer.node: layer for layer in self.layers}

    def gain(self, layer: WeightedLayer) -> torch.Tensor:
        """What the norm behind a layer multiplies each of its channels by, in double precision."""
        import torch

        if layer.norm is None:
            return torch.ones(len(self.tensor(layer.weight)), dtype=torch.float64)
        weight, var = (self.tensor(name).detach().double() for name in (layer.norm.weight, layer.norm.var))
        return weight / (var + layer.norm.eps).sqrt()

    def divide(self, names: Sequence[str], scale: torch.Tensor) -> None:
        """Divides parameters by a scale of each output channel."""
        import torch

        with torch.no_grad():
            for tensor in map(self.tensor, names):
                tensor.copy_(tensor.double() / scale.reshape(-1, *[1] * (tensor.ndim - 1)))

    def multiply(self, layer: WeightedLayer, scale: torch.Tensor) -> None:
        """Multiplies a layer's weight by a scale of each input channel."""
        import torch

        tensor = self.tensor(layer.weight)
        scaled = tensor.detach().double().contiguous()
        view = by_input(scaled, layer.groups, len(scale))
        view *= scale.reshape(len(view), 1, -1, 1)
        with torch.no_grad():
            tensor.copy_(scaled)

    # ------------------------------------------------------------------ what reads a tensor

    def readers(
        self, node: torch.fx.Node, axis: int, repeat: int = 1, cuts: tuple[ActivationCut, ...] = ()
    ) -> list[Reader]:
        """The layers behind `node`, all reached unchanged by a scale of each channel along `axis`; raises Ends."""
        if not node.users:
            raise Ends("nothing reads it")
        return [reader for user in node.users for reader in self._through(node, user, (axis, repeat, cuts))]

    def _through(
        self, node: torch.fx.Node, user: torch.fx.Node, at: tuple[int, int, tuple[ActivationCut, ...]]
    ) -> list[Reader]:
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

    def batches(self, limit: int | None) -> list[Named]:
        """Calibration items as the graph takes them, at most `limit`, the last batch filled up."""
        import torch

        chosen = spread(self.request, limit, self.size)
        return [{n: torch.from_numpy(a) for n, a in inputs_of(self.request, batch).items()} for batch in chosen]

    def outputs(self, batches: Batches) -> list[Named]:
        """The outputs of the net itself, not of its graph."""
        return [torch_module.outputs(self.net, self.request.model, batch) for batch in batches]

    def constant(self, node: torch.fx.Node) -> torch.Tensor:
        """What a node of the graph holds: the net's own tensor, or what the export put there."""
        name = self.names.get(node)
        return self._tensors[name] if name else attrgetter(node.target)(self._module)


def _exported(net: torch.nn.Module, request: Request, size: int) -> torch.fx.GraphModule:
    import torch

    model = request.model  # a copy is traced: an LSTM's weights are not what they were afterwards
    named = torch_module.example(model, request.inputs["samples"], size)
    flat = torch_module.flat(copy.deepcopy(net), list(named), [spec.name for spec in model.outputs])
    try:
        with torch_module.plain_attention():
            return torch.export.export(flat, tuple(named.values())).module(check_guards=False)
    except Exception as error:
        raise Unreadable(f"torch.export cannot trace the net: {user_code.error_line(error)}") from error


def _short(name: str) -> str:
    return name.removesuffix(".weight")


def _cut(user: torch.fx.Node, node: torch.fx.Node, axis: int) -> ActivationCut:
    args = arguments(user)
    if operator(user) == "relu6":
        return ActivationCut(node, axis, 0.0, 6.0)
    low, high = (args["min"], args["max"]) if operator(user) == "clamp" else (args["min_val"], args["max_val"])
    low, high = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    if low > 0 or high <= 0:
        raise Ends(f"'{operator(user)}' clips it above zero")
    return ActivationCut(node, axis, low, high)


def _moved(user: torch.fx.Node, node: torch.fx.Node, axis: int, repeat: int) -> tuple[int, int]:
    """Where the channels lie behind an operation, in how many features each; raises Ends where it mixes them."""
    what, before = operator(user), shape(node)
    after = shape(user) if hasattr(user.meta.get("val"), "shape") else ()
    args = arguments(user) if hasattr(user.target, "_schema") else {}
    if what in POOLS and axis == 1 and len(before) > 2:
        return axis, repeat
    if what == "mean" and args.get("dim"):
        gone = {d % len(before) for d in args["dim"]}
        if axis not in gone:
            return axis if args["keepdim"] else axis - sum(d < axis for d in gone), repeat
    homogeneous = what == "pad" and (args["mode"] != "constant" or not args["value"])
    if homogeneous and 2 * (len(before) - axis) > len(args["pad"]):
        return axis, repeat
    if what == "slice" and args["dim"] % len(before) != axis:
        return axis, repeat
    if what in ("flatten", "view", "reshape", "squeeze") and axis == 1 and after == (before[0], math.prod(before[1:])):
        return 1, repeat * math.prod(before[2:])
    if what in ("view", "reshape", "flatten") and axis == len(before) - 1 and after[-1] == before[-1]:
        return len(after) - 1, repeat
    if what == "permute":
        return [d % len(before) for d in args["dims"]].index(axis), repeat
    if what == "transpose":
        swapped = dict(zip(pair := [args[d] % len(before) for d in ("dim0", "dim1")], pair[::-1], strict=True))
        return swapped.get(axis, axis), repeat
    raise Ends("it is an output of the model" if user.op == "output" else f"'{what}' reads it")


# --------------------------------------------------------------------------- what techniques share


def unchanged(request: Request, why: str) -> Artifact:
    """The module as it came, lost: there is nothing to do, and why."""
    return torch_module.save(torch_module.rebuild(request.model), request, [], {"lost": why})


def check_same(flow: Flow, batches: Batches, before: Batches) -> float:
    """How far the net's outputs moved, relative (RMS); raises StageFailed for more than SAME."""
    distance = moved(before, flow.outputs(batches))
    if not distance <= SAME:
        raise StageFailed(
            f"{torch_module.reference(flow.request.model)}: rescaling changed the net's outputs (by {distance:.2g} "
            "relative RMS): its forward reads a layer's weight directly; remove this step"
        )
    return distance


def moved(before: Batches, after: Batches) -> float:
    """How far outputs are from those before, relative (RMS): of the output that moved furthest."""
    return max(_distance([a[name] for a in before], [b[name] for b in after]) for name in before[0])


def _distance(before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float:
    if not before[0].is_floating_point():
        return float(any((a != b).any() for a, b in zip(before, after, strict=True)))
    noise = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(before, after, strict=True))
    return math.sqrt(noise / max(sum(float(a.double().square().sum()) for a in before), 1e-30))


def by_channel(value: torch.Tensor, axis: int) -> torch.Tensor:
    """[channels, all the rest] of a tensor."""
    return value.movedim(axis, 0).flatten(1)


def by_input(weight: torch.Tensor, groups: int, channels: int) -> torch.Tensor:
    """[groups, outputs of each, inputs of each, all the rest] of a weight: a view of it, if it lies so in memory."""
    return weight.view(groups, len(weight) // groups, channels // groups, -1)


def rounded(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """On the grid of a symmetric quantizer per output channel: steps of max|w| / (2^(bits - 1) - 1) (Nagel, eq. 2).

    A channel of zeros stays zero.
    """
    step = steps(weight, bits)
    return (weight / step).round() * step


def steps(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """The step of that grid, [outputs, 1, ...]; 1 for a channel of zeros, or of what is hardly more."""
    import torch

    largest = weight.abs().flatten(1).amax(1).reshape(-1, *[1] * (weight.ndim - 1))
    step = largest / (2 ** (bits - 1) - 1)
    return torch.where(step > torch.finfo(step.dtype).tiny, step, torch.ones_like(step))
