"""Texts by the tokenizer of a Hugging Face folder: rows of a .jsonl, .tsv or .csv, or windows of a .txt."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from edgecompress.core import plain_file, user_code
from edgecompress.core.errors import InputError
from edgecompress.core.settings import Source
from edgecompress.core.source import MASK, is_pretrained
from edgecompress.data.tensors import UNJUDGED
from edgecompress.extras.hugging_face import pretrained_folder

if TYPE_CHECKING:
    import numpy as np

Item: TypeAlias = "tuple[Mapping[str, np.ndarray], np.ndarray | int | float | None]"
Row: TypeAlias = "Mapping[str, Any]"

TEXT, PAIR, LABEL = ("text", "sentence", "sentence1"), ("text_pair", "sentence2"), ("label", "labels")
LARGEST = 4 << 30  # bytes of a file
NOT_UTF8 = "its text is not UTF-8; save it as UTF-8"
LENGTH = 128  # tokens of an item, where nobody says how many


@dataclass(frozen=True)
class Texts:
    """The tokenizer of a folder, and what an item of its net is made of."""

    tokenizer: Any
    task: str
    length: int
    kinds: bool  # whether the net has token_type_ids
    classes: Sequence[str]  # by number; none for a regression

    def items(self, file: Path) -> Iterator[Item]:
        """The items of a file, one after the other. Raises InputError with the line."""
        if file.suffix == ".txt":
            yield from self._windows(file)
            return
        labelled: bool | None = None
        for number, row in _rows(file):
            try:
                inputs, label = self._item(row)
                if labelled not in (None, label is not None):
                    raise InputError(f"it has {'no' if labelled else 'a'} label, unlike those before it; correct it")
            except InputError as error:
                raise InputError(f"{file}, line {number}: {error}") from error
            labelled = label is not None
            yield inputs, label

    def tokens(self, file: Path) -> Iterator[Sequence[int]]:
        """The ids of each item of a file, none cut off. Raises InputError with the line."""
        if file.suffix == ".txt":
            yield from (inputs["input_ids"].tolist() for inputs, _ in self._windows(file))
            return
        for number, row in _rows(file):
            try:
                yield self.tokenizer(*_text(row), verbose=False)["input_ids"]
            except InputError as error:
                raise InputError(f"{file}, line {number}: {error}") from error

    def _item(self, row: Row) -> Item:
        import numpy as np

        (text, pair), label = _text(row), _column(row, LABEL)
        found = self.tokenizer(text, pair, truncation=True, max_length=self.length, return_token_type_ids=self.kinds)
        inputs = self._filled(found)
        if self.task == "causal-lm":
            ids, own = inputs["input_ids"], len(found["input_ids"])
            # the token after each, and UNJUDGED where there is none
            labels = np.full(len(ids), UNJUDGED, np.int64)
            labels[: own - 1] = ids[1:own]
            return inputs, labels
        return inputs, None if label is None or self.task != "text-classification" else self._label(label)

    def _filled(self, found: Mapping[str, Sequence[int]]) -> dict[str, np.ndarray]:
        """The tokenizer's answer, filled up at the end: int64 [length] each."""
        import numpy as np

        count = len(found["input_ids"])
        if not count:
            raise InputError("its text has no token; remove it")
        blank = self.tokenizer.pad_token_id or 0
        inputs = {"input_ids": np.full(self.length, blank, np.int64), MASK: np.zeros(self.length, np.int64)}
        inputs["input_ids"][:count] = found["input_ids"]
        inputs[MASK][:count] = 1
        if self.kinds:
            inputs["token_type_ids"] = np.zeros(self.length, np.int64)
            inputs["token_type_ids"][:count] = found["token_type_ids"]
        return inputs

    def _label(self, given: Any) -> int | float:
        """A class by its number or its name, or the number of a regression."""
        word = str(given).strip()
        if word in self.classes:
            return self.classes.index(word)
        try:
            number = int(word) if self.classes else float(word)
            if self.classes and not 0 <= number < len(self.classes):
                raise ValueError
            return number
        except ValueError as error:
            known = ", ".join(self.classes[:8]) or "a number"
            raise InputError(f"label '{word[:60]}' is none of the net's: {known}; correct it") from error

    def _windows(self, file: Path) -> Iterator[Item]:
        """Windows of a text side by side; the label of each token is the next one."""
        import numpy as np

        if self.task not in ("causal-lm", "masked-lm"):
            raise InputError(f"{file}: plain text is for language models; give a .tsv, .csv or .jsonl with its texts")
        try:
            text = plain_file.read(file, LARGEST).decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{file}: {NOT_UTF8}") from error
        ids = np.asarray(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"], np.int64)
        if len(ids) <= self.length:
            raise InputError(f"{file}: has {len(ids)} tokens; it needs more than the length of {self.length}")
        for begin in range(0, len(ids) - self.length, self.length):
            inputs = self._filled(
                {"input_ids": ids[begin : begin + self.length].tolist(), "token_type_ids": [0] * self.length}
            )
            yield inputs, ids[begin + 1 : begin + self.length + 1] if self.task == "causal-lm" else None


def of(source: Source) -> Texts:
    """The tokenizer of a source. Raises InputError where its model is no Hugging Face folder, or has none."""
    folder = Path(source.model)
    if source.calls("model") or not is_pretrained(folder):
        raise InputError(
            f"{source.data}: text needs a tokenizer, so a Hugging Face folder as MODEL; give a function pkg.mod:fn as "
            "data, which yields tokens"
        )
    from transformers import AutoConfig, AutoTokenizer

    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **options)
    except Exception as error:  # whatever a stranger's folder makes the library raise
        raise InputError(f"{folder}: transformers cannot load it: {user_code.error_line(error)}") from error
    try:
        if not pretrained_folder.has_tokenizer(folder):
            raise FileNotFoundError("no vocabulary")  # the library makes an empty one then
        tokenizer = AutoTokenizer.from_pretrained(folder, **options)
    except Exception as error:
        raise InputError(
            f"{folder}: has no tokenizer that can be read ({user_code.error_line(error)}); save it there with "
            "tokenizer.save_pretrained, or give a function pkg.mod:fn as data"
        ) from error
    most = getattr(config, "max_position_embeddings", None) or LENGTH
    length = max(source.lengths, default=min(LENGTH, most))
    if length > most and hasattr(config, "max_position_embeddings"):
        raise InputError(f"source.length is {length}; the net of {folder} has {most} positions: give fewer")
    names = [str(name) for _, name in sorted((config.id2label or {}).items())]
    return Texts(
        tokenizer,
        pretrained_folder.task(folder, source.task),
        length,
        "token_type_ids" in pretrained_folder.text_inputs(folder),
        names if len(names) > 1 else (),
    )


