"""A Core ML package as everybody sees it: where its model lies, and what it calls its inputs and outputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

MODEL = Path("Data", "com.apple.CoreML", "model.mlmodel")
# Words of MIL's own: coremltools calls a tensor otherwise that has one for its name.
RESERVED = {
    "any", "bool", "program", "func", "tensor", "list", "dict", "tuple", "true", "false", "string", "bf16", "fp16",
    "fp32", "fp64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "state",
}  # fmt: skip


def names(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, list[str]]:
    """What a package calls the tensors of these names: {"inputs": [...], "outputs": [...]}, in the same order.

    Core ML takes letters, digits and underscores only, no word of its own, and each name once.
    """
    taken: set[str] = set()
    return {
        end: [_legal(n, end, taken) for n in tensors] for end, tensors in (("inputs", inputs), ("outputs", outputs))
    }


def _legal(name: str, end: str, taken: set[str]) -> str:
    word = re.sub(r"\W", "_", name, flags=re.ASCII)
    word = f"_{word}" if word[:1].isdigit() else f"{word}_" if word in RESERVED else word
    word = f"{word}_out" if end == "outputs" and word in taken else word
    while word in taken:
        word += "_"
    taken.add(word)
    return word
