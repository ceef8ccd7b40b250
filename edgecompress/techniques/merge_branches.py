"""Merges branches that are convolutions of one tensor and are added up: each sum as the one convolution that it is.

Nets are trained with branches that a device need not compute (Ding et al. 2021, RepVGG, arXiv:2101.03697): a 3x3, a 1x1
and the tensor itself, each behind its BatchNorm, are one 3x3 convolution. The numbers stay but for float rounding. In
int8 the weights of the one may round worse than those of its branches, which verify tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.model import REWRITES, Artifact, Request
from edgecompress.formats import torch_program
from edgecompress.techniques._torch_graph import CONVOLUTIONS, arguments, operator

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram as Program
    from torch.fx import Node

REQUIRES = ("torch",)
EXTRA = "torch"
READS: tuple[str, ...] = ("program",)
WRITES = "program"
PROVIDES = ""
NEEDS: tuple[str, ...] = ()

FILE = "program.pt2"
SAYS = "branches as one convolution"
SUMS = {"add": 1.0, "sub": -1.0}


@dataclass(frozen=True)
class Options:
    """It has none."""


@dataclass(frozen=True)
class Kernel:
    """A convolution's weights, [outputs, inputs / groups, *sizes], and how they go over what it reads."""

    weight: torch.Tensor
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of its window."""
        return tuple(self.weight.shape[2:])


@dataclass(frozen=True)
class Branch:
    """scale * (kernel * source) + shift, each of a value per channel; without a kernel scale * source + shift."""

    source: Node
    scale: torch.Tensor | float = 1.0
    shift: torch.Tensor | float = 0.0
    kernel: Kernel | None = None

    def times(self, scale: torch.Tensor | float) -> Branch:
        """It behind a product."""
        return replace(self, scale=self.scale * scale, shift=self.shift * scale)


def apply(request: Request) -> Artifact:
    """The program with each such sum as one convolution; input: "model".

    facts: {"rewrites": {SAYS: [module]}}; or "lost" where there is none. Raises StageFailed for a file that cannot be
    read.
    """
    import torch

    file = request.model.file(".pt2")
    try:
        program = torch_program.load(file)
    except Exception as error:  # torch.export has no error of its own
        raise StageFailed(f"merge_branches: {file}: {first_line(error)}") from error
    names = merged(program)
    torch.export.save(program, request.out / FILE)
    facts = {REWRITES: {SAYS: names}} if names else {"lost": "no sum of convolutions of one tensor in the net"}
    return Artifact(request.out, "program", request.model.inputs, request.model.outputs, facts).write()


def merged(program: Program) -> list[str]:
    """Merges the branches in place; the module of each sum. The largest sum first; of one that stays, those in it."""
    import torch

    names = list[str]()
    held = [node for node in program.graph.nodes if node.op == "placeholder"]
    with torch.no_grad():
        for total in reversed([node for node in program.graph.nodes if operator(node) in SUMS]):
            branches = [*_branches(program, total, whole=True)] if total.users else []
            if largest := _fit(branches):
                names.append(torch_program.module_of(total))
                _convolve(program, total, largest, branches)
    if names:
        torch_program.drop_unread(program, held)
        program.graph_module.recompile()
    return names[::-1]


# --------------------------------------------------------------------------- what is added up


def _branches(program: Program, node: Node, whole: bool = False) -> Iterator[Branch]:
    """What `node` adds up; with `whole` although more than one operation reads it."""
    inside = len(node.users) == 1 and hasattr(node.target, "_schema")  # an operation that one other reads
    what, args = operator(node), arguments(node) if whole or inside else {}
    if args and what in SUMS and args["alpha"] == 1 and isinstance(args["other"], (int, float)):
        first, *others = _branches(program, args["self"])
        yield from (replace(first, shift=first.shift + SUMS[what] * args["other"]), *others)
    elif args and what in SUMS and args["alpha"] == 1 and _alike(node, args["self"], args["other"]):
        yield from _branches(program, args["self"])
        yield from (branch.times(SUMS[what]) for branch in _branches(program, args["other"]))
    elif args and what == "mul" and (product := _product(program, node, args)):
        yield from (branch.times(product[1]) for branch in _branches(program, product[0]))
    elif args and what == "batch_norm" and not args["training"] and (norm := _norm(program, args)):
        scale, shift = norm
        first, *others = (branch.times(scale) for branch in _branches(program, args["input"]))
        yield from (replace(first, shift=first.shift + shift), *others)
    elif args and what == "dropout" and not args["train"]:
        yield from _branches(program, args["input"])
    elif args and what in CONVOLUTIONS and (convolution := _convolution(program, args)):
        yield convolution
    else:
        yield Branch(node)


def _alike(node: Node, *added: object) -> bool:
    """Whether tensors of one shape, of 32-bit floats, are added, and nothing is repeated along an axis."""
    values: list[Any] = [getattr(each, "meta", {}).get("val") for each in (node, *added)]
    return all(
        str(getattr(value, "dtype", "")) == "torch.float32" and value.dim() > 2 and value.shape == values[0].shape
        for value in values
    )


def _product(program: Program, node: Node, args: dict[str, Any]) -> tuple[Node, torch.Tensor | float] | None:
    """What a product multiplies, and each channel of it by what: a number, or a weight of one value per channel."""
    for read, by in ((args["self"], args["other"]), (args["other"], args["self"])):
        if isinstance(by, (int, float)):
            return read, float(by)
        weight = torch_program.weight(program, _viewed(by))
        if weight is not None and _alike(node, read):
            axes, channels = node.meta["val"].dim(), node.meta["val"].shape[1]
            sizes = (1,) * (axes - by.meta["val"].dim()) + tuple(by.meta["val"].shape)
            return (read, weight.double().flatten()) if sizes == (1, channels, *(1,) * (axes - 2)) else None
    return None


def _viewed(node: Node) -> Node:
    """What a view is one of."""
    while operator(node) in ("view", "reshape", "unsqueeze"):
        node = node.args[0]
    return node


def _norm(program: Program, args: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What a BatchNorm multiplies each channel by and adds to it."""
    mean, var = (torch_program.weight(program, args[name]) for name in ("running_mean", "running_var"))
    if mean is None or var is None:
        return None
    gain, bias = (torch_program.weight(program, args[name]) for name in ("weight", "bias"))
    scale = (var.double() + args["eps"]).rsqrt() * (1.0 if gain is None else gain.double())
    return scale, (0.0 if bias is None else bias.double()) - mean.double() * scale