def count(file: Path) -> int:
    """The items of a file of rows."""
    return sum(1 for _ in _rows(file))


def _rows(file: Path) -> Iterator[tuple[int, Row]]:
    """(line, what it holds by column). Raises InputError for a line that cannot be read."""
    empty = True
    try:
        for row in _decoded(file):
            empty = False
            yield row
    except UnicodeDecodeError as error:
        raise InputError(f"{file}: {NOT_UTF8}") from error
    if empty:
        raise InputError(f"{file}: has no text; give it at least one row, below the names of its columns")


def _decoded(file: Path) -> Iterator[tuple[int, Row]]:
    with plain_file.opened(file, LARGEST) as stream, io.TextIOWrapper(stream, "utf-8-sig") as lines:
        if file.suffix == ".jsonl":
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, _json(line, f"{file}, line {number}")
            return
        tabs = file.suffix == ".tsv"
        rows = csv.DictReader(
            lines, delimiter="\t" if tabs else ",", quoting=csv.QUOTE_NONE if tabs else csv.QUOTE_MINIMAL
        )
        try:
            for row in rows:
                yield rows.line_num, row
        except csv.Error as error:
            raise InputError(f"{file}, line {rows.line_num}: {error}; correct it") from error


def _json(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON: {error}; give an object on each line") from error
    if not isinstance(row, dict):
        raise InputError(f'{where}: must be an object such as {{"text": "...", "label": 0}}')
    return row


def _text(row: Row) -> tuple[str, str | None]:
    """The text of a row, and its second one."""
    text, pair = _column(row, TEXT), _column(row, PAIR)
    if not isinstance(text, str):
        told = ", ".join(map(str, list(row)[:8]))
        raise InputError(f"it has no text in a column called {' or '.join(TEXT)}; its columns are {told}")
    return text, pair


def _column(row: Row, names: Sequence[str]) -> Any:
    return next((row[name] for name in names if row.get(name) not in (None, "")), None)
