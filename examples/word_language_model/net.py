"""The word language model of PyTorch's examples: two LSTMs between an embedding and an output that share one matrix.

Zaremba et al. 2014 (arXiv:1409.2329), tied as in Press and Wolf 2017 (arXiv:1608.05859). Without biases `small`,
`medium` and `large` have the 7,295,600, 28,390,700 and 85,917,000 parameters of Distiller's tutorial, for the 33,278
words of WikiText-2, whose text is yours; `here` and `narrow` are trained on children's stories (TinyStories, Eldan and
Li 2023, arXiv:2305.07759) in minutes, on two cores.
"""

from __future__ import annotations

import functools
import gzip
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

sys.path.append(str(Path(__file__).resolve().parents[1]))
import shared_data

CONTEXT = 35  # words of an item
WIKITEXT2, STORIES = 33_278, 4_602  # words that are known
TEXT = "WIKITEXT2"  # the variable that names the folder of train.txt, valid.txt and test.txt
FILES = {"train": "train.txt", "calibrate": "valid.txt", "select": "valid.txt", "test": "test.txt"}
SHARES = {"train": (0.0, 0.9), "calibrate": (0.0, 0.05), "select": (0.9, 0.95), "test": (0.95, 1.0)}  # of the stories
END, UNKNOWN = "<eos>", "<unk>"
SPREAD = 0.1  # of the weights at the beginning


class WordLanguageModel(nn.Module):
    """The next word at each place, from the words before it and what the layers remember."""

    def __init__(self, words: int, width: int, dropout: float) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(words, width)
        self.rnn = nn.LSTM(width, width, 2, dropout=dropout, batch_first=True)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.encoder.weight
        nn.init.uniform_(self.encoder.weight, -SPREAD, SPREAD)
        nn.init.zeros_(self.decoder.bias)

    def forward(
        self, words: torch.Tensor, h: torch.Tensor | None = None, c: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        """int64 [n, 35], the memory [2, n, width] twice -> logits [n, 35, words], and the memory after them."""
        memory = None if h is None or c is None else (h, c)
        found, (hn, cn) = self.rnn(self.drop(self.encoder(words)), memory)
        return {"logits": self.decoder(self.drop(found)), "hn": hn, "cn": cn}


def _net(words: int, width: int, dropout: float) -> nn.Module:
    torch.manual_seed(0)
    return WordLanguageModel(words, width, dropout).eval()


small = functools.partial(_net, WIKITEXT2, 200, 0.2)
medium = functools.partial(_net, WIKITEXT2, 650, 0.5)
large = functools.partial(_net, WIKITEXT2, 1500, 0.65)
here = functools.partial(_net, STORIES, 256, 0.2)
narrow = functools.partial(_net, STORIES, 76, 0.0)  # as many parameters as are not zero in `here` at 80 %


# --------------------------------------------------------------------------- text


def wikitext(split: str) -> Iterator[tuple[np.ndarray, np.ndarray]] | None:
    """The items of a split of WikiText-2, from the folder that WIKITEXT2 names."""
    if split not in FILES:
        return None
    texts, known = _wikitext()
    return _items(texts[FILES[split]], known, FILES[split])


@functools.cache
def _wikitext() -> tuple[dict[str, list[str]], dict[str, int]]:
    """The words of each file, and their numbers: in the order in which they come first, as in PyTorch's example."""
    folder = Path(os.environ.get(TEXT) or ".")
    texts: dict[str, list[str]] = {}
    for name in dict.fromkeys(FILES.values()):
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: not there; set {TEXT} to the folder of WikiText-2's three files")
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        texts[name] = [word for line in lines for word in (*line.split(), END)]
    known = {word: n for n, word in enumerate(dict.fromkeys(word for text in texts.values() for word in text))}
    if len(known) > WIKITEXT2:
        raise ValueError(f"{folder}: its text has {len(known):,} words, WikiText-2 {WIKITEXT2:,}")
    return texts, known


def stories(split: str) -> Iterator[tuple[np.ndarray, np.ndarray]] | None:
    """The items of a split of the stories, each the part of the text that SHARES says."""
    if split not in SHARES:
        return None
    words, known = _stories()
    first, last = (int(len(words) * share) for share in SHARES[split])
    return _items(words[first:last], known, split)


@functools.cache
def _stories() -> tuple[list[str], dict[str, int]]:
    """All words, and the numbers of those that training has most often."""
    with gzip.open(shared_data.find("data/tinystories_2MiB.txt.gz"), "rt", encoding="utf-8") as file:
        words = [END if word == "\n" else word for word in re.findall(r"\w+|[^\w\s]|\n", file.read().lower())]
    often = Counter(words[: int(len(words) * SHARES["train"][1])]).most_common(STORIES - 1)
    return words, {word: n for n, (word, _) in enumerate(often, 1)} | {UNKNOWN: 0}


def _items(words: list[str], known: dict[str, int], where: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(int64 [35], int64 [35], the next words), one after the other as they are in the text."""
    count = (len(words) - 1) // CONTEXT
    if count < 1:
        raise ValueError(f"{where}: {len(words)} words; an item takes {CONTEXT + 1}")
    numbers = np.array([known.get(word, 0) for word in words], np.int64)
    here, behind = (numbers[i : i + count * CONTEXT].reshape(count, CONTEXT) for i in (0, 1))
    return zip(here, behind, strict=True)
