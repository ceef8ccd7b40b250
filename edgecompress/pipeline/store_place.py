"""Whose a store is: its results are believed, so one that came with somebody's folder is used only where you name it.

A store is known by a mark in it, and by what your own folder of state tells of that mark: a name made from its bytes,
and which folder it lies in. Whoever sends you a store cannot write there.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from pathlib import Path

from edgecompress.core import durable
from edgecompress.core.errors import InputError

DEFAULT = Path(".edgecompress")  # in the working folder
FOLDERS = ("store", "observed", "last", "kept", "checked", "pins", "quarantine", "tmp", "locks", "logs")
MARK = "mark"
LONGEST = 256  # bytes of a mark, or of what is told of it


def root(named: Path | None) -> Path:
    """The folder of a store: the one that was named, or DEFAULT. Raises InputError where you did not make DEFAULT."""
    place = (named or DEFAULT).resolve()
    if named is None and _names(place) and not _known(place):
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
    made = MARK in names or names.issuperset(FOLDERS)  # the latter by a version that left no mark
    if not made and any(name not in FOLDERS or _names(place / name) for name in names):
        raise InputError(f"{place}: is not empty and not a store of edgecompress; choose another place with --store")


def claim(place: Path) -> None:
    """Makes it a store of yours; a mark that it has already stays. Raises OSError where it cannot be written."""
    if _known(place):
        return
    marked = os.path.lexists(place / MARK)
    mark = _read(place / MARK) if marked else secrets.token_hex(16).encode()
    with contextlib.suppress(OSError, RuntimeError):  # without a home it can be used where it is named
        durable.make_folder(_register(), 0o700)
        durable.write(_entry(mark), _told(place))
    if not marked:
        durable.write(place / MARK, mark)  # afterwards: a store with a mark is one that is known


def _known(place: Path) -> bool:
    """Whether you made it, or named it before, and it is still that folder."""
    try:
        return _read(_entry(_read(place / MARK))) == _told(place)
    except (OSError, RuntimeError):
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


def _entry(mark: bytes) -> Path:
    return _register() / hashlib.sha256(mark).hexdigest()


def _register() -> Path:
    """Raises RuntimeError where this user has no home."""
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "edgecompress" / "stores"
