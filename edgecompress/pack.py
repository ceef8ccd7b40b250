"""Wraps what a deploy shipped for an app, by the packager its target names."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from edgecompress import api, envs, registry
from edgecompress.errors import InputError


def package(folder: Path, packager: str | None = None, out: Path | None = None) -> Path:
    """The package made of `folder`, in `out` (None: beside the folder).

    `packager` None is the one that the target of its report names. Raises InputError for a folder that no deploy wrote,
    bytes that are not those that were shipped, and an unknown packager.
    """
    report = api.shipped(folder)[2]
    if not report:
        raise InputError(f"{folder}: no report.json in it; give the folder that a deploy wrote")
    name = packager or str(report["target"]["package"])
    module = registry.load("packages", name)
    envs.require(module, f"packager '{name}'")
    place = (out or folder.resolve().parent).resolve()
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix=".part-") as part:
        made: Path = module.pack(folder.resolve(), Path(part))
        return _move(made, place / made.name)


def _move(made: Path, final: Path) -> Path:
    """Into place with one rename; a folder of the same name goes first."""
    if final.is_dir():
        shutil.rmtree(final)
    os.replace(made, final)
    return final
