"""Paddings by what a tensor holds, in a program of torch.export, as slices and a concatenation.

Slices and concatenations all engines have. Core ML has no circular padding, and refuses to load the others where they
reach beyond the last two axes.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MODES = {"aten.reflection_pad3d.default": "reflect", "aten.replication_pad3d.default": "replicate"}
PAD = "aten.pad.default"
EVERYWHERE = (("circular",), (1, 2, 3))  # the modes, of so many axes, that not all engines have
CORE_ML = (("reflect", "replicate"), (3,))  # the further ones that Core ML has not
END = sys.maxsize


def spelled_out(program: torch.export.ExportedProgram, modes: Collection[str], axes: Collection[int]) -> None:
    """Rewrites the paddings of these modes over so many axes, in place."""
    for node in [node for node in program.graph.nodes if str(node.target) in (PAD, *MODES)]:
        widths, *how = node.args[1:]
        mode = MODES.get(str(node.target)) or node.kwargs.get("mode", how[0] if how else "constant")
        known = all(isinstance(width, int) for width in widths)
        if known and any(widths) and mode in modes and len(widths) // 2 in axes:
            _spell_out(program.graph, node, mode)
    program.graph_module.recompile()


def _spell_out(graph: torch.fx.Graph, node: torch.fx.Node, mode: str) -> None:
    """The padding, axis after axis; the last step has its name."""
    import torch

    aten = torch.ops.aten

    def add(operation: Any, *args: Any) -> torch.fx.Node:
        made = graph.call_function(operation, args)
        made.meta = {key: told for key, told in node.meta.items() if key != "torch_fn"}
        made.meta["val"] = operation(*torch.fx.map_arg(args, lambda each: each.meta["val"]))
        return made

    def side(axis: int, width: int, first: bool) -> torch.fx.Node:
        if mode == "circular":
            return add(aten.slice.Tensor, last, axis, *((-width, END) if first else (0, width)))
        if mode == "reflect":
            part = add(aten.slice.Tensor, last, axis, *((1, width + 1) if first else (-width - 1, -1)))
            return add(aten.flip.default, part, [axis])
        part = add(aten.slice.Tensor, last, axis, *((0, 1) if first else (-1, END)))
        return add(aten.expand.default, part, [width if i == axis else -1 for i in range(rank)])

    last, widths = node.args[0], node.args[1]
    rank = node.meta["val"].dim()
    with graph.inserting_before(node):
        for index, (before, after) in enumerate(zip(widths[::2], widths[1::2], strict=True), 1):
            axis = rank - index
            if before < 0 or after < 0:
                last = add(aten.slice.Tensor, last, axis, max(0, -before), min(0, after) or END)
            parts = [side(axis, before, True)] if before > 0 else []
            parts += [last, *([side(axis, after, False)] if after > 0 else [])]
            if len(parts) > 1:
                last = add(aten.cat.default, parts, axis)
    name = node.name
    node.replace_all_uses_with(last)
    graph.erase_node(node)
    last.name = name  # by which an output of the program, and a layer of a diagnosis, is known
