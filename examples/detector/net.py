"""A detector of circles, squares and triangles in drawn scenes: a head as YOLOv8's, decoded in the net."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

WEIGHTS = Path(__file__).with_name("detector.safetensors")
HEIGHT, WIDTH, SIDE = 96, 128, 128  # of a scene; of the input, a square that it lies in between bars
BAR = (SIDE - HEIGHT) // 2
CLASSES, MOST = 3, 6
STRIDES, BINS = (8, 16), 8  # of the grids; of the distribution of each distance, in strides
SIZES = {"test": 200, "select": 100, "calibrate": 100, "train": 4000}


# --------------------------------------------------------------------------- scenes


def scene(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """uint8 [96, 128, 3], and its things [6, 5]: class, x1, y1, x2, y2 in pixels of the input, padded with -1."""
    y, x = np.mgrid[:HEIGHT, :WIDTH] + 0.5
    ground, slope = random.uniform(40, 215, 3), random.uniform(-0.5, 0.5, (2, 3))
    picture = ground + (y - HEIGHT / 2)[..., None] * slope[0] + (x - WIDTH / 2)[..., None] * slope[1]
    for _ in range(3):  # lines, which are no things
        across, at = random.uniform(0, np.pi), random.uniform(0, [WIDTH, HEIGHT])
        line = abs((x - at[0]) * np.sin(across) + (y - at[1]) * np.cos(across)) < random.uniform(0.5, 2)
        picture[line] = random.uniform(0, 255, 3)
    things = np.full((MOST, 5), -1, np.float32)
    for number in range(int(random.integers(1, 5))):
        kind, size = int(random.integers(CLASSES)), random.uniform(12, 44)
        left, top = random.uniform(0, [WIDTH - size, HEIGHT - size])
        box = np.array([left, top, left + size, top + size])
        others = things[:number, 1:] - np.array([0, BAR, 0, BAR])
        if (np.minimum(others[:, 2:], box[2:]) > np.maximum(others[:, :2], box[:2])).all(1).any():
            continue
        colour = random.uniform(0, 255, 3)
        while abs(colour - ground).max() < 70:
            colour = random.uniform(0, 255, 3)
        u, v = (x - left) / size, (y - top) / size
        inside = (u > 0) & (u < 1) & (v > 0) & (v < 1)
        shapes = (np.hypot(u - 0.5, v - 0.5) < 0.5, inside, inside & (abs(u - 0.5) < v / 2))
        picture[shapes[kind]] = colour
        things[number] = kind, *(box + np.array([0, BAR, 0, BAR]))
    return np.clip(picture + random.normal(0, 6, (HEIGHT, WIDTH, 1)), 0, 255).astype(np.uint8), things


def data(split: str) -> Iterator[tuple[np.ndarray, np.ndarray]] | None:
    """(picture, things) of a split, the same each time."""
    if split not in SIZES:
        return None
    random = np.random.default_rng(list(SIZES).index(split))
    return (scene(random) for _ in range(SIZES[split]))


# --------------------------------------------------------------------------- the net


class Convolution(nn.Sequential):
    """A 3 x 3 convolution with its batch norm, and what is below zero cut off."""

    def __init__(self, channels: int, filters: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels, filters, 3, stride, padding=1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(filters), nn.ReLU())


class Head(nn.Module):
    """Of one grid: logits of the classes, and of the bins of each distance to a side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.classes = nn.Sequential(Convolution(channels, 32), nn.Conv2d(32, CLASSES, 1))
        self.sides = nn.Sequential(Convolution(channels, 32), nn.Conv2d(32, 4 * BINS, 1))
        nn.init.constant_(self.classes[1].bias, -4.0)  # things are rare

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, channels, h, w] -> [n, 3, h * w], [n, 4, 8, h * w]."""
        return self.classes(x).flatten(2), self.sides(x).flatten(2).unflatten(1, (4, BINS))


class Net(nn.Module):
    """RGB in; boxes as corners in pixels, and how probable each class is there."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 16, 2), Convolution(16, 24, 2), Convolution(24, 24))
        self.near = nn.Sequential(Convolution(24, 48, 2), Convolution(48, 48), Convolution(48, 48))
        self.far = nn.Sequential(Convolution(48, 64, 2), Convolution(64, 64), Convolution(64, 64))
        self.heads = nn.ModuleList([Head(48), Head(64)])
        places = [(np.mgrid[: SIDE // s, : SIDE // s][::-1].reshape(2, -1) + 0.5) * s for s in STRIDES]
        steps = [np.full(place.shape[1], stride) for place, stride in zip(places, STRIDES, strict=True)]
        self.register_buffer("places", torch.from_numpy(np.concatenate(places, 1)).float(), persistent=False)
        self.register_buffer("steps", torch.from_numpy(np.concatenate(steps)).float(), persistent=False)
        self.register_buffer("bins", torch.arange(BINS).float().reshape(1, 1, BINS, 1), persistent=False)

    def raw(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[n, 3, 128, 128] -> logits of classes [n, 3, 320], and of the bins of the sides [n, 4, 8, 320]."""
        near = self.near(self.stem(image))
        each = [head(x) for head, x in zip(self.heads, (near, self.far(near)), strict=True)]
        return torch.cat([classes for classes, _ in each], -1), torch.cat([sides for _, sides in each], -1)

    def corners(self, sides: torch.Tensor) -> torch.Tensor:
        """[n, 4, 8, 320] -> [n, 4, 320]: the expected distance to each side, from the middle of the cell."""
        away = (sides.softmax(2) * self.bins).sum(2) * self.steps
        return torch.cat([self.places - away[:, :2], self.places + away[:, 2:]], 1)

    def forward(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """[n, 3, 128, 128] -> boxes [n, 320, 4], scores [n, 320, 3]."""
        classes, sides = self.raw(image)
        return {"boxes": self.corners(sides).transpose(1, 2), "scores": classes.sigmoid().transpose(1, 2)}


def build() -> nn.Module:
    """The trained net."""
    net = Net()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()
