"""Makes fsdd.safetensors: `python examples/fsdd/train.py`, a minute on one core. With `--check` it only judges it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from net import WEIGHTS, Net, build, data
from safetensors.torch import save_file
from torch.nn import functional as F

from edgecompress.core import config, settings
from edgecompress.data import preprocess

SEED = 0
EPOCHS, BATCH, RATE = 30, 64, 0.01
LATER = 12  # frames that a clip may be moved by
MASKED = 6  # bands, and as many frames, that may be hidden (SpecAugment, Park et al. 2019, arXiv:1904.08779)


def tensors(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A split as the net takes it: what source.toml's [preprocess] says."""
    file = Path(__file__).with_name("source.toml")
    declared = config.build(settings.Source, config.read_toml(file), str(file)).preprocess
    assert declared is not None
    clips, labels = zip(*data(split) or (), strict=True)
    raw = np.stack([preprocess.geometry(clip, declared) for clip in clips])
    return torch.from_numpy(preprocess.numbers(raw, declared)), torch.tensor(labels)


def varied(x: torch.Tensor) -> torch.Tensor:
    """The batch moved in time, louder or softer, a few bands and frames hidden."""
    silence = float(x.min())
    by = int(torch.randint(0, LATER + 1, (1,)))
    x = F.pad(x, (0, 0, by, 0), value=silence)[:, :, : x.shape[2]]
    x = (x + 0.3 * torch.randn(len(x), 1, 1, 1)).clamp(min=silence)
    for axis in (2, 3):
        begin, wide = (int(torch.randint(0, n, (1,))) for n in (x.shape[axis] - MASKED, MASKED))
        x.narrow(axis, begin, wide).fill_(silence)
    return x


def accuracy(model: torch.nn.Module, split: str) -> float:
    """Top-1 of a split, 0..1."""
    x, y = tensors(split)
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


def train(model: torch.nn.Module) -> torch.nn.Module:
    """The model after EPOCHS of AdamW on a one-cycle schedule."""
    x, y = tensors("train")
    print(f"train: mean {x.mean():.3f}, std {x.std():.3f}, of {list(x.shape)}")
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=EPOCHS * -(-len(x) // BATCH))
    for epoch in range(EPOCHS):
        model.train()
        for index in torch.randperm(len(x)).split(BATCH):
            loss = F.cross_entropy(model(varied(x[index])), y[index], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}", flush=True)
    return model


def main() -> None:
    """Writes the weights, prints the accuracy of the splits that trained nothing."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    if "--check" not in sys.argv[1:]:
        save_file(train(Net()).state_dict(), WEIGHTS)
    print(f"select: {100 * accuracy(build(), 'select'):.1f} %, test: {100 * accuracy(build(), 'test'):.1f} %")


if __name__ == "__main__":
    main()
