"""A folder to work in beside what is being made; what a killed run left is told by a lock that nobody holds."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from edgecompress.core import durable

RANDOM = "?" * 8  # what tempfile.mkdtemp adds: with any more it is the folder of another place
MARK = ".edgecompress"  # in such a folder: held by who works there, with this text inside
PART = f"{MARK}.part"
TEXT = "a working folder of edgecompress, which clears it\n"
FRESH_S = 60.0  # a folder so young may be one whose owner is about to put the mark in


@contextlib.contextmanager
def folder(place: Path) -> Iterator[Path]:
    """An empty folder on the file system of `place`, removed at the end."""
    durable.make_folder(place.parent)
    work = Path(tempfile.mkdtemp(prefix=_begin(place), dir=place.parent))
    try:
        part = work / PART
        with part.open("w", encoding="utf-8") as mark:
            mark.write(TEXT)
            mark.flush()
            fcntl.flock(mark, fcntl.LOCK_EX)
            os.fsync(mark)
            part.rename(work / MARK)  # never seen without its lock
            durable.sync(work)  # nor anything else in the folder without the mark, whatever a power cut leaves
            yield work
    finally:
        _remove(work)


def sweep(place: Path, rescue: Callable[[Path], None] = lambda work: None) -> None:
    """Removes the folders beside `place` that runs which are gone have left; `rescue` looks into each before."""
    pattern = f"{glob.escape(_begin(place))}{RANDOM}"
    for mark in place.parent.glob(f"{pattern}/{MARK}"):
        with contextlib.suppress(OSError, ValueError), mark.open(encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if held.read(len(TEXT) + 1) == TEXT and os.path.samestat(os.fstat(held.fileno()), mark.lstat()):
                rescue(mark.parent)
                _remove(mark.parent)
    for left in place.parent.glob(pattern):  # stopped before the mark was there, or after it went
        with contextlib.suppress(OSError):
            if time.time() - left.lstat().st_mtime > FRESH_S and not {p.name for p in left.iterdir()} - {PART}:
                (left / PART).unlink(missing_ok=True)
                left.rmdir()


def _remove(work: Path) -> None:
    """The mark last: by it what cannot be removed now is found by a later run."""
    with contextlib.suppress(OSError):
        for path in work.iterdir():
            if path.name != MARK:
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        durable.sync(work)
        shutil.rmtree(work)


def _begin(place: Path) -> str:
    return f".{place.name[:100]}."
