"""Reads .npy arrays that anybody made: the header is checked against the file's size before anything is read."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, Protocol, cast

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, blamed

if TYPE_CHECKING:
    import numpy as np

MAGIC = b"\x93NUMPY"
LENGTHS = {1: 2, 2: 4, 3: 4}  # version of the format -> bytes of the header's length
LONGEST = 10_000  # bytes of a header: numpy's own limit
MOST_AXES = 32
MOST_BYTES = (1 << 62) - 1
SHOWN = 80  # characters of a type or a shape in an error
NUMBERS = "biuf"  # kinds of dtype
CLASSES = (
    "give classes as whole numbers from 0 on, in the model's order; if it has them sorted by name, "
    "numpy.unique(names, return_inverse=True)[1] are they"
)
ITEM_BYTES = 512 << 20  # of all inputs together


@dataclass(frozen=True)
class Header:
    """What is in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    fortran: bool
    begin: int  # of the numbers, in the file

    @property
    def end(self) -> int:
        """Where the numbers end."""
        return self.begin + math.prod(self.shape) * self.dtype.itemsize


class Items(Protocol):
    """A header, or an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...


def mapped(file: Path) -> np.ndarray:
    """The array of a file, memory-mapped read-only, never unpickled. Raises InputError."""
    import numpy as np

    try:
        with plain_file.opened(file) as stream:
            found = header(stream, str(file))
            size = stream.seek(0, io.SEEK_END)
            if found.end > size:
                raise InputError(
                    f"{file}: is truncated: its header promises {found.end:,} bytes, it has {size:,}; save it again"
                )
            if found.end == found.begin:
                return np.zeros(found.shape, found.dtype)
            order: Literal["F", "C"] = "F" if found.fortran else "C"
            array = np.memmap(cast(Any, stream), found.dtype, "r", found.begin, found.shape, order)
            array.filename = str(file)  # to map it again; a stream has none
    except OSError as error:
        raise blamed(error)(f"{file}: cannot be read as an array: {error}") from error
    return array


def header(stream: IO[bytes], where: str) -> Header:
    """The header of an array of numbers that begins here. Raises InputError for anything else."""
    start = stream.read(len(MAGIC) + 2)
    # 0: it is none of the format's
    version = start[len(MAGIC)] if start[: len(MAGIC)] == MAGIC and len(start) == len(MAGIC) + 2 else 0
    length = int.from_bytes(stream.read(LENGTHS.get(version, 0)), "little")
    if version not in LENGTHS or not 0 < length <= LONGEST:
        raise InputError(f"{where}: not an array of numbers; save it again with numpy.save")
    begin = len(MAGIC) + 2 + LENGTHS[version] + length
    try:
        shape, fortran, dtype = _parsed(version, stream.read(length))
    except Exception as error:  # of the parser, of dtype, of ints: all mean a header that numpy did not write
        raise InputError(f"{where}: its header is damaged; save it again with numpy.save") from error
    if dtype.kind not in NUMBERS or dtype.subdtype or not all(type(size) is int and size >= 0 for size in shape):
        what = f"{str(dtype)[:SHOWN]} {str(list(shape))[:SHOWN]}"
        known = {"U": CLASSES, "S": CLASSES, "O": "make it an array of numbers of one shape (of names: their numbers)"}
        remedy = known.get(dtype.kind, "save it again with numpy.save")
        raise InputError(f"{where}: must be plain numbers; it is {what}; {remedy}")
    if len(shape) > MOST_AXES:
        raise InputError(f"{where}: has {len(shape)} axes, more than {MOST_AXES}")
    if math.prod(size or 1 for size in shape) * dtype.itemsize > MOST_BYTES:  # an empty array has a size of numpy's too
        raise InputError(f"{where}: {str(list(shape))[:SHOWN]} is more than any array can hold; save it again")
    return Header(shape, dtype, fortran and len(shape) > 1, begin)


@lru_cache(maxsize=16)  # thousands of arrays of one shape are common
def _parsed(version: int, text: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    """By numpy's reader of literals, which runs nothing. The third version differs in names of fields alone."""
    from numpy.lib import format as npy

    reader = npy.read_array_header_1_0 if version == 1 else npy.read_array_header_2_0
    whole = io.BytesIO(len(text).to_bytes(LENGTHS[version], "little") + text)
    return reader(whole)  # type: ignore[no-any-return, no-untyped-call]


def item_bytes(items: Items) -> int:
    """Bytes of one item."""
    return math.prod(items.shape[1:]) * items.dtype.itemsize


def check_items(columns: Mapping[str, Items], where: str) -> None:
    """Raises InputError for arrays without items on axis 0, and for items of no values, or too many to be held."""
    for name, column in columns.items():
        if not column.shape:
            raise InputError(f"{where}: '{name}' is a single number; it must have its items on axis 0")
        if 0 in column.shape[1:]:
            raise InputError(f"{where}: '{name}' has items without values: {str(list(column.shape))[:SHOWN]}")
    if (size := sum(map(item_bytes, columns.values()))) > ITEM_BYTES:
        raise InputError(f"{where}: one item has {size >> 20:,} MiB, more than {ITEM_BYTES >> 20}; make it smaller")
