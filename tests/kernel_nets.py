"""Small torch nets, each with one operator between its input and its output: what engines make of a word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

IMAGE, ROWS, WAVE, IDS = (1, 8, 6, 6), (1, 5, 16), (1, 8, 20), (1, 5)


@dataclass(frozen=True)
class One:
    """A function of a net's layer and its inputs; `shapes`: of the inputs, whole numbers where `whole`."""

    run: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...] = (IMAGE,)
    layer: Callable[[], nn.Module] | None = None
    whole: bool = False


class Net(nn.Module):
    def __init__(self, one: One) -> None:
        super().__init__()
        self.run, self.layer = one.run, one.layer() if one.layer else None

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.run(self.layer, *inputs) if self.layer is not None else self.run(*inputs)


def of_layer(layer: Callable[[], nn.Module], shape: tuple[int, ...] = IMAGE, whole: bool = False) -> One:
    return One(lambda net, x: net(x), (shape,), layer, whole)


def first(layer: Callable[[], nn.Module]) -> One:
    return One(lambda net, x: net(x)[0], ((1, 12, 8),), layer)


def put(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 2:5] = x[:, :3]
    return y


NETS: dict[str, One] = {
    "conv": of_layer(lambda: nn.Conv2d(8, 8, 3)),
    "conv_depthwise": of_layer(lambda: nn.Conv2d(8, 8, 3, groups=8)),
    "conv_grouped": of_layer(lambda: nn.Conv2d(8, 8, 3, groups=2)),
    "conv (1-D)": of_layer(lambda: nn.Conv1d(8, 8, 3), WAVE),
    "conv3d": of_layer(lambda: nn.Conv3d(4, 4, 3), (1, 4, 6, 6, 6)),
    "convtranspose": of_layer(lambda: nn.ConvTranspose2d(8, 8, 2, 2)),
    "convtranspose (padded)": of_layer(lambda: nn.ConvTranspose2d(8, 4, 3, 2, 1, 1)),
    "convtranspose (1-D, padded)": of_layer(lambda: nn.ConvTranspose1d(8, 4, 4, 2, 1), WAVE),
    "linear": of_layer(lambda: nn.Linear(16, 16), ROWS),
    "matmul": One(lambda x, y: x @ y, ((1, 2, 5, 6), (1, 2, 6, 5))),
    "lstm": first(lambda: nn.LSTM(8, 8, batch_first=True)),
    "gru": first(lambda: nn.GRU(8, 8, batch_first=True)),
    "embedding": of_layer(lambda: nn.Embedding(10, 8), IDS, whole=True),
    "batchnorm": of_layer(lambda: nn.BatchNorm2d(8)),
    "layernorm": of_layer(lambda: nn.LayerNorm(16), ROWS),
    "groupnorm": of_layer(lambda: nn.GroupNorm(2, 8)),
    "instancenorm": of_layer(lambda: nn.InstanceNorm2d(8)),
    "rmsnorm": of_layer(lambda: nn.RMSNorm(16), ROWS),
    "attention": One(F.scaled_dot_product_attention, ((1, 2, 5, 8),) * 3),
    "prelu": of_layer(lambda: nn.PReLU(8)),
    "relu": One(F.relu),
    "relu6": One(F.relu6),
    "leakyrelu": One(F.leaky_relu),
    "elu": One(F.elu),
    "gelu": One(F.gelu),
    "silu": One(F.silu),
    "mish": One(F.mish),
    "hardswish": One(F.hardswish),
    "hardsigmoid": One(F.hardsigmoid),
    "hardtanh": One(F.hardtanh),
    "sigmoid": One(torch.sigmoid),
    "tanh": One(torch.tanh),
    "softplus": One(F.softplus),
    "selu": One(F.selu),
    "celu": One(F.celu),
    "exp": One(torch.exp),
    "abs": One(torch.abs),
    "neg": One(torch.neg),
    "floor": One(torch.floor),
    "ceil": One(torch.ceil),
    "round": One(torch.round),
    "sign": One(torch.sign),
    "sin": One(torch.sin),
    "cos": One(torch.cos),
    "erf": One(lambda x: x * (1 + torch.erf(x * 0.70710678)) * 0.5),
    "mul (a square)": One(lambda x: x**2),
    "pow": One(lambda x: x**3),
    "clip": One(lambda x: x.clamp(-0.3, 0.7)),
    "relu1": One(lambda x: x.clamp(0, 1)),
    "softmax": One(lambda x: x.softmax(-1)),
    "logsoftmax": One(lambda x: x.log_softmax(-1)),
    "reducemean": One(lambda x: x.mean(1)),
    "planemean": One(lambda x: x.mean((2, 3))),
    "globalaveragepool": One(lambda x: F.adaptive_avg_pool2d(x, 1)),
    "reducesum": One(lambda x: x.sum((2, 3))),
    "reducemax": One(lambda x: x.amax((2, 3))),
    "reducemin": One(lambda x: x.amin((2, 3))),
    "reduceprod": One(lambda x: x.prod(2)),
    "norm": One(lambda x: torch.linalg.vector_norm(x, dim=1)),
    "logsumexp": One(lambda x: x.logsumexp(1)),
    "var": One(lambda x: x.var(1)),
    "argmax": One(lambda x: x.argmax(1)),
    "topk": One(lambda x: x.topk(3, 1)[0]),
    "sort": One(lambda x: x.sort(1)[0]),
    "cumsum": One(lambda x: x.cumsum(2)),
    "maxpool": One(lambda x: F.max_pool2d(x, 2)),
    "maxpool_pad": One(lambda x: F.max_pool2d(x, 3, 2, 1)),
    "averagepool": One(lambda x: F.avg_pool2d(x, 2)),
    "adaptivepool": One(lambda x: F.adaptive_avg_pool2d(x, 3)),
    "adaptivemaxpool": One(lambda x: F.adaptive_max_pool2d(x, 1)),
    "resize_nearest": One(lambda x: F.interpolate(x, scale_factor=2.0)),
    "resize_bilinear": One(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear")),
    "resize_cubic": One(lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic")),
    "pad": One(lambda x: F.pad(x, (1, 1, 1, 1))),
    "pad_reflect": One(lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect")),
    "pad_edge": One(lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate")),
    "reshape": One(lambda x: x.reshape(1, 16, 18)),
    "transpose": One(lambda x: x.permute(0, 2, 3, 1)),
    "slice": One(lambda x: x[:, 2:6]),
    "slice_step": One(lambda x: x[:, :, ::2]),
    "split": One(lambda x: x.chunk(2, 1)[0]),
    "select": One(lambda x: x[:, 3]),
    "concat": One(lambda x, y: torch.cat([x, y], 1), (IMAGE, IMAGE)),
    "stack": One(lambda x, y: torch.stack([x, y], 1), (IMAGE, IMAGE)),
    "tile": One(lambda x: x.repeat(1, 1, 2, 2)),
    "expand": One(lambda x: x.expand(4, 8, 6, 6)),
    "roll": One(lambda x: x.roll(2, 2)),
    "flip": One(lambda x: x.flip(3)),
    "depthtospace": One(lambda x: F.pixel_shuffle(x, 2)),
    "spacetodepth": One(lambda x: F.pixel_unshuffle(x, 2)),
    "gather": One(lambda x: x[:, torch.tensor([3, 1, 5])]),
    "trilu": One(torch.tril),
    "unfold": One(lambda x: F.unfold(x, 3)),
    "glu": One(lambda x: F.glu(x, 1)),
    "atan": One(torch.atan),
    "mod": One(lambda x: torch.remainder(x, 2.0)),
    "where": One(lambda x, y: torch.where(x > 0, x, y), (IMAGE, IMAGE)),
    "equal": One(lambda x, y: x == y, (IMAGE, IMAGE)),
    "comparison": One(lambda x, y: x > y, (IMAGE, IMAGE)),
    "add": One(torch.add, (IMAGE, IMAGE)),
    "sub": One(torch.sub, (IMAGE, IMAGE)),
    "mul": One(torch.mul, (IMAGE, IMAGE)),
    "div": One(torch.div, (IMAGE, IMAGE)),
    "maximum": One(torch.maximum, (IMAGE, IMAGE)),
    "minimum": One(torch.minimum, (IMAGE, IMAGE)),
    "gridsample": One(lambda x, g: F.grid_sample(x, g, align_corners=False), (IMAGE, (1, 4, 4, 2))),
    "indexput": One(put),
    "add (whole numbers)": One(lambda x: x + 1, (IDS,), whole=True),
}


@dataclass(frozen=True)
class Built:
    """A net and what it is called with."""

    net: nn.Module
    inputs: tuple[torch.Tensor, ...] = field(default=())


def built(name: str) -> Built:
    """A net of the table with weights and inputs of a seed."""
    torch.manual_seed(0)
    one, rng = NETS[name], np.random.default_rng(0)
    drawn: list[Any] = [
        rng.integers(0, 5, s) if one.whole else rng.normal(size=s).astype("float32") for s in one.shapes
    ]
    return Built(Net(one).eval(), tuple(map(torch.from_numpy, drawn)))
