"""What becomes of operators together: random small graphs of 3 to 12 of them, judged as `operators` judges each alone.

    python benchmarks/operator_graphs.py [--seed 1 --sample 60] [--engines litert,coreml] [--work DIR] [-v]
    python benchmarks/operator_graphs.py --shrink graph_1_7 coreml     the smallest part that has the same outcome

A graph is a straight program in Python: each step takes values by name, `m` is what its module, or constant, is held
by. Each step is drawn to fit the values that there are, and run: it stays if torch computes it, and small noise on what
it takes changes little of what it gives, and no truth value or place. An attribute of this module that is the name of
a graph, `graph_SEED_NUMBER`, is the factory of its net.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import operators
import torch
from torch import nn
from torch.nn import functional

ENGINES = ("onnx", "openvino", "litert", "executorch", "coreml")
PARTS = "__"  # in the name of a part of a graph: before the names of its outputs, and of the values that are inputs
LARGEST = 6_000  # numbers in a value
NOISE, SHARE = 1e-4, 0.01  # what a step is tried with, and how much of its largest number that may change
NAME, OWN = re.compile(r"\b[xv]\d+\b"), re.compile(r"\bm\b")


@dataclass(frozen=True)
class Step:
    """`outputs = expression`; `held`: what makes its `m`, a module or a constant."""

    outputs: tuple[str, ...]
    expression: str
    held: str = ""

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)} = {OWN.sub(lambda _: self.held, self.expression)}"

    @property
    def takes(self) -> set[str]:
        return set(NAME.findall(self.expression))

    def run(self, values: dict[str, torch.Tensor], m: Any) -> list[torch.Tensor]:
        made = eval(self.expression, {"torch": torch, "F": functional, "m": m, **values})  # noqa: S307 - written here
        return list(made) if isinstance(made, (tuple, list)) else [made]


@dataclass(frozen=True)
class Graph:
    """A graph by its steps in order; as `operator_nets.Sample` it has a name and what it is made of."""

    name: str
    inputs: dict[str, torch.Tensor] = field(compare=False)
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]
    values: dict[str, torch.Tensor] = field(compare=False, repr=False)

    @property
    def operator(self) -> str:
        return self.name

    @property
    def argument_class(self) -> str:
        return "; ".join([*map(str, self.steps), f"return {', '.join(self.outputs)}"])

    def __str__(self) -> str:
        given = [f"{name}: {list(x.shape)}" for name, x in self.inputs.items()]
        return "\n".join([", ".join(given), *map(str, self.steps), f"return {', '.join(self.outputs)}"])

    def part(self, outputs: Sequence[str], cuts: Sequence[str] = ()) -> Graph:
        """What some outputs are made of, where some values are inputs."""
        wanted, steps = set(outputs), list[Step]()
        for step in reversed(self.steps):
            if wanted & {*step.outputs} - {*cuts}:
                steps.append(step)
                wanted |= step.takes
        given = {name: self.values[name] for name in (*self.inputs, *cuts) if name in wanted}
        return replace(self, inputs=given, steps=tuple(reversed(steps)), outputs=tuple(outputs))


class Net(nn.Module):
    """A graph. What comes and leaves has its batch of one in front; where a value has none, it is added."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        for step in graph.steps:
            made = held(step)
            if isinstance(made, torch.Tensor):
                self.register_buffer(f"m_{step.outputs[0]}", made)
            elif made is not None:
                self.add_module(f"m_{step.outputs[0]}", made.eval())

    def forward(self, x0, x1=None, x2=None, x3=None, x4=None, x5=None, x6=None, x7=None):  # type: ignore[no-untyped-def]
        given = [x for x in (x0, x1, x2, x3, x4, x5, x6, x7) if x is not None]
        if x0.shape[0] != 1:
            raise ValueError("one item at a time")
        values = {
            name: x if x.shape == like.shape else x.squeeze(0)
            for x, (name, like) in zip(given, self.graph.inputs.items(), strict=True)
        }
        for step in self.graph.steps:
            made = step.run(values, getattr(self, f"m_{step.outputs[0]}", None))
            values |= zip(step.outputs, made, strict=True)
        return {
            f"y{i}": (x if x.dim() > 1 and x.shape[0] == 1 else x.reshape(1, 1, x.numel()))
            for i, x in enumerate(values[name] for name in self.graph.outputs)
        }


