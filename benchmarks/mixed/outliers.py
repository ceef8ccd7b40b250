"""ResNet-32 for CIFAR-10 with a channel blown up in one of its 15 blocks: the same function in float.

What is blown up behind the first convolution of the block is taken back by the second one. In int8 one scale serves all
channels between them: the others are left with one or two levels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "resnet20"))
import net as resnet

BLOCK, FACTOR = "layer3.0", 300.0

data = resnet.data


def build() -> nn.Module:
    """The trained net, its channel blown up."""
    net = resnet.build32()
    block = net.get_submodule(BLOCK)
    with torch.no_grad():
        channel = block.get_parameter("bn1.bias").argmax()  # one that answers to most images
        block.get_parameter("bn1.weight")[channel] *= FACTOR
        block.get_parameter("bn1.bias")[channel] *= FACTOR
        block.get_parameter("conv2.weight")[:, channel] /= FACTOR
    return net
