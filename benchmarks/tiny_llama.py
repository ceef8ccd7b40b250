"""A Llama-style language model of 4.6 million parameters, trained on stories: a Hugging Face folder.

    python benchmarks/tiny_llama.py FOLDER [--minutes 25]

TinyStories of shared data (EDGECOMPRESS_SHARED): 90 % train, 5 % are the last training's data for choices, 5 % test.
What the folder has is found again; an interrupted training begins anew. Writes train.txt, select.txt, test.txt beside.
"""

from __future__ import annotations

import gzip
import math
import os
import time
from pathlib import Path

import figures
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY, LENGTH, BATCH = 1024, 128, 16
END = "<|endoftext|>"
RATE, WARM_UP, DECAY = 2e-3, 100, 0.1
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=256,
    intermediate_size=688,
    num_hidden_layers=6,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    tie_word_embeddings=True,
    bos_token_id=0,
    eos_token_id=0,
)


def main() -> None:
    """Trains and tells the perplexity on the test text."""
    parser = figures.flags(__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=25, help="of training")
    asked = parser.parse_args()
    folder = trained(asked.folder, asked.minutes)
    print(f"perplexity on test: {perplexity(LlamaForCausalLM.from_pretrained(folder).eval(), folder, 'test'):.3f}")


def trained(folder: Path, minutes: float) -> Path:
    """The folder with the trained net, its tokenizer and the texts."""
    if (folder / "model.safetensors").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = split(folder)
    tokenizer = tokenized(texts["train"])
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    net = LlamaForCausalLM(CONFIG)
    train(net, torch.tensor(tokenizer(texts["train"])["input_ids"]), 60 * minutes)
    net.eval().save_pretrained(folder)
    return folder


def split(folder: Path) -> dict[str, str]:
    """The text in three parts, between stories."""
    with gzip.open(Path(os.environ["EDGECOMPRESS_SHARED"]) / "data" / "tinystories_2MiB.txt.gz", "rt", "utf-8") as file:
        stories = file.read().split(END)
    ends = [round(share * len(stories)) for share in (0, 0.9, 0.95, 1)]
    parts = {
        name: END.join(stories[a:b]) for name, a, b in zip(("train", "select", "test"), ends, ends[1:], strict=False)
    }
    for name, text in parts.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return parts


def tokenized(text: str) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer of the text."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        [text], trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet)
    )
    return PreTrainedTokenizerFast(tokenizer_object=made, bos_token=END, eos_token=END, pad_token=END)


def train(net: LlamaForCausalLM, tokens: torch.Tensor, seconds: float) -> None:
    """AdamW on a cosine over the time that there is."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    generator, began, step = torch.Generator().manual_seed(0), time.monotonic(), 0
    while (spent := (time.monotonic() - began) / seconds) < 1:
        starts = torch.randint(0, len(tokens) - LENGTH - 1, (BATCH,), generator=generator)
        batch = torch.stack([tokens[s : s + LENGTH] for s in starts])
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / WARM_UP) * (0.05 + 0.95 * (1 + math.cos(math.pi * spent)) / 2)
        with torch.autocast("cpu", torch.bfloat16):
            loss = net(input_ids=batch, labels=batch).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 50 == 0:
            print(f"step {step}, {spent:.0%} of the time, loss {float(loss):.3f}", flush=True)


def perplexity(net: LlamaForCausalLM, folder: Path, part: str) -> float:
    """Of each token but the first of windows of LENGTH."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokens = torch.tensor(tokenizer((folder / f"{part}.txt").read_text(encoding="utf-8"))["input_ids"])
    windows = tokens[: len(tokens) // LENGTH * LENGTH].reshape(-1, LENGTH)
    losses = []
    with torch.inference_mode():
        losses += [float(net(input_ids=w, labels=w).loss) * len(w) for w in windows.split(BATCH)]
    return math.exp(sum(losses) / len(windows))


if __name__ == "__main__":
    main()
