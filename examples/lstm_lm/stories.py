"""The same net, trained on children's stories (TinyStories, Eldan and Li 2023, arXiv:2305.07759): for accuracy, too.

    python examples/lstm_lm/stories.py [--minutes 8]

trains it and keeps the weights beside this file; `stories.toml` is the source. The stories are not part of this
repository (examples/shared_data.py).
"""

from __future__ import annotations

import argparse
import functools
import gzip
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from net import CONTEXT, WORDS, LanguageModel
from safetensors.torch import load_file, save_file
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

WEIGHTS = Path(__file__).with_name("stories.safetensors")
SHARES = {"train": (0.0, 0.9), "calibrate": (0.0, 0.1), "select": (0.9, 0.95), "test": (0.95, 1.0)}  # of the text
BATCH, RATE, DROPOUT, WARM = 32, 2e-3, 0.3, 0.05


@functools.cache
def text() -> np.ndarray:
    """The stories as ids: of the words that training has most often from 1 on, 0 of others."""
    with gzip.open(shared_data.find("data/tinystories_2MiB.txt.gz"), "rt", encoding="utf-8") as file:
        words = re.findall(r"\w+|[^\w\s]", file.read().lower())
    often = Counter(words[: int(len(words) * SHARES["train"][1])]).most_common(WORDS - 1)
    known = {word: number for number, (word, _) in enumerate(often, 1)}
    return np.array([known.get(word, 0) for word in words], np.int64)


def windows(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Words [n, 35] and the word behind each, side by side in the split's own part of the text."""
    first, last = (int(len(text()) * share) for share in SHARES[split])
    count = (last - first - 1) // CONTEXT
    here, behind = (text()[first + i : first + i + count * CONTEXT].reshape(count, CONTEXT) for i in (0, 1))
    return here, behind


def data(split: str) -> Iterator[tuple[np.ndarray, np.ndarray]] | None:
    """(int64 [35], int64 [35], the next words), in random order."""
    if split not in SHARES:
        return None
    here, behind = windows(split)
    return ((here[i], behind[i]) for i in np.random.default_rng(0).permutation(len(here)))


def build() -> nn.Module:
    """The trained net."""
    if not WEIGHTS.exists():
        raise FileNotFoundError(f"{WEIGHTS}: make it with: python {Path(__file__).name}")
    net = LanguageModel()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()


def main() -> None:
    """Trains for so many minutes, the rate falling to 0 with them; the best weights by the split `select` are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0)
    minutes = parser.parse_args().minutes
    torch.manual_seed(0)
    net = LanguageModel()
    net.rnn.dropout = DROPOUT
    given, wanted = (torch.from_numpy(array) for array in windows("train"))
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.01)
    begun, best = time.monotonic(), float("inf")
    while (gone := (time.monotonic() - begun) / 60 / minutes) < 1:
        net.train()
        for rows in torch.randperm(len(given)).split(BATCH):
            gone = (time.monotonic() - begun) / 60 / minutes
            for group in optimizer.param_groups:
                group["lr"] = RATE * min(gone / WARM, max(0.0, 1 - gone), 1.0)
            found = net.rnn(nn.functional.dropout(net.embedding(given[rows]), DROPOUT))[0]
            logits = net.output(nn.functional.dropout(found, DROPOUT))
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted[rows].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
            if gone >= 1:
                break
        now = perplexity(net.eval())
        print(f"{(time.monotonic() - begun) / 60:.1f} min: perplexity {now:.2f} on select", flush=True)
        if now < best:
            best = now
            save_file(net.state_dict(), WEIGHTS)


def perplexity(net: nn.Module) -> float:
    """On the split `select`."""
    given, wanted = (torch.from_numpy(array) for array in windows("select"))
    with torch.no_grad():
        each = [
            nn.functional.cross_entropy(net(rows).flatten(0, 1), next_ones.flatten())
            for rows, next_ones in zip(given.split(64), wanted.split(64), strict=True)
        ]
    return float(torch.stack(each).mean().exp())


if __name__ == "__main__":
    main()
