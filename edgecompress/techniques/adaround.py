"""AdaRound: learns whether to round each weight up or down, layer by layer, from the outputs of the layer.

After Nagel et al., "Up or Down? Adaptive Rounding for Post-Training Quantization" (ICML 2020, arXiv:2004.10568). The
weights of the net that comes out lie on the grid that a quantizer finds which is symmetric per output channel.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.techniques import _im2col, _torch_graph
from edgecompress.techniques._batch_walk import BatchWalk
from edgecompress.techniques._calibration import check_samples
from edgecompress.techniques._torch_graph import Flow, WeightedLayer
from edgecompress.techniques._training.pace import Pace

if TYPE_CHECKING:
    import torch

    from edgecompress.techniques._torch_graph import Batches

    Activation: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"
    Rows: TypeAlias = "torch.Tensor | slice"

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples",)
TRAINS = True
RUNG = 50
ON_GRID = True  # its weights are rounded: training starts without it

ZETA, GAMMA = 1.1, -0.1  # the limits that the sigmoid is stretched to (section 3.2)
BETA = 20.0, 2.0  # of the regularizer, at first and at last
WARM = 0.2  # the share of the iterations without it
WEIGHT = 50.0  # of the regularizer's mean, where the error of rounding to nearest is 1
RATE = 0.03  # of Adam
ACTIVATIONS = ("relu", "relu6", "hardtanh", "leaky_relu", "elu", "gelu", "silu", "hardswish", "sigmoid", "tanh")


@dataclass(frozen=True)
class Options:
    """How fine the grid is, and how long is learned, from what."""

    weight_bits: Literal[8, 4] = 8
    iterations: int = 1000  # of each layer
    batch: int = 512  # outputs of a layer in an iteration: places of a picture, steps of a sequence
    samples: int | None = 256  # calibration items at most; None is all

    def __post_init__(self) -> None:
        if self.weight_bits not in (8, 4):
            raise ValueError("weight_bits must be 8 or 4")
        if self.iterations < 1 or self.batch < 1:
            raise ValueError("iterations and batch must be at least 1")
        check_samples(self.samples)


class RoundedLayer(TypedDict):
    """What the facts say of a layer; `error` is rounded to nearest, and as learned."""

    name: str
    weights: int
    error: list[float]
    turned: float


@dataclass(frozen=True)
class Task:
    """One layer to round: its inputs, the outputs that it should have, and how it computes them.

    rows: [groups, rows, inputs of a group]; target: [rows, outputs], the float layer's output with its activation
    for what the float net feeds it; gain, offset: [outputs], of the bias and the norm behind.
    """

    weight: torch.Tensor
    groups: int
    gain: torch.Tensor
    offset: torch.Tensor
    activation: Activation
    rows: torch.Tensor
    target: torch.Tensor

    def output(self, weight: torch.Tensor, rows: Rows = slice(None)) -> torch.Tensor:
        """[rows, outputs] with another weight."""
        import torch

        parts = weight.reshape(self.groups, len(weight) // self.groups, -1).transpose(1, 2)
        product = torch.bmm(self.rows[:, rows], parts).movedim(1, 0).flatten(1)
        return self.activation(product * self.gain + self.offset)

    def error(self, weight: torch.Tensor, rows: Rows = slice(None)) -> torch.Tensor:
        """The squared distance to the target, the mean over rows."""
        return (self.output(weight, rows) - self.target[rows]).square().sum(1).mean()


def apply(request: Request) -> Artifact:
    """The module with its weights on the grid; inputs: "model", "samples" (calibrate).

    facts: {"layers": [{"name", "weights", "error": [rounded to nearest, as learned] relative to the layer's outputs,
    both squared, "turned": share of the weights that are not rounded to nearest}], "left": {layer: why}}; or "lost"
    where there is nothing to round.
    """
    net = torch_module.rebuild(request.model)
    try:
        flow = Flow(net, request)
    except _torch_graph.Unreadable as why:
        return _torch_graph.unchanged(request, str(why))
    left = {**flow.shared, **{each.name: reason for each in flow.layers if (reason := _im2col.why_not(each))}}
    layers = [layer for layer in flow.layers if layer.name not in left]
    if not layers:
        reasons = "; ".join(f"{name}: {why}" for name, why in [*left.items()][:3])
        return _torch_graph.unchanged(
            request, f"no weight to round: {reasons or 'no convolution and no matrix product'}"
        )
    rows = _rounded(flow, layers, flow.batches(request.options.samples))
    return torch_module.save(net, request, [], {"layers": rows, "left": left})


def _rounded(flow: Flow, layers: Sequence[WeightedLayer], batches: Batches) -> list[RoundedLayer]:
    """Rounds the net's layers in the order of computing, each by what the layers before, rounded, give it."""
    import torch

    exact, rounded = BatchWalk(flow, batches), BatchWalk(flow, batches)
    numbers, rows = {layer.node: number for number, layer in enumerate(layers)}, list[RoundedLayer]()
    kept, pace = Checkpoints(flow.request), Pace(len(layers) * flow.request.options.iterations)
    for node in flow.nodes:
        if (number := numbers.get(node)) is not None:
            layer = layers[number]
            done = kept.load(number, layer)
            if done is None:
                task = _task(flow, layer, (exact.of(node.args[0]), rounded.of(node.args[0])))
                done = _learned(flow, (number, layer, task), pace)
                kept.save(number, *done)
            else:
                pace.resumed = (number + 1) * flow.request.options.iterations
            rounded.instead[layer.weight] = done[0]
            rows.append(done[1])
        exact.step(node)
        rounded.step(node)
    with torch.no_grad():
        for name, weight in rounded.instead.items():
            flow.tensor(name).copy_(weight)
    return rows