def held(step: Step) -> Any:
    """The module of a step, its weights as no new one has them, or its constant."""
    torch.manual_seed(sum(map(ord, step.outputs[0])))
    made = eval(step.held, {"torch": torch, "nn": nn}) if step.held else None  # noqa: S307
    if isinstance(made, nn.Module):
        with torch.no_grad():
            for name, each in made.state_dict().items():
                if each.is_floating_point() and each.dim() == 1:  # of norms they are zeros and ones
                    each.add_(torch.rand_like(each) if name.endswith("var") else 0.3 * torch.randn_like(each))
    return made


# --------------------------------------------------------------------------- a graph is drawn


class Draw(random.Random):
    """The graph so far, and the choices that go on with it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.values: dict[str, torch.Tensor] = {}

    def value(self, *ranks: int) -> str:
        """The name of a float value of one of some ranks, rather one of the last ones."""
        found = [name for name, x in self.values.items() if x.is_floating_point() and (not ranks or x.dim() in ranks)]
        return self.choice(found[-3:] if self.random() < 0.7 else found)  # IndexError: no such value

    def axis(self, name: str, least: int = 1) -> int:
        shape = self.values[name].shape
        axis = self.choice([i for i, n in enumerate(shape) if n >= least])
        return axis if self.random() < 0.6 else axis - len(shape)

    def each(self, count: int, *choices: int) -> Any:
        """A number for all axes, or one for each."""
        return self.choice(choices) if self.random() < 0.5 else tuple(self.choice(choices) for _ in range(count))

    def flag(self) -> bool:
        return self.random() < 0.5

    def of(self, texts: str) -> str:
        """One of some texts with bars between."""
        return self.choice(" ".join(texts.split()).split(" | "))


Drawn = tuple[str, str]  # the expression, what is held
# {x} and {y}: values; {a}: an axis of x
UNARY = """relu sigmoid tanh abs neg erf sin cos square atan expm1 sign floor round hardswish silu gelu mish softplus
elu selu celu relu6 hardtanh hardsigmoid leaky_relu softsign logsigmoid tanhshrink hardshrink softshrink"""
WRITTEN = """{x}.abs().add(0.1).sqrt() | ({x}.abs() + 0.5).log() | ({x} * {x} + 0.3).rsqrt() | {x} ** 2
| {x}.pow(3) * 0.1 | F.gelu({x}, approximate='tanh') | 1 / (1 + (-{x}).exp()) | F.hardtanh({x}, -0.5, 0.7)
| F.elu({x}, 0.7) | F.softplus({x}, 2.0) | F.leaky_relu({x}, 0.2) | F.threshold({x}, 0.1, -0.2) | {x}.clamp(min=-0.4)
| {x}.clamp(-0.3, 0.8) | 2 - {x} | {x} * 0.5 + 1 | torch.remainder({x}, 0.7) | {x}.clone().mul_(2).add_(0.5)
| torch.where({x} > 0.1, {x}, 0.0) | {x}.masked_fill({x} < -0.2, 0.5) | {x}.nan_to_num() | ({x} > 0.2).float() * {x}
| {x}.to(torch.float64).float()"""
BINARY = """{x} + {y} | {x} + {y} | {x} - {y} | {x} * {y} | {x} / ({y}.abs() + 1) | torch.maximum({x}, {y})
| ({x} - {y}) ** 2 | torch.minimum({x}, {y}) | torch.add({x}, {y}, alpha=0.5) | 1 - {x} * {y}
| torch.addcmul({x}, {y}, {x}, value=0.3) | torch.lerp({x}, {y}, 0.3) | {x} * F.sigmoid({y})
| torch.atan2({x}, {y}.abs() + 0.5) | torch.where({x} > {y}, {x}, {y} * 0.5) | ({x} > {y})
| torch.where(({x} > 0) & ({y} < 0.5), {x}, {y}) | torch.clamp({x}, max={y}) | {x}.expand_as({y})
| F.l1_loss({x}, {y}, reduction='none') | torch.hypot({x}, {y}) | {x} + {y}.mean() | torch.cat([{x}, {y}], {a})
| torch.stack([{x}, {y}], {a}) | torch.cat([{x}, {y}, {x}], {a})"""
ALONG = """F.softmax({x}, {a}) | F.log_softmax({x}, {a}) | F.softmax(-{x}, {a}) | {x}.sum({a})
| {x}.mean({a}, keepdim=True) | {x}.mean({a}) | {x}.amax({a}) | {x}.amin({a}, keepdim=True) | {x}.var({a})
| {x}.std({a}, keepdim=True, correction=0) | {x}.logsumexp({a}) | {x}.norm(dim={a})
| torch.linalg.vector_norm({x}, 1, {a}) | {x}.cumsum({a}) | {x}.flip({a}) | {x}.max({a})
| {x}.min({a}, keepdim=True)[0] | {x}.argmax({a}) | {x}.argmin({a}, keepdim=True) | {x}.prod({a})
| F.normalize({x}, dim={a}) | {x}.sum() | {x}.mean((0, {a})) | ({x} > 0.3).any({a}) | ({x} > -0.5).all({a})
| ({x} > 0.1).sum({a}) | {x}.sort({a}) | {x}.sort({a}, descending=True)[0] | {x}.argsort({a}) | {x}.topk(2, {a})
| {x}.topk(2, {a}, largest=False)[0] | {x}.gather({a}, {x}.argsort({a})) | {x}.cumprod({a}) | {x}.cummax({a})[0]
| {x}.chunk(2, {a}) | {x}.split([1, {x}.shape[{a}] - 1], {a}) | {x}.unbind({a}) | {x}.narrow({a}, 1, 1)
| {x}.select({a}, -1) | {x}.split(2, {a}) | {x}.unsqueeze({a}) | {x}.unsqueeze({a}).expand(*{x}.unsqueeze({a}).shape)
| {x}.roll(1, {a}) | {x}.repeat_interleave(2, {a}) | {x}.index_select({a}, torch.tensor([1, 0, 1]))
| {x}.diff(dim={a}) | F.glu({x}, {a}) | {x}.slice_scatter({x}.narrow({a}, 0, 1) * 2, {a}, 1, 2) | {x}.movedim({a}, 0)
| {x}.transpose({a}, -1) | {x}.unfold({a}, 2, 1) | {x}.squeeze({a}) | {x} - {x}.mean({a}, keepdim=True)
| {x}.median({a})[0] | {x}.index_fill({a}, torch.tensor([0]), 0.5)
| {x}.take_along_dim({x}.argmax({a}, keepdim=True), {a}) | {x}.unflatten({a}, (-1, 1))
| {x}.repeat_interleave(2, {a})"""
SHAPES = """{x}.flatten(1) | {x}.flatten(0, 1) | {x}.flatten(-2) | {x}.reshape(-1) | {x}.squeeze() | {x}[..., ::2]
| {x}[:, -1:] | {x}.mT | {x}.transpose(0, 1) | {x}[None] | {x}[..., None] | {x}.contiguous()
| {x}.unsqueeze(0).repeat(1, 2, *[1] * {x}.dim()) | {x}[..., 1:] - {x}[..., :-1] | {x}[:, :, 0] | {x}.flip(0, -1)
| {x}.expand(2, *{x}.shape) | {x}.tile(2) | {x}.triu() | {x}.tril(-1) | {x}.flatten(1).unsqueeze(1)
| {x}.view_as({x}) | {x}.detach() | {x}[:, 1:, ..., :-1] | {x}[0] | {x}.rot90(1, (-2, -1)) | {x}.diagonal(0, -2, -1)"""
PRODUCTS = """torch.matmul({x}, {x}.transpose(-1, -2)) | torch.matmul({x}.transpose(-1, -2), {x})
| torch.matmul({x}, {y}) | torch.matmul({x}, {y}.transpose(-1, -2)) | torch.einsum('...i,...j->...ij', {x}, {y})
| torch.bmm({x}, {y}.transpose(1, 2)) | torch.einsum('bij,bkj->bik', {x}, {y})
| torch.einsum('bchw,bcij->bhwij', {x}, {y}) | torch.einsum('...ij,...ij->...i', {x}, {y})
| F.scaled_dot_product_attention({x}, {x}, {x}) | F.scaled_dot_product_attention({x}, {y}, {y})
| torch.outer({x}.flatten(), {x}.flatten()) | torch.baddbmm({x} @ {x}.mT, {x}, {x}.mT, beta=0.5)
| F.cosine_similarity({x}, {y}, -1) | torch.cdist({x}, {y}) | torch.einsum('bhwc,bhwd->bcd', {x}, {y})
| torch.tensordot({x}, {y}, dims=([-1], [-1])) | F.scaled_dot_product_attention({x}, {x}, {x}, is_causal=True)"""


def template(texts: str) -> Callable[[Draw], Drawn]:
    def drawn(d: Draw) -> Drawn:
        x = d.value()
        alike = [name for name, y in d.values.items() if y.shape == d.values[x].shape and y.is_floating_point()]
        y = d.choice(alike) if d.flag() else d.value()
        return d.of(texts).format(x=x, y=y, a=d.axis(x, d.choice([1, 2, 2, 3]))), ""

    return drawn


def unary(d: Draw) -> Drawn:
    name = d.choice(UNARY.split())
    return f"{'torch' if hasattr(torch, name) and name not in ('celu', 'selu') else 'F'}.{name}({d.value()})", ""


def weighted(d: Draw) -> Drawn:
    """By a constant, in one of the shapes that broadcast."""
    x = d.value()
    shape = [n if d.flag() else 1 for n in d.values[x].shape][d.randrange(d.values[x].dim() + 1) :]
    form = d.choice(["{x} * m", "{x} + m", "m - {x}", "torch.where(m > 0, {x}, m)"])
    return form.format(x=x), f"torch.randn({shape})"


def convolution(d: Draw) -> Drawn:
    x = d.value(3, 4, 4, 5)
    channels, *sizes = d.values[x].shape[1:]
    n, groups = len(sizes), d.choice([g for g in (1, 1, 2, 3, channels) if channels % g == 0])
    kind, padding = d.choice(["Conv", "Conv", "ConvTranspose"]), d.each(n, 0, 1, 2)
    more = f"padding={padding}, stride={d.each(n, 1, 1, 2, 3)}, dilation={d.each(n, 1, 1, 2)}"
    if kind == "Conv" and d.random() < 0.3:
        mode, same = d.choice(["zeros", "reflect", "circular", "replicate"]), d.flag()
        more = f"padding={repr('same') if same else padding}, padding_mode={mode!r}"
    elif kind == "ConvTranspose" and d.random() < 0.3:
        more = f"stride=2, output_padding=1, padding={d.each(n, 0, 1)}"
    kernel = tuple(d.randint(1, 3) for _ in sizes)
    out = groups * d.randint(1, 3)
    return f"m({x})", f"nn.{kind}{n}d({channels}, {out}, {kernel}, groups={groups}, bias={d.flag()}, {more})"


def layer(d: Draw) -> Drawn:
    """A layer with weights that is no convolution."""
    x = d.value(2, 3, 4, 5)
    shape = d.values[x].shape
    axes, c, last, groups = max(len(shape) - 2, 1), shape[1], shape[-1], [g for g in (1, 2, 3) if shape[1] % g == 0]
    texts = f"""Linear({last}, {d.randint(1, 8)}, bias={d.flag()}) | Linear({last}, {d.randint(1, 8)}) | RMSNorm({last})
    | BatchNorm{axes}d({c}) | BatchNorm{axes}d({c}, affine=False) | GroupNorm({d.choice([*groups, c])}, {c})
    | LayerNorm({list(shape[-d.randint(1, len(shape) - 1) :])}) | InstanceNorm{axes}d({c}, affine={d.flag()})
    | LocalResponseNorm(2) | PReLU() | PReLU({c}) | PixelShuffle(2) | PixelUnshuffle(2) | ChannelShuffle({groups[-1]})
    | Bilinear({last}, {last}, 3)"""
    return ("m({x}, {x})" if (text := d.of(texts)).startswith("Bil") else "m({x})").format(x=x), f"nn.{text}"


def recurrent(d: Draw) -> Drawn:
    x = d.value(3)
    kind = d.choice(["LSTM", "GRU", "RNN"])
    more = f"num_layers={d.choice([1, 1, 2])}, bidirectional={d.flag()}, batch_first={d.flag()}, bias={d.flag()}"
    return f"m({x})[0]", f"nn.{kind}({d.values[x].shape[-1]}, {d.randint(2, 5)}, {more})"


def embedding(d: Draw) -> Drawn:
    x = d.value(2, 3)
    index = d.choice([f"{x}.argmax({d.axis(x)})", f"({x}.sigmoid() * 5).long()", f"({x} > 0.2).long()"])
    return d.choice([f"m({index})", f"m.weight[{index}]", f"F.one_hot({index}, 6).float()"]), "nn.Embedding(6, 4)"


def pool(d: Draw) -> Drawn:
    x = d.value(3, 4, 4, 5)
    n = d.values[x].dim() - 2
    kernel, stride, ceil = d.each(n, 1, 2, 2, 3), d.each(n, 1, 2, 2, 3), d.flag()
    how = f"{kernel}, {stride}, {d.choice([0, 0, 1])}"
    texts = f"""F.max_pool{n}d({x}, {how}, ceil_mode={ceil}) | F.max_pool{n}d({x}, {how}, {d.each(n, 1, 2)})
    | F.max_pool{n}d({x}, {how}, ceil_mode={ceil}, return_indices=True) | F.avg_pool{n}d({x}, {kernel})
    | F.avg_pool{n}d({x}, {how}, ceil_mode={ceil}, count_include_pad={d.flag()})
    | F.adaptive_avg_pool{n}d({x}, {d.each(n, 1, 2, 3)}) | F.adaptive_max_pool{n}d({x}, {d.each(n, 1, 2, 3)})
    | F.lp_pool{n}d({x}, 2, {kernel}, {stride})"""
    return d.of(texts), ""


def resized(d: Draw) -> Drawn:
    """Another size of the last axes: padded, interpolated or permuted."""
    x = d.value(2, 3, 4, 5)
    n = d.values[x].dim() - 2
    mode = d.choice(["nearest", "nearest-exact", "area", *[["linear"], ["bilinear", "bicubic"], ["trilinear"]][n - 1]])
    corners = f", align_corners={d.flag()}" if "linear" in mode or mode == "bicubic" else ""
    size = d.choice([f"scale_factor={d.choice([2, 2.0, 0.5, 1.5])}", f"size={d.each(n, 2, 3, 5, 8)}"])
    widths = [d.choice([0, 1, 1, 2, -1]) for _ in range(2 * d.randint(1, n + 2))]
    shape, order = [*d.values[x].shape], d.sample(range(n + 2), n + 2)
    cut = d.randrange(1, n + 2)
    padding = d.choice(["reflect", "replicate", "circular"])
    texts = f"""F.interpolate({x}, mode={mode!r}, {size}{corners}) | F.pad({x}, {widths}, value={d.choice([0.0, 0.5])})
    | F.interpolate({x}, mode={mode!r}, {size}{corners}) | {x}.permute({order}) | {x}.permute({order}).contiguous()
    | F.pad({x}, {[abs(w) for w in widths[: 2 * n]]}, mode={padding!r}) | {x}.reshape(1, -1, {d.choice([2, 3, 4, 6])})
    | {x}.permute({[0, *range(2, n + 2), 1]}) | {x}.permute({[0, n + 1, *range(1, n + 1)]})
    | {x}.reshape({[*shape[: cut - 1], shape[cut - 1] * shape[cut], *shape[cut + 1 :]]})
    | {x}.reshape({[*shape[:cut], d.choice([1, 2, 3]), -1, *shape[cut + 1 :]]})
    | {x}.reshape(1, {d.choice([2, 3, 4])}, -1, {d.choice([2, 3, 4])})"""
    return d.of(texts), ""


KINDS: dict[Callable[[Draw], Drawn], int] = {
    template(texts): weight for texts, weight in ((WRITTEN, 8), (BINARY, 16), (ALONG, 18), (SHAPES, 10), (PRODUCTS, 8))
} | {unary: 10, weighted: 4, convolution: 12, layer: 12, recurrent: 2, embedding: 3, pool: 8, resized: 12}


@cache
def graph(name: str) -> Graph:
    """A graph by its name, which is all that it is drawn by."""
    if PARTS in name:
        name, outputs, cuts = name.split(PARTS)
        return replace(graph(name).part(outputs.split("_"), cuts.split("_")), name=name)
    d = Draw(name)
    torch.manual_seed(d.randrange(2**31))
    for i in range(d.choice([1, 1, 2, 3])):
        shape = [1, *(d.choice([2, 3, 4, 6]) for _ in range(d.choice([1, 2, 3, 3, 4])))]
        if len(shape) < 5:
            shape[2:] = [n * d.choice([1, 2]) for n in shape[2:]]
        d.values[f"x{i}"] = torch.randn(shape)
    inputs, steps = dict(d.values), list[Step]()
    wanted = d.randint(3, 12)
    while len(steps) < wanted:
        [kind] = d.choices([*KINDS], [*KINDS.values()])
        try:
            expression, of = kind(d)
            step = Step((f"v{len(d.values)}",), expression, of)
            made = settled(step, d)
        except (RuntimeError, ValueError, IndexError, TypeError, KeyError, NotImplementedError, AssertionError):
            continue
        if made:
            step = replace(step, outputs=tuple(f"v{len(d.values) + i}" for i in range(len(made))))
            d.values |= zip(step.outputs, made, strict=True)
            steps.append(step)
    used = set[str]().union(*(step.takes for step in steps))
    ends = [name for name in d.values if name not in used and name not in inputs]
    inside = [name for name in d.values if name in used and name not in inputs]
    ends += d.sample(inside, min(len(inside), d.choice([0, 0, 1, 2])))
    whole = Graph(name, inputs, tuple(steps), (), d.values)
    return whole.part(ends[-6:])


def settled(step: Step, d: Draw) -> list[torch.Tensor]:
    """What a step gives, or nothing where that hangs on small noise, has no number to speak of, or is too large."""
    taken = {name: d.values[name] for name in sorted(step.takes)}
    noised = {name: x + NOISE * torch.randn(x.shape) if x.is_floating_point() else x for name, x in taken.items()}
    m = held(step)
    m = m.eval() if isinstance(m, nn.Module) else m
    with torch.no_grad():
        made, again = step.run(taken, m), step.run(noised, m)
    for x, y in zip(made, again, strict=True):
        if not 0 < x.numel() <= LARGEST or x.dim() > 5 or not x.isfinite().all() or x.is_complex():
            return []
        if x.is_floating_point():
            largest = float(x.abs().max())
            if not 0.01 < largest < 50 or float((x - y).abs().max()) > SHARE * largest:
                return []
        elif not x.equal(y):
            return []
    return made if len(made) <= 4 else []


# --------------------------------------------------------------------------- as `operator_nets` gives its samples


sample = graph  # as `operators.prepare` asks for it


def items(graph: Graph) -> dict[str, torch.Tensor]:
    """What goes into the net of a graph."""
    return {f"x{i}": x if x.dim() > 1 and x.shape[0] == 1 else x[None] for i, x in enumerate(graph.inputs.values())}


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if not re.fullmatch(r"graph_\d+_\d+(__\w+)?", name):
        raise AttributeError(name)
    return lambda: Net(graph(name))


def drawn(count: int, seed: int) -> list[str]:
    return [f"graph_{seed}_{i}" for i in range(count)]


def prepare(name: str, work: Path) -> dict[str, Any]:
    """A graph's artifacts and its truth."""
    import operator_graphs  # by the name that its factories have

    return operators.prepare(name, work, operator_graphs)


