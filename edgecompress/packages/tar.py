"""One .tar.gz of everything a deploy shipped: artifact, excerpt, report. The same content gives the same bytes."""

from __future__ import annotations

import gzip
import tarfile
from pathlib import Path

REQUIRES: tuple[str, ...] = ()


def pack(folder: Path, out: Path) -> Path:
    """`folder` as `out`/FOLDER.tar.gz; no times, owners or links are kept."""
    file = out / f"{folder.name}.tar.gz"
    with (
        file.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink()):
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            entry.size, entry.mode = path.stat().st_size, 0o644
            with path.open("rb") as content:
                archive.addfile(entry, content)
    return file
