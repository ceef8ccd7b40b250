"""A stranger's package: a .zip or .tar.gz as it is; a tar that is not packed yet is packed first."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

from edgecompress.extras.apps import archive

WORDS = b"PK\1\2 PK\3\4 PK\5\6 PK\6\7 ustar\0 ../ path= size= GNU.sparse.map= uid=".split()
SUFFIXES = (".zip", ".tar.gz")


def check(data: bytes, folder: Path) -> None:
    """What comes out can be packed again: the same bytes each time, and the same files come out of those."""
    file, out = folder / "package", folder / "out"
    out.mkdir()
    packed = data[:2] in (b"PK", b"\x1f\x8b")
    file.write_bytes(data if packed else gzip.compress(data, 1))
    archive.unpack(file, out)
    files = _files(out)
    for suffix in SUFFIXES:
        digests = {_written(out, folder / f"{turn}{suffix}", suffix) for turn in "ab"}
        assert len(digests) == 1, "written twice, it differs"
        archive.unpack(folder / f"a{suffix}", _made(folder / f"again{suffix}"))
        assert _files(folder / f"again{suffix}") == files, "packed again, it differs"
    archive.top(out, file)


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file with what is in it, and whether it may be executed."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(f.relative_to(folder)): (f.stat().st_mode & 0o777, f.read_bytes()) for f in files}


def _written(tree: Path, file: Path, suffix: str) -> str:
    archive.write(tree, file, suffix)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
