"""Reads a report that a deploy of any version wrote, or somebody else: its parts are as the schema says."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.json import read_json
from edgecompress.core.quantities import QUANTITIES
from edgecompress.reporting import schema, sessions

ROUNDED = 1e-3  # that a number may differ by for being rounded
LARGEST = 128 << 20  # bytes: each label and name of a net is in it


def report(folder: Path) -> dict[str, Any]:
    """The report.json that a deploy wrote into `folder` (or the file itself).

    Raises InputError where there is none, or another; StageFailed when the disk fails.
    """
    file, document = _read(folder)
    if fault := schema.fault(document, schema.of_any_version()) or _upside_down(document) or _contradicts(document):
        raise InputError(f"{file}: damaged: {fault[:200]}; deploy again")
    return document


def _upside_down(document: Mapping[str, Any]) -> str:
    """The first interval that ends below where it begins, or ""."""
    for variant in document.get("variants", ()):
        numbers = variant.get("numbers", {})
        for name in QUANTITIES.keys() & numbers:
            low, high = numbers[name].get("low"), numbers[name].get("high")
            if low is not None and high is not None and low > high:
                return f"variant {variant.get('name')}: {name} is from {low} to {high}"
    return ""


def _contradicts(document: Mapping[str, Any]) -> str:
    """The first number that is beyond those of all its sessions, or ""."""
    for variant in document.get("variants", ()):
        for name, quantity in QUANTITIES.items():
            told = variant.get("numbers", {}).get(name, {}).get("value")
            each = sessions.values(variant.get("sessions") or (), quantity.session).values() if quantity.session else ()
            if told is not None and each and not (1 - ROUNDED) * min(each) <= told <= (1 + ROUNDED) * max(each):
                where = f"variant {variant.get('name')}: {name}"
                return f"{where} is {told:g}, its sessions have {min(each):g} to {max(each):g}"
    return ""


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
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise InputError(f"{where}: not as this version of edgecompress writes it ({error!r}); deploy again") from error


def _read(folder: Path) -> tuple[Path, dict[str, Any]]:
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
