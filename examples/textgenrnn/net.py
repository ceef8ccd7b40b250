"""textgenrnn (Max Woolf, MIT): a character model of an embedding, two LSTMs and a weighted average over time."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

CONTEXT = 40  # characters that the net sees
CHARACTERS = 465  # id 0 is padding, 464 is <s>, which stands between texts
LINES = {"calibrate": (0, 400), "select": (400, 800), "test": (800, 2000), "train": (0, 800)}  # texts of each split


class TextGenRNN(nn.Module):
    """The next character from the last 40."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, 100)
        self.rnn_1 = nn.LSTM(100, 128, batch_first=True)
        self.rnn_2 = nn.LSTM(128, 128, batch_first=True)
        self.attention = nn.ParameterDict({"weight": torch.zeros(356, 1)})
        self.output = nn.Linear(356, CHARACTERS)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """int64 [n, 40] -> logits [n, 465]."""
        x = self.embedding(text)
        first, _ = self.rnn_1(x)
        second, _ = self.rnn_2(first)
        steps = torch.cat([x, first, second], dim=2)
        weights = torch.softmax(steps @ self.attention["weight"], dim=1)
        return self.output((steps * weights).sum(dim=1))


def build() -> nn.Module:
    """The trained net."""
    net = TextGenRNN()
    net.load_state_dict(load_file(shared_data.find("models/textgenrnn.safetensors")))
    return net.eval()


def characters(first: int, last: int) -> np.ndarray:
    """The texts `first` to `last` of the evaluation file as one int64 row, <s> between them."""
    known = json.loads(shared_data.find("models/textgenrnn_vocab.json").read_text(encoding="utf-8"))
    known["\n"] = known["<s>"]
    with gzip.open(shared_data.find("data/reddit_apple_android_2000.txt.gz"), "rt", encoding="utf-8") as file:
        texts = file.read().splitlines()[1:]  # the first line is a heading
    return np.array([known[c] for c in "\n".join(["", *texts[first:last], ""]) if c in known], np.int64)


def data(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(40 characters, the next one) at every position of the split's own texts, in random order."""
    if split not in LINES:
        return None
    row = characters(*LINES[split])
    order = np.random.default_rng(0).permutation(len(row) - CONTEXT)
    return ((row[i : i + CONTEXT], int(row[i + CONTEXT])) for i in order)
