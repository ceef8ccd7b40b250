"""A folder that `save_pretrained` of Hugging Face wrote, by its JSON alone: what it holds, and the task of its net."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.settings import Preprocess
from edgecompress.core.source import CONFIG

WEIGHTS, INDEX, IMAGES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "preprocessor_config.json",
)
TOKENIZER = (  # one of them is its vocabulary
    "tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "tokenizer.model", "sentencepiece.bpe.model",
)  # fmt: skip
TOKENIZER_FILES = (
    *TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt",
)  # fmt: skip
LARGEST = 16 << 20  # bytes of a JSON file
# What a class of the library ends with, and the task that it is for.
ARCHITECTURES = {
    "ForSequenceClassification": "text-classification",
    "ForMaskedLM": "masked-lm",
    "ForCausalLM": "causal-lm",
    "LMHeadModel": "causal-lm",
    "ForImageClassification": "image-classification",
    "ForCTC": "encoder",
    "WhisperForConditionalGeneration": "encoder",
    "Model": "encoder",
}
TASKS = (*dict.fromkeys(ARCHITECTURES.values()), "embedding")


def read(folder: Path, name: str = CONFIG) -> dict[str, Any]:
    """A JSON object of the folder. Raises InputError for what is none."""
    try:
        found = json.loads(plain_file.read(folder / name, LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{folder / name}: not readable JSON: {error}; save the folder again") from error
    if not isinstance(found, dict):
        raise InputError(f"{folder / name}: must be a JSON object; save the folder again")
    return found


def task(folder: Path, asked: str = "") -> str:
    """The task of the folder's net: as asked for, else that of its architecture. Raises InputError where it is none."""
    if asked and asked not in TASKS:
        raise InputError(f"source.task is '{asked}'; it is one of {', '.join(TASKS)}{did_you_mean(asked, TASKS)}")
    config = read(folder)
    if not isinstance(config.get("model_type"), str):
        raise InputError(f"{folder / CONFIG}: has no 'model_type'; give a folder that save_pretrained wrote")
    if "quantization_config" in config:
        raise InputError(
            f"{folder / CONFIG}: has 'quantization_config': its weights are quantized; save the net in fp32"
        )
    if asked:
        return asked
    named = config.get("architectures") or [""]
    architecture = str(named[0]) if isinstance(named, list) else ""
    found = next((own for end, own in ARCHITECTURES.items() if architecture.endswith(end)), "")
    if not found:
        raise InputError(
            f"{folder}: its architecture '{architecture[:80]}' is for no task that is known; set task in a source.toml "
            f"({', '.join(TASKS)}), or give a factory pkg.mod:fn"
        )
    return found


def check_weights(folder: Path) -> None:
    """Raises InputError where the weights are no safetensors, a shard is missing, or one lies in another folder."""
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder}: holds an adapter; merge it into its net (merge_and_unload) and save that")
    if (folder / WEIGHTS).is_file():
        return
    if not (folder / INDEX).is_file():
        pickles = sorted(file.name for file in folder.glob("*.bin"))
        why = f"{pickles[0]} is a pickle, which is not read" if pickles else "it has no weights"
        raise InputError(f"{folder}: has no {WEIGHTS}: {why}; load it and call save_pretrained again")
    shards = read(folder, INDEX).get("weight_map")
    for shard in sorted({*map(str, shards.values())}) if isinstance(shards, Mapping) else [""]:
        if Path(shard).name != shard or not shard.endswith(".safetensors"):
            raise InputError(f"{folder / INDEX}: '{shard[:80]}' is no .safetensors file of the folder; save it again")
        if not (folder / shard).is_file():
            raise InputError(f"{folder}: has no {shard}, which {INDEX} names; copy the missing file, or save it again")


def text_inputs(folder: Path) -> tuple[str, ...]:
    """The inputs of a net of texts."""
    kinds = read(folder).get("type_vocab_size")
    return ("input_ids", "attention_mask", *(("token_type_ids",) if isinstance(kinds, int) and kinds > 1 else ()))


def has_tokenizer(folder: Path) -> bool:
    """Whether it has a vocabulary."""
    return any((folder / name).is_file() for name in TOKENIZER)


def keep_tokenizer(folder: Path, out: Path) -> None:
    """Copies the tokenizer's files, where the folder has any."""
    for name in TOKENIZER_FILES:
        if (folder / name).is_file():
            out.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, out / name)


def preprocess(folder: Path) -> Preprocess | None:
    """What IMAGES declares for pictures; None without one. Raises InputError for a size that is no square."""
    if not (folder / IMAGES).is_file():
        return None
    told = read(folder, IMAGES)
    try:
        size = _side(told["size"]) if told.get("do_resize", True) else None
        crop = _side(told["crop_size"]) if told.get("do_center_crop") else size
        scale = float(told.get("rescale_factor", 1 / 255)) if told.get("do_rescale", True) else 1.0
        norms = [
            tuple(map(float, told[key])) if told.get("do_normalize") else () for key in ("image_mean", "image_std")
        ]
        return Preprocess(resize=size, crop=crop, scale=scale, mean=norms[0], std=norms[1], layout="NCHW")
    except (KeyError, TypeError, ValueError) as error:
        why = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{folder / IMAGES}: not as expected ({why}); declare [preprocess] in a source.toml"
        ) from error


def _side(size: Any) -> int:
    """Of the square that pictures become, or their shorter side."""
    sides = {int(side) for side in (size.values() if isinstance(size, dict) else [size])}
    if len(sides) != 1 or (isinstance(size, dict) and "longest_edge" in size):
        raise ValueError(f"a size of {size}")
    return sides.pop()
