"""The layers of a net that can be factorized, and the ranks of each by one rule or another."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Request
from edgecompress.formats import torch_module
from edgecompress.techniques._low_rank import factors, rank
from edgecompress.techniques._low_rank.rank import Method, Ranks, Shape, Size

if TYPE_CHECKING:
    import torch
    from torch.nn import Conv2d, Linear

Plain: TypeAlias = "Linear | Conv2d"  # the layers that can be factorized

Call = tuple[Size, Size, int]  # as in Shape.calls


class Dense(Exception):
    """Why a layer stays as it is."""


@dataclass(frozen=True)
class FactorizableLayer:
    """A layer that can be factorized: its name, the torch layer, its shape, by which method."""

    name: str
    module: Plain
    shape: Shape
    method: Method

    def aligned(self, align: int) -> int:
        """What its ranks are multiples of: those of a tensor train are no channels."""
        return 1 if self.method == "ttm" else align

    def macs(self, ranks: Ranks | None = None) -> int:
        """Of the layer, or of what replaces it, for one item."""
        return rank.macs(self.shape, rank.chain(self.shape, self.method, ranks) if ranks else rank.dense(self.shape))


@dataclass(frozen=True)
class Factorizable:
    """What a net has to factorize, why other layers stay as they are, and the MACs of all: one item's."""

    layers: list[FactorizableLayer]
    kept: dict[str, str]
    macs: int


def batch(request: Request) -> int:
    """Items that the net takes at once: one where it takes any number."""
    size = request.model.batch
    return size if isinstance(size, int) else 1


# --------------------------------------------------------------------------- which layers


