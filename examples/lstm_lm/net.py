"""A word language model of two LSTMs (Zaremba et al. 2014, arXiv:1409.2329, small), with random weights."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

WORDS, WIDTH, CONTEXT = 5000, 200, 35
ITEMS = 64  # in each split
SEEDS = {"calibrate": 1, "select": 2, "test": 3}


class LanguageModel(nn.Module):
    """The next word from the last 35."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, num_layers=2, batch_first=True)
        self.output = nn.Linear(WIDTH, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """int64 [n, 35] -> logits [n, 35, 5000]."""
        found, _ = self.rnn(self.embedding(words))
        return self.output(found)


def build() -> nn.Module:
    """The net, its weights the same each time."""
    torch.manual_seed(0)
    return LanguageModel().eval()


def data(split: str) -> Iterator[dict[str, np.ndarray]] | None:
    """{"words": int64 [35]}, drawn as often as words are used (Zipf)."""
    if split not in SEEDS:
        return None
    often = 1 / np.arange(1, WORDS + 1)
    words = np.random.default_rng(SEEDS[split]).choice(WORDS, (ITEMS, CONTEXT), p=often / often.sum())
    return ({"words": row} for row in words)
