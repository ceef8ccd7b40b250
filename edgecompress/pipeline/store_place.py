"""Whose a store is: its results are believed, so one that came with somebody's folder is used only where you name it.

A store is known by a mark in it, and by what your own folder of state tells of that mark: a name made from its bytes,
and which folder it lies in. Whoever sends you a store cannot write there. Where you can have no such folder (often in a
container), a file in the store tells which inode the mark has and when that last changed: no archive, repository or
copy brings those along.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from edgecompress.core import atomic_file, home
from edgecompress.core.errors import InputError

DEFAULT = Path(".edgecompress")  # in the working folder
FOLDERS = ("store", "observed", "last", "kept", "checked", "tmp", "locks", "logs", "given", "searches")
MARK = "mark"
HERE = "here"  # tells of the mark what no copy of it has
PRIVATE = 0o700
LONGEST = 256  # bytes of a mark, or of what is told of it


def root(named: str | os.PathLike[str] | None) -> Path:
    """The folder of a store: the one that was named, or DEFAULT. Raises InputError where you did not make DEFAULT."""
    place = Path(named or DEFAULT).resolve()
    if named is None and _names(place) - {MARK} and not _known(place):
        raise InputError(
            f"{DEFAULT}: a store that you did not make here, and what it holds would be believed; "
            f"trust it with --store {DEFAULT}, or choose another place with --store"
        )
    return place


def check(place: Path) -> None:
    """Raises InputError for a folder that is no store and not empty, or whose own folders are links; OSError."""
    names = _names(place)
    for path in (place / name for name in FOLDERS if name in names):
        if path.is_symlink() or not path.is_dir():
            raise InputError(f"{path}: is not a folder, as that of a store must be; choose another place with --store")
    made = MARK in names or names.issuperset(FOLDERS[:-2])  # the latter by a version that left no mark
    if not made and any(name not in FOLDERS or _names(place / name) for name in names):
        raise InputError(f"{place}: is not empty and not a store of edgecompress; choose another place with --store")


def claim(place: Path) -> None:
    """Makes it a store of yours; a mark that it has already stays. Raises OSError where it cannot be written."""
    if _known(place):
        return
    if not os.path.lexists(place / MARK):
        atomic_file.write(place / MARK, secrets.token_hex(16).encode())
    if _can_register():
        atomic_file.write(_entry(_read(place / MARK)), _told(place))
    else:
        atomic_file.write(place / HERE, _told_here(place))


def _known(place: Path) -> bool:
    """Whether you made it, or named it before, and it is still that folder."""
    with contextlib.suppress(OSError):
        if _read(_entry(_read(place / MARK))) == _told(place):
            return True
    with contextlib.suppress(OSError):
        yours = (place / MARK).lstat().st_uid == os.geteuid()
        return yours and _read(place / HERE) == _told_here(place) and not _can_register()
    return False


def _names(place: Path) -> set[str]:
    """What a folder holds, without what a killed `durable.write` left; nothing where there is none."""
    try:
        return {path.name for path in place.iterdir() if path.suffix != ".part"}
    except FileNotFoundError:
        return set()


def _read(file: Path) -> bytes:
    with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as stream:
        return stream.read(LONGEST)


def _told(place: Path) -> bytes:
    status = place.stat()
    return f"{status.st_dev} {status.st_ino}".encode()


def _told_here(place: Path) -> bytes:
    status = (place / MARK).lstat()
    return f"{status.st_ino} {status.st_ctime_ns}".encode()


def _entry(mark: bytes) -> Path:
    return _register() / hashlib.sha256(mark).hexdigest()


def _register() -> Path:
    return home.state() / "stores"


def _can_register() -> bool:
    try:
        _register().mkdir(PRIVATE, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(_register(), os.W_OK | os.X_OK)