def _convolution(program: Program, args: dict[str, Any]) -> Branch | None:
    weight, bias = (torch_program.weight(program, args[name]) for name in ("weight", "bias"))
    if weight is None or (args["bias"] is not None and bias is None) or isinstance(args["padding"], str):
        return None
    axes = weight.dim() - 2
    if args["input"].meta["val"].dim() != axes + 2:  # an image without a batch
        return None
    stride, padding, dilation = (
        tuple(args[name]) * (axes if len(args[name]) == 1 else 1) for name in ("stride", "padding", "dilation")
    )
    kernel = Kernel(weight.double(), stride, padding, dilation, args["groups"])
    return Branch(args["input"], 1.0, 0.0 if bias is None else bias.double(), kernel)


# --------------------------------------------------------------------------- one convolution


def _fit(branches: Sequence[Branch]) -> Kernel | None:
    """The kernel that holds those of all branches, which read one tensor that nothing changes; None without."""
    kernels = [branch.kernel for branch in branches if branch.kernel]
    if len(branches) < 2 or not kernels:
        return None
    largest = max(kernels, key=lambda kernel: kernel.weight[0, 0].numel())
    source = branches[0].source
    changed = any(_changes(user) and user.args[0] is source for user in source.users)
    fit = all(branch.source is source and _place(branch.kernel, largest) is not None for branch in branches)
    return largest if fit and not changed else None


def _changes(node: Node) -> bool:
    """Whether an operation works in place, on what it reads first."""
    schema = getattr(node.target, "_schema", None)
    return bool(schema and schema.is_mutable)


def _place(kernel: Kernel | None, largest: Kernel) -> tuple[int, ...] | None:
    """Where in the window of the largest kernel another begins, or the pixel that goes through; None if nowhere."""
    if kernel is None:
        sizes, padding = (1,) * len(largest.sizes), (0,) * len(largest.sizes)
        if {*largest.stride} != {1}:
            return None
    else:
        sizes, padding = kernel.sizes, kernel.padding
        dilated = any(size > 1 and a != b for size, a, b in zip(sizes, kernel.dilation, largest.dilation, strict=True))
        if kernel.stride != largest.stride or kernel.groups != largest.groups or dilated:
            return None
    steps = [divmod(big - p, d) for big, p, d in zip(largest.padding, padding, largest.dilation, strict=True)]
    inside = all(s >= 0 and s + n <= most for (s, _), n, most in zip(steps, sizes, largest.sizes, strict=True))
    return tuple(s for s, _ in steps) if inside and not any(rest for _, rest in steps) else None


def _convolve(program: Program, total: Node, largest: Kernel, branches: Sequence[Branch]) -> None:
    """The one convolution in the place of a sum."""
    import torch

    name = f"{torch_program.module_of(total)}.{total.name}"
    held = [
        torch_program.add_parameter(program, f"{name}.{part}", torch.nn.Parameter(value.float(), requires_grad=False))
        for part, value in zip(("weight", "bias"), _added_up(largest, branches), strict=True)
    ]
    operation = getattr(torch.ops.aten, CONVOLUTIONS[len(largest.sizes) - 1]).default
    how = ([*largest.stride], [*largest.padding], [*largest.dilation], largest.groups)
    torch_program.put(program, total, operation, (branches[0].source, *held, *how))


def _added_up(largest: Kernel, branches: Sequence[Branch]) -> tuple[torch.Tensor, torch.Tensor]:
    """The weight and the bias of all branches together, in double precision."""
    import torch

    outputs, inputs = largest.weight.shape[:2]
    weight, bias = torch.zeros_like(largest.weight), torch.zeros(outputs, dtype=torch.float64)
    for branch in branches:
        place = _place(branch.kernel, largest) or ()
        if branch.kernel:
            window = [slice(at, at + size) for at, size in zip(place, branch.kernel.sizes, strict=True)]
            scale = torch.as_tensor(branch.scale, dtype=torch.float64).reshape(-1, *[1] * (weight.dim() - 1))
            weight[(slice(None), slice(None), *window)] += branch.kernel.weight * scale
        else:  # the tensor itself: each output reads the input of its own number, in its group
            each = torch.arange(outputs)
            weight[(each, each % inputs, *place)] += branch.scale
        bias += branch.shift
    return weight, bias
