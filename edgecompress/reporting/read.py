"""Reads a report that a deploy wrote."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, StageFailed

LARGEST = 64 << 20  # bytes of a report.json


def report(folder: Path) -> dict[str, Any]:
    """The report.json that a deploy wrote into `folder` (or the file itself).

    Raises InputError where there is none, StageFailed when the disk fails.
    """
    file = folder if folder.suffix == ".json" else folder / "report.json"
    if file != folder and folder.is_file():
        raise InputError(f"{folder}: is neither a report.json nor a folder; give the folder that a deploy wrote")
    try:
        document = json.loads(plain_file.read(file, LARGEST))
    except FileNotFoundError as error:
        what = "no report.json here" if folder.is_dir() else "no such file or folder"
        raise InputError(f"{folder}: {what}; give the folder that a deploy wrote") from error
    except (PermissionError, NotADirectoryError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: damaged: {error}; deploy again") from error
    except OSError as error:
        raise StageFailed(f"{file}: cannot be read: {error.strerror}; check that disk") from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("edgecompress/stages/report/"):
        raise InputError(f"{file}: not a report of edgecompress; give the folder that a deploy wrote")
    return document


@contextlib.contextmanager
def rendering(folder: Path) -> Iterator[None]:
    """What a stranger's report makes a renderer raise is an InputError: its parts are not those that a deploy writes."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        what = f"{type(error).__name__}: {error}"
        raise InputError(f"{folder}: its report.json is not what a deploy writes ({what}); deploy again") from error