# --------------------------------------------------------------------------- the formulas


def rectified(v: torch.Tensor) -> torch.Tensor:
    """h(V) = clip(sigmoid(V) (zeta - gamma) + gamma, 0, 1) (Nagel et al., eq. 23)."""
    import torch

    return (torch.sigmoid(v) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def begun(rest: torch.Tensor) -> torch.Tensor:
    """The V whose h(V) is `rest`, from 0 to 1: soft weights that are the float ones."""
    import torch

    return torch.logit((rest - GAMMA) / (ZETA - GAMMA))


def regularizer(h: torch.Tensor, beta: float) -> torch.Tensor:
    """1 - |2 h - 1|^beta, the mean (Nagel et al., eq. 24, a sum there): 0 where all h are 0 or 1."""
    return (1 - (2 * h - 1).abs() ** beta).mean()


def beta(done: float) -> float:
    """Of the regularizer when that share of the iterations is done: falls from 20 to 2 in half a cosine after WARM."""
    share = max(0.0, done - WARM) / (1 - WARM)
    return BETA[1] + (BETA[0] - BETA[1]) * (1 + math.cos(share * math.pi)) / 2


# --------------------------------------------------------------------------- one layer


def _task(flow: Flow, layer: WeightedLayer, inputs: tuple[Sequence[torch.Tensor], Sequence[torch.Tensor]]) -> Task:
    """The layer as rows of numbers, of both nets at the same places."""
    import torch

    gain, weight = flow.gain(layer).float(), flow.tensor(layer.weight).detach()
    bias = flow.tensor(layer.bias).detach() if layer.bias else torch.zeros(len(weight))
    if layer.norm:
        bias = (bias - flow.tensor(layer.norm.mean)) * gain + flow.tensor(layer.norm.bias).detach()
    exact, rounded = (_im2col.rows(layer, values, flow.request.context.seed) for values in inputs)
    plain = Task(weight, layer.groups, gain, bias, _activation(layer), exact, torch.empty(0))
    return replace(plain, rows=rounded, target=plain.output(weight))


def _activation(layer: WeightedLayer) -> Activation:
    """The activation that alone reads a layer, or none."""
    users = [*layer.end.users]
    if len(users) != 1 or _torch_graph.operator(users[0]) not in ACTIVATIONS:
        return lambda value: value
    (user,) = users
    return lambda value: user.target(value, *user.args[1:], **user.kwargs)


def _learned(flow: Flow, which: tuple[int, WeightedLayer, Task], pace: Pace) -> tuple[torch.Tensor, RoundedLayer]:
    """The rounded weight of a layer, and its row of the facts: never worse, on its rows, than to nearest."""
    import torch

    number, layer, task = which
    options: Options = flow.request.options
    generator = torch.Generator().manual_seed(flow.request.context.seed * 100_003 + number)

    def progress(iteration: int) -> None:
        done = number * options.iterations + iteration
        if pace.due():
            says = f"rounding {layer.name}"
            flow.request.progress(done / pace.total, says + pace.left(done))

    nearest = _torch_graph.rounded(task.weight, options.weight_bits)
    learned = learn(task, options, generator, progress)
    errors = [float(task.error(weight)) for weight in (nearest, learned)]
    best = learned if errors[1] < errors[0] else nearest
    power = max(float(task.target.square().sum(1).mean()), 1e-30)
    return best, {
        "name": layer.name,
        "weights": task.weight.numel(),
        "error": [errors[0] / power, min(errors) / power],
        "turned": float(
            ((best - nearest).abs() > _torch_graph.steps(task.weight, options.weight_bits) / 2).float().mean()
        ),
    }


def learn(task: Task, options: Options, generator: torch.Generator, progress: Callable[[int], None]) -> torch.Tensor:
    """The weight rounded so that the layer's outputs come near the target; extremes and zeros stay the same.

    Minimizes ||f(W x) - f(W~ x~)||^2 + lambda sum(1 - |2 h(V) - 1|^beta) (Nagel et al., eq. 25) by Adam.
    """
    import torch

    step, most = _torch_graph.steps(task.weight, options.weight_bits), 2 ** (options.weight_bits - 1) - 1
    down = (task.weight / step).floor()
    fixed = (task.weight == 0) | ((task.weight / step).abs() > most - 1e-3)
    v = begun(task.weight / step - down).requires_grad_()
    optimizer = torch.optim.Adam([v], lr=RATE)
    unit = max(float(task.error(_torch_graph.rounded(task.weight, options.weight_bits))), 1e-30)

    def weight(h: torch.Tensor) -> torch.Tensor:
        return torch.where(fixed, (task.weight / step).round(), (down + h).clamp(-most, most)) * step

    for iteration in range(options.iterations):
        rows = torch.randint(task.rows.shape[1], (options.batch,), generator=generator)
        h, done = rectified(v), iteration / options.iterations
        loss = task.error(weight(h), rows) / unit
        if done >= WARM:
            loss = loss + WEIGHT * regularizer(h[~fixed], beta(done))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress(iteration + 1)
    return weight((rectified(v.detach()) >= 0.5).float())


# --------------------------------------------------------------------------- what outlives the process


class Checkpoints:
    """The layers that are done, a file each: another process goes on with the next and comes to the same result."""

    def __init__(self, request: Request) -> None:
        self.folder = request.keep
        inputs = {role: artifact.sha256 for role, artifact in request.inputs.items()}
        what = json.dumps([inputs, asdict(request.options), request.context.seed], sort_keys=True)
        self.of = hashlib.sha256(what.encode()).hexdigest()

    def load(self, number: int, layer: WeightedLayer) -> tuple[torch.Tensor, RoundedLayer] | None:
        """The weight and the facts of a layer, if it was done for the same request."""
        from safetensors import SafetensorError, safe_open

        if self.folder is None or not (file := self._file(number)).exists():
            return None
        try:
            with safe_open(file, "pt") as opened:
                card = json.loads((opened.metadata() or {})["card"])
                same = card["of"] == self.of and card["facts"]["name"] == layer.name
                return (opened.get_tensor("weight"), card["facts"]) if same else None
        except (OSError, SafetensorError, ValueError, KeyError, TypeError):
            return None  # begun anew

    def save(self, number: int, weight: torch.Tensor, facts: RoundedLayer) -> None:
        """Whole or not there, whatever kills the process."""
        from safetensors.torch import save_file

        if self.folder is None:
            return
        part = self._file(number).with_suffix(f".{os.getpid()}.part")
        save_file({"weight": weight.contiguous()}, part, {"card": json.dumps({"of": self.of, "facts": facts})})
        part.replace(self._file(number))

    def _file(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / f"layer-{number:04d}.safetensors"
