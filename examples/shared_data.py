"""Finds the real datasets and weights that the examples use; they are not part of this repository."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

BESIDE = Path(__file__).resolve().parents[2] / "shared"  # ../shared, beside the repository


@functools.cache
def _manifest() -> tuple[Path, dict[str, dict[str, Any]]]:
    """The folder and what its manifest says of each file, by path."""
    given = Path(os.environ.get("EDGECOMPRESS_SHARED") or BESIDE)
    for folder in (given, given / "data"):
        if (folder / "manifest.json").is_file():
            entries = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            return folder, {entry["file"]: entry for entry in entries}
    raise FileNotFoundError(f"no manifest.json in {given} or {given / 'data'}: set EDGECOMPRESS_SHARED to the datasets")


@functools.cache
def find(name: str) -> Path:
    """The file `name` ("data/cifar10_dev.npz"), its sha256 checked against the manifest once per process."""
    folder, entries = _manifest()
    if name not in entries:
        raise FileNotFoundError(f"{folder / 'manifest.json'} has no file '{name}'")
    file = folder / name
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != entries[name]["sha256"]:
        raise ValueError(f"{file}: sha256 is {digest}, the manifest says {entries[name]['sha256']}; fetch it again")
    return file
