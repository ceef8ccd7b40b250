"""Whether something can be written at a place: asked before the work whose result goes there."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path

from edgecompress.core import atomic_file
from edgecompress.core.errors import FAULTS, InputError, StageFailed


def check_file(file: Path, option: str) -> None:
    """Raises InputError where no file can be written; `option` is what the place was given with."""
    _ask(file.parent, file, option)
    if file.is_dir():
        raise InputError(f"{file}: is a folder; give a file as {option}, for example {file / 'here'}")


def put(file: Path, data: bytes, option: str) -> None:
    """Writes a file whole or not at all, and the folder that it is in. Raises InputError where it cannot."""
    try:
        atomic_file.make_folder(file.parent)
        atomic_file.write(file, data)
    except OSError as error:
        raise InputError(f"{option} {file}: cannot be written: {error.strerror}; give another file") from error


def check_folder(folder: Path, option: str) -> None:
    """Raises InputError where no folder can be made, or no file in it; `option` is what the place was given with."""
    _ask(folder, folder, option)


def _ask(folder: Path, place: Path, option: str) -> None:
    """Makes a file that has no name, in the folder or in the nearest one above it that there is."""
    try:
        place.exists()  # raises what is wrong with its name
        there = next(each for each in (folder, *folder.parents) if each.exists())
        if not there.is_dir():
            raise InputError(f"{there}: is a file, not a folder; give another {option}")
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        faults = {*FAULTS} - {errno.EROFS}  # what is read-only was the wrong place
        kind = StageFailed if error.errno in faults else InputError
        why = "its name is too long" if error.errno == errno.ENAMETOOLONG else error.strerror or str(error)
        shown = str(place) if len(str(place)) < 200 else f"{str(place)[:200]}…"
        raise kind(f"{shown}: is not writable: {why}; give another {option}") from error
