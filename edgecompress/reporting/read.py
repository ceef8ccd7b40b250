"""Reads a report that a deploy of any version wrote, or somebody else: its parts are as the model says."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, StageFailed, brief
from edgecompress.core.json import Json, read_json

if TYPE_CHECKING:
    from edgecompress.reporting.model import Report

LARGEST = 128 << 20  # bytes: each label and name of a net is in it


def document(folder: Path) -> dict[str, Any]:
    """The report.json that a deploy wrote into `folder` (or the file itself), as it is there.

    Raises InputError where there is none, or another; StageFailed when the disk fails.
    """
    return _checked(folder)[0]


def report(folder: Path) -> Report:
    """The same as a report; raises as `document`."""
    return _checked(folder)[1]


def _checked(folder: Path) -> tuple[dict[str, Json], Report]:
    from edgecompress.reporting import model  # a plan reads none

    file, document = _read(folder)
    try:
        return document, model.of(document)
    except ValueError as error:
        raise InputError(f"{file}: damaged: {brief(str(error))}; deploy again") from error


def is_report(folder: Path) -> bool:
    """Whether there is a report in a folder, of this version or another."""
    try:
        return bool(_read(folder))
    except InputError:
        return False


@contextlib.contextmanager
def rendering(where: object) -> Iterator[None]:
    """Raises InputError where what reads a report misses a part, or finds another there: the tables of a user's own
    (source, device, target) have no schema."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError, AssertionError) as error:
        raise InputError(f"{where}: not as this version of edgecompress writes it ({error!r}); deploy again") from error


def _read(folder: Path) -> tuple[Path, dict[str, Json]]:
    file = folder if folder.suffix == ".json" else folder / "report.json"
    if file != folder and folder.is_file():
        raise InputError(f"{folder}: is a file, and no report.json; give the folder that a deploy wrote")
    try:
        document = read_json(file, LARGEST)
    except (FileNotFoundError, NotADirectoryError) as error:
        what = "no report.json here" if folder.is_dir() else "no such file or folder"
        raise InputError(f"{folder}: {what}; give the folder that a deploy wrote") from error
    except (PermissionError, ValueError) as error:
        raise InputError(f"{file}: damaged: {error}; deploy again") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
        raise StageFailed(f"{file}: cannot be read: {error.strerror}; check that disk") from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("edgecompress/stages/report/"):
        raise InputError(f"{file}: not a report of edgecompress; give the folder that a deploy wrote")
    return file, document
