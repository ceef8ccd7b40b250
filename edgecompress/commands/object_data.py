"""Data that is arrays, loaders and datasets of a Python program, as a folder of .npy files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from edgecompress.core import user_code
from edgecompress.core.errors import EdgeError, InputError, blamed
from edgecompress.core.settings import SPLITS, TRAIN

if TYPE_CHECKING:
    import numpy as np

Batch: TypeAlias = "dict[str, np.ndarray]"

EVERY = (*SPLITS, TRAIN)
KNOWN = (
    "pkg.mod:fn, a path, an array, a dictionary of arrays by input, (inputs, labels), a DataLoader or a Dataset of "
    "torch, or a dictionary of these by split"
)


def write(data: object, folder: Path) -> None:
    """`folder`/INPUT.npy and labels.npy, or the same in a folder per split. Raises InputError."""
    if callable(data):
        data = {split: items for split in EVERY if (items := _called(data, split)) is not None}
        batches = {split: _of_items(items) for split, items in data.items()}
    elif isinstance(data, Mapping) and {*data} & {*EVERY}:
        if unknown := sorted({*data} - {*EVERY}):
            raise InputError(f"data: '{unknown[0]}' is no split; name the splits {', '.join(EVERY)}")
        batches = {split: _batches(items) for split, items in data.items()}
    else:
        batches = {"": _batches(data)}
    for split, each in batches.items():
        _write(folder / split, each, f"data, {split}" if split else "data")


def _write(folder: Path, batches: Iterable[Batch], where: str) -> None:
    from edgecompress.data import tensors

    writer = tensors.Appender(folder)
    try:
        for batch in batches:
            writer.append(batch)
    except EdgeError:
        raise
    except Exception as error:  # a loader is the user's own code
        raise blamed(error)(f"{where}: raised {user_code.error_line(error)}; give {KNOWN}") from error
    if not writer.count:
        raise InputError(f"{where}: has no items; give at least one")
    writer.close()


def _called(function: Callable[[str], object], split: str) -> Iterable[object] | None:
    try:
        return function(split)  # type: ignore[return-value]  # looked at where it is read
    except Exception as error:
        raise InputError(f"data: the function given raised {user_code.error_line(error)} for '{split}'") from error


def _batches(items: object) -> Iterator[Batch]:
    """Batches of inputs by name and labels, of one set of data."""
    torch = sys.modules.get("torch")
    if torch and isinstance(items, torch.utils.data.DataLoader):
        batched = items.batch_size is not None or items.batch_sampler is not None
        yield from map(_named, items) if batched else _of_items(items)
    elif torch and isinstance(items, torch.utils.data.Dataset):
        yield from _of_items(items)
    else:
        named = _named(items)
        if any(array.ndim == 0 for array in named.values()):
            raise InputError(f"data: cannot take a single {type(items).__name__}; give {KNOWN}")
        yield named


def _of_items(items: Iterable[object]) -> Iterator[Batch]:
    """Single items as batches of one."""
    from edgecompress.data import loaders

    return ({name: array[None] for name, array in _named(item).items()} for item in loaders.ended(items))


def _named(given: object) -> Batch:
    """(inputs, labels), or inputs, as arrays by name; a loader of torch gives lists in the place of tuples."""
    from edgecompress.data import tensors

    pair = isinstance(given, (tuple, list)) and len(given) == 2
    inputs, labels = cast("tuple[object, object]", given) if pair else (given, None)
    if isinstance(inputs, Mapping):
        named = {str(name): value for name, value in inputs.items()}
    elif isinstance(inputs, tuple) or (pair and isinstance(inputs, list)):
        named = dict(zip(tensors.unnamed(len(inputs)), inputs, strict=True))
    else:
        named = {tensors.INPUT: inputs}
    if labels is not None:
        named[tensors.LABELS] = labels
    return {name: array(value, name) for name, value in named.items()}


def array(value: object, name: str) -> np.ndarray:
    """An array of numbers: float64, which numpy makes where nobody says, as float32. Raises InputError."""
    import numpy as np

    from edgecompress.data import npy, tensors

    if hasattr(value, "detach"):  # a tensor of torch, on whatever device
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        what = "a list of parts of unlike shapes" if isinstance(value, (list, tuple)) else user_code.error_line(error)
        raise InputError(f"data: '{name}' is not an array: {what}; give {KNOWN}") from error
    if array.dtype.kind in "US" and name == tensors.LABELS:
        raise InputError(f"data: '{name}' is text; {npy.CLASSES}")
    if array.dtype.kind not in "biuf":
        raise InputError(f"data: '{name}' is a {type(value).__name__} of {array.dtype}, not numbers; give {KNOWN}")
    return array.astype("float32") if array.dtype == "float64" else array
