"""The vocabulary in a tokenizer.json, and what is left of it where only some tokens are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core.errors import InputError

KINDS = ("BPE", "WordPiece", "Unigram", "WordLevel")
BLANK = "▁"  # what SentencePiece writes for a space


@dataclass(frozen=True)
class Vocabulary:
    """The table of a tokenizer.json. Raises InputError for a model of another kind than KINDS."""

    table: Mapping[str, Any]

    def __post_init__(self) -> None:
        if self._model["type"] not in KINDS:
            raise InputError(f"its tokenizer is a {self._model['type']}; trimmed are {', '.join(KINDS)}")

    @property
    def _model(self) -> Mapping[str, Any]:
        model: Mapping[str, Any] = self.table["model"]
        return model

    @property
    def ids(self) -> dict[str, int]:
        """The tokens with their ids."""
        words = self._model["vocab"]
        own = {word: i for i, (word, _) in enumerate(words)} if isinstance(words, list) else dict(words)
        return {**own, **{token["content"]: token["id"] for token in self.table["added_tokens"]}}

    def closed(self, used: Iterable[int]) -> list[int]:
        """The ids to keep so that a text of `used` ids alone keeps its tokens, in order.

        These are: the added ones, bytes and single characters, that for the unknown, and of BPE each part that one is
        merged from: the same merges then happen in the same order. A text of others becomes smaller pieces.
        """
        ids, model = self.ids, self._model
        words = {i: word for word, i in ids.items()}
        keep = {*used, *(token["id"] for token in self.table["added_tokens"])}
        keep |= {i for word, i in ids.items() if self._small(word)}
        if model["type"] == "Unigram":
            scores = [score for _, score in model["vocab"]]
            keep |= {scores.index(min(scores))}  # what an unknown character costs is counted from it
            keep |= {model["unk_id"]} - {None}
        elif model.get("unk_token") in ids:
            keep.add(ids[model["unk_token"]])
        parts: dict[str, list[str]] = {}
        for left, right, whole in self._merges():
            parts.setdefault(whole, []).extend((left, right))
        todo = [words[i] for i in keep if i in words]
        while todo:
            fresh = [word for word in parts.pop(todo.pop(), ()) if ids[word] not in keep]
            keep |= {ids[word] for word in fresh}
            todo += fresh
        return sorted(keep & words.keys())

    def _small(self, word: str) -> bool:
        """Whether a token is a byte or one character."""
        start, end = self._model.get("continuing_subword_prefix") or "", self._model.get("end_of_word_suffix") or ""
        bare = word.removeprefix(start).removesuffix(end).removeprefix(BLANK)
        return len(bare) < 2 or (len(word) == 6 and word.startswith("<0x"))

    def _merges(self) -> Iterator[tuple[str, str, str]]:
        """(left, right, what they become)."""
        start = self._model.get("continuing_subword_prefix") or ""
        for merge in self._model.get("merges", ()):
            left, right = merge.split(" ") if isinstance(merge, str) else merge
            yield left, right, left + right.removeprefix(start)

    def only(self, keep: Sequence[int]) -> dict[str, Any]:
        """The table of those ids alone, which become 0, 1, ... in their order."""
        now, model = {old: new for new, old in enumerate(keep)}, dict(self._model)
        if isinstance(model["vocab"], list):
            model["vocab"] = [entry for i, entry in enumerate(model["vocab"]) if i in now]
            model["unk_id"] = now.get(model["unk_id"])
        else:
            model["vocab"] = {word: now[i] for word, i in model["vocab"].items() if i in now}
        if "merges" in model:
            known = model["vocab"]
            model["merges"] = [[a, b] for a, b, whole in self._merges() if {a, b, whole} <= known.keys()]
        table = {**self.table, "model": model, "post_processor": _numbered(self.table["post_processor"], now)}
        table["added_tokens"] = [{**token, "id": now[token["id"]]} for token in self.table["added_tokens"]]
        if padding := table.get("padding"):
            table["padding"] = {**padding, "pad_id": now[padding["pad_id"]]}
        return table


def _numbered(part: Any, now: Mapping[int, int]) -> Any:
    """A post-processor with the new ids of the tokens that it adds."""
    if not isinstance(part, dict):
        return part
    made = dict(part)
    for key in ("cls", "sep"):
        if key in made:
            made[key] = [made[key][0], now[made[key][1]]]
    if "special_tokens" in made:
        tokens = made["special_tokens"].items()
        made["special_tokens"] = {name: {**each, "ids": [now[i] for i in each["ids"]]} for name, each in tokens}
    if "processors" in made:
        made["processors"] = [_numbered(each, now) for each in made["processors"]]
    return made
