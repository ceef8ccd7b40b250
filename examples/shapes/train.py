"""Makes shapes.npz and shapes.safetensors: `python examples/shapes/train.py` (needs torch, five minutes on one core).

Every picture is drawn here: one shape, turned, in any colour, on a shaded ground with grain and a line
across. One seed, one thread. The test split is used once, after training, to print the accuracy.
"""

from __future__ import annotations

import numpy as np
import torch
from net import IMAGES, WEIGHTS, Net
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

SEED, SIDE, FINE = 0, 32, 4  # FINE: points per pixel and axis, whose mean softens the edges
SIZES = {"test": 400, "select": 100, "calibrate": 100, "train": 8000}
EPOCHS, BATCH, RATE = 10, 50, 0.004
APART = 60  # at least, of 255: between the colours of a shape and of its ground in one channel
GRAIN = 12  # grey levels; grain comes in steps of it, so that the file is small


def polygon(x: np.ndarray, y: np.ndarray, corners: int) -> np.ndarray:
    """Where the points are inside a regular polygon with its corners on the unit circle."""
    half = np.pi / corners
    angle = np.arctan2(y, x) % (2 * half) - half
    return np.hypot(x, y) * np.cos(angle) < np.cos(half)


def star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where the points are inside a star of five points."""
    angle = np.abs(np.arctan2(y, x) % (2 * np.pi / 5) - np.pi / 5)
    side, up = np.hypot(x, y) * np.cos(angle), np.hypot(x, y) * np.sin(angle)
    dx, dy = np.cos(np.pi / 5) - 0.42, np.sin(np.pi / 5)  # from an inner corner to an outer one
    return (side - 0.42) * dy < up * dx


def inside(shape: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Where the points are inside a shape, by its label: those of `labels` in source.toml."""
    r = np.hypot(x, y)
    flat, long = np.minimum(abs(x), abs(y)), np.maximum(abs(x), abs(y))
    drawn = (
        lambda: r < 1,
        lambda: (r < 1) & (r > 0.55),
        lambda: polygon(x, y, 3),
        lambda: polygon(x, y, 4),
        lambda: polygon(x, y, 5),
        lambda: star(x, y),
        lambda: (flat < 0.3) & (long < 0.95),
        lambda: (r < 1) & (np.hypot(x - 0.5, y) > 0.8),
    )
    return drawn[shape]()


def picture(shape: int, random: np.random.Generator) -> np.ndarray:
    """uint8 [32, 32, 3]: a shape somewhere, turned, of a size, in a colour, on a ground."""
    x, y = np.meshgrid(*[(np.arange(SIDE * FINE) + 0.5) / FINE] * 2)
    size = random.uniform(6, 12)
    left, top = random.uniform(size * 0.8, SIDE - size * 0.8, 2)
    turn = random.uniform(0, 2 * np.pi)
    u, v = (x - left) / size, (y - top) / size
    fine = inside(shape, u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn))
    cover = fine.reshape(SIDE, FINE, SIDE, FINE).mean((1, 3))[..., None]
    ground = colour = random.uniform(30, 225, 3)
    while abs(ground - colour).max() < APART:
        colour = random.uniform(30, 225, 3)
    slope, across = random.uniform(-2, 2, 2), random.uniform(0, np.pi)
    x, y = np.meshgrid(np.arange(SIDE), np.arange(SIDE))
    line = abs((x - random.uniform(0, SIDE)) * np.sin(across) + (y - random.uniform(0, SIDE)) * np.cos(across)) < 0.7
    shade = ((x - SIDE / 2) * slope[0] + (y - SIDE / 2) * slope[1])[..., None]
    drawn = np.where(line[..., None], random.uniform(0, 255, 3), (ground + shade) * (1 - cover) + colour * cover)
    grain = np.rint(random.normal(0, 1, (SIDE, SIDE, 1))) * GRAIN
    return (np.clip(drawn + grain, 0, 255) // 4 * 4).astype(np.uint8)


def pictures(count: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """So many pictures, as many of each shape, in a random order, with their labels."""
    labels = random.permutation(np.arange(count) % 8).astype(np.uint8)
    return np.stack([picture(int(shape), random) for shape in labels]), labels


def tensors(images: np.ndarray) -> torch.Tensor:
    """Images as the net takes them: what source.toml's [preprocess] says."""
    return (torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.25


def train(net: nn.Module, images: np.ndarray, labels: np.ndarray) -> None:
    """EPOCHS of AdamW on a one-cycle schedule; each batch may be mirrored."""
    x, y = tensors(images), torch.from_numpy(labels).long()
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=EPOCHS * -(-len(x) // BATCH))
    for epoch in range(EPOCHS):
        net.train()
        for index in torch.randperm(len(x)).split(BATCH):
            batch = x[index].flip(int(torch.randint(2, 4, ()))) if torch.rand(()) < 0.5 else x[index]
            loss = F.cross_entropy(net(batch), y[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    random = np.random.default_rng(SEED)
    made = {split: pictures(count, random) for split, count in SIZES.items()}
    kept = [(split, *made[split]) for split in ("test", "select", "calibrate")]
    arrays = {f"{split}.input": images for split, images, _ in kept} | {f"{split}.labels": y for split, _, y in kept}
    np.savez_compressed(IMAGES, allow_pickle=False, **arrays)
    net = Net()
    train(net, *made["train"])
    save_file(net.state_dict(), WEIGHTS)
    with torch.no_grad():
        right = (net.eval()(tensors(made["test"][0])).argmax(1).numpy() == made["test"][1]).sum()
    print(f"{right} of {SIZES['test']} right")
