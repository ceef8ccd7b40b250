"""The user's data as splits on disk, preprocessed.

Items stream through in chunks: memory stays that of a chunk, however many there are.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict

from edgecompress.core import extras, user_code
from edgecompress.core import source as sources
from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import AUGMENT, METRIC, WARNINGS, Artifact, Dim, Request, TensorSpec
from edgecompress.core.package_contents import TOKENS
from edgecompress.core.settings import SPLITS, TRAIN, Preprocess, Source
from edgecompress.data import loaders, metrics, npy, preprocess, repeated_items, states, tensors
from edgecompress.data.loaders import WHOLE, Item, Items
from edgecompress.data.repeated_items import ItemWriter, RepeatedItems
from edgecompress.stages import doubts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

Row: TypeAlias = "dict[str, np.ndarray]"  # an item, or a block of them: each input, and the label where there is one

CHUNK, CHUNK_BYTES = 64, 64 << 20  # items that are held at once, and when they are too large for so many
TOLD_S = 2.0  # between two words on how far the reading is
RAW = "raw"  # the folder of the first test item as the user gave it
SHARES = {"calibrate": 1, "select": 1, "test": 2}  # of a set that is split by seed
LENDERS = {"calibrate": ("select", "test"), "select": ("calibrate", "test"), "test": ("select", "calibrate")}


class SamplesFacts(TypedDict):
    """What is known of a "samples" artifact."""

    splits: dict[str, int]
    origin: str
    random: bool
    labelled: bool
    label_names: list[str]
    preprocess: dict[str, Json] | None
    repeated: RepeatedItems


def run(request: Request) -> Artifact:
    """The stage: {} -> "samples"; for random data, {"source": a model that states its inputs}.

    options: "source" (see core.source). Where [preprocess] is
    declared, raw/INPUT.npy is the first test item as it came.
    Raises InputError for data that cannot be read, is not finite, has labels below zero, or items of different shapes.
    """
    source = sources.read(request.options)
    limit, seed = source.samples, request.context.seed
    feed = loaders.feed(source, request)
    if not feed.sets:
        raise InputError(
            f"{source.data}: no items for any of {', '.join(SPLITS)} ({TRAIN} alone, or a function that returns None, "
            "is not enough); give items for at least one"
        )
    writers: dict[str, ItemWriter] = {}
    first = 0  # of the test items, in the set that they came from
    groups = _groups(feed.sets)
    for index, (origin, splits) in enumerate(groups.items()):
        most = None if limit is None else limit * len(splits)
        known = [each for each in (most, feed.counts.get(origin)) if each is not None]
        items = _counted(feed.sets[origin](most), request, origin, (index, len(groups), min(known, default=None)))
        if splits == (origin,):
            writers[origin] = _write(request.out / origin, _named(items, origin), source.preprocess)
        else:
            whole = _whole(request.out, items, source.preprocess)
            cut = _Cut(None if source.state else seed, limit, source.sequence or 1)
            parts, begins = _divided(request.out, whole, splits, cut)
            writers |= parts
            first = begins.get("test", first)
    _keep_raw(request, source, next(item for item in groups.items() if "test" in item[1]), first)
    if source.call == sources.PRETRAINED:
        folder = extras.part("hugging_face", "pretrained_folder")
        folder.keep_tokenizer(Path(source.model), request.out / TOKENS)
    _number_classes(source, writers)
    divided = [[origin or "data", *splits] for origin, splits in groups.items() if splits != (origin,)]
    facts = {**_facts(source, feed, writers), "split_by_seed": bool(divided), "cut": divided}
    if len(source.lengths) > 1 and sources.MASK in writers["test"].columns:
        facts[sources.LENGTHS] = source.lengths
    inputs = _specs(writers, source.preprocess)
    if source.preprocess is not None:
        # what is doubtful about the values that are fed, by the first of them
        file = tensors.file_of(
            request.out / SPLITS[0], _preprocessed(source.preprocess, [spec.name for spec in inputs])
        )
        facts[WARNINGS] = doubts.of_range(npy.mapped(file)[:CHUNK], source.preprocess)
    return Artifact(request.out, "samples", inputs, facts=facts).write()


def training(request: Request) -> Artifact:
    """The stage: {} -> "samples" of the split "train", all of it; none where the data has no such split.

    options: "source". Raises InputError as `run` does.
    """
    source = sources.read(request.options)
    feed = loaders.feed(source, request, (TRAIN,))
    if TRAIN not in feed.sets:
        return Artifact(request.out, "samples", facts={"splits": {TRAIN: 0}}).write()
    items = _counted(feed.sets[TRAIN](None), request, TRAIN, (0, 1, feed.counts.get(TRAIN)))
    writer = _write(request.out / TRAIN, _named(items, TRAIN), source.preprocess)
    _number_classes(source, {TRAIN: writer})
    labelled = tensors.LABELS in writer.columns
    facts = {
        "splits": {TRAIN: writer.count},
        "labelled": labelled,
        AUGMENT: list(source.augment),
        METRIC: source.metric,
        **({states.SEQUENCE: source.sequence} if source.sequence else {}),
    }
    return Artifact(request.out, "samples", _specs({TRAIN: writer}, source.preprocess), facts=facts).write()


def first(source: Source, count: int) -> Row:
    """The inputs of the first `count` items of some split, preprocessed, [count, ...]; too few are repeated."""
    split, items = next(iter(loaders.feed(source, Request({}, Path())).sets.items()))
    rows = [
        _row((i, None), source.preprocess, tensors.item(split, n))
        for n, (i, _) in enumerate(islice(items(None), count))
    ]
    if not rows:
        raise InputError(f"data: split '{split}' is empty; give it at least one item")
    return _stacks((rows * count)[:count], source.preprocess, (split, 0))


def _number_classes(source: Source, writers: Mapping[str, ItemWriter]) -> None:
    """For top-k: labels that are classes in another form become their numbers, in all splits or in none."""
    if not metrics.TOP.fullmatch(source.metric) or any(tensors.LABELS not in w.columns for w in writers.values()):
        return
    files = [tensors.file_of(writer.folder, tensors.LABELS) for writer in writers.values()]
    numbers = [each for file in files if (each := metrics.class_numbers(npy.mapped(file))) is not None]
    if len(numbers) == len(writers):
        for writer, each in zip(writers.values(), numbers, strict=True):
            tensors.write_split(writer.folder, {tensors.LABELS: each})


def _facts(source: Source, feed: loaders.Feed, writers: Mapping[str, ItemWriter]) -> SamplesFacts:
    return {
        "splits": {split: writers[split].count for split in SPLITS if split in writers},
        "origin": source.data,
        "random": source.random,
        "labelled": tensors.LABELS in writers["test"].columns,
        "label_names": list(source.labels or feed.classes),
        "preprocess": asdict(source.preprocess) if source.preprocess else None,
        "repeated": repeated_items.counted(writers),
    }


def _specs(writers: Mapping[str, ItemWriter], declared: Preprocess | None) -> tuple[TensorSpec, ...]:
    """The inputs, the same in every split; raises InputError when they are not."""
    columns = {split: {n: c for n, c in w.columns.items() if n != tensors.LABELS} for split, w in writers.items()}
    last, inputs = list(columns.items())[-1]
    shapes = {split: {n: (c.shape, c.dtype) for n, c in each.items()} for split, each in columns.items()}
    for split, each in shapes.items():
        if each != shapes[last]:
            raise InputError(
                f"split '{split}' has {_words(each)}, split '{last}' {_words(shapes[last])}; make them equal"
            )
    layouts = {_preprocessed(declared, list(inputs)): declared.layout} if declared else {}
    batch = Dim("batch", 1, max(w.count for w in writers.values()))
    return tuple(TensorSpec(n, (batch, *c.shape), str(c.dtype), layouts.get(n, "")) for n, c in inputs.items())


def _words(shapes: Mapping[str, tuple[tuple[int, ...], np.dtype]]) -> str:
    return ", ".join(f"{name} {dtype} {list(shape)}" for name, (shape, dtype) in shapes.items())


# --------------------------------------------------------------------------- splits


def _groups(sets: Mapping[str, Items]) -> dict[str, tuple[str, ...]]:
    """Each given set with the splits that are cut from it: itself, and those that nobody gave."""
    if WHOLE in sets:
        return {WHOLE: SPLITS}
    groups = {split: [split] for split in SPLITS if split in sets}
    for split in SPLITS:
        if split not in sets:
            lender = next(name for name in LENDERS[split] if name in sets)
            groups[lender].append(split)
    return {origin: tuple(s for s in SPLITS if s in splits) for origin, splits in groups.items()}


def _whole(out: Path, items: Iterable[Item], declared: Preprocess | None) -> Row:
    """A set that is to be divided: in memory where it is one block, else written into UNSPLIT and mapped."""
    blocks = _blocks(_named(items, tensors.UNSPLIT), declared, tensors.UNSPLIT)
    begin = list(islice(blocks, 2))
    if len(begin) == 1:
        return begin[0]
    writer = _written(out / tensors.UNSPLIT, chain(begin, blocks))
    return {name: npy.mapped(tensors.file_of(writer.folder, name)) for name in writer.columns}


@dataclass(frozen=True)
class _Cut:
    """How a set is cut: by a permutation of this seed, or in its order; items at most; items that stay together."""

    seed: int | None
    limit: int | None
    unit: int


def _divided(out: Path, whole: Row, splits: tuple[str, ...], how: _Cut) -> tuple[dict[str, ItemWriter], dict[str, int]]:
    """Cuts a set into disjoint splits in SHARES. Also where in the set the first item of each split was."""
    import numpy as np

    count, unit = len(next(iter(whole.values()))), how.unit
    if count < len(splits) * unit:
        raise InputError(
            f"data: {count} items cannot be split into {', '.join(splits)}"
            f"{f' of whole sequences of {unit}' if unit > 1 else ''}; give more of them"
        )
    order = np.arange(count) if how.seed is None else np.random.default_rng(how.seed).permutation(count)
    total, begin, parts, firsts = sum(SHARES[s] for s in splits), 0, {}, {}
    for rest, split in zip(range(len(splits) - 1, -1, -1), splits, strict=True):
        fair = max(1, count // unit * SHARES[split] // total) * unit
        end = count if rest == 0 else min(begin + fair, (count // unit - rest) * unit)
        chosen = np.sort(order[begin:end][: how.limit])
        parts[split] = _written(out / split, _chosen(whole, chosen))
        begin, firsts[split] = end, int(chosen[0])
    shutil.rmtree(out / tensors.UNSPLIT, ignore_errors=True)
    return parts, firsts


def _chosen(whole: Row, index: np.ndarray) -> Iterator[Row]:
    """Some items of a set, block by block.

    Each block maps the files anew: pages that were read of an array count as this process's memory.
    """
    import numpy as np

    step = max(1, min(CHUNK, CHUNK_BYTES // max(1, sum(map(npy.item_bytes, whole.values())))))
    for begin in range(0, len(index), step):
        chosen = index[begin : begin + step]
        yield {
            name: (npy.mapped(Path(a.filename)) if isinstance(a, np.memmap) and a.filename else a)[chosen]
            for name, a in whole.items()
        }


# --------------------------------------------------------------------------- the first test item, as it came


def _keep_raw(request: Request, source: Source, group: tuple[str, Sequence[str]], index: int) -> None:
    """Writes raw/INPUT.npy where [preprocess] is declared: an item of a given set, which is read again for it.

    Apps check their own preprocessing against it. Nothing is kept where the data gives another item by now.
    """
    import numpy as np

    if (declared := source.preprocess) is None:
        return
    limit = request.options.get("samples")
    items = loaders.feed(source, request).sets[group[0]](None if limit is None else limit * len(group[1]))
    for inputs, _ in islice(items, index, index + 1):
        target = _preprocessed(declared, list(inputs))
        row = _row((inputs, None), declared, tensors.item("test", index))
        again = _stacks([row], declared, ("test", index))[target]
        kept = npy.mapped(tensors.file_of(request.out / "test", target))[:1]
        if again.dtype == kept.dtype and np.array_equal(again, kept):
            tensors.write_split(request.out / RAW, {target: np.asarray(inputs[target])})


# --------------------------------------------------------------------------- items to disk


def _named(items: Iterable[Item], split: str) -> Iterator[Item]:
    """The items; what is raised while they are made says at which one."""
    iterator, index = iter(items), 0
    while True:
        try:
            item = next(iterator)
        except StopIteration:
            return
        except InputError as error:
            raise type(error)(f"{tensors.item(split, index)}: {error}") from error
        yield item
        index += 1


def _counted(items: Iterable[Item], request: Request, what: str, place: tuple[int, int, int | None]) -> Iterator[Item]:
    """The items; now and then it is told how many there are by now. `place`: this set, of how many, its items."""
    began = told = time.monotonic()
    index, sets, most = place
    of, where = f" of {most:,}" if most else "", f"{what}: " if what else ""
    request.progress(index / sets, f"{where}reading")
    for count, item in enumerate(items, 1):
        yield item
        if (now := time.monotonic()) - told >= TOLD_S:
            told, share = now, min(1.0, count / most) if most else 0.0
            rate = f"{count:,}{of} items read, {count / (now - began):.3g} per second"
            request.progress((index + share) / sets, f"{where}{rate}")


def _write(folder: Path, items: Iterator[Item], declared: Preprocess | None) -> ItemWriter:
    """A split on disk, checked and preprocessed block by block."""
    return _written(folder, _blocks(items, declared, folder.name))


def _written(folder: Path, blocks: Iterable[Row]) -> ItemWriter:
    writer = ItemWriter(folder)
    for block in blocks:
        writer.append(block)
    writer.close()
    if not writer.count:
        raise InputError(f"data: split '{folder.name.strip('.')}' is empty; give it at least one item, or leave it out")
    return writer


def _blocks(items: Iterator[Item], declared: Preprocess | None, split: str) -> Iterator[Row]:
    """Items as arrays, checked and preprocessed: some at a time."""
    count = 0
    for chunk in _chunks(_row(item, declared, tensors.item(split, i)) for i, item in enumerate(items)):
        yield _stacks(chunk, declared, (split, count))
        count += len(chunk)


def _chunks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Some rows at a time: as many as are quick to check at once, and no more than memory has room for."""
    chunk, size = list[Row](), 0
    for row in rows:
        chunk.append(row)
        size += sum(array.nbytes for array in row.values())
        if len(chunk) == CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _stacks(rows: Sequence[Row], declared: Preprocess | None, where: tuple[str, int]) -> Row:
    """Rows as arrays by name, labels included; `where` is the split and the index of the first."""
    split, first = where
    names = rows[0].keys()
    for i, row in enumerate(rows):
        if row.keys() != names:
            raise InputError(
                f"{tensors.item(split, first + i)} has {', '.join(sorted(row))}, those before it have "
                f"{', '.join(sorted(names))}; give the same with each item, a label with all of them or with none"
            )
    arrays = {name: _stacked(name, [row[name] for row in rows], where) for name in names}
    if declared:
        target = _preprocessed(declared, [n for n in names if n != tensors.LABELS])
        arrays[target] = preprocess.numbers(arrays[target], declared)
    for name, array in arrays.items():
        _check_finite(name, array, where)
    return arrays


