"""Reads .npz files that anybody made, row by row: what they unpack to is limited, and never in memory whole."""

from __future__ import annotations

import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, blamed, brief
from edgecompress.data import npy

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".npy"  # of an array in the file
ARRAYS = 10_000
TABLE = 4 << 20  # bytes of the table of contents
RATIO, SMALL = 200, 4 << 30  # unpacked to packed bytes: more is a bomb, once it is not small
ROWS = 64  # read at once
BLOCK = 32 << 20  # bytes read at once, of all arrays together
# What reading raises: zipfile's errors, those of what it unpacks with, and NotImplementedError, a RuntimeError
DAMAGED = (OSError, EOFError, ValueError, KeyError, RuntimeError, OverflowError, zipfile.BadZipFile, zlib.error)


def arrays(path: Path) -> dict[str, Member]:
    """The arrays of a file by their names. Raises InputError for what is no .npz, holds too much, or one name twice."""
    try:
        table = _Table(plain_file.opened(path))  # closed when the last array that reads it is forgotten
        archive = zipfile.ZipFile(table)
        table.most = None
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; give an .npz file") from error
    except DAMAGED as error:
        raise blamed(error)(f"{path}: not an .npz file: {brief(str(error))}; save it again with numpy.savez") from error
    entries = [entry for entry in archive.infolist() if entry.filename.endswith(SUFFIX)]
    if twice := next((name for name, n in Counter(e.filename for e in entries).items() if n > 1), None):
        raise InputError(f"{path}: '{twice[:100]}' occurs twice; save it again with numpy.savez")
    if len(entries) > ARRAYS:
        raise InputError(
            f"{path}: has {len(entries):,} arrays, more than {ARRAYS:,}; store an item's values in one array"
        )
    # no more bytes come out than are declared here: zipfile stops there
    out, packed = sum(entry.file_size for entry in entries), path.stat().st_size
    if out > SMALL and out > RATIO * packed:
        raise InputError(f"{path}: unpacks to {out >> 30:,} GiB, more than {RATIO} times its size (a bomb); refused")
    return {entry.filename.removesuffix(SUFFIX): Member(path, archive, entry, len(entries)) for entry in entries}


class _Table:
    """The file, of which at most so much is read at once as a table of contents may have, until `most` is None."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.most: int | None = TABLE
        self.seek, self.tell, self.seekable = stream.seek, stream.tell, stream.seekable

    def read(self, count: int = -1) -> bytes:
        """Bytes. Raises BadZipFile."""
        if self.most is None:
            return self.stream.read(count)
        data = self.stream.read(self.most + 1 if count < 0 else min(count, self.most + 1))
        if len(data) > self.most:
            raise zipfile.BadZipFile(f"its table of contents is larger than {TABLE >> 20} MiB")
        return data


@dataclass
class Member:
    """One array of an .npz, its rows read some at a time; `others` share the memory with it."""

    path: Path
    archive: zipfile.ZipFile
    entry: zipfile.ZipInfo
    others: int
    header: npy.Header = field(init=False)

    def __post_init__(self) -> None:
        with self._opened() as stream:
            self.header = npy.header(stream, self._name)
        if self.header.fortran:
            raise InputError(f"{self._name}: must be plain numbers in C order; save numpy.ascontiguousarray of it")
        if self.header.end > self.entry.file_size:
            raise InputError(f"{self._name}: is truncated; save it again")

    @property
    def _name(self) -> str:
        return f"{self.path}: '{self.entry.filename.removesuffix(SUFFIX)[:100]}'"

    def rows(self) -> Iterator[np.ndarray]:
        """The items; raises InputError when the file is damaged or ends before they do."""
        import numpy as np

        size, total = npy.item_bytes(self.header), self.header.shape[0]
        step = max(1, min(ROWS, BLOCK // self.others // max(1, size)))
        with self._opened() as stream:
            stream.read(self.header.begin)
            for begin in range(0, total, step):
                count = min(step, total - begin)
                block = stream.read(count * size)
                if len(block) != count * size:
                    raise InputError(f"{self._name}: is truncated; save it again")
                yield from np.frombuffer(block, self.header.dtype).reshape(count, *self.header.shape[1:])

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        try:
            with self.archive.open(self.entry) as stream:
                yield stream
        except DAMAGED as error:
            raise blamed(error)(f"{self._name} is damaged: {brief(str(error))}; save it again") from error
