"""Weights of 4 bits of a torch program, in groups with a scale each (8da4w of torchao): for ExecuTorch's XNNPACK.

Activations are rounded to int8 as they come, in the kernel.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_program
from edgecompress.techniques import _pt2e, _skipped_layers, _weights_only

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "torchao", "executorch>=1.5")
EXTRA = "executorch"
READS: tuple[str, ...] = ("program",)
WRITES = "program"
PROVIDES = "int4"
NEEDS: tuple[str, ...] = ("samples",)  # one item: what the program is exported with
PREPARED = False
KNOBS = {"group": Knob(choices=(32, 64, 128))}

BITS = 4


@dataclass(frozen=True)
class Options:
    """Which linear layers are rounded, and how."""

    group: Literal[32, 64, 128] = 32  # numbers of a row that share a scale
    skip: tuple[str, ...] = ()  # modules kept in float, as patterns of their names
    int8: tuple[str, ...] = ()  # modules with 8 bits, a scale for each row
    bits: float | None = None  # of a weight on average, 4 to 8: which have 8, or stay in float, is then chosen

    def __post_init__(self) -> None:
        _weights_only.check_bits(self.bits)


def promises(_: Options) -> Promise:
    """Weights of 4 bits."""
    return _weights_only.promise(BITS)


def kept(
    options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer], option: str = "int8"
) -> dict[str, Json]:
    """The options with those layers of a diagnosis in 8 bits, or in float: that is option "skip"."""
    names = (glob.escape(layer["module"]) for layer in layers if layer["module"])
    return _skipped_layers.skipping(options, names, option)


FINER = {8: kept, 32: partial(kept, option="skip")}
goal = _weights_only.goal


def apply(request: Request) -> Artifact:
    """The program with weights of few bits; inputs: "model", "samples".

    facts: {"bits", "group", "quantized": [module], "int8": [module], "numbers": {module: weights}}; "lost" where no
    linear layer fills a group. Raises StageFailed with torchao's reason.
    """
    import torch

    options: Options = request.options
    program = torch_program.load(request.model.file(".pt2"))
    net = program.module(check_guards=False)
    _pt2e.check_known(net.graph.nodes, (*options.skip, *options.int8))
    layers = dict(_layers(net, options))
    facts: dict[str, Json] = {"bits": BITS, "group": options.group, "quantized": list(layers)}
    facts["int8"] = [name for name, (_, bits) in layers.items() if bits > BITS]
    facts["numbers"] = {name: net.get_parameter(str(n.args[1].target)).numel() for name, (n, _) in layers.items()}
    if not layers:
        facts["lost"] = _weights_only.NOTHING
    try:
        for node, bits in layers.values():
            _round(net, node, bits, options.group)
        net.recompile()
        with torch.no_grad():
            again = _pt2e.exported(net, program, request)
    except Exception as error:  # torchao's and torch's errors have no base of their own
        raise StageFailed(f"torchao_int4: {first_line(error)}") from error
    _pt2e.save(again, request.out)
    return _pt2e.ends(request, facts)


def _layers(net: torch.fx.GraphModule, options: Options) -> Iterator[tuple[str, tuple[torch.fx.Node, int]]]:
    """The linear layers that are rounded: module -> its product and how many bits."""
    import torch

    for node in net.graph.nodes:
        if node.target != torch.ops.aten.linear.default or node.args[1].op != "get_attr":
            continue
        columns, rows = net.get_parameter(node.args[1].target).shape
        name = [node.name, *_pt2e.modules(node)][-1]
        large = rows % options.group == 0 and columns >= _weights_only.LEAST_COLUMNS
        if large and not _pt2e.named(node, options.skip):
            yield name, (node, 8 if _pt2e.named(node, options.int8) else BITS)


def _round(net: torch.fx.GraphModule, node: torch.fx.Node, bits: int, group: int) -> None:
    """Gives a product torchao's tensor in the place of its weight, which a lookup table may go on reading."""
    import torch
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    held = net.get_parameter(str(node.args[1].target))
    layer = torch.nn.Linear(held.shape[1], held.shape[0], bias=False)
    layer.weight = torch.nn.Parameter(held.detach().clone())
    kind, per = (torch.int4, PerGroup(group)) if bits == BITS else (torch.int8, PerAxis(0))
    quantize_(layer, Int8DynamicActivationIntxWeightConfig(weight_dtype=kind, weight_granularity=per))
    name = f"{node.name}_int{bits}"
    net.register_parameter(name, layer.weight)
    with net.graph.inserting_before(node):
        node.update_arg(1, net.graph.get_attr(name))
    node.target = torch.nn.functional.linear  # the operator's own is taken apart before torchao's tensor sees it
