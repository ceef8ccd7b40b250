"""A MobileNetV2 for CIFAR-10: narrow, and with three strides of two instead of five, as images are small.

    python examples/mobilenetv2/cifar.py [--minutes 20]

trains it and keeps the weights beside this file; `cifar.toml` is the source. The images are not part of this
repository (examples/shared_data.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

# How many times as wide a block is within, its channels, how many of it, the stride of the first.
STAGES = ((1, 16, 1, 1), (6, 16, 2, 1), (6, 24, 3, 2), (6, 32, 4, 2), (6, 48, 3, 1), (6, 80, 2, 1))
STEM, HEAD = 16, 320
DEV, MORE = "data/cifar10_dev.npz", "data/cifar10_train_more.npz"
TRAIN = [(DEV, "train"), (MORE, "train")]
CHOOSE = 250  # test images that choose; the other 250 judge
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WEIGHTS = Path(__file__).with_name("cifar.safetensors")
BATCH, RATE, WARM = 128, 0.1, 0.1


def conv(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution and its batch norm."""
    made = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [made, nn.BatchNorm2d(outputs)]


class Block(nn.Module):
    """Expand, depthwise, project; the input added where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        expand = [*conv(inputs, wide, 1), nn.ReLU6()] if factor > 1 else []
        self.layers = nn.Sequential(*expand, *conv(wide, wide, 3, stride, wide), nn.ReLU6(), *conv(wide, outputs, 1))
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]."""
        y = self.layers(x)
        return x + y if self.residual else y


class SmallMobileNetV2(nn.Module):
    """A stem, 15 blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        blocks, inputs = [], STEM
        for factor, outputs, count, stride in STAGES:
            for i in range(count):
                blocks.append(Block(inputs, outputs, stride if i == 0 else 1, factor))
                inputs = outputs
        self.features = nn.Sequential(*conv(3, STEM, 3, 2), nn.ReLU6(), *blocks, *conv(inputs, HEAD, 1), nn.ReLU6())
        self.classifier = nn.Linear(HEAD, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 32, 32] -> logits [n, 10]."""
        return self.classifier(self.features(image).mean(dim=(2, 3)))


def build() -> nn.Module:
    """The trained net."""
    if not WEIGHTS.exists():
        raise FileNotFoundError(f"{WEIGHTS}: make it with: python {Path(__file__).name}")
    net = SmallMobileNetV2()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [32, 32, 3], class): the first 250 test images choose, the others judge."""
    parts = {"train": TRAIN, "calibrate": TRAIN[:1], "select": [(DEV, "test")], "test": [(DEV, "test")]}
    if split not in parts:
        return None
    chosen = {"select": slice(CHOOSE), "test": slice(CHOOSE, None)}.get(split, slice(None))
    images, labels = (array[chosen] for array in _arrays(parts[split]))
    return iter(zip(images, labels.tolist(), strict=True))


def _arrays(parts: list[tuple[str, str]]) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [n, 32, 32, 3] and classes [n]."""
    found = []
    for name, part in parts:
        with np.load(shared_data.find(name), allow_pickle=False) as file:
            found.append((file[f"{part}_x"], file[f"{part}_y"]))
    images, labels = zip(*found, strict=True)
    return np.concatenate(images), np.concatenate(labels)


def prepared(images: np.ndarray) -> torch.Tensor:
    """float32 [n, 3, 32, 32], as `cifar.toml` declares it."""
    scaled = (images / np.float32(255) - np.array(MEAN, np.float32)) / np.array(STD, np.float32)
    return torch.from_numpy(scaled.transpose(0, 3, 1, 2).copy())


def main() -> None:
    """Trains for so many minutes by SGD, the rate rising and falling to 0 with them; mirrored, shifted images."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20.0)
    minutes = parser.parse_args().minutes
    torch.manual_seed(0)
    raw, classes = _arrays(TRAIN)
    images, labels = F.pad(prepared(raw), (4, 4, 4, 4)), torch.from_numpy(classes.astype(np.int64))
    net = SmallMobileNetV2().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    begun = time.monotonic()
    while (time.monotonic() - begun) / 60 < minutes:
        net.train()
        for rows in torch.randperm(len(images)).split(BATCH):
            gone = (time.monotonic() - begun) / 60 / minutes
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(gone / WARM, max(0.0, 1 - gone) / (1 - WARM))
            down, right = torch.randint(0, 9, (2,)).tolist()
            batch = images[rows, :, down : down + 32, right : right + 32]
            batch = torch.where((torch.rand(len(rows)) < 0.5)[:, None, None, None], batch, batch.flip(3))
            with torch.autocast("cpu", torch.bfloat16):
                loss = F.cross_entropy(net(batch.contiguous(memory_format=torch.channels_last)), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if gone >= 1:
                break
        print(f"{(time.monotonic() - begun) / 60:.1f} min: top-1 {accuracy(net.eval()):.1%} on select", flush=True)
    save_file({name: tensor.contiguous() for name, tensor in net.state_dict().items()}, WEIGHTS)


def accuracy(net: nn.Module) -> float:
    """Of the split `select`."""
    images, labels = zip(*(data("select") or ()), strict=True)
    with torch.no_grad():
        found = net(prepared(np.stack(images))).argmax(1).numpy()
    return float((found == np.array(labels)).mean())


if __name__ == "__main__":
    main()
