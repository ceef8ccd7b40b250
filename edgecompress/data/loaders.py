"""Loads items from a user's function, an .npz, a folder of .npy files or images, texts, or random numbers.

Every source is read as a stream, so that no set of data is ever whole in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar, Union

from edgecompress.core import extras, user_code
from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Request, TensorSpec
from edgecompress.core.settings import SPLITS, TRAIN, Pad, Source
from edgecompress.data import npy, npz, states, tensors
from edgecompress.data.pictures import EVERY, SUFFIXES, elsewhere, picture, pictures_in

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

Item: TypeAlias = "tuple[Mapping[str, ArrayLike], ArrayLike | None]"  # inputs by name, and the label where there is one
Inputs = Union["ArrayLike", "tuple[ArrayLike, ...]", "Mapping[str, ArrayLike]"]  # of one item, as a factory yields them
Items = Callable[[int | None], Iterable[Item]]  # at most so many of them
T = TypeVar("T")

RANDOM_ITEMS = 64  # per split, where nobody says how many
WHOLE = ""  # the one set of data that comes without splits
VALIDATION = ("val", "valid", "validation", "dev", "eval")  # what others call data that choices are made by
TEXTS = (".jsonl", ".tsv", ".csv", ".txt")


@dataclass(frozen=True)
class Feed:
    """A function per split, or one under WHOLE, that yields its items; if known, the class names, how many items."""

    sets: Mapping[str, Items]
    classes: Sequence[str] = ()
    counts: Mapping[str, int] = field(default_factory=dict)


def feed(source: Source, request: Request, splits: Sequence[str] = SPLITS) -> Feed:
    """The data that `source.data` names: one feed per split, or a single one without splits."""
    every = _every(source, request, splits)
    asked = {split: items for split, items in every.sets.items() if split in (*splits, WHOLE)}
    sets = {split: _padded(_numbered(items, source.labels), source.pad) for split, items in asked.items()}
    return Feed(sets, every.classes, every.counts)


def _numbered(items: Items, classes: Sequence[str]) -> Items:
    """The items, those labels that are names of classes as their numbers in the source's `labels`."""

    def every(limit: int | None) -> Iterator[Item]:
        for inputs, label in items(limit):
            if isinstance(label, str) and label not in classes:
                raise InputError(
                    f"the source's labels have no '{label[:60]}'{did_you_mean(label, classes)}"
                    if classes
                    else f"the label '{label[:60]}' is a name; give the number of its class, from 0 on, or name the "
                    "classes in the order of the model's outputs: --set 'source.labels=[\"...\", ...]'"
                )
            yield inputs, classes.index(label) if isinstance(label, str) else label

    return every


def _padded(items: Items, pads: Mapping[str, Pad]) -> Items:
    """The items, each as long as its [pad] says, with the masks."""

    def every(limit: int | None) -> Iterator[Item]:
        for inputs, label in items(limit):
            row = {**inputs} if label is None else {**inputs, tensors.LABELS: label}
            for name, pad in pads.items():
                if name not in row:
                    raise InputError(f"[pad.{name}]: the data has no '{name}'{did_you_mean(name, row)}")
                row |= _filled(name, row[name], pad)
            label = row.pop(tensors.LABELS, None)
            yield row, label

    return every if pads else items


def _filled(name: str, given: ArrayLike, pad: Pad) -> dict[str, ArrayLike]:
    import numpy as np

    value = np.asarray(given)
    if not value.ndim or value.dtype.kind not in "biuf":
        raise InputError(f"[pad.{name}]: an item of '{name}' is no array of numbers with an axis to fill up")
    own = min(len(value), pad.length)
    filled = np.full((pad.length, *value.shape[1:]), pad.value, value.dtype)
    filled[:own] = value[:own]
    mask = (np.arange(pad.length) < own).astype(np.float32 if value.dtype.kind == "f" else value.dtype)
    return {name: filled, **({pad.mask: mask} if pad.mask else {})}


def _every(source: Source, request: Request, splits: Sequence[str]) -> Feed:
    if source.random:
        return _random(request)
    if source.calls("data"):
        return _factory(source.data, splits)
    path = Path(source.data)
    readers = {"arrays": _npy, "npz": _npz}
    kind, seed = kind_of(path), None if source.state else request.context.seed
    if kind == "texts":
        return _texts(path, source, seed, splits)
    return readers[kind](path, seed) if kind in readers else _images(path, source, seed)


