"""Shortcuts without parameters in a program of torch.export: slices and zeros as the 1x1 convolution that they are.

He et al. (2015, arXiv:1512.03385, section 4.1, option A) have a shortcut take every second pixel and pad its channels
with zeros. That is a convolution with a stride of 2 whose weights are an identity between zeros. Runtimes have a kernel
for it, in the layout of the convolutions beside it and quantized as they are; slices and paddings they copy, some in
another layout, ExecuTorch outside of XNNPACK. The numbers stay as they are: each is multiplied by one, others by zero.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES
from edgecompress.formats.torch_program import add_parameter, module_of, put

if TYPE_CHECKING:
    import torch

SAYS = "slices and zeros of shortcuts as 1x1 convolutions"
SLICE = "aten.slice.Tensor"
PADS = ("aten.pad.default", "aten.constant_pad_nd.default")


def folded(program: torch.export.ExportedProgram) -> dict[str, Json]:
    """Makes convolutions of shortcuts, in place; the facts that tell it: {"rewrites": {SAYS: [module]}}, or nothing."""
    names = list[str]()
    for pad in [node for node in program.graph.nodes if str(node.target) in PADS]:
        zeros, (source, stride) = _zeros(pad), _sliced(pad.args[0])
        if zeros and max(stride) > 1 and str(source.target) != SLICE:
            names.append(module_of(pad))
            _convolve(program, pad, (source, stride), zeros)
    if not names:
        return {}
    program.graph_module.recompile()
    return {REWRITES: {SAYS: names}}


def _zeros(pad: torch.fx.Node) -> tuple[int, int] | None:
    """How many channels of zeros a padding of images puts before and behind; None for any other padding."""
    widths, *how = pad.args[1:]
    value = [each for each in (*how, *pad.kwargs.values()) if each not in ("constant", None, 0)]
    made = pad.meta["val"]
    known = all(isinstance(size, int) for size in (*widths, *made.shape[1:2]))
    if value or not known or len(widths) != 6 or any(widths[:4]) or min(widths[4:]) < 0:
        return None
    return (widths[4], widths[5]) if made.dim() == 4 and made.is_floating_point() else None


def _sliced(node: torch.fx.Node) -> tuple[torch.fx.Node, list[int]]:
    """What slices of whole axes, x[:, :, ::2, ::2], that nothing else reads begin with, and the steps of the pixels."""
    stride = [1, 1]
    while str(node.target) == SLICE and len(node.users) == 1:
        given = dict(zip(("tensor", "axis", "begin", "end", "step"), node.args, strict=False))
        axis, step = given.get("axis", 0), given.get("step", 1)
        whole = not given.get("begin") and given.get("end") in (None, sys.maxsize)
        if not whole or not isinstance(step, int) or (axis not in (2, 3) and step != 1):
            break
        if axis in (2, 3):
            stride[axis - 2] *= step
        node = given["tensor"]
    return node, stride


def _convolve(
    program: torch.export.ExportedProgram,
    pad: torch.fx.Node,
    sliced: tuple[torch.fx.Node, list[int]],
    zeros: tuple[int, int],
) -> None:
    """The convolution in the place of a padding, under its name, and of the slices that it reads."""
    import torch

    source, stride = sliced
    value = source.meta["val"]
    identity = torch.eye(int(value.shape[1]), dtype=value.dtype)
    weight = torch.nn.functional.pad(identity, (0, 0, *zeros))[:, :, None, None]
    held = add_parameter(
        program, f"{module_of(pad)}.{pad.name}.weight", torch.nn.Parameter(weight, requires_grad=False)
    )
    put(program, pad, torch.ops.aten.conv2d.default, (source, held, None, stride))
