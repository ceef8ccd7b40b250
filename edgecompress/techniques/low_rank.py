"""Low rank: replaces a Linear or convolution by several smaller ones in sequence (SVD, Tucker-2, CP, tensor train).

The weights are TensorLy's decompositions; the result has plain layers, which every runtime supports.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

from edgecompress.core.errors import InputError, StageFailed, brief
from edgecompress.core.model import Artifact, Dim, Goal, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques._calibration import inputs_of, spread
from edgecompress.techniques._low_rank import factors, rank
from edgecompress.techniques._low_rank import layers as factorizable
from edgecompress.techniques._low_rank.layers import Dense, FactorizableLayer
from edgecompress.techniques._low_rank.rank import Ranks
from edgecompress.techniques._pruning import widths as candidates

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors", "tensorly>=0.9")
EXTRA = "low-rank"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples",)
KNOBS = {"method": Knob(choices=("tucker", "tt")), "energy": Knob(low=0.8, high=0.99, step=0.01)}

RATIO = 0.5  # of a layer's MACs, where no rule is set
SHARES = (50, 25, 12)  # percent of a layer's MACs that are measured on the device
ITEMS = 16  # of the calibration data, on which two nets are compared
GOALS = ("latency_ratio", "latency_ms", "speedup")

Table = dict[str, dict[int, tuple[float, float]]]  # layer -> percent of its MACs -> (latency saved, harm)


@dataclass(frozen=True)
class Options:
    """How layers are factorized, and by which one rule the ranks are chosen. 1 x 1 convolutions: always by SVD."""

    method: Literal["tucker", "cp", "tt"] = "tucker"  # of larger convolutions
    linear: Literal["svd", "tt"] = "svd"  # of Linear; tt: a tensor train of two cores, of few parameters
    energy: float | None = None  # share of the squared singular values kept; with cp, of the squared weights
    evbmf: bool = False  # as many as stand out of the noise
    ratio: float | None = None  # share of its MACs that may stay in each layer; 0.5 where no rule is set
    latency_ratio: float | None = None  # share of the dense net's measured latency that may stay
    latency_ms: float | None = None  # measured latency at most
    speedup: float | None = None  # dense latency over the latency, at least
    layers: tuple[str, ...] = ("*",)  # names, as shell patterns
    align: int | None = None  # ranks are multiples of it; None: the kernel's channel block on the device
    saved: Mapping[str, float] | None = None  # of the search: what each cell saved of the dense latency
    keep: float | None = None  # of the search: the share of the latency that may stay, by `saved`

    def __post_init__(self) -> None:
        for name, limit in (("energy", 1), ("ratio", 1), ("latency_ratio", 1), ("keep", 1), ("latency_ms", math.inf)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= limit:
                raise ValueError(f"{name} must be above 0" + (f", at most {limit}" if limit == 1 else ""))
        if self.speedup is not None and self.speedup < 1:
            raise ValueError("speedup must be at least 1")
        if self.align is not None and self.align < 1:
            raise ValueError("align must be at least 1")
        if (self.saved is None) != (self.keep is None):
            raise ValueError("saved and keep must be given together")
        if len(rules := self.rules()) > 1:
            raise ValueError(f"give one rule for the ranks, not {' and '.join(rules)}")

    def rules(self) -> list[str]:
        """Those that are set."""
        numbers = ("energy", "ratio", *GOALS, "keep")
        return [name for name in numbers if getattr(self, name) is not None] + ["evbmf"] * self.evbmf


class RankCell(TypedDict):
    """A class of equal layers at one share of their MACs, to be measured."""

    layers: list[str]
    ratio: float


class FactorizedLayer(TypedDict):
    """What the facts say of a layer that was replaced; `macs` and `parameters`: before, and after."""

    name: str
    method: str
    shape: list[int]
    ranks: list[int]
    macs: list[int]
    parameters: list[int]
    error: float


class LowRankFacts(TypedDict, total=False):
    """The facts of this technique, as `apply` describes them."""

    layers: list[FactorizedLayer]
    kept: dict[str, str]
    groups: list[dict[str, str | int]]
    macs: dict[str, int]
    parameters: dict[str, int]
    lost: str


def goal(options: Options) -> Goal | None:
    """What is to be measured, if the ranks are to be found by that."""
    if options.latency_ms is not None:
        return Goal("latency_ms", options.latency_ms)
    if options.speedup is not None:
        return Goal("ratio", 1 / options.speedup)
    return None if options.latency_ratio is None else Goal("ratio", options.latency_ratio)


def cells(request: Request) -> Artifact:
    """facts: {"cells": {label: {"layers": names, "ratio": share}}, "kept": {layer: why not}}; or "lost".

    A cell is a class of equal layers ("layer2.0.conv1 +4": it and four like it) at one of SHARES of their MACs.
    """
    options: Options = request.options
    scan = factorizable.scan(
        torch_module.rebuild(request.model), request, options.layers, options.method, options.linear
    )
    made: dict[str, RankCell] = {}
    for name, layers in factorizable.classes(scan.layers).items():
        before: dict[str, Ranks] = {}
        for share in SHARES:
            ranks = {layer.name: ranks for layer, ranks in _at(layers, share / 100, request.align)}
            if ranks and ranks != before:
                made[_label(name, share)] = {"layers": [*ranks], "ratio": share / 100}
            before = ranks
    facts = {"cells": made, "kept": scan.kept, **({} if made else {"lost": _nothing(scan.kept)})}
    return Artifact(request.out, "cells", request.model.inputs, request.model.outputs, facts).write()


def apply(request: Request) -> Artifact:
    """The net with the layers of low rank; inputs: "model", "samples" (calibrate, where a search asks).

    facts: {"layers": [{"name", "method", "shape", "ranks", "macs": [before, after], "parameters": [before, after],
    "error": of the weight, relative}], "kept": {name: why}, "macs" and "parameters": {"before", "after"}}: MACs of
    one item in all Linear and convolutions, parameters of the net. By the table of a search also "groups":
    [{"name", "kept": percent of its MACs}]. Raises InputError where a pattern of `layers` names none.
    """
    options: Options = request.options
    if goal(options) is not None:
        raise InputError(f"{options.rules()[0]} needs the search that deploy runs; give ratio, energy or evbmf instead")
    net = torch_module.rebuild(request.model)
    scan = factorizable.scan(net, request, options.layers, options.method, options.linear)
    before = _size(net)
    facts: LowRankFacts = {"layers": [], "kept": scan.kept}
    shares = None if options.saved is None else _shares(net, scan.layers, request, facts)
    edits = []
    for number, layer in enumerate(scan.layers):
        request.progress(0.7 + 0.3 * number / len(scan.layers), layer.name)
        try:
            edit, row = _replaced(net, layer, _ranks(layer, request, shares), request.context.seed)
        except Dense as why:
            scan.kept[layer.name] = str(why)
            continue
        edits.append(edit)
        facts["layers"].append(row)
    if not edits:
        facts.setdefault("lost", _nothing(scan.kept))
    spared = sum(dense - left for dense, left in (row["macs"] for row in facts["layers"]))
    facts["macs"] = {"before": scan.macs, "after": scan.macs - spared}
    facts["parameters"] = {"before": before, "after": _size(net)}
    _check_runs(net, request)
    return torch_module.save(net, request, edits, facts)


def _nothing(kept: Mapping[str, str]) -> str:
    reasons = "; ".join(f"{name}: {why}" for name, why in [*kept.items()][:3])
    return f"nothing to factorize: {reasons or 'no Linear and no convolution'}"


def _size(net: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _ranks(layer: FactorizableLayer, request: Request, shares: Mapping[str, float] | None) -> Ranks:
    """By the rule of the options, or by the share of its MACs that the search's table leaves it; raises Dense."""
    options, align = request.options, request.align
    if shares is not None:
        if layer.name not in shares:
            raise Dense("factorizing it saves no measured time, or is not needed to reach the goal")
        return factorizable.by_ratio(layer, shares[layer.name], align)
    if options.energy is not None:
        return factorizable.by_energy(layer, options.energy, align, request.context.seed)
    if options.evbmf:
        return factorizable.by_evbmf(layer, align)
    return factorizable.by_ratio(layer, options.ratio or RATIO, align)