def scan(
    net: torch.nn.Module, request: Request, patterns: Sequence[str], method: Method, linear: str = "svd"
) -> Factorizable:
    """The layers that can be factorized, in the net's order: 1 x 1 by SVD, Linear by `linear`, the rest by `method`.

    MACs are of every Linear and convolution. Raises InputError where a pattern names none.
    """
    from torch import nn
    from torch.nn.modules.conv import _ConvNd

    named = {n: m for n, m in net.named_modules() if isinstance(m, (nn.Linear, _ConvNd))}
    for pattern in patterns:
        if named and not fnmatch.filter(named, pattern):
            raise InputError(f"layers: no Linear or convolution is named '{pattern}'{did_you_mean(pattern, [*named])}")
    chosen = [name for name in named if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
    calls = _calls(net, named, request)
    factorizable = Factorizable([], {}, sum(macs for each in calls.values() for _, macs in each))
    for name in chosen:
        if why := _why_not(net, name, named[name], called=bool(calls[name])):
            factorizable.kept[name] = why
            continue
        outputs, inputs, *kernel = named[name].weight.shape
        height, width = kernel or (1, 1)
        made = tuple(call for call, _ in calls[name])
        shape = Shape(inputs, outputs, (height, width), made, named[name].bias is not None)
        by: Method = "svd" if shape.kernel == (1, 1) else method
        if linear == "tt" and isinstance(named[name], nn.Linear):
            by = "ttm"
            if 1 in (rank.halves(inputs)[0], rank.halves(outputs)[0]):
                factorizable.kept[name] = f"a tensor train needs two factors of {inputs} and of {outputs}"
                continue
        factorizable.layers.append(FactorizableLayer(name, named[name], shape, by))
    return factorizable


def _why_not(net: torch.nn.Module, name: str, layer: torch.nn.Module, called: bool) -> str:
    """Why no others can stand in for a layer, or nothing."""
    import torch
    from torch import nn

    if type(layer) not in (nn.Linear, nn.Conv2d):
        return f"a {type(layer).__name__}: only plain Linear and Conv2d are factorized"
    if getattr(layer, "groups", 1) > 1:
        return f"a convolution in {layer.groups} groups: each group has few channels already"
    if layer._parameters.get("weight") is None or layer._forward_hooks or layer._forward_pre_hooks:
        return "hooks compute its weight, or observe its calls"
    if layer.weight.dtype != torch.float32:
        return f"its weight is {str(layer.weight.dtype).removeprefix('torch.')}, not float32"
    parameters = net.named_parameters(remove_duplicate=False)
    if same := [n for n, p in parameters if p is layer.weight and n != f"{name}.weight"]:
        return f"its weight is shared with {same[0]}"
    if isinstance(net.get_submodule(name.rpartition(".")[0]), nn.TransformerEncoderLayer):
        return "torch's TransformerEncoderLayer reads the weight itself"
    return "" if called else "the net does not call it: it reads the weight directly, or does not use it"


def _calls(
    net: torch.nn.Module, named: Mapping[str, torch.nn.Module], request: Request
) -> dict[str, list[tuple[Call, int]]]:
    """Each call of each layer while the net runs on the first items, and its MACs for one item."""
    items = batch(request)
    calls: dict[str, list[tuple[Call, int]]] = {name: [] for name in named}

    def hook(name: str) -> Callable[[Plain, Sequence[torch.Tensor], Mapping[str, torch.Tensor], torch.Tensor], None]:
        def seen(
            layer: Plain, args: Sequence[torch.Tensor], kwargs: Mapping[str, torch.Tensor], output: torch.Tensor
        ) -> None:
            calls[name].append(_call(layer, args[0] if args else kwargs["input"], output, items))

        return seen

    hooks = [layer.register_forward_hook(hook(name), with_kwargs=True) for name, layer in named.items()]
    torch_module.outputs(net, request.model, torch_module.example(request.model, request.inputs["samples"], items))
    for each in hooks:
        each.remove()
    return calls


def _call(layer: Plain, value: torch.Tensor, output: torch.Tensor, items: int) -> tuple[Call, int]:
    from torch import nn

    moved = value if getattr(layer, "transposed", False) else output
    macs = moved.numel() * layer.weight.numel() // layer.weight.shape[0] // items
    if isinstance(layer, nn.Linear):
        return ((1, 1), (1, 1), max(output.numel() // layer.out_features // items, 1)), macs
    before, after = ((*each.shape[-2:],) for each in (value, output))
    times = max(output.numel() // (layer.out_channels * math.prod(after)) // items, 1)
    return (before, after, times), macs


def classes(layers: Sequence[FactorizableLayer]) -> dict[str, list[FactorizableLayer]]:
    """Equal layers together, called "NAME +4" for one and four like it: they gain the same."""
    equal: dict[tuple[type[Plain], Shape], list[FactorizableLayer]] = {}
    for layer in layers:
        equal.setdefault((type(layer.module), layer.shape), []).append(layer)
    return {f"{c[0].name} +{len(c) - 1}" if len(c) > 1 else c[0].name: c for c in equal.values()}


def factorized(layer: FactorizableLayer, ranks: Ranks, seed: int) -> factors.Weights:
    """The weights of what replaces it; raises Dense where there are none."""
    try:
        return factors.factorized(factors.kernel(layer.module), layer.method, ranks, seed)
    except factors.Diverged as error:
        raise Dense(f"the decomposition of rank {_in_words(ranks)} diverges: {error}") from error


# --------------------------------------------------------------------------- which ranks


def by_ratio(layer: FactorizableLayer, ratio: float, align: int) -> Ranks:
    """The ranks that lose least within that share of the layer's MACs; raises Dense."""
    budget = min(ratio * layer.macs(), layer.macs() - 1)
    if layer.method == "cp":
        largest = rank.most(_useful(layer, align), lambda r: layer.macs((r,)) <= budget)
        chosen: Ranks | None = None if largest is None else (largest,)
    else:
        spectra = factors.spectra(factors.kernel(layer.module), layer.method)
        chosen = rank.within(spectra, layer.macs, budget, layer.aligned(align))
    if not chosen:
        raise Dense(f"no rank that is a multiple of {layer.aligned(align)} needs at most {ratio:.0%} of its MACs")
    return rank.clipped(layer.shape, layer.method, chosen)


def by_energy(layer: FactorizableLayer, share: float, align: int, seed: int) -> Ranks:
    """The least ranks that keep the share: of each unfolding, or with cp of the whole weight. Raises Dense."""
    weight = factors.kernel(layer.module)
    least = [rank.energy(spectrum, share) for spectrum in factors.spectra(weight, layer.method)]
    if layer.method != "cp":
        return _cheaper(layer, least, align)
    ranks = [r for r in _useful(layer, align) if r >= max(least)]  # a component adds 1 to each unfolding

    least_useful = rank.first(ranks, lambda r: factors.error(weight, factorized(layer, (r,), seed)) ** 2 <= 1 - share)
    if least_useful is None:
        raise Dense(f"no rank that needs fewer MACs than the layer keeps {share:.0%} of the squared weights")
    return (least_useful,)


def by_evbmf(layer: FactorizableLayer, align: int) -> Ranks:
    """As many as stand out of the noise of each unfolding; with cp the most of them. Raises Dense."""
    weight = factors.kernel(layer.module)
    spectra, unfolded = factors.spectra(weight, layer.method), factors.matrix(weight, layer.method)
    ranks = [rank.evbmf(spectrum, *each.shape) for spectrum, each in zip(spectra, unfolded, strict=True)]
    if not all(ranks):
        raise Dense("EVBMF finds only noise in its weight (rank 0)")
    return _cheaper(layer, [max(ranks)] if layer.method == "cp" else ranks, align)


def _useful(layer: FactorizableLayer, align: int) -> list[int]:
    """The ranks of cp that take fewer MACs than the layer."""
    (limit,) = rank.full(layer.shape, layer.method)
    return [*range(align, min(limit, (layer.macs() - 1) // layer.macs((1,))) + 1, align)]


def _cheaper(layer: FactorizableLayer, ranks: Sequence[int], align: int) -> Ranks:
    """The ranks in multiples of `align`, if they take fewer MACs than the layer; raises Dense."""
    limits = rank.full(layer.shape, layer.method)
    aligned = tuple(rank.aligned(r, layer.aligned(align), limit) for r, limit in zip(ranks, limits, strict=True))
    clipped = rank.clipped(layer.shape, layer.method, aligned)
    if layer.macs(clipped) >= layer.macs():
        raise Dense(
            f"at rank {_in_words(clipped)} it would need {layer.macs(clipped):,} MACs instead of {layer.macs():,}"
        )
    return clipped


def _in_words(ranks: Ranks) -> str:
    return " x ".join(map(str, ranks))
