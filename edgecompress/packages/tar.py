"""A tar for Linux boards: what a deploy shipped, byte for byte the same whenever it is packed."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

REQUIRES: tuple[str, ...] = ()
EXTRA = ""
SUFFIX = ".tar.gz"


def pack(shipped: Path, out: Path) -> None:
    """Writes the folder that a deploy shipped to `out`: sorted entries, no times, no owners."""
    with (
        out.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in sorted(p for p in shipped.rglob("*") if p.is_file()):
            _add(tar, file, f"{shipped.name}/{file.relative_to(shipped).as_posix()}")


def _add(tar: tarfile.TarFile, file: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = file.stat().st_size, 0o644
    with file.open("rb") as content:
        tar.addfile(info, content)
