"""A Hugging Face folder whose vocabulary has the tokens of some texts alone."""

from __future__ import annotations

import copy
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import source as sources
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import TRAIN
from edgecompress.data import loaders
from edgecompress.extras.hugging_face import nets, pretrained_folder, texts
from edgecompress.extras.hugging_face.vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors", "transformers>=5.4")
EXTRA = "transformers"

TOKENIZER, CONFIG = "tokenizer.json", "tokenizer_config.json"
COPIED = ("special_tokens_map.json", "chat_template.jinja")
CHOOSING = (loaders.WHOLE, TRAIN, "calibrate")  # the splits whose texts choose
TENTH = 10  # each of those texts is held out where no split is
TRIED = 16  # texts whose answers are compared
LEAST_DB = 80.0  # of those answers


@dataclass(frozen=True)
class Coverage:
    """How many texts have kept tokens alone, and what share of all tokens is kept."""

    texts: int
    whole: float
    tokens: float


def run(request: Request) -> Artifact:
    """The stage: {} -> "folder": what save_pretrained writes, with fewer tokens.

    options: "source"; "least": how often a token is used that is kept. facts: "tokens" and "bytes" before and after,
    "held_out" (Coverage), "tried" texts, on which the answers agree to "db" (None: they are the same).
    Raises InputError for a folder without texts or a tokenizer.json, StageFailed where ids or answers differ.
    """
    source = sources.read(request.options)
    folder, reader = Path(source.model), texts.of(source)
    if not getattr(reader.tokenizer, "is_fast", False):
        raise InputError(f"{folder}: its tokenizer has no {TOKENIZER}, which is what is trimmed; save a fast tokenizer")
    vocabulary = Vocabulary(json.loads(reader.tokenizer.backend_tokenizer.to_str()))
    net = nets.load(folder, reader.task)
    own: Any = net.net
    if own.main_input_name != "input_ids" or reader.task not in nets.CLASSES:
        raise InputError(f"{folder}: takes no texts, so it has no vocabulary to trim")
    request.progress(0.2, "counting tokens")
    files = loaders.text_files(Path(source.data))
    mine = [ids for split, file in files.items() if split in CHOOSING for ids in reader.tokens(file)]
    if not mine:
        raise InputError(f"{source.data}: has no split train or calibrate, whose texts choose the tokens; add one")
    asked = [i for _, i in _ids(own.config)]

    def kept(chosen: Iterable[Sequence[int]]) -> list[int]:
        counted = Counter(i for ids in chosen for i in ids)
        return vocabulary.closed([*asked, *(i for i, n in counted.items() if n >= request.options["least"])])

    keep = kept(mine)
    others = [ids for split, file in files.items() if split not in CHOOSING for ids in reader.tokens(file)]
    most = (ids for i, ids in enumerate(mine) if i % TENTH)
    held = _coverage(others, keep) if others else _coverage(mine[::TENTH], kept(most))
    request.progress(0.5, "writing the folder")
    before = copy.deepcopy(net)
    _narrow(own, keep)
    own.to(_dtype(folder)).save_pretrained(request.out)
    _keep_tokenizer(folder, request.out, vocabulary.only(keep), keep)
    request.progress(0.7, "comparing its answers")
    tried = _tried(source, reader, request.out, files, keep)
    facts = {
        "tokens": [len(vocabulary.ids), len(keep)],
        "bytes": [sum(f.stat().st_size for f in where.glob("*.safetensors")) for where in (folder, request.out)],
        "held_out": vars(held),
        "tried": len(tried),
        "db": _agreement(before, nets.load(request.out, reader.task), tried, keep),
    }
    return Artifact(request.out, "folder", facts=facts).write()


def _coverage(found: Sequence[Sequence[int]], keep: Sequence[int]) -> Coverage:
    known, tokens = {*keep}, sum(map(len, found))
    whole = sum(known.issuperset(ids) for ids in found)
    return Coverage(len(found), whole / len(found), sum(i in known for ids in found for i in ids) / tokens)


# --------------------------------------------------------------------------- the folder


def _ids(config: Any) -> Iterator[tuple[str, int]]:
    """The ids of tokens that a configuration names: (its key, the id)."""
    for key, value in config.to_dict().items():
        if key.endswith("_token_id"):
            yield from ((key, i) for i in (value if isinstance(value, list) else [value]) if isinstance(i, int))


