"""SmoothQuant: outlier channels of activations moved into the weights of the matrix products that read them.

After Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large Language Models" (ICML
2023, arXiv:2211.10438). The output of a norm (a scale, the product before) is divided by s, the weights behind it
are multiplied by s: the net computes what it computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_module
from edgecompress.techniques import _torch_graph
from edgecompress.techniques._batch_walk import BatchWalk
from edgecompress.techniques._calibration import check_samples
from edgecompress.techniques._torch_graph import Flow, WeightedLayer

if TYPE_CHECKING:
    import torch

    from edgecompress.techniques._torch_graph import Batches

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples",)
TRAINS = True
RUNG = 30
KNOBS = {"alpha": Knob(low=0.3, high=0.8, step=0.1)}

NORMS = ("layer_norm", "rms_norm")
CARRIED = ("view", "reshape", "transpose", "permute", "contiguous", "clone", "dropout", "unflatten", "flatten")
PRODUCTS = {"matmul": 1, "bmm": 1, "scaled_dot_product_attention": 2}  # the argument whose features stay apart
ROUNDING = 1e-4  # by which outputs move, relative, where a trial of other scales changes nothing


@dataclass(frozen=True)
class Options:
    """How much moves from activations to weights, and by which data."""

    alpha: float = 0.5  # 0: weights alone get even; 1: activations alone
    samples: int | None = 64  # calibration items at most; None is all

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise ValueError("alpha must be between 0 and 1")
        check_samples(self.samples)


@dataclass(frozen=True)
class Spot:
    """Where smoothing is possible: parameters that can take 1/s of each channel, and the products that take s."""

    name: str
    parameters: tuple[str, ...]
    layers: tuple[WeightedLayer, ...]
    channels: int


class SmoothedSpot(TypedDict):
    """What the facts say of a spot; `outlier`: before, and after."""

    by: str
    layers: list[str]
    channels: int
    outlier: list[float]


def apply(request: Request) -> Artifact:
    """The module, smoothed; inputs: "model", "samples" (calibrate).

    facts: {"smoothed": [{"by", "layers", "channels", "outlier": [before, after] largest over median channel maximum of
    the layers' inputs}], "left": {layer or norm: why nothing is smoothed behind it}, "moved": the outputs,
    relative}; or "lost" where there is nothing to smooth. Raises StageFailed where the outputs of the net change.
    """
    net = torch_module.rebuild(request.model)
    try:
        flow = Flow(net, request)
    except _torch_graph.Unreadable as why:
        return _torch_graph.unchanged(request, str(why))
    batches, left = flow.batches(request.options.samples), dict(flow.shared)
    spots = [*_spots(flow, batches[:1], left)]
    if not spots:
        reasons = "; ".join(f"behind {name}: {why}" for name, why in [*left.items()][:3])
        return _torch_graph.unchanged(
            request, f"no matrix product to smooth: {reasons or 'the net has no norm before one'}"
        )
    request.progress(0.3, "looking for outlier channels")
    before = flow.outputs(batches)
    inputs = _largest_inputs(flow, spots, batches)
    rows = [_smoothed(flow, spot, _largest(spot, inputs)) for spot in spots]
    facts = {"smoothed": rows, "left": left, "moved": _torch_graph.check_same(flow, batches, before)}
    return torch_module.save(net, request, [], facts)


def factors(activations: torch.Tensor, weights: torch.Tensor, alpha: float) -> torch.Tensor:
    """s = max|X_j|^alpha / max|W_j|^(1 - alpha) of each channel j (Xiao et al., eq. 4); 1 where either is zero.

    activations, weights: those maxima, [channels].
    """
    import torch

    some = (activations > 0) & (weights > 0)
    x, w = (torch.where(some, each, 1.0) for each in (activations, weights))
    return x**alpha / w ** (1 - alpha)


# --------------------------------------------------------------------------- where it is possible


def _spots(flow: Flow, trial: Batches, left: dict[str, str]) -> Iterator[Spot]:
    """In the order of computing; what could take 1/s but for what stands behind it is added to `left`."""
    layers = {layer.node: layer for layer in flow.layers if layer.dense and layer.norm is None}
    for node in flow.nodes:
        layer = layers.get(node)
        parameters = _of_layer(layer) if layer else _of_scale(flow, node)
        if not parameters:
            continue
        name = parameters[0].removesuffix(".weight")
        try:
            yield _spot(flow, node, parameters)
        except _torch_graph.Ends as why:
            spot = _through_attention(flow, layer) if layer else None
            if spot and _computes_the_same(flow, spot, trial):
                yield spot
            else:
                left[name] = str(why)


def _of_layer(layer: WeightedLayer) -> tuple[str, ...]:
    return tuple(name for name in (layer.weight, layer.bias) if name)


def _of_scale(flow: Flow, node: torch.fx.Node) -> tuple[str, ...]:
    """The parameters of a norm over the last axis, or of a product with one number for each feature."""
    what = _torch_graph.operator(node)
    if what in NORMS:
        args = _torch_graph.arguments(node)
        named = [flow.own(args[part]) for part in ("weight", "bias") if args.get(part) is not None]
        return tuple(named) if named and all(named) and len(args["normalized_shape"]) == 1 else ()
    if what != "mul":
        return ()
    names = [flow.own(each) for each in node.args if flow.own(each)]
    return tuple(n for n in names if flow.tensor(n).shape == _torch_graph.shape(node)[-1:])


def _spot(flow: Flow, node: torch.fx.Node, parameters: tuple[str, ...]) -> Spot:
    """The products that alone read a node; raises Ends where something else does."""
    readers = flow.readers(node, len(_torch_graph.shape(node)) - 1)
    if other := [reader.layer.name for reader in readers if not reader.layer.dense]:
        raise _torch_graph.Ends(f"the convolution {other[0]} reads it")
    if any(reader.cuts for reader in readers):
        raise _torch_graph.Ends("an activation clips it")
    layers = tuple(reader.layer for reader in readers)
    return Spot(parameters[0].removesuffix(".weight"), parameters, layers, _torch_graph.shape(node)[-1])


def _through_attention(flow: Flow, layer: WeightedLayer) -> Spot | None:
    """A product whose output is the values of attention, and the one that reads what attention makes of them."""
    node = layer.node
    readers = {other.node: other for other in flow.layers if other.dense}
    while len(node.users) == 1:
        (user,) = node.users
        if (reader := readers.get(user)) is not None:
            width = len(flow.tensor(layer.weight))
            fits = flow.tensor(reader.weight).shape[1] == width
            return Spot(layer.name, _of_layer(layer), (reader,), width) if fits else None
        at = PRODUCTS.get(_torch_graph.operator(user))
        carried = _torch_graph.operator(user) in CARRIED if at is None else user.args.index(node) == at
        if not carried:
            return None
        node = user
    return None


def _computes_the_same(flow: Flow, spot: Spot, trial: Batches) -> bool:
    """Whether any scales at a spot leave the outputs as they are: tried, for heads may lie in another order."""
    import torch

    names = [*spot.parameters, *(layer.weight for layer in spot.layers)]
    before, kept = flow.outputs(trial), {name: flow.tensor(name).detach().clone() for name in names}
    scale = torch.rand(spot.channels, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
    _scale(flow, spot, scale)
    moved = _torch_graph.moved(before, flow.outputs(trial))
    with torch.no_grad():
        for name, tensor in kept.items():
            flow.tensor(name).copy_(tensor)
    return moved < ROUNDING


# --------------------------------------------------------------------------- the scales


def _largest_inputs(flow: Flow, spots: Sequence[Spot], batches: Batches) -> dict[torch.fx.Node, torch.Tensor]:
    """The largest magnitude of each feature of the products' inputs, by their nodes."""
    import torch

    nodes = {layer.node for spot in spots for layer in spot.layers}
    walk, largest = BatchWalk(flow, batches), {}
    for node in flow.nodes:
        if node in nodes:
            largest[node] = (
                torch.stack([v.abs().flatten(0, -2).amax(0) for v in walk.of(node.args[0])]).amax(0).double()
            )
        walk.step(node)
    return largest


def _largest(spot: Spot, inputs: Mapping[torch.fx.Node, torch.Tensor]) -> torch.Tensor:
    """The largest magnitude of each channel; a channel may be several features of a product's input."""
    import torch

    return torch.stack([inputs[layer.node].reshape(spot.channels, -1).amax(1) for layer in spot.layers]).amax(0)


def _smoothed(flow: Flow, spot: Spot, largest: torch.Tensor) -> SmoothedSpot:
    """Scales the weights at a spot; returns its row of the facts."""
    import torch

    views = [_torch_graph.by_input(flow.tensor(layer.weight).detach(), 1, spot.channels) for layer in spot.layers]
    weights = torch.stack([view.abs().amax((0, 1, 3)) for view in views]).amax(0).double()
    s = factors(largest, weights, flow.request.options.alpha)
    _scale(flow, spot, s)
    return {
        "by": spot.name,
        "layers": [layer.name for layer in spot.layers],
        "channels": spot.channels,
        "outlier": [_outlier(largest), _outlier(largest / s)],
    }


def _outlier(largest: torch.Tensor) -> float:
    """The largest over the median; 0 where that is zero."""
    median = float(largest.median())
    return float(largest.max()) / median if median else 0.0


def _scale(flow: Flow, spot: Spot, scale: torch.Tensor) -> None:
    flow.divide(spot.parameters, scale)
    for layer in spot.layers:
        flow.multiply(layer, scale)
