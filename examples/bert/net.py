"""A small BERT (Turc et al. 2019, arXiv:1908.08962, 2 layers of 128), with random weights; its mask is written out.

Masks made by index arithmetic, as libraries have them, stop some converters: this one is an addition on four axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WORDS, STEPS, WIDTH, HEADS, LAYERS = 30522, 128, 128, 2, 2
MASKED = -1e4  # added to the scores of padding: finite in fp16 too
ITEMS = 64  # in each split
SEEDS = {"calibrate": 1, "select": 2, "test": 3}


class Layer(nn.Module):
    """Attention, then two matrices; each with a shortcut and a norm behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, 1e-12), nn.LayerNorm(WIDTH, 1e-12)

    def forward(self, x: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """x [n, 128, 128], added [n, 1, 1, 128] -> [n, 128, 128]."""
        q, k, v = (_heads(part(x)) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(2, 3) / math.sqrt(WIDTH // HEADS) + added
        seen = (torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(-1, STEPS, WIDTH)
        x = self.norm1(x + self.out(seen))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


def _heads(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, STEPS, HEADS, WIDTH // HEADS).transpose(1, 2)


class Bert(nn.Module):
    """Embeddings of words and places, and the layers."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(STEPS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, 1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """ids int64 [n, 128], mask int64 [n, 128] (1: a word, 0: padding) -> [n, 128, 128]."""
        added = (1 - mask.to(torch.float32)).reshape(-1, 1, 1, STEPS) * MASKED
        x = self.norm(self.words(ids) + self.places.weight)
        for layer in self.layers:
            x = layer(x, added)
        return x


def build() -> nn.Module:
    """The net, its weights the same each time, as wide as BERT's when it begins to learn."""
    torch.manual_seed(0)
    net = Bert()
    for layer in net.modules():
        if isinstance(layer, (nn.Linear, nn.Embedding)):
            nn.init.normal_(layer.weight, std=0.02)
    return net.eval()


def data(split: str) -> Iterator[dict[str, np.ndarray]] | None:
    """{"ids", "mask"}: random words, from half as many as fit to all that fit."""
    if split not in SEEDS:
        return None
    seeded = np.random.default_rng(SEEDS[split])
    lengths = seeded.integers(STEPS // 2, STEPS + 1, ITEMS)
    masks = (np.arange(STEPS) < lengths[:, None]).astype(np.int64)
    ids = seeded.integers(1, WORDS, (ITEMS, STEPS)) * masks
    return ({"ids": row, "mask": mask} for row, mask in zip(ids, masks, strict=True))