NETS = operators.Nets(__doc__ or "", __file__, ENGINES, list, lambda name: [name], prepare, drawn)


def shrunk(name: str, engine: str, work: Path) -> str:
    """The name of the part of a graph with the fewest steps that has the same outcome in an engine."""

    def outcomes(names: Sequence[str]) -> dict[str, str]:
        whole = [each for each, facts in operators.prepared(NETS, names, work).items() if not facts["left"]]
        told = operators.ran(NETS, [engine, "fp32"], whole, work, False)
        return {each: told[each]["outcome"] for each in whole}

    wanted = outcomes([name])[name]
    while True:
        whole, [_, cuts] = graph(name), [*name.split(PARTS)[1:], "", ""][:2]
        inside = [each for step in whole.steps for each in step.outputs]
        parts = [f"{name.split(PARTS)[0]}{PARTS}{each}{PARTS}{cuts}" for each in inside]
        if len(whole.outputs) == 1:
            parts = [PARTS.join([*name.split(PARTS)[:2], f"{cuts}_{each}".strip("_")]) for each in inside[:-1]] + parts
        smaller = {part: len(graph(part).steps) for part in parts}
        smaller = {part: size for part, size in smaller.items() if 0 < size < len(whole.steps)}
        alike = [part for part, told in outcomes([*smaller]).items() if told == wanted]
        if not alike:
            return name
        name = min(alike, key=smaller.__getitem__)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--shrink"]:
        folder = Path(tempfile.gettempdir()) / "edgecompress-operator_graphs"
        folder.mkdir(exist_ok=True)
        print(graph(shrunk(*sys.argv[2:4], folder)))
    else:
        sys.exit(operators.main(NETS))
