"""MobileNetV2 1.0 224 (Sandler et al. 2018, arXiv:1801.04381), as TensorFlow has it: SAME padding, 1001 classes."""

from __future__ import annotations

import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional as F

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
CALIBRATE = 64  # images; the other 436 are the test
CHOOSE = 200  # up to here, and from CALIBRATE on: images that choose, where some do


class Conv(nn.Module):
    """A convolution with TensorFlow's SAME padding: at stride 2 on an even size it pads below and to the right only."""

    def __init__(self, inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.uneven = stride == 2
        padding = 0 if self.uneven else size // 2
        self.conv = nn.Conv2d(inputs, outputs, size, stride, padding, groups=groups)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]."""
        return self.conv(F.pad(x, (0, 1, 0, 1)) if self.uneven else x)


class Block(nn.Module):
    """Expand, depthwise, project; the input added where the shape stays."""

    def __init__(self, inputs: int, outputs: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = inputs * factor
        self.expand = Conv(inputs, wide, 1) if factor > 1 else None
        self.dw = Conv(wide, wide, 3, stride, groups=wide)
        self.project = Conv(wide, outputs, 1)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, outputs, h / stride, w / stride]."""
        y = F.relu6(self.expand(x)) if self.expand is not None else x
        y = self.project(F.relu6(self.dw(y)))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """A stem, 17 blocks, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Conv(3, 32, 3, 2)
        blocks, inputs = [], 32
        for factor, outputs, count, stride in STAGES:
            for i in range(count):
                blocks.append(Block(inputs, outputs, stride if i == 0 else 1, factor))
                inputs = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = Conv(320, 1280, 1)
        self.classifier = nn.Linear(1280, 1001)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 224, 224] in -1..1 -> logits [n, 1001], class 0 is background."""
        x = self.blocks(F.relu6(self.stem(image)))
        return self.classifier(F.relu6(self.head(x)).mean(dim=(2, 3)))


def _layer(net: MobileNetV2, name: str) -> nn.Conv2d | nn.Linear:
    """The convolution or matrix that the weights file calls "stem", "block3.dw", "classifier"."""
    block, _, part = name.partition(".")
    found = getattr(net.blocks[int(block.removeprefix("block"))], part) if part else getattr(net, block)
    return found.conv if isinstance(found, Conv) else found


def build() -> nn.Module:
    """The trained net: weight = int8 x scale of its output channel."""
    net, file = MobileNetV2(), load_file(shared_data.find("models/mobilenetv2_imagenet_int8w.safetensors"))
    with torch.no_grad():
        for name in (key.removesuffix(".scale") for key in file if key.endswith(".scale")):
            layer, weight = _layer(net, name), file[f"{name}.weight_int8"].float()
            scale = file[f"{name}.scale"].reshape(-1, *(1 for _ in weight.shape[1:]))
            layer.weight.copy_(weight * scale)
            layer.bias.copy_(file[f"{name}.bias"])
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [224, 224, 3], class + 1): there are 500 images in all, so some calibrate and the others judge."""
    order = _order()
    if split == "test":
        return _images(order[CALIBRATE:])
    return _images(order[:CALIBRATE]) if split in ("calibrate", "select") else None


def data_to_choose_by(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """As `data`, with images that only choose: fewer judge."""
    parts = {"calibrate": (0, CALIBRATE), "select": (CALIBRATE, CHOOSE), "test": (CHOOSE, None)}
    return _images(_order()[slice(*parts[split])]) if split in parts else None


def _order() -> list[str]:
    with tarfile.open(shared_data.find("data/imagenet_sample_even500.tar")) as tar:
        names = sorted(tar.getnames())
    return [names[i] for i in np.random.default_rng(0).permutation(len(names))]


def _images(names: list[str]) -> Iterator[tuple[np.ndarray, int]]:
    with tarfile.open(shared_data.find("data/imagenet_sample_even500.tar")) as tar:
        for name in names:
            member = tar.extractfile(name)
            assert member is not None, name
            image = Image.open(io.BytesIO(member.read())).convert("RGB")
            yield np.asarray(image), int(name.split("_")[0]) + 1
