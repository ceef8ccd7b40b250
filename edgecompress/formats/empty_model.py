"""The smallest model of a format, x [1] -> y [1] of float32: what a call of a session costs without a net."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgecompress.core.model import Artifact, TensorSpec

SPECS = ((TensorSpec("x", (1,)),), (TensorSpec("y", (1,)),))


def written(folder: Path, kind: str, files: Mapping[str, bytes]) -> Artifact:
    """An artifact of these files."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return Artifact(folder, kind, *SPECS).write()
