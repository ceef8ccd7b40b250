"""SqueezeNet v1.0 (Iandola et al. 2016, arXiv:1602.07360) with the weights of Deep Compression: a third is not zero."""

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

FIRES = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256))  # squeeze, each expand
POOLED = (4, 8)  # after these fires, as after the first convolution, comes a max pool
CALIBRATE = 64  # images; the other 436 are the test
CHOOSE = 200  # up to here, and from CALIBRATE on: images that choose, where some do


class Fire(nn.Module):
    """Squeezed by 1 x 1, then expanded by 1 x 1 and 3 x 3 side by side."""

    def __init__(self, inputs: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(inputs, squeeze, 1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, inputs, h, w] -> [n, 2 * expand, h, w]."""
        y = F.relu(self.squeeze(x))
        return torch.cat([F.relu(self.expand1x1(y)), F.relu(self.expand3x3(y))], dim=1)


class SqueezeNet(nn.Module):
    """A stem, eight fires called fire2 to fire9, a convolution that classifies."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 7, 2)
        inputs = 96
        for number, (squeeze, expand) in enumerate(FIRES, 2):
            self.add_module(f"fire{number}", Fire(inputs, squeeze, expand))
            inputs = 2 * expand
        self.conv_final = nn.Conv2d(512, 1000, 1, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 224, 224], BGR, 0 to 255 less the mean colour -> logits [n, 1000]."""
        x = _pool(F.relu(self.conv1(image)))
        for number in range(2, 10):
            x = self.get_submodule(f"fire{number}")(x)
            x = _pool(x) if number in POOLED else x
        return F.relu(self.conv_final(x)).mean(dim=(2, 3))


def _pool(x: torch.Tensor) -> torch.Tensor:
    return F.max_pool2d(x, 3, 2, ceil_mode=True)


def build() -> nn.Module:
    """The trained net."""
    net = SqueezeNet()
    net.load_state_dict(load_file(shared_data.find("models/squeezenet_v1.0_dc.safetensors")))
    return net.eval()


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(uint8 [224, 224, 3], class): there are 500 images in all, so some calibrate and the others judge."""
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
            yield np.asarray(image), int(name.split("_")[0])