def _narrow(own: Any, keep: Sequence[int]) -> None:
    """Leaves those rows of the embeddings and of the head, tied or not."""
    import torch

    table, head = own.get_input_embeddings(), own.get_output_embeddings()
    tensors = [
        table.weight,
        *(p for p in (getattr(head, "weight", None), getattr(head, "bias", None)) if p is not None),
    ]
    narrow = {id(p): torch.nn.Parameter(p.detach()[list(keep)].clone()) for p in tensors}
    for module in own.modules():
        for name, parameter in module._parameters.items():
            if id(parameter) in narrow:
                module._parameters[name] = narrow[id(parameter)]
    now = {old: new for new, old in enumerate(keep)}
    table.num_embeddings, table.padding_idx = len(keep), now.get(table.padding_idx)
    if head is not None:
        head.out_features = len(keep)
    own.config.vocab_size = len(keep)
    for config in filter(None, (own.config, getattr(own, "generation_config", None))):
        for key in dict(_ids(config)):
            value = getattr(config, key)
            setattr(config, key, [now.get(i) for i in value] if isinstance(value, list) else now.get(value))


def _dtype(folder: Path) -> torch.dtype:
    """The type that its weights are stored in."""
    import torch

    config = pretrained_folder.read(folder)
    found = getattr(torch, str(config.get("dtype") or config.get("torch_dtype")), None)
    return found if isinstance(found, torch.dtype) else torch.float32


def _keep_tokenizer(folder: Path, out: Path, table: Mapping[str, Any], keep: Sequence[int]) -> None:
    (out / TOKENIZER).write_text(json.dumps(table, ensure_ascii=False, indent=1), encoding="utf-8")
    for name in COPIED:
        if (folder / name).is_file():
            (out / name).write_bytes((folder / name).read_bytes())
    if (folder / CONFIG).is_file():
        told, now = pretrained_folder.read(folder, CONFIG), {str(old): str(new) for new, old in enumerate(keep)}
        if "added_tokens_decoder" in told:
            told["added_tokens_decoder"] = {now[i]: token for i, token in told["added_tokens_decoder"].items()}
        (out / CONFIG).write_text(json.dumps(told, ensure_ascii=False, indent=1), encoding="utf-8")


# --------------------------------------------------------------------------- what it answers

Pair = tuple[Mapping[str, Any], Mapping[str, Any]]  # a text as both nets take it


def _tried(
    source: sources.ResolvedSource, reader: texts.Texts, out: Path, files: Mapping[str, Path], keep: Sequence[int]
) -> list[Pair]:
    """The first texts of kept tokens alone, by both tokenizers. Raises StageFailed where an id is not what it was."""
    again, known, pairs = texts.of(replace(source, model=str(out))), {*keep}, list[Pair]()
    now = {old: new for new, old in enumerate(keep)}
    for file in files.values():
        both = zip(reader.tokens(file), again.tokens(file), strict=True)
        whole = [known.issuperset(ids) for ids in reader.tokens(file)]
        for number, ((before, after), fits) in enumerate(zip(both, whole, strict=True)):
            if fits and [now[i] for i in before] != list(after):
                raise StageFailed(
                    f"{file}: item {number} has other tokens by the trimmed tokenizer: its kind is not one that trim "
                    "takes; deploy the folder as it is"
                )
        items = zip(reader.items(file), again.items(file), whole, strict=True)
        pairs += islice(((a[0], b[0]) for a, b, fits in items if fits), TRIED - len(pairs))
    if not pairs:
        raise InputError(f"{source.data}: no text has kept tokens alone; lower --least, or give more texts")
    return pairs


def _agreement(
    before: torch.nn.Module, after: torch.nn.Module, pairs: Sequence[Pair], keep: Sequence[int]
) -> float | None:
    """The SQNR (dB) of the answers to the texts, at their tokens; None where they are the same."""
    import torch

    noise = signal = 0.0
    with torch.inference_mode():
        for pair in pairs:
            ours, theirs = (
                net(**{name: torch.from_numpy(array)[None] for name, array in given.items()})
                for net, given in zip((before, after), pair, strict=True)
            )
            if ours.ndim == 3:
                seen = torch.from_numpy(pair[0][sources.MASK])[None].bool()
                ours, theirs = ours[seen], theirs[seen]
            ours = ours[..., list(keep)] if ours.shape != theirs.shape else ours
            noise, signal = noise + float((ours - theirs).square().sum()), signal + float(ours.square().sum())
    if not noise:
        return None
    db = 10 * math.log10(signal / noise)
    if db < LEAST_DB:
        raise StageFailed(f"trim: the answers of the trimmed net are {db:.1f} dB from the source's; deploy it as it is")
    return db