def _row(item: Item, declared: Preprocess | None, where: str) -> Row:
    inputs, label = item
    row = {name: _array(value, f"{where}: '{name}'") for name, value in inputs.items()}
    for name in row:
        if not loaders.is_name(name):
            raise InputError(f"{where}: an input cannot be called {name[:60]!r}; give it another name")
    if declared:
        target = _preprocessed(declared, list(row))
        try:
            row[target] = preprocess.geometry(row[target], declared)
        except InputError as error:
            raise type(error)(f"{where}: {error}") from error
    return row if label is None else {**row, tensors.LABELS: _label(label, where)}


def _preprocessed(declared: Preprocess, names: Sequence[str]) -> str:
    """The input that the preprocessing applies to."""
    if declared.input:
        if declared.input not in names:
            raise InputError(
                f"[preprocess] input: the data has no '{declared.input}'{did_you_mean(declared.input, names)}"
            )
        return declared.input
    if len(names) != 1:
        raise InputError(f"[preprocess] input: name the input that it applies to: {', '.join(names)}")
    return names[0]


def _array(value: ArrayLike, where: str) -> np.ndarray:
    import numpy as np

    try:
        array = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)  # a tensor of torch
    except (ValueError, TypeError, RuntimeError) as error:
        if isinstance(value, list):
            raise InputError(
                f"{where} is a list of parts of unlike shapes; give an array, and an item as a tuple (inputs, label)"
            ) from error
        raise InputError(f"{where} is not an array: {user_code.error_line(error)}") from error
    if array.dtype.kind not in "biuf":
        what = "None" if value is None else array.dtype if hasattr(value, "dtype") else f"a {type(value).__name__}"
        raise InputError(f"{where} is {what}, not numbers; give an array of numbers of one shape")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _label(value: ArrayLike, where: str) -> np.ndarray:
    """A label as int64 or float32. Raises InputError for a class below zero; in a list of numbers it may pad."""
    import numpy as np

    label = _array(value, f"{where}: the label")
    if label.dtype.kind == "f":
        return label.astype(np.float32)
    if label.ndim == 0 and label.astype(np.int64) < 0:
        raise InputError(f"{where}: label {label} is out of range; classes are counted from 0")
    return label.astype(np.int64)


def _stacked(name: str, rows: Sequence[np.ndarray], where: tuple[str, int]) -> np.ndarray:
    import numpy as np

    split, first = where
    for i, row in enumerate(rows):
        if row.shape != rows[0].shape or row.dtype != rows[0].dtype:
            raise InputError(
                f"{tensors.item(split, first + i)}: '{name}' is {row.dtype} {list(row.shape)}, in those before it "
                f"{rows[0].dtype} {list(rows[0].shape)}; make them the same (images: [preprocess] resize, crop; "
                f"sequences: [pad.{name}] length)"
            )
    return rows[0][None] if len(rows) == 1 else np.stack(rows)  # one large item is not copied


def _check_finite(name: str, array: np.ndarray, where: tuple[str, int]) -> None:
    import numpy as np

    if array.dtype.kind == "f" and not np.isfinite(array).all():
        split, first = where
        bad = int(np.argmin(np.isfinite(array.reshape(len(array), -1)).all(axis=1)))
        raise InputError(f"{tensors.item(split, first + bad)}: '{name}' holds NaN or infinite values; clean the data")
