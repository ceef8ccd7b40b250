"""A folder to work in beside what is being made; what a killed run left is told by a lock that nobody holds."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from edgecompress.core import durable

RANDOM = "?" * 8  # what tempfile.mkdtemp adds: with any more it is the folder of another place
MARK = ".edgecompress"  # in such a folder: held by who works there, with this text inside
TEXT = "a working folder of edgecompress, which clears it\n"


@contextlib.contextmanager
def folder(place: Path) -> Iterator[Path]:
    """An empty folder on the file system of `place`, removed at the end."""
    durable.make_folder(place.parent)
    work = Path(tempfile.mkdtemp(prefix=_begin(place), dir=place.parent))
    try:
        part = work / f"{MARK}.part"
        with part.open("w", encoding="utf-8") as mark:
            mark.write(TEXT)
            mark.flush()
            fcntl.flock(mark, fcntl.LOCK_EX)
            part.rename(work / MARK)  # never seen without its lock
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def sweep(place: Path, rescue: Callable[[Path], None] = lambda work: None) -> None:
    """Removes the folders beside `place` that runs which are gone have left; `rescue` looks into each before."""
    for mark in place.parent.glob(f"{glob.escape(_begin(place))}{RANDOM}/{MARK}"):
        with contextlib.suppress(OSError, ValueError), mark.open(encoding="utf-8") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if held.read(len(TEXT) + 1) == TEXT and os.path.samestat(os.fstat(held.fileno()), mark.lstat()):
                rescue(mark.parent)
                shutil.rmtree(mark.parent, ignore_errors=True)


def _begin(place: Path) -> str:
    return f".{place.name[:100]}."