def kind_of(path: Path) -> Literal["npz", "arrays", "texts", "images"]:
    """What a file or a folder holds, by names alone. Raises InputError where no data is laid out so."""
    if path.suffix == ".npz" and not path.is_dir():
        return "npz"
    if not path.is_dir() and path.suffix in TEXTS:
        return "texts"
    if not path.is_dir():
        raise InputError(
            f"{path}: data must be pkg.mod:fn, an .npz, a folder of .npy files or of images, a file of texts "
            f"({', '.join(TEXTS)}), or the word random"
        )
    if any(_arrays(path)):
        return "arrays"
    if _text_files(path):
        return "texts"
    names = [folder.name for folder in _shown_folders(path)]
    if not names and any(file.suffix.lower() in SUFFIXES for file in path.iterdir()):
        raise InputError(
            f"{path}: its images lie in no folder; move those of each class into a folder named after it, "
            f"{path}/CLASS (without classes: into one folder, and give --metric none)"
        )
    if {*_called(names, path)} == {TRAIN}:
        raise InputError(f"{path}: has items to train on alone; add a folder test, or give --data {path / TRAIN}")
    return "images"


def _called(names: Collection[str], where: Path) -> dict[str, str]:
    """{a split: what it is called there}; none where `names` are no splits.

    Data for validation is `select` beside data to test with, else `test`. Raises InputError where it is not clear.
    """
    called = {split: split for split in EVERY if split in names}
    others = [name for name in VALIDATION if name in names]
    if not others or (not called and {*names} - {*others}):
        return called
    split = "select" if "test" in called else "test"
    if split in called or len(others) > 1:
        both = " and ".join([*others, *called][:2]) if len(others) > 1 else f"{others[0]} and {split}"
        raise InputError(f"{where}: has {both}; splits are called {', '.join(EVERY)}: rename or remove one")
    return {**called, split: others[0]}


def _factory(reference: str, splits: Sequence[str]) -> Feed:
    """The user's `fn(split)`: it yields (inputs, label) or inputs, or returns None for a split it does not have.

    Inputs are an array, a tuple of arrays or a dictionary of them, one item without a batch axis. A tuple of two is
    (inputs, label): a net of two inputs takes a dictionary, or ((a, b), label) with None where there is no label.
    """
    call = user_code.function(reference)
    sets: dict[str, Items] = {}
    counts: dict[str, int] = {}
    for split in splits:
        try:
            items = call(split)
        except Exception as error:
            raise InputError(
                f"{reference}('{split}') raised {user_code.error_line(error)}; run it in Python to debug it"
            ) from error
        if items is not None:
            sets[split] = _yielded(items, f"{reference}('{split}')")
            counts |= {split: len(items)} if isinstance(items, Sized) else {}
    return Feed(sets, counts=counts)


def _yielded(yielded: Iterable[Inputs | tuple[Inputs, ArrayLike | None]], where: str) -> Items:
    def items(limit: int | None) -> Iterator[Item]:
        try:
            for item in islice(ended(yielded), limit):
                yield _item(item)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"{where} raised {user_code.error_line(error)}; run it in Python to debug it") from error

    return items


def ended(items: Iterable[T]) -> Iterable[T]:
    """The items. A Dataset of torch has a length and no iterator of its own: Python would ask it for items forever."""
    return items if hasattr(items, "__iter__") or not isinstance(items, Sized) else islice(iter(items), len(items))


def _item(item: Inputs | tuple[Inputs, ArrayLike | None]) -> Item:
    """What a factory yielded as inputs by name and label."""
    inputs, label = item if isinstance(item, tuple) and len(item) == 2 else (item, None)
    if isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
        return named, named.pop(tensors.LABELS, None) if label is None else label
    if isinstance(inputs, tuple):
        return dict(zip(tensors.unnamed(len(inputs)), inputs, strict=True)), label
    return {tensors.INPUT: inputs}, label


def _chosen(count: int, limit: int | None, seed: int | None) -> set[int] | range:
    """Which of `count` items are taken: all, or a seeded sample, for it may be sorted by class; the first unseeded."""
    import numpy as np

    if limit is None or limit >= count or seed is None:
        return range(min(count, count if limit is None else limit))
    return {int(i) for i in np.random.default_rng(seed).permutation(count)[:limit]}


