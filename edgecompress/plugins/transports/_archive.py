"""A tar that a stranger packed of one file or folder: nothing of it lands elsewhere, or points there."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from edgecompress.device import machine


def unpack(archive: tarfile.TarFile, path: Path) -> None:
    """Writes it as `path`. Raises ValueError for what does not belong there, TarError where it is damaged."""
    for entry, place in _entries(archive, path):
        if entry.isdir():
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        content = archive.extractfile(entry)
        assert content is not None
        with place.open("wb") as file:
            shutil.copyfileobj(content, file)


def _entries(archive: tarfile.TarFile, path: Path) -> Iterator[tuple[tarfile.TarInfo, Path]]:
    """Each file and folder with its place: the first part of a name is `path` itself."""
    for entry in archive:
        name = PurePosixPath(entry.name)
        plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE) and not entry.issparse()
        if not plain or name.is_absolute() or ".." in name.parts or not name.parts:
            raise ValueError(f"'{machine.line(entry.name)}' is a link, or lies outside; refused")
        yield entry, path.joinpath(*name.parts[1:])
