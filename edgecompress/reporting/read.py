"""Reads a report that a deploy wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgecompress.core.errors import InputError


def report(folder: Path) -> dict[str, Any]:
    """The report.json that a deploy wrote into `folder` (or the file itself); raises InputError where there is none."""
    file = folder if folder.suffix == ".json" else folder / "report.json"
    if file != folder and folder.is_file():
        raise InputError(f"{folder}: is neither a report.json nor a folder; give the folder that a deploy wrote")
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        what = "no report.json here" if folder.is_dir() else "no such file or folder"
        raise InputError(f"{folder}: {what}; give the folder that a deploy wrote") from error
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{file}: damaged: {error}; deploy again") from error
    if not isinstance(document, dict) or not str(document.get("schema", "")).startswith("edgecompress/stages/report/"):
        raise InputError(f"{file}: not a report of edgecompress; give the folder that a deploy wrote")
    return document