def _rows(columns: Mapping[str, tuple[int, Callable[[], Iterable[np.ndarray]]]], where: str, seed: int | None) -> Items:
    """Items from columns of equal length, read side by side: {name: (length, rows)}."""
    lengths = {name: length for name, (length, _) in columns.items()}
    if len(set(lengths.values())) != 1 or set(columns) == {tensors.LABELS}:
        counts = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise InputError(f"{where}: inputs and labels must have as many items each; it has: {counts}")

    def items(limit: int | None) -> Iterator[Item]:
        chosen = _chosen(next(iter(lengths.values())), limit, seed)
        every = zip(*(rows() for _, rows in columns.values()), strict=True)
        for index, values in enumerate(islice(every, max(chosen, default=-1) + 1)):
            if index in chosen:
                inputs = dict(zip(columns, values, strict=True))
                label = inputs.pop(tensors.LABELS, None)
                yield inputs, label

    return items


def _by_split(keys: Iterable[tuple[str, str]], where: Path, called: Mapping[str, str]) -> dict[str, list[str]]:
    """Names of arrays by split, from (what it is called or WHOLE, name).

    Raises InputError when some have a split and some not.
    """
    ours = {WHOLE: WHOLE, **{there: split for split, there in called.items()}}
    names: dict[str, list[str]] = {}
    for split, name in keys:
        names.setdefault(ours[split], []).append(name)
    if not names:
        raise InputError(
            f"{where}: contains no array; name its arrays INPUT (and labels), or SPLIT.INPUT (and SPLIT.labels)"
        )
    if WHOLE in names and len(names) > 1:
        raise InputError(
            f"{where}: '{names[WHOLE][0]}' has no split in its name, but other arrays have; name all of them "
            "SPLIT.INPUT"
        )
    return names


def _npz(path: Path, seed: int | None) -> Feed:
    """`SPLIT.INPUT` and `SPLIT.labels`, or `INPUT` and `labels`."""
    members = npz.arrays(path)
    called = _called({name.partition(".")[0] for name in members if "." in name}, path)
    parted = [k.partition(".")[::2] if k.partition(".")[0] in called.values() else (WHOLE, k) for k in members]
    sets = {}
    for split, names in _by_split(parted, path, called).items():
        where = f"{path}, {split or 'data'}"
        own = {name: members[f"{called[split]}.{name}" if split else name] for name in names}
        npy.check_items({name: member.header for name, member in own.items()}, where)
        sets[split] = _rows({n: (m.header.shape[0], m.rows) for n, m in own.items()}, where, seed)
    return Feed(sets)


def _arrays(path: Path) -> Iterator[Path]:
    """The .npy files of a folder, and of its splits: others may hold a million images, which are not listed."""
    return (
        file for folder in (path, *(path / name for name in (*EVERY, *VALIDATION))) for file in folder.glob("*.npy")
    )


def _npy(path: Path, seed: int | None) -> Feed:
    """`SPLIT/INPUT.npy` and `SPLIT/labels.npy`, or `INPUT.npy` and `labels.npy`, memory-mapped."""
    files = [*_arrays(path)]
    keys = sorted((WHOLE if f.parent == path else f.parent.name, tensors.name_of(f)) for f in files)
    called = _called({name for name, _ in keys if name}, path)
    sets = {}
    for split, names in _by_split(keys, path, called).items():
        arrays = {name: npy.mapped(tensors.file_of(path / called.get(split, ""), name)) for name in names}
        npy.check_items(arrays, where := f"{path}, {split or 'data'}")
        sets[split] = _rows({name: (len(a), a.__iter__) for name, a in arrays.items()}, where, seed)
    return Feed(sets)


def _text_files(path: Path) -> dict[str, Path]:
    """The file of each split in a folder, by what the split is called there."""
    known = (*EVERY, *VALIDATION)
    return {f.stem: f for f in sorted(path.iterdir()) if f.suffix in TEXTS and f.stem in known}


def text_files(path: Path) -> dict[str, Path]:
    """The file of each split of texts, or one under WHOLE. Raises InputError for what holds none."""
    if kind_of(path) != "texts":
        raise InputError(f"{path}: is no file of texts ({', '.join(TEXTS)}), nor a folder of SPLIT.tsv")
    files = _text_files(path) if path.is_dir() else {}
    return {split: files[name] for split, name in _called(files, path).items()} or {WHOLE: path}


def _texts(path: Path, source: Source, seed: int | None, splits: Sequence[str]) -> Feed:
    """`SPLIT.tsv` (.csv, .jsonl, .txt) of a folder, or one file."""
    texts = extras.part("hugging_face", "texts")
    reader = texts.of(source)
    parts = {split: file for split, file in text_files(path).items() if split in (*splits, WHOLE)}

    def of(file: Path) -> Items:
        def items(limit: int | None) -> Iterator[Item]:
            if limit is None or file.suffix == ".txt":
                return islice(reader.items(file), limit)
            return _taken(reader.items(file), _chosen(texts.count(file), limit, seed))

        return items

    return Feed({split: of(file) for split, file in parts.items()}, reader.classes)