# --------------------------------------------------------------------------- by what was measured


def _label(name: str, share: int) -> str:
    return f"{name}@{share}%"


def _at(layers: Sequence[FactorizableLayer], ratio: float, align: int) -> Iterator[tuple[FactorizableLayer, Ranks]]:
    """The ranks of those layers that can be as small as that."""
    for layer in layers:
        with contextlib.suppress(Dense):
            yield layer, factorizable.by_ratio(layer, ratio, align)


def _shares(
    net: torch.nn.Module, layers: Sequence[FactorizableLayer], request: Request, facts: LowRankFacts
) -> dict[str, float]:
    """The share of its MACs for each layer that is to be factorized: the least harm for the latency to be saved.

    Puts "groups" into the facts, or that what may stay is out of reach, which is "lost".
    """
    table = _table(net, layers, request)
    widths = {name: [*points] for name, points in table.items()}
    steps = [step for name, points in table.items() for step in candidates.by_harm(name, widths[name], points)]

    def left(taken: Mapping[str, int]) -> float:
        return 1 - sum(table[name][share][0] for name, share in taken.items())

    try:
        chosen = candidates.allocate(widths, steps, left, request.options.keep)
    except candidates.OutOfReach as error:
        facts["lost"] = (
            f"low rank leaves at least {error.least:.3f} of the latency, {request.options.keep:.3f} may stay"
        )
        return {}
    facts["groups"] = [{"name": name, "kept": share} for name, share in chosen.items()]
    return {name: share / 100 for name, share in chosen.items() if share < 100}


