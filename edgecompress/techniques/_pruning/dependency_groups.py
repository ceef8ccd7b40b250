"""Which channels of a net can only go together, found by Torch-Pruning's dependency graph; what is refused, and why.

The graph (Fang et al., "DepGraph: Towards Any Structural Pruning", CVPR 2023, arXiv:2301.12900) says what depends on
what. Each group is then tried: the net without half of its channels has to compute what the net computes when nothing
reads those channels. A group that does not is refused: a graph misread does no harm.
"""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

from edgecompress.formats import torch_module
from edgecompress.techniques._pruning.channels import CoupledChannels, Size, narrowed, without
from edgecompress.techniques._pruning.dependency_graph import DependencyGraph, Run
from edgecompress.techniques._pruning.drafts import Refusal, joined, one_line

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

EXACT, NOISE = 1e-3, 1e-5  # of the effect of the channels, of the outputs: an RMS below both together is rounding


@dataclass(frozen=True)
class Dependencies:
    """The groups of a net, in its order, and why others are none."""

    groups: tuple[CoupledChannels, ...]
    refused: Mapping[str, str]


def find(net: Module, run: Run) -> Dependencies:
    """The groups of `net` that can be pruned; `run` calls it, or a copy, with real items."""
    groups, refused = [], dict[str, str]()
    with torch_module.plain_attention():
        graph = DependencyGraph(net, run)
        for root, others in graph.roots():
            try:
                groups.append(_tried(net, graph.group(root), run))
            except Refusal as why:
                refused |= {graph.names[root]: str(why)}
                refused |= {graph.names[layer]: f"it is coupled to {graph.names[root]}" for layer in others}
        return Dependencies(tuple(_in_blocks(groups, residual_blocks(net, run))), refused)


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
        whole = joined(group, [range(h, h + width) for h in range(0, group.channels, width)])
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
