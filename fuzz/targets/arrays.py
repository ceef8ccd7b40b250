"""A stranger's data: an .npz as it is, an .npy by itself and packed into an .npz."""

from __future__ import annotations

import zipfile
from itertools import islice
from pathlib import Path

from edgecompress.core.model import Request
from edgecompress.core.settings import Source
from edgecompress.data import loaders

WORDS = b"\x93NUMPY\1\0 \x93NUMPY\2\0 'descr' '<f4' '|O' '<U9' 'fortran_order' True test.x.npy".split()
ITEMS = 200  # that are read of each split


def check(data: bytes, folder: Path) -> None:
    """However an array comes, its items are the same."""
    if data[:2] == b"PK":
        _items(_written(folder / "data.npz", data))
        return
    (folder / "data").mkdir()
    _written(folder / "data" / "input.npy", data)
    with zipfile.ZipFile(folder / "data.npz", "w") as archive:
        archive.writestr("input.npy", data)
    assert _items(folder / "data") == _items(folder / "data.npz"), "in an .npz it differs"


def _written(file: Path, data: bytes) -> Path:
    file.write_bytes(data)
    return file


def _items(path: Path) -> list[tuple[str, bytes, bytes]]:
    """(input, its bytes, those of the label) of the first items."""
    import numpy as np

    feed = loaders.feed(Source("net", data=str(path)), Request({}, path.parent))
    items = (item for each in feed.sets.values() for item in islice(each(None), ITEMS))
    return [
        (name, np.asarray(value).tobytes(), np.asarray(label).tobytes())
        for inputs, label in items
        for name, value in inputs.items()
    ]