def _taken(items: Iterator[Item], chosen: set[int] | range) -> Iterator[Item]:
    """Those items alone that are chosen, by their numbers."""
    for index, item in enumerate(islice(items, max(chosen, default=-1) + 1)):
        if index in chosen:
            yield item


def _images(path: Path, source: Source, seed: int | None) -> Feed:
    """`CLASS/*.jpg` or `SPLIT/CLASS/*`. Classes are numbered as in the source's `labels`, else by sorted name.

    Without `labels` each folder is a class, so an empty one is refused: it would move the numbers of those behind it.
    """
    called = _called([folder.name for folder in _shown_folders(path)], path)
    parts = {split: path / name for split, name in called.items()} or {WHOLE: path}
    folders = {split: _shown_folders(part) for split, part in parts.items()}
    classes = list(source.labels) or sorted({f.name for each in folders.values() for f in each})
    sets, counts, filled = {}, {}, set[str]()
    for split, each in folders.items():
        files = [(file, _class(folder, classes)) for folder in each for file in pictures_in(folder)]
        if not files:
            part = parts[split]
            raise InputError(f"{part}: contains no .npy file, and no images in one folder per class{elsewhere(part)}")
        sets[split], counts[split] = _pictured(files, seed), len(files)
        filled |= {file.parent.name for file, _ in files}
    if not source.labels and (empty := sorted({*classes} - filled)):
        raise InputError(f"{path}: the folder '{empty[0]}' has no image; remove it, or name the classes as `labels`")
    return Feed(sets, classes, counts)


def _shown_folders(folder: Path) -> list[Path]:
    """The folders in it, without hidden ones and those that an archive of macOS adds."""
    return sorted(f for f in folder.iterdir() if f.is_dir() and not f.name.startswith((".", "__MACOSX")))


def _class(folder: Path, classes: Sequence[str]) -> int:
    if not folder.name.isprintable():
        raise InputError(f"{str(folder)!r}: the name of a class must be plain text; rename it")
    if folder.name not in classes:
        raise InputError(f"{folder}: the source's labels have no '{folder.name}'{did_you_mean(folder.name, classes)}")
    return classes.index(folder.name)


def _pictured(files: Sequence[tuple[Path, int]], seed: int | None) -> Items:
    def items(limit: int | None) -> Iterator[Item]:
        chosen = _chosen(len(files), limit, seed)
        for file, label in (files[i] for i in sorted(chosen)):
            yield {tensors.INPUT: picture(file)}, label

    return items


def is_name(name: str) -> bool:
    """Whether an input can be called so: its files are."""
    return tensors.is_plain(name) and name != tensors.LABELS


def _random(request: Request) -> Feed:
    """Random numbers of the inputs that the model states: normal floats, bytes, and whole numbers that are 0 or 1."""
    import numpy as np

    if "source" not in request.inputs:
        raise InputError(
            "random data needs a model file that declares its inputs (.pt2, .onnx), which a factory does not; give data"
        )
    model = request.inputs["source"]
    state = states.names(model)
    specs = [spec for spec in model.inputs if spec.name not in state]
    named = all(is_name(spec.name) for spec in specs)
    names = [spec.name for spec in specs] if named else tensors.unnamed(len(specs))

    def made(split: str) -> Items:
        def drawn(limit: int | None) -> Iterator[Item]:
            generator = np.random.default_rng((request.context.seed, SPLITS.index(split)))
            for _ in range(RANDOM_ITEMS if limit is None else limit):
                yield {name: _noise(spec, generator) for name, spec in zip(names, specs, strict=True)}, None

        return drawn

    return Feed({split: made(split) for split in SPLITS})


def _noise(spec: TensorSpec, generator: np.random.Generator) -> np.ndarray:
    import numpy as np

    shape, dtype = replace(spec, shape=states.item_shape(spec)).concrete(), np.dtype(spec.dtype)
    if dtype.kind == "f":
        return np.asarray(generator.standard_normal(shape), dtype)
    high = 256 if dtype == np.uint8 else 128 if dtype == np.int8 else 2  # ids and masks: 0 and 1 are always there
    return np.asarray(generator.integers(0, high, shape), dtype)
