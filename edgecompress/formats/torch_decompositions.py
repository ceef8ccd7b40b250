"""Operators that an engine lacks, in a program of torch.export, as the simpler ones that torch computes them by.

An engine says which operators it knows, and computes rightly. Others are replaced by those below, or by torch's own
decomposition (`torch.export`'s table of core operators, then the whole of `torch._decomp`), again and again until it
knows all of them, or nothing replaces one. A program of operators that it knows stays as it is, to the byte.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES
from edgecompress.formats.torch_program import module_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Decomposition = Callable[..., Any]

T = TypeVar("T")
SAYS = "operators as the simpler ones that they are made of"
VALUES = (
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "max_pool3d_with_indices",
)  # of which only the values are computed by others, no places
ROUNDS = 6  # a decomposition may have operators that have one


def simpler(
    program: torch.export.ExportedProgram, knows: Callable[[torch.fx.Node], bool]
) -> tuple[torch.export.ExportedProgram, dict[str, Json]]:
    """The program, and the facts that tell what was replaced: {"rewrites": {SAYS: [operator of layer]}}, or nothing."""
    import torch
    from torch._decomp import decomposition_table

    own, core = _own(), torch.export.default_decompositions()
    told, prims = dict[str, None](), set[object]()
    for _ in range(ROUNDS):
        nodes = [node for node in program.graph.nodes if node.op == "call_function" and hasattr(node.target, "_schema")]
        written = [node for node in nodes if _writes_for_others(node)]
        lacking = [node for node in nodes if not knows(node) and node.target not in prims]
        lacking = [
            n for n in lacking if n.target._opname not in VALUES or not any(u.args[1] and u.users for u in n.users)
        ]
        tables = (own, core, decomposition_table)
        chosen = {n.target: next((t[n.target] for t in tables if n.target in t), None) for n in lacking}
        chosen = {target: how for target, how in chosen.items() if how}
        if not chosen and not written:
            break
        made = program.run_decompositions(chosen)  # what is written in place is written anew, too
        if made.graph_signature.buffers_to_mutate:
            break  # what it writes to itself would become outputs
        if any(getattr(node.target, "namespace", "") == "prims" for node in made.graph.nodes):  # which no engine has
            prims |= chosen.keys() - own.keys() - core.keys()
            continue
        told |= {f"{n.target._opname} of {module_of(n)}": None for n in nodes if n.target in chosen or n in written}
        program = made
    return program, {REWRITES: {SAYS: [*told]}} if told else {}


def _writes_for_others(node: torch.fx.Node) -> bool:
    """Whether an operator writes into what is a view, or what others read: converters follow no such write."""
    written: Any = node.args[0] if node.args else None
    if not node.target._schema.is_mutable or node.target._opname == "detach_" or not hasattr(written, "users"):
        return False
    made = getattr(written.target, "_schema", None)
    view = made is not None and not made.is_mutable and any(each.alias_info for each in made.returns)
    return view or len(written.users) > 1


def retried(
    convert: Callable[[torch.export.ExportedProgram], T],
    program: torch.export.ExportedProgram,
    knows: Callable[[torch.fx.Node], bool],
    broken: Callable[[T], bool] = lambda made: False,
) -> tuple[T, dict[str, Json]]:
    """What a converter makes of a program; where it breaks, or that is `broken`, of the simpler one, with its facts.

    Raises what the converter raised of the program as it was given: that names the operators that its author wrote.
    """
    try:
        made, error = convert(program), None
    except Exception as raised:
        made, error = None, raised
    if made is not None and not broken(made):
        return made, {}
    with contextlib.suppress(Exception):  # of torch, and of the converter once more
        other, facts = simpler(program, knows)
        if facts:
            return convert(other), facts
    if made is None:
        raise error or AssertionError
    return made, {}


def together(*facts: Mapping[str, Json]) -> dict[str, Json]:
    """Facts, and the rewrites of all of them."""
    rewrites: dict[str, Json] = {}
    for each in facts:
        told = each.get(REWRITES)
        rewrites |= told if isinstance(told, Mapping) else {}
    merged = {key: value for each in facts for key, value in each.items()}
    return {**merged, REWRITES: rewrites} if rewrites else merged


def _own() -> Mapping[Any, Decomposition]:
    """Those that torch has none of, or one that engines stumble over; by the formulas of its documentation."""
    import torch

    aten = torch.ops.aten

    def acosh(x: Tensor) -> Tensor:
        return torch.log(x + torch.sqrt(x - 1) * torch.sqrt(x + 1))

    def asinh(x: Tensor) -> Tensor:
        size = torch.abs(x)  # of -x it is -asinh(x): no two large numbers are subtracted
        return torch.sign(x) * torch.log(size + torch.sqrt(size * size + 1))

    def atanh(x: Tensor) -> Tensor:
        return 0.5 * (torch.log(1 + x) - torch.log(1 - x))

    def fmax(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(x != x, y, torch.where(y != y, x, torch.maximum(x, y)))

    def fmin(x: Tensor, y: Tensor) -> Tensor:
        return torch.where(x != x, y, torch.where(y != y, x, torch.minimum(x, y)))

    def fmod(x: Tensor, y: Tensor) -> Tensor:
        return x - y * trunc(x / y)

    def trunc(x: Tensor) -> Tensor:
        return torch.sign(x) * torch.floor(torch.abs(x))

    def lerp(x: Tensor, y: Tensor, weight: Any) -> Tensor:
        return x + weight * (y - x)

    def var_mean(x: Tensor, axes: Any = None, *, correction: float | None = 1, keepdim: bool = False) -> Any:
        axes = list(range(x.dim())) if axes is None else axes
        mean = x.mean(axes, keepdim=True)
        count = 1
        for axis in axes:
            count *= x.shape[axis]
        var = ((x - mean) * (x - mean)).sum(axes, keepdim=keepdim) / max(
            count - (1 if correction is None else correction), 0
        )
        return var, mean if keepdim else x.mean(axes)

    def prod(x: Tensor, axis: int, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        parts = list((x if dtype is None else x.to(dtype)).split(1, axis))
        while len(parts) > 1:  # in pairs: as many steps as the length has binary digits
            parts = [*(a * b for a, b in zip(parts[::2], parts[1::2], strict=False)), *parts[len(parts) // 2 * 2 :]]
        return parts[0] if keepdim else parts[0].squeeze(axis)

    def prod_of_all(x: Tensor, *, dtype: Any = None) -> Tensor:
        return prod(x.reshape(-1), 0, dtype=dtype)

    def dist(x: Tensor, y: Tensor, p: float = 2) -> Tensor:
        return torch.linalg.vector_norm(x - y, p)

    def turned(x: Tensor) -> Tensor:
        return x.transpose(-2, -1)

    def softplus(x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
        steep = x * float(beta)
        return torch.where(steep > threshold, x, torch.log(1 + torch.exp(steep)) * (1 / beta))

    def rounded(x: Tensor, *, decimals: int) -> Tensor:
        return torch.round(x * 10.0**decimals) * 10.0**-decimals

    def addbmm(x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        return float(beta) * x + float(alpha) * torch.bmm(a, b).sum(0)

    def trilinear(
        a: Tensor, b: Tensor, c: Tensor, of_a: Any, of_b: Any, of_c: Any, summed: Any, unroll: int = 1
    ) -> Tensor:
        for axis in sorted({*of_a, *of_b, *of_c}):
            a, b, c = (t.unsqueeze(axis) if axis in of else t for t, of in ((a, of_a), (b, of_b), (c, of_c)))
        return (a * b * c).sum(list(summed))

    def cdist(x: Tensor, y: Tensor, p: float, mode: int | None) -> Tensor:
        return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)

    def sort(x: Tensor, axis: int = -1, descending: bool = False, most: int = 0) -> tuple[Tensor, Tensor]:
        if not x.dim():
            return x, torch.zeros(x.shape, dtype=torch.int64)
        last = x.movedim(axis, -1)  # the largest along the last axis: the only ones that all engines find
        values, places = torch.topk(last if descending else -last, most or x.shape[axis])
        return (values if descending else -values).movedim(-1, axis), places.movedim(-1, axis)

    def stable(x: Tensor, *, stable: bool, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
        return sort(x, dim, descending)

    def kth(x: Tensor, k: int, axis: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        values, places = sort(x, axis, most=k)
        found = values.narrow(axis, k - 1, 1), places.narrow(axis, k - 1, 1)
        return found if keepdim else (found[0].squeeze(axis), found[1].squeeze(axis))

    def median(x: Tensor, axis: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return kth(x, (x.shape[axis] + 1) // 2, axis, keepdim)

    def median_of_all(x: Tensor) -> Tensor:
        return kth(x.reshape(-1), (x.numel() + 1) // 2, 0)[0]

    def windows(x: Tensor, axis: int, how: tuple[int, int, int, int, bool], edge: float) -> tuple[list[Tensor], Tensor]:
        """The numbers at each place of a pool's kernel along an axis, and how many of each window are no padding."""
        kernel, stride, pad, step, ceil = how
        length, reach = x.shape[axis], step * (kernel - 1) + 1
        room = length + 2 * pad - reach
        out = (-(-room // stride) if ceil else room // stride) + 1
        out -= ceil and (out - 1) * stride >= length + pad  # no window begins in the padding behind
        behind = max((out - 1) * stride + reach - length - pad, 0)
        widths = [0] * (2 * (x.dim() - 1 - axis % x.dim())) + [pad, behind]
        padded = torch.nn.functional.pad(x, widths, value=edge) if pad or behind else x
        parts = [
            padded.narrow(axis, i * step, (out - 1) * stride + 1).index_select(
                axis, torch.arange(0, (out - 1) * stride + 1, stride)
            )
            for i in range(kernel)
        ]
        first = torch.arange(out) * stride - pad
        return parts, torch.stack((first, first + kernel, torch.full((out,), length + pad)))

    def each(value: Any) -> list[int]:
        values = [value] if isinstance(value, int) else [*value]
        return values * 3 if len(values) == 1 else values

    def max_pool3d(
        x: Tensor, kernel: Any, stride: Any = (), pad: Any = 0, step: Any = 1, ceil: bool = False
    ) -> tuple[Tensor, Tensor]:
        for i, how in enumerate(zip(each(kernel), each(stride or kernel), each(pad), each(step), strict=True)):
            parts, _ = windows(x, i - 3, (*how, ceil), -torch.inf)
            x = parts[0]
            for part in parts[1:]:
                x = torch.maximum(x, part)
        return x, torch.zeros(x.shape, dtype=torch.int64)

    def avg_pool3d(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        pad: Any = 0,
        ceil: bool = False,
        all_: bool = True,
        by: int | None = None,
    ) -> Tensor:
        for i, how in enumerate(zip(each(kernel), each(stride or kernel), each(pad), strict=True)):
            length = x.shape[i - 3]
            parts, (first, last, end) = windows(x, i - 3, (*how, 1, ceil), 0.0)
            x = parts[0]
            for part in parts[1:]:
                x = x + part
            if by is None:
                inside = torch.clamp(last, max=length) - torch.clamp(first, min=0)
                count = torch.minimum(last, end) - first if all_ else inside
                x = x / count.to(x.dtype).reshape(-1, *[1] * (2 - i))
        return x if by is None else x / by

    def adaptive_max(x: Tensor, sizes: Any) -> tuple[Tensor, Tensor]:
        for axis, size in enumerate(sizes, -len(sizes)):
            length = x.shape[axis]
            ends = [(i * length // size, -(-(i + 1) * length // size)) for i in range(size)]
            x = torch.cat([x.narrow(axis, a, b - a).amax(axis, keepdim=True) for a, b in ends], axis)
        return x, torch.zeros(x.shape, dtype=torch.int64)

    def as_strided(x: Tensor, size: Any, stride: Any, offset: int | None = None) -> Tensor:
        places = torch.full((), offset or 0)
        for length, step in zip(size, stride, strict=True):
            places = places.unsqueeze(-1) + torch.arange(length) * step
        return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(size)

    def take(x: Tensor, index: Tensor) -> Tensor:
        return x.reshape(-1).index_select(0, index.reshape(-1)).reshape(index.shape)

    def full_like(x: Tensor, value: float, *, dtype: Any = None, **_: Any) -> Tensor:
        return torch.full(x.shape, value, dtype=dtype or x.dtype)

    def fill(x: Tensor, value: Any) -> Tensor:
        return value.to(x.dtype).expand(x.shape) if isinstance(value, torch.Tensor) else full_like(x, value)

    def zeros_like(x: Tensor, **more: Any) -> Tensor:
        return full_like(x, 0, **more)

    def ones_like(x: Tensor, **more: Any) -> Tensor:
        return full_like(x, 1, **more)

    def logical(name: str) -> Decomposition:
        def of(*given: Tensor) -> Any:
            truths = all(each.dtype == torch.bool for each in given)
            return getattr(torch, f"logical_{name}")(*given) if truths else NotImplemented

        return of

    def grid_sampler_3d(x: Tensor, grid: Tensor, mode: int, padding: int, corners: bool) -> Tensor:
        """By the eight voxels around each place; `mode` 1: the nearest one; `padding`: zeros, border, reflection."""
        sizes = x.shape[:1:-1]  # the grid has width, height, depth
        places = []
        for at, size in zip(grid.unbind(-1), sizes, strict=True):
            place = (at + 1) * ((size - 1) / 2) if corners else ((at + 1) * size - 1) * 0.5
            if padding == 2:
                low, span = (0.0, size - 1.0) if corners else (-0.5, float(size))
                off = torch.abs(place - low)
                turns = torch.floor(off / max(span, 1e-9))
                rest = off - turns * span
                place = torch.where(turns - 2 * torch.floor(turns / 2) == 0, rest, span - rest) + low
            places.append(torch.clamp(place, 0, size - 1) if padding else place)
        flat, n = x.flatten(2), x.shape[0]
        answer: Any = None
        for corner in range(1 if mode == 1 else 8):
            weight: Any = None
            index: Any = None
            for axis in (2, 1, 0):  # depth first: its stride is the largest
                place, size = places[axis], sizes[axis]
                at = torch.round(place) if mode == 1 else torch.floor(place) + (corner >> axis & 1)
                share = (at >= 0) & (at <= size - 1)
                part = share.to(x.dtype) if mode == 1 else share.to(x.dtype) * (1 - torch.abs(place - at))
                inside = torch.clamp(at, 0, size - 1).to(torch.int64)
                weight = part if weight is None else weight * part
                index = inside if index is None else index * size + inside
            taken = flat.gather(2, index.reshape(n, 1, -1).expand(-1, x.shape[1], -1))
            term = taken.reshape(*x.shape[:2], *grid.shape[1:4]) * weight.unsqueeze(1)
            answer = term if answer is None else answer + term
        return answer

    whole: dict[Any, Decomposition] = {
        aten.acosh: acosh,
        aten.asinh: asinh,
        aten.atanh: atanh,
        aten.fmax: fmax,
        aten.fmin: fmin,
        aten.prod: prod_of_all,
        aten.dist: dist,
        aten.mH: turned,
        aten.trunc: trunc,
        aten.softplus: softplus,
        aten.addbmm: addbmm,
        aten._trilinear: trilinear,
        aten._cdist_forward: cdist,
        aten.as_strided: as_strided,
        aten.take: take,
        aten.kthvalue: kth,
        aten.sort: sort,
        aten.median: median_of_all,
        aten.full_like: full_like,
        aten.zeros_like: zeros_like,
        aten.ones_like: ones_like,
        aten.adaptive_max_pool2d: adaptive_max,
        aten.adaptive_max_pool3d: adaptive_max,
        aten.max_pool3d_with_indices: max_pool3d,
        aten.avg_pool3d: avg_pool3d,
        aten.grid_sampler_3d: grid_sampler_3d,
        aten.bitwise_not: logical("not"),
    }
    of_tensors = {getattr(aten, f"bitwise_{name}").Tensor: logical(name) for name in ("and", "or", "xor")}
    named: dict[Any, Decomposition] = {
        aten.sort.stable: stable,
        aten.fill.Tensor: fill,
        aten.fill.Scalar: fill,
        aten.median.dim: median,
        aten.prod.dim_int: prod,
        aten.lerp.Scalar: lerp,
        aten.lerp.Tensor: lerp,
        aten.var_mean.correction: var_mean,
        aten.fmod.Tensor: fmod,
        aten.fmod.Scalar: fmod,
        aten.round.decimals: rounded,
        **of_tensors,
    }
    return {**{packet.default: how for packet, how in whole.items()}, **named}
