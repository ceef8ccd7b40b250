"""Distiller's summaries of a torch net, under its names: what is computed where, modules, percentiles of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.source import TORCH
from edgecompress.formats import torch_module
from edgecompress.stages.analyze import weights

if TYPE_CHECKING:
    import torch


class ComputeRow(TypedDict):
    """One run of a Conv2d or Linear on one item; biases are in no number."""

    name: str
    type: str
    attrs: str
    ifm: list[int]
    ofm: list[int]
    weights: int
    macs: int


class ModuleRow(TypedDict):
    """A module without modules inside."""

    name: str
    type: str


class SummaryFacts(TypedDict, total=False):
    """Those that were asked for; `percentile`: of each weight, the magnitude below which that share of it is."""

    compute: list[ComputeRow]
    modules: list[ModuleRow]
    model: str
    percentile: dict[str, float]


def of(request: Request) -> SummaryFacts:
    """The summaries "names" of the Request's model, run on an item of the samples; options: "percentile", 0..1, too.

    Raises InputError for a model that is no net made of modules, where more than its weights is asked for.
    """
    model, names = request.model, request.options["names"]
    facts: SummaryFacts = {}
    if "percentile" in names:
        facts["percentile"] = _percentiles(model, request.options["percentile"])
    if of_modules := [name for name in names if name != "percentile"]:
        facts |= _of_modules(request, of_modules)
    return facts


def _of_modules(request: Request, names: Sequence[str]) -> SummaryFacts:
    import torch

    model, facts = request.model, SummaryFacts()
    net = torch_module.rebuild(model) if model.kind in TORCH else None
    if net is None or isinstance(net, torch.fx.GraphModule):
        raise InputError(f"--summary {names[0]} needs a torch net made of modules: give its factory, pkg.mod:fn")
    if "compute" in names:
        facts["compute"] = _compute(net, model, request.inputs["samples"])
    if "modules" in names:
        leaves = ((n, m) for n, m in net.named_modules() if not [*m.children()])
        facts["modules"] = [{"name": name, "type": type(module).__name__} for name, module in leaves]
    if "model" in names:
        facts["model"] = str(net)
    return facts


def _compute(net: torch.nn.Module, model: Artifact, samples: Artifact) -> list[ComputeRow]:
    """In the order of computing; a layer that runs twice has two rows.

    MACs of a Conv2d: numbers it gives x input channels of a group x kernel; of a Linear: its weights, however many rows
    it takes, as Distiller counts it.
    """
    from torch import nn

    rows: list[ComputeRow] = []

    def look(name: str, layer: torch.nn.Module, given: torch.Tensor, made: torch.Tensor) -> None:
        volume, attrs = layer.weight.numel(), ""
        if isinstance(layer, nn.Conv2d):
            attrs = f"k=({', '.join(map(str, layer.kernel_size))})"
            macs = made.numel() * volume // layer.out_channels
        else:
            macs = volume
        kind, ends = type(layer).__name__, (list(given.shape), list(made.shape))
        row: ComputeRow = {
            "name": name,
            "type": kind,
            "attrs": attrs,
            "ifm": ends[0],
            "ofm": ends[1],
            "weights": volume,
            "macs": macs,
        }
        rows.append(row)

    with ExitStack() as hooks:
        for name, layer in net.named_modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                seen = layer.register_forward_hook(
                    lambda m, given, words, made, name=name: look(name, m, given[0] if given else words["input"], made),
                    with_kwargs=True,
                )
                hooks.callback(seen.remove)
        batch = model.batch if isinstance(model.batch, int) else 1
        torch_module.outputs(net, model, torch_module.example(model, samples, batch))
    return rows


def _percentiles(model: Artifact, share: float) -> dict[str, float]:
    """Of its magnitudes in order, the one at `share` of them."""
    import numpy as np

    found = {}
    for name, weight in weights.of(model):
        place = max(math.floor(share * weight.size), 1) - 1
        found[name] = float(np.partition(np.abs(weight), place, axis=None)[place])
    return found
