"""Sources of tests/test_raw_head_deploys.py: an SSD with key points that ends at its last layers, and regions."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

SIDE, STRIDE, ANCHORS = 32, 8, ((6.0, 8.0), (14.0, 10.0))
SIZES = {"calibrate": 16, "select": 16, "test": 24}


class Raw(nn.Module):  # type: ignore[misc]
    """Of each anchor of each cell of 8 pixels: offsets [n, 32, 4], nothing or a thing [n, 32, 2], points [n, 32, 6]."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.body = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU())
        self.heads = nn.ModuleList([nn.Conv2d(24, len(ANCHORS) * count, 1) for count in (4, 2, 6)])
        for scale, head in zip((3.0, 9.0, 6.0), self.heads, strict=True):
            head.weight.data *= scale

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.body(image)
        made = [head(x).permute(0, 2, 3, 1) for head in self.heads]
        return {
            name: each.reshape(len(image), -1, each.shape[-1] // len(ANCHORS))
            for name, each in zip(("loc", "conf", "landms"), made, strict=True)
        }


class Regions(nn.Module):  # type: ignore[misc]
    """Which colour is the strongest, [n, 3, 16, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.Conv2d(3, 3, 2, 2, groups=3, bias=False)
        self.pool.weight.data[:] = 0.25

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.pool(image)


def raw() -> nn.Module:
    return Raw().eval()


def regions() -> nn.Module:
    return Regions().eval()


def pictures(split: str) -> np.ndarray | None:
    """Raw pictures, uint8 [n, 24, 32, 3]."""
    if split not in SIZES:
        return None
    rough = np.random.default_rng(len(split)).integers(0, 256, (SIZES[split], 6, 8, 3))
    return rough.repeat(4, 1).repeat(4, 2).astype(np.uint8)


def data(split: str) -> list[np.ndarray] | None:
    found = pictures(split)
    return None if found is None else list(found)


def labelled(split: str) -> list[tuple[np.ndarray, np.ndarray]] | None:
    """With the strongest colour of each two pixels of the letterboxed picture; bars are left out."""
    found = pictures(split)
    if found is None:
        return None
    truth = np.full((len(found), 16, 16), 255)
    truth[:, 2:14] = found[:, ::2, ::2].argmax(-1)
    return list(zip(found, truth, strict=True))
