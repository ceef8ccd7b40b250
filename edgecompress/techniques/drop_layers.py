"""Drops whole layers of a stack: of a transformer those that are named, or a number whose loss changes least.

The layers are the items of a ModuleList that has several of one class. Which go by number is tried on calibration
items, one after the other (Sajjad et al. 2020, arXiv:2004.03844, compare such choices); training then mends the net.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques._pruning import macs
from edgecompress.techniques._pruning.sensitivity import CalibrationBench

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense")

SUFFICES = 0.5  # of the layers of a stack may go by number


@dataclass(frozen=True)
class Options:
    """Which layers go, by their names or by number; without either, a quarter of them."""

    layers: tuple[str, ...] = ()  # names or patterns, also without their beginning: "layer.3", "*.layers.[4-7]"
    count: int | None = None  # so many, each time the one whose loss changes the outputs least
    samples: int = 64  # calibration items at most

    def __post_init__(self) -> None:
        if self.layers and self.count is not None:
            raise ValueError("give layers or count, not both")
        if min(1 if self.count is None else self.count, self.samples) < 1:
            raise ValueError("count and samples must be at least 1")


def apply(request: Request) -> Artifact:
    """The module without some of its layers; inputs: "model", "samples" (the calibrate split), "dense".

    facts: {"dropped": [layer], "harm": {layer: what the outputs change by}, where they were tried; "macs" and
    "parameters": {"before", "after", "source"}}; or "lost" where the net has no stack. Raises InputError for layers
    that there are not, a stack that would be empty or lose more than half by number, and a net that then does not run.
    """
    options: Options = request.options
    net, dense = torch_module.rebuild(request.model), torch_module.rebuild(request.inputs["dense"])
    stacks = _stacks(net)
    layers = [f"{stack}.{i}" for stack, size in stacks.items() for i in range(size)]
    if not layers:
        return torch_module.save(net, request, [], {"lost": "the net has no ModuleList of several layers of one class"})
    one = torch_module.example(request.model, request.inputs["samples"], 1)
    bench = CalibrationBench(request, options.samples)
    bench.learn(dense)
    harms: dict[str, float] = {}
    if options.layers:
        gone = _named(layers, options.layers)
    else:
        most = sum(int(size * SUFFICES) for size in stacks.values())
        gone = _least(net, layers, options.count or max(1, len(layers) // 4), (bench, most), harms, request)
    short = _without(net, gone)
    try:
        with_fewer = torch_module.outputs(short, request.model, one)
    except Exception as error:  # the user's forward counts on a layer
        raise InputError(f"drop_layers: the net does not run without {', '.join(gone)}: {error}") from error
    whole = torch_module.outputs(net, request.model, one)
    if {n: t.shape for n, t in with_fewer.items()} != {n: t.shape for n, t in whole.items()}:
        raise InputError(f"drop_layers: without {', '.join(gone)} the outputs have other shapes")
    nets = {"before": net, "after": short, "source": dense}
    facts = {
        "dropped": gone,
        "harm": harms,
        "macs": {name: macs.count(each, lambda each: torch_module.call(each, one)) for name, each in nets.items()},
        "parameters": {name: sum(p.numel() for p in each.parameters()) for name, each in nets.items()},
    }
    return torch_module.save(short, request, _edits(net, gone), facts)


def _stacks(net: torch.nn.Module) -> dict[str, int]:
    """How many layers each stack has; a stack in a layer of another is none of its own."""
    import torch

    found: dict[str, int] = {}
    for name, module in net.named_modules():
        alike = isinstance(module, torch.nn.ModuleList) and len({type(each) for each in module}) == 1
        if alike and len(module) > 1 and not any(name.startswith(f"{outer}.") for outer in found):
            found[name] = len(module)
    return found


def _named(layers: Sequence[str], patterns: Sequence[str]) -> list[str]:
    gone: list[str] = []
    for pattern in patterns:
        fit = [layer for layer in layers if fnmatch(layer, pattern) or fnmatch(layer, f"*.{pattern}")]
        if not fit:
            raise InputError(f"drop_layers: no layer '{pattern}'{did_you_mean(pattern, layers)}")
        gone += fit
    return [layer for layer in layers if layer in gone]


def _least(
    net: torch.nn.Module,
    layers: Sequence[str],
    count: int,
    how: tuple[CalibrationBench, int],
    harms: dict[str, float],
    request: Request,
) -> list[str]:
    """The layers that go, each time the one with the least harm; adds the harm of each when it went."""
    bench, most = how
    if count > most:
        raise InputError(f"drop_layers: count is {count}; at most {most} of the {len(layers)} layers go: name others")
    gone: list[str] = []
    for step in range(count):
        request.progress(step / count, f"layer {step + 1} of {count}")
        left = [layer for layer in layers if layer not in gone]
        tried = {layer: bench.harm(_without(net, [*gone, layer])) for layer in left if _fits(layers, [*gone, layer])}
        best = min(tried, key=lambda layer: tried[layer])
        gone.append(best)
        harms[best] = tried[best]
    return [layer for layer in layers if layer in gone]


def _fits(layers: Sequence[str], gone: Sequence[str]) -> bool:
    """Whether each stack keeps the layers that it must."""
    stacks = {_stack(layer) for layer in gone}
    return all(
        sum(_stack(g) == s for g in gone) <= SUFFICES * sum(_stack(layer) == s for layer in layers) for s in stacks
    )


def _stack(layer: str) -> str:
    return layer.rpartition(".")[0]


def _edits(net: torch.nn.Module, gone: Sequence[str]) -> list[torch_edits.Edit]:
    edits: list[torch_edits.Edit] = []
    for stack in dict.fromkeys(map(_stack, gone)):
        size: Any = len(net.get_submodule(stack))
        edits.append({"edit": "keep", "module": stack, "items": [i for i in range(size) if f"{stack}.{i}" not in gone]})
    return edits


def _without(net: torch.nn.Module, gone: Sequence[str]) -> torch.nn.Module:
    edits = _edits(net, gone)
    if empty := next((edit for edit in edits if not edit["items"]), None):
        raise InputError(f"drop_layers: no layer of {empty['module']} would be left; name fewer")
    short = copy.deepcopy(net)
    torch_edits.apply(short, edits)
    return short
