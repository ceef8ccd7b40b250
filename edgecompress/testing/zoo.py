"""Small real nets, one of each shape that people bring, with seeded random weights: every runtime is tried on them.

Each function of NETS is a factory like a user's own: `edgecompress.testing.zoo:lstm` is a source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn


STEPS, WIDTH, HEADS, WORDS = 8, 16, 2, 50  # of sequences: their length, features, attention heads, vocabulary
CLASSES = 10
MASKED = -1e4  # added to the scores of what is masked: finite in fp16 too


@dataclass(frozen=True)
class Input:
    """One input of a net: the shape of an item; `below`: it is whole numbers from 0, fewer than that."""

    shape: tuple[int, ...]
    below: int = 0


@dataclass(frozen=True)
class ZooNet:
    """What a net is for, what it takes, and the batches it must run with."""

    says: str
    inputs: Mapping[str, Input]
    batches: tuple[int, ...] = (1,)
    dynamic: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # as a source declares it


NETS = {
    "residual_cnn": ZooNet("convolutions beside a shortcut, batch norm", {"image": Input((3, 16, 16))}),
    "depthwise_cnn": ZooNet("depthwise convolutions, ReLU6, uneven padding", {"image": Input((3, 16, 16))}),
    "lstm": ZooNet("an LSTM over a sequence", {"x": Input((STEPS, WIDTH))}),
    "transformer": ZooNet(
        "an encoder layer with an attention mask",
        {"x": Input((STEPS, WIDTH)), "mask": Input((STEPS,), below=2)},
    ),
    "dynamic_batch": ZooNet(
        "any number of items at once",
        {"image": Input((3, 8, 8))},
        batches=(1, 5),
        dynamic={"image": {"0": "batch:1..8"}},
    ),
    "two_ends": ZooNet("two inputs, two outputs", {"image": Input((3, 8, 8)), "facts": Input((6,))}),
    "int64": ZooNet("whole numbers in", {"ids": Input((STEPS,), below=WORDS)}),
}


def draw(net: ZooNet, items: int, seed: int) -> dict[str, np.ndarray]:
    """Items for each input of a net: normal numbers, or whole ones."""
    import numpy as np

    seeded = np.random.default_rng(seed)
    return {
        name: seeded.integers(0, i.below, (items, *i.shape))
        if i.below
        else seeded.normal(size=(items, *i.shape)).astype(np.float32)
        for name, i in net.inputs.items()
    }


# --------------------------------------------------------------------------- convolutions


def residual_cnn() -> nn.Module:
    """image [n, 3, 16, 16] -> logits [n, 10]."""
    import torch
    from torch import nn

    class ShortcutBlock(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.first = _conv(inputs, outputs, stride)
            self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
            self.shortcut = nn.Identity() if stride == 1 else nn.Conv2d(inputs, outputs, 1, stride)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.second(self.first(x)) + self.shortcut(x))

    class ResidualCnn(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(_conv(3, 8, 1), ShortcutBlock(8, 8, 1), ShortcutBlock(8, 16, 2))
            self.head = nn.Linear(16, CLASSES)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(image).mean(dim=(2, 3)))

    return _seeded(ResidualCnn)


def depthwise_cnn() -> nn.Module:
    """image [n, 3, 16, 16] -> logits [n, 10]; at stride 2 it pads below and to the right only."""
    from torch import nn
    from torch.nn import functional

    class DepthwiseBlock(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int, stride: int) -> None:
            super().__init__()
            wide = 4 * width
            self.expand, self.project = nn.Conv2d(width, wide, 1), nn.Conv2d(wide, width, 1)
            self.depthwise = nn.Conv2d(wide, wide, 3, stride, int(stride == 1), groups=wide)
            self.uneven = stride == 2

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = functional.relu6(self.expand(x))
            y = functional.pad(y, (0, 1, 0, 1)) if self.uneven else y
            y = self.project(functional.relu6(self.depthwise(y)))
            return y if self.uneven else x + y

    class DepthwiseCnn(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(_conv(3, 8, 2), DepthwiseBlock(8, 1), DepthwiseBlock(8, 2))
            self.head = nn.Linear(8, CLASSES)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(image).mean(dim=(2, 3)))

    return _seeded(DepthwiseCnn)


def dynamic_batch() -> nn.Module:
    """image [n, 3, 8, 8] -> logits [n, 10], of any number of items; it flattens, which fixed sizes creep into."""
    from torch import nn

    class DynamicBatch(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = _conv(3, 8, 2), nn.Linear(8 * 4 * 4, CLASSES)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(image).flatten(1))

    return _seeded(DynamicBatch)


def two_ends() -> nn.Module:
    """image [n, 3, 8, 8] and facts [n, 6] -> {"logits": [n, 10], "code": [n, 8]}."""
    import torch
    from torch import nn

    class TwoEnds(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.eye, self.reader = _conv(3, 8, 2), nn.Linear(6, 8)
            self.head = nn.Linear(16, CLASSES)

        def forward(self, image: torch.Tensor, facts: torch.Tensor) -> dict[str, torch.Tensor]:
            seen, read = self.eye(image).mean(dim=(2, 3)), torch.tanh(self.reader(facts))
            return {"logits": self.head(torch.cat([seen, read], dim=1)), "code": seen * read}

    return _seeded(TwoEnds)


# --------------------------------------------------------------------------- sequences


def lstm() -> nn.Module:
    """x [n, 8, 16] -> logits [n, 10] from the last step."""
    from torch import nn

    class Lstm(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)
            self.head = nn.Linear(WIDTH, CLASSES)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.rnn(x)[0][:, -1])

    return _seeded(Lstm)


def transformer() -> nn.Module:
    """x [n, 8, 16] and mask int64 [n, 8] (1: look at this step) -> y [n, 8, 16]."""
    import torch
    from torch import nn
    from torch.nn import functional

    class Transformer(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))

        def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            added = (1 - mask.to(torch.float32)).reshape(-1, 1, 1, STEPS) * MASKED
            q, k, v = (p.reshape(-1, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2) for p in self.qkv(x).chunk(3, 2))
            seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=added)
            x = self.norm1(x + self.out(seen.transpose(1, 2).reshape(-1, STEPS, WIDTH)))
            return self.norm2(x + self.mlp(x))

    return _seeded(Transformer)


def int64() -> nn.Module:
    """ids int64 [n, 8] -> logits [n, 10]."""
    from torch import nn

    class Int64(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, CLASSES)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return self.head(self.table(ids).mean(dim=1))

    return _seeded(Int64)


# --------------------------------------------------------------------------- what they share


def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A convolution, batch norm and ReLU."""
    from torch import nn

    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


def _seeded(build: Callable[[], nn.Module]) -> nn.Module:
    """The net with its weights, and what batch norm has learned of the data, drawn from a fixed seed."""
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        net = build()
        for layer in net.modules():
            if isinstance(layer, (nn.Conv2d, nn.Linear)):  # as wide as its input: the answer depends on what goes in
                nn.init.kaiming_normal_(layer.weight)
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_(0, 0.1)
                layer.running_var.uniform_(0.5, 1.5)
    return net.eval()
