"""A small vision transformer, trained here on CIFAR-10: what norms, softmax and GELU make of int8 on an NPU.

`python benchmarks/npu_nets.py` trains it (minutes on two cores) and keeps its weights in build/npu.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))
import shared_data

WEIGHTS = Path(__file__).resolve().parents[1] / "build" / "npu" / "vit.safetensors"
WIDTH, DEPTH, HEADS, PATCH, SIDE = 64, 4, 4, 4, 32
EPOCHS, BATCH, RATE = 8, 128, 2e-3


class Block(nn.Module):
    """Attention and a perceptron, a norm before each."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, tokens, WIDTH] -> the same."""
        n, tokens, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(mixed.transpose(1, 2).reshape(n, tokens, WIDTH))
        answer: torch.Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return answer


class ViT(nn.Module):
    """Patches of 4 x 4, four blocks, the mean over the patches, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(torch.randn(1, (SIDE // PATCH) ** 2, WIDTH) / 50)
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 32, 32] -> logits [n, 10]."""
        x = self.patches(image).flatten(2).transpose(1, 2) + self.places
        answer: torch.Tensor = self.head(self.norm(self.blocks(x)).mean(1))
        return answer


def build() -> nn.Module:
    """The trained net."""
    net = ViT()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


@functools.cache
def _images(file: str, part: str) -> tuple[np.ndarray, np.ndarray]:
    """float32 [n, 3, 32, 32] in -1..1, and classes."""
    with np.load(shared_data.find(f"data/{file}.npz")) as found:
        images, labels = found[f"{part}_x"], found[f"{part}_y"]
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).astype(np.float32) / 127.5 - 1, labels


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """The test images are of no training; those that calibrate and select are of the training set."""
    if split not in ("test", "select", "calibrate"):
        return None
    images, labels = _images("cifar10_dev", "test" if split == "test" else "train")
    begin, end = {"test": (0, 500), "select": (0, 500), "calibrate": (500, 700)}[split]
    return ((image, int(label)) for image, label in zip(images[begin:end], labels[begin:end], strict=True))


def train() -> None:
    """Trains it, and keeps the weights."""
    torch.manual_seed(0)
    parts = [_images("cifar10_dev", "train"), _images("cifar10_train_more", "train")]
    images, labels = (torch.from_numpy(np.concatenate([part[i] for part in parts])) for i in (0, 1))
    labels = labels.long()
    net = ViT().train()
    steps = EPOCHS * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps)
    for epoch in range(EPOCHS):
        lost = 0.0
        for place in torch.randperm(len(images)).split(BATCH)[: len(images) // BATCH]:
            batch = images[place]
            batch = batch.flip(3) if torch.rand(()) < 0.5 else batch
            batch = nn.functional.pad(batch, (2, 2, 2, 2))
            left, top = torch.randint(0, 5, (2,)).tolist()
            batch = batch[:, :, top : top + SIDE, left : left + SIDE]
            loss = nn.functional.cross_entropy(net(batch), labels[place], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            lost += float(loss.detach())
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {lost / (len(images) // BATCH):.3f}", flush=True)
    WEIGHTS.parent.mkdir(parents=True, exist_ok=True)
    save_file(net.eval().state_dict(), WEIGHTS)


if __name__ == "__main__":
    train()
