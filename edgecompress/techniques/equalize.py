"""Cross-layer equalization: similar channel ranges in neighbouring layers, and correction of the quantization bias.

After Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction" (ICCV 2019,
arXiv:1906.04721). The equalized net computes what the net computed; a quantizer with one scale for all channels of a
tensor loses less of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypedDict

from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.techniques import _torch_graph
from edgecompress.techniques._batch_walk import BatchWalk
from edgecompress.techniques._calibration import check_samples
from edgecompress.techniques._torch_graph import Flow, Reader, WeightedLayer

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
RUNG = 20
UNROUNDED: Mapping[str, bool] = {"bias_correction": False}  # where weights are rounded next, and not to the nearest

ROUNDS, STILL = 200, 1e-4  # at most; no scale is further from 1 than that: it has converged
HEADROOM = 1.25  # how far below the cut of a ReLU6 calibration data stays, so that other data does too


@dataclass(frozen=True)
class Options:
    """What is done besides equalizing, and by how much data."""

    bias_correction: bool = True  # takes off the mean error of weights rounded to the nearest; not before AdaRound
    weight_bits: Literal[8, 4] = 8  # of the weights that bias correction assumes: symmetric, a scale per channel
    samples: int | None = 64  # calibration items at most; None is all

    def __post_init__(self) -> None:
        if self.weight_bits not in (8, 4):
            raise ValueError("weight_bits must be 8 or 4")
        check_samples(self.samples)


@dataclass
class LayerPair:
    """A layer and those that read it: its channels are divided by `scale`, what reads them is multiplied by it."""

    first: WeightedLayer
    readers: Sequence[Reader]
    scale: torch.Tensor
    reach: torch.Tensor | None = None  # of each channel towards a cut, 1 is there; None where nothing cuts
    free: torch.Tensor | None = None  # the channels that may be scaled
    spread: list[float] = field(default_factory=list)  # largest over median range of the channels, before and after


class EqualizedPair(TypedDict):
    """What the facts say of a pair; `cut`: channels left because an activation would cut them."""

    first: str
    readers: list[str]
    channels: int
    scaled: int
    cut: int
    spread: list[float]


class EqualizeFacts(TypedDict, total=False):
    """The facts of this technique, as `apply` describes them."""

    pairs: list[EqualizedPair]
    left: dict[str, str]
    rounds: int
    moved: float
    corrected: dict[str, float]
    uncorrected: dict[str, str]
    lost: str


def apply(request: Request) -> Artifact:
    """The module equalized and its biases corrected; inputs: "model", "samples" (calibrate).

    facts: {"pairs": [{"first", "readers", "channels", "scaled": how many, "cut": left because an activation would cut
    them, "spread": [before, after] largest over median range}], "left": {layer: why it is the first of none},
    "rounds", "moved": the outputs by equalizing, relative, "corrected": {layer: largest correction, relative to the
    largest channel's standard deviation}, "uncorrected": {layer: why}}; or "lost" where there is nothing to do. Raises
    StageFailed where the outputs of the net change.
    """
    options: Options = request.options
    net = torch_module.rebuild(request.model)
    try:
        flow = Flow(net, request)
    except _torch_graph.Unreadable as why:
        return _torch_graph.unchanged(request, str(why))
    batches = flow.batches(options.samples)
    facts = equalized(flow, batches)
    if options.bias_correction:
        facts |= corrected(flow, batches, options.weight_bits)
    if not facts["pairs"] and not facts.get("corrected"):
        reasons = "; ".join(f"{name}: {why}" for name, why in [*facts["left"].items()][:3])
        facts["lost"] = f"no two layers to equalize: {reasons or 'no convolution and no matrix product'}"
    return torch_module.save(net, request, [], facts)


# --------------------------------------------------------------------------- equalization


def equalized(flow: Flow, batches: Batches) -> EqualizeFacts:
    """Scales the net's weights until the two ranges of each pair are equal; returns its facts."""
    left = dict(flow.shared)
    pairs = list(_pairs(flow, left))
    if not pairs:
        return {"pairs": [], "left": left}
    _look_for_cuts(flow, pairs, batches)
    flow.request.progress(0.2, "equalizing")
    before = flow.outputs(batches)
    rounds = _converge(flow, pairs)
    for pair in pairs:
        flow.divide(_outgoing(pair.first), pair.scale)
        for reader in pair.readers:
            flow.multiply(reader.layer, pair.scale)
    rows = [_row(pair) for pair in pairs]
    return {"pairs": rows, "left": left, "rounds": rounds, "moved": _torch_graph.check_same(flow, batches, before)}


def _pairs(flow: Flow, left: dict[str, str]) -> Iterator[LayerPair]:
    """The layers all readers of which can take a scale; those that have none are added to `left`."""
    import torch

    for layer in flow.layers:
        try:
            readers = flow.readers(layer.end, layer.axis)
        except _torch_graph.Ends as why:
            left[layer.name] = str(why)
            continue
        yield LayerPair(layer, readers, torch.ones(len(flow.tensor(layer.weight)), dtype=torch.float64))


def _look_for_cuts(flow: Flow, pairs: Sequence[LayerPair], batches: Batches) -> None:
    """Sets how far the channels of each pair go towards a cut, by calibration data."""
    import torch

    cuts = {cut.node: (pair, cut) for pair in pairs for reader in pair.readers for cut in reader.cuts}
    walk = BatchWalk(flow, batches)
    for node in flow.nodes if cuts else ():
        walk.step(node)
        if node in cuts:
            pair, cut = cuts[node]
            near = torch.stack([reach(_torch_graph.by_channel(v, cut.axis), cut.low, cut.high) for v in walk.of(node)])
            furthest = near.amax(0).reshape(len(pair.scale), -1).amax(1).double()
            pair.reach = furthest if pair.reach is None else torch.maximum(furthest, pair.reach)
    for pair in pairs:
        pair.free = None if pair.reach is None else pair.reach * HEADROOM < 1


def reach(values: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """[channels, values] -> how far each channel goes towards its cuts: 1 is there. An end at zero cuts no scale."""
    import torch

    up = values.amax(1).clamp(min=0) / high
    return up if low == 0 else torch.maximum(up, values.amin(1).clamp(max=0) / low)


def _converge(flow: Flow, pairs: Sequence[LayerPair]) -> int:
    """Fills in the scales, pair after pair, until a round changes nothing; the number of rounds."""
    names = {layer.name: layer for pair in pairs for layer in (pair.first, *(r.layer for r in pair.readers))}
    folded = {name: _folded(flow, layer) for name, layer in names.items()}
    for pair in pairs:
        pair.spread.append(_spread(folded[pair.first.name]))
    moved, rounds = 1.0, 0
    while moved > STILL and rounds < ROUNDS:
        moved, rounds = max(_balance(pair, folded) for pair in pairs), rounds + 1
    for pair in pairs:
        pair.spread.append(_spread(folded[pair.first.name]))
    return rounds


def _folded(flow: Flow, layer: WeightedLayer) -> torch.Tensor:
    """The weight with the norm behind it folded in, in double precision."""
    weight = flow.tensor(layer.weight).detach().double()
    return (weight * flow.gain(layer).reshape(-1, *[1] * (weight.ndim - 1))).contiguous()


def _spread(weight: torch.Tensor) -> float:
    """The largest range of a channel over the median one; 0 for a weight of zeros."""
    ranges = weight.abs().flatten(1).amax(1)
    return float(ranges.max() / ranges.median()) if float(ranges.median()) else 0.0


def _balance(pair: LayerPair, folded: Mapping[str, torch.Tensor]) -> float:
    """One step for a pair; how far the largest scale is from 1."""
    import torch

    first = folded[pair.first.name]
    views = [_torch_graph.by_input(folded[r.layer.name], r.layer.groups, len(first)) for r in pair.readers]
    ranges = [view.abs().amax((1, 3)).flatten() for view in views]
    s = scales(first.abs().flatten(1).amax(1), torch.stack(ranges).amax(0))
    if pair.reach is not None:
        s = torch.where(pair.free, torch.maximum(s, pair.reach * HEADROOM), torch.ones_like(s))
        pair.reach = pair.reach / s
    first /= s.reshape(-1, *[1] * (first.ndim - 1))
    for view in views:
        view *= s.reshape(len(view), 1, -1, 1)
    pair.scale = pair.scale * s
    return float((s - 1).abs().max())


def scales(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """s = sqrt(r1 r2) / r2 of each channel (Nagel et al., eq. 11), 1 where either range is zero.

    r1, r2: the ranges [channels] of the first layer's outputs and of the second's inputs, the largest magnitudes.
    """
    import torch

    some = (first > 0) & (second > 0)
    return torch.where(some, (first * second).sqrt() / torch.where(some, second, 1.0), torch.ones_like(first))


def _outgoing(layer: WeightedLayer) -> list[str]:
    """The parameters that give a layer's output its scale."""
    if layer.norm:
        return [layer.norm.weight, layer.norm.bias]
    return [name for name in (layer.weight, layer.bias) if name]


def _row(pair: LayerPair) -> EqualizedPair:
    return {
        "first": pair.first.name,
        "readers": [reader.layer.name for reader in pair.readers],
        "channels": len(pair.scale),
        "scaled": int((pair.scale != 1).sum()),
        "cut": 0 if pair.free is None else int((~pair.free).sum()),
        "spread": pair.spread,
    }


# --------------------------------------------------------------------------- bias correction


def corrected(flow: Flow, batches: Batches, bits: int) -> EqualizeFacts:
    """Takes off each layer's bias what rounded weights add to its mean output, layer after layer.

    b <- b - E[W~ x~ - W x] (Nagel et al., section 4.2, and appendix D: means over calibration data, of the net whose
    layers so far are rounded and corrected).
    """
    import torch

    exact, rounded = BatchWalk(flow, batches), BatchWalk(flow, batches)
    rounded.instead = {
        each.weight: _torch_graph.rounded(flow.tensor(each.weight).detach(), bits) for each in flow.layers
    }
    ends, shifts, largest = {layer.end: layer for layer in flow.layers}, {}, {}
    for number, node in enumerate(flow.nodes):
        exact.step(node)
        rounded.step(node)
        if (layer := ends.get(node)) is None:
            continue
        flow.request.progress(0.3 + 0.7 * number / len(flow.nodes), f"correcting the bias of {layer.name}")
        if layer.shift:
            a, b = (
                torch.cat([_torch_graph.by_channel(v, layer.axis) for v in values], 1)
                for values in (exact.of(node), rounded.of(node))
            )
            shift = (b - a).double().mean(1)  # the mean error of each channel
            scale = a.double().std(1, correction=0).max().clamp(min=1e-30)
            shifts[layer.shift] = shift
            largest[layer.name] = float((shift.abs() / scale).max())
            for value in rounded.of(node):
                value -= shift.to(value.dtype).reshape(-1, *[1] * (value.ndim - 1 - layer.axis))
    _correct(flow, shifts)
    left = {layer.name: "it has no bias" for layer in flow.layers if not layer.shift}
    return {"corrected": largest, "uncorrected": {**flow.shared, **left}}


def _correct(flow: Flow, shifts: Mapping[str, torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        for name, shift in shifts.items():
            tensor = flow.tensor(name)
            tensor.copy_(tensor.double() - shift)