def _table(net: torch.nn.Module, layers: Sequence[FactorizableLayer], request: Request) -> Table:
    """For each layer and each percentage of its MACs: the latency saved, where it saves any, and the harm.

    A layer saves its part of what its class saves. Harm is the squared distance that the outputs move on calibration
    data, relative to their squared norm.
    """
    items = [*_items(request)]
    before = [torch_module.outputs(net, request.model, item) for item in items]
    table: Table = {layer.name: {100: (0.0, 0.0)} for layer in layers}
    classes = factorizable.classes(layers)
    for number, (name, share) in enumerate(cases := [*itertools.product(classes, SHARES)]):
        request.progress(0.7 * number / len(cases), f"what {name} at {share}% of its MACs moves")
        gain = request.options.saved.get(_label(name, share), 0.0)
        smaller = [*_at(classes[name], share / 100, request.align)] if gain > 0 else []
        for layer, ranks in smaller:
            with contextlib.suppress(Dense), _approximated(layer, ranks, request.context.seed):
                after = [torch_module.outputs(net, request.model, item) for item in items]
                table[layer.name][share] = (gain / len(smaller), _distance(before, after))
    return table


def _items(request: Request) -> Iterator[dict[str, torch.Tensor]]:
    """Calibration items as the net takes them: all at once where it takes any number."""
    import torch

    batches = spread(request, ITEMS)
    if isinstance(request.model.batch, Dim):
        batches = [[item for batch in batches for item in batch]]
    for batch in batches:
        yield {name: torch.from_numpy(array) for name, array in inputs_of(request, batch).items()}


@contextlib.contextmanager
def _approximated(layer: FactorizableLayer, ranks: Ranks, seed: int) -> Iterator[None]:
    """Meanwhile the layer has the weight that what replaces it amounts to; raises Dense."""
    import torch

    weight = layer.module.weight
    before, kernel = weight.detach().clone(), factors.composed(factorizable.factorized(layer, ranks, seed))
    with torch.no_grad():
        weight.copy_(torch.from_numpy(kernel).reshape(weight.shape))
    yield
    with torch.no_grad():
        weight.copy_(before)


def _distance(before: Sequence[Mapping[str, torch.Tensor]], after: Sequence[Mapping[str, torch.Tensor]]) -> float:
    """The squared distance between real outputs, relative to the squared norm of those before."""
    pairs = [(a[name], b[name]) for a, b in zip(before, after, strict=True) for name in a]
    real = [(a.double(), b.double()) for a, b in pairs if a.is_floating_point()]
    moved, norm = sum(float((b - a).square().sum()) for a, b in real), sum(float(a.square().sum()) for a, _ in real)
    return moved / max(norm, 1e-30)


# --------------------------------------------------------------------------- what replaces a layer


def _replaced(
    net: torch.nn.Module, layer: FactorizableLayer, ranks: Ranks, seed: int
) -> tuple[torch_edits.Edit, FactorizedLayer]:
    """Replaces the layer in the net; returns the edit and its row of the facts. Raises Dense."""
    shape, weights = layer.shape, factorizable.factorized(layer, ranks, seed)
    dense, pieces = rank.dense(shape), rank.chain(shape, layer.method, ranks)
    edit: torch_edits.Edit = {
        "edit": "replace",
        "module": layer.name,
        "by": factors.layers(layer.module, shape, pieces),
    }
    torch_edits.apply(net, [edit])
    factors.fill(net.get_submodule(layer.name), layer.module, weights)
    row: FactorizedLayer = {
        "name": layer.name,
        "method": layer.method,
        "shape": [*layer.module.weight.shape],
        "ranks": [*ranks],
        "macs": [rank.macs(shape, each) for each in (dense, pieces)],
        "parameters": [rank.parameters(shape, each) for each in (dense, pieces)],
        "error": factors.error(factors.kernel(layer.module), weights),
    }
    return edit, row


def _check_runs(net: torch.nn.Module, request: Request) -> None:
    """Raises StageFailed where the net reads something of a layer that is no longer there."""
    items = torch_module.example(request.model, request.inputs["samples"], factorizable.batch(request))
    try:
        torch_module.outputs(net, request.model, items)
    except Exception as error:
        message = f"{type(error).__name__}: {brief(str(error))}"
        raise StageFailed(
            f"the factorized net does not run ({message}): its code reads a layer that was replaced; "
            "list the layers to factorize in the option layers"
        ) from error
