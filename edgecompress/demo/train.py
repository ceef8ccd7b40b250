"""Makes digits.npz and digits.safetensors: `python -m edgecompress.demo.train` (needs torch and scikit-learn, minutes).

Deterministic on one machine: one thread, one seed. The test split is used once, after training, to print the accuracy.
"""

from __future__ import annotations

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F

from edgecompress.demo import net

SEED = 0
SIZES = {"test": 500, "select": 150, "calibrate": 150}  # the rest trains
EPOCHS, BATCH, RATE = 40, 64, 0.05


def split_images() -> None:
    """scikit-learn's digits, shuffled once and cut into disjoint splits."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    arrays, begin = {}, 0
    for split, size in {**SIZES, "train": len(order) - sum(SIZES.values())}.items():
        index = order[begin : begin + size]
        arrays[f"{split}.input"] = digits.images[index].astype(np.uint8)
        arrays[f"{split}.labels"] = digits.target[index].astype(np.uint8)
        begin += size
    np.savez_compressed(net.IMAGES, allow_pickle=False, **arrays)


def tensors(split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """A split as the net takes it: what source.toml's [preprocess] says."""
    images, labels = zip(*net.data(split) or (), strict=True)
    x = torch.from_numpy(np.stack(images)).float()[:, None] / 16
    return (x - 0.3) / 0.37, torch.tensor(labels)


def shifted(x: torch.Tensor) -> torch.Tensor:
    """The batch moved by -1, 0 or 1 pixels on each axis: the only augmentation."""
    dy, dx = (int(i) for i in torch.randint(-1, 2, (2,)))
    edge = float(x.min())
    return F.pad(x, (1, 1, 1, 1), value=edge)[:, :, 1 + dy : 9 + dy, 1 + dx : 9 + dx]


def accuracy(model: torch.nn.Module, split: str) -> float:
    """Top-1 of a split, 0..1."""
    x, y = tensors(split)
    with torch.no_grad():
        return float((model.eval()(x).argmax(1) == y).float().mean())


def train(model: torch.nn.Module) -> torch.nn.Module:
    """The model after EPOCHS of SGD with momentum on a one-cycle schedule."""
    x, y = tensors("train")
    steps = EPOCHS * -(-len(x) // BATCH)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        model.train()
        for index in torch.randperm(len(x)).split(BATCH):
            loss = F.cross_entropy(model(shifted(x[index])), y[index], label_smoothing=0.05)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1:2}: loss {loss.item():.3f}", flush=True)
    return model


def main() -> None:
    """Writes both files, prints the accuracy of the splits that trained nothing."""
    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    split_images()
    model = train(net.untrained())
    save_file(model.state_dict(), net.WEIGHTS)
    print(f"select {accuracy(model, 'select'):.4f}  test {accuracy(model, 'test'):.4f}")


if __name__ == "__main__":
    main()
