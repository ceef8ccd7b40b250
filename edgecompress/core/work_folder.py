"""A folder to work in beside what is being made: one for each place, for one process at a time."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from edgecompress.core import atomic_file, file_lock

LOCK = "lock"  # in such a folder: held by who works there
OLD = "old"  # in it lies what was at the place, until what is new is there


@contextlib.contextmanager
def folder(place: Path, wait: bool = True) -> Iterator[Path]:
    """An empty folder on the file system of `place`, removed at the end; what a killed process left there goes.

    Raises OSError, without `wait` BlockingIOError where another process works for the same place.
    """
    atomic_file.make_folder(place.parent)
    work = _beside(place)
    with _locked(work, wait):
        _clear(work, place)
        try:
            yield work
        finally:
            with contextlib.suppress(OSError):  # the next process that works here removes it
                _clear(work, place)
                (work / LOCK).unlink()
                work.rmdir()  # if nobody waits for it


def sweep(place: Path) -> None:
    """Removes what a killed process left beside `place`."""
    with contextlib.suppress(OSError):
        if _beside(place).exists():
            with folder(place, wait=False):
                pass


def _locked(work: Path, wait: bool) -> contextlib.ExitStack:
    """Holds the lock in a folder, which is made; who held it before may have removed both meanwhile."""
    while True:
        with contextlib.suppress(FileExistsError):  # not exist_ok, which asks again: it may be gone by then
            work.mkdir()
        if work.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(work))
        with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError):
            descriptor = stack.enter_context(file_lock.held(work / LOCK, wait=wait))
            if os.path.samestat(os.fstat(descriptor), (work / LOCK).lstat()):
                return stack.pop_all()


def _clear(work: Path, place: Path) -> None:
    if (work / OLD).exists() and not place.exists():
        (work / OLD).rename(place)
    for path in work.iterdir():
        if path.name != LOCK:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _beside(place: Path) -> Path:
    return place.parent / f".{place.name[:100]}.{hashlib.sha256(os.fsencode(place.name)).hexdigest()[:8]}"
