"""A RepVGG (Ding et al. 2021, arXiv:2101.03697) as it is trained, with random weights: for speed and parity alone."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

STAGES = ((48, 2), (96, 4), (192, 8))  # (channels, blocks): half of A0's widths, without its last stage
SIDE, ITEMS = 64, 64
SEEDS = {"calibrate": 1, "select": 2, "test": 3}


class Block(nn.Module):
    """A 3x3, a 1x1 and, where the shape stays, the tensor itself, each behind its norm."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.wide = self._branch(before, after, 3, stride)
        self.point = self._branch(before, after, 1, stride)
        self.same = nn.BatchNorm2d(after) if before == after and stride == 1 else None

    @staticmethod
    def _branch(before: int, after: int, size: int, stride: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(before, after, size, stride, size // 2, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, before, height, width] -> [n, after, height / stride, width / stride]."""
        total = self.wide(x) + self.point(x)
        return torch.relu(total if self.same is None else total + self.same(x))


def build() -> nn.Module:
    """float32 [n, 3, 64, 64] -> logits [n, 10]; the weights are the same each time, the norms fit what they read."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [Block(3, STAGES[0][0], 2)]
    before = STAGES[0][0]
    for channels, blocks in STAGES:
        layers += [Block(before if i == 0 else channels, channels, 2 if i == 0 else 1) for i in range(blocks)]
        before = channels
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            module.momentum = None
    with torch.no_grad():
        net(torch.randn(64, 3, SIDE, SIDE))
    return net.eval()


def data(split: str) -> Iterator[dict[str, np.ndarray]] | None:
    """{"x": float32 [3, 64, 64]}, random."""
    if split not in SEEDS:
        return None
    drawn = np.random.default_rng(SEEDS[split])
    return ({"x": drawn.standard_normal((3, SIDE, SIDE), dtype=np.float32)} for _ in range(ITEMS))
