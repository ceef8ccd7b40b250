"""Spoken digits: depthwise convolutions over the mel spectrogram of a second of speech.

The Free Spoken Digit Dataset in its own split: the first five recordings of each digit by each speaker are the test,
so the net has heard its speakers, but none of its clips.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

WEIGHTS = Path(__file__).parent / "fsdd.safetensors"
RECORDINGS = {"test": (0, 5), "select": (5, 10), "calibrate": (10, 15), "train": (10, 50)}  # of a digit by a speaker
WIDTH, STRIDES = 64, (2, 1, 2, 1)


class Block(nn.Module):
    """A depthwise 3 x 3 and a pointwise convolution, each with BatchNorm and ReLU."""

    def __init__(self, stride: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(WIDTH, WIDTH, 3, stride, 1, groups=WIDTH, bias=False)
        self.bn1 = nn.BatchNorm2d(WIDTH)
        self.pointwise = nn.Conv2d(WIDTH, WIDTH, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, WIDTH, h, w] -> [n, WIDTH, h / stride, w / stride]."""
        x = torch.relu(self.bn1(self.depthwise(x)))
        return torch.relu(self.bn2(self.pointwise(x)))


class Net(nn.Module):
    """A convolution, four blocks, the mean over time and frequency, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, WIDTH, 5, 2, 2, bias=False)
        self.bn = nn.BatchNorm2d(WIDTH)
        self.blocks = nn.Sequential(*(Block(stride) for stride in STRIDES))
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 1, frames, bins], as source.toml declares it -> logits [n, 10]."""
        x = self.blocks(torch.relu(self.bn(self.first(x))))
        logits: torch.Tensor = self.last(self.drop(x.mean(dim=(2, 3))))
        return logits


def build() -> nn.Module:
    """The trained net."""
    net = Net()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(int16 [samples] at 8 kHz, digit); clips that calibrate also train, those of test and select do not."""
    return _clips(*RECORDINGS[split]) if split in RECORDINGS else None


def _clips(begin: int, end: int) -> Iterator[tuple[np.ndarray, int]]:
    with np.load(shared_data.find("data/fsdd.npz"), allow_pickle=False) as file:
        audio, offsets, labels, index = (file[name] for name in ("audio", "offsets", "label", "index"))
    for i in np.flatnonzero((index >= begin) & (index < end)):
        yield audio[offsets[i] : offsets[i + 1]], int(labels[i])
