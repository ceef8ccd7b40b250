"""A file Maven repository of one artifact: the .aar, the .pom, what versions there are, and the sums of all of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from edgecompress.extras.apps.render import render

SUMS = ("sha1", "sha256")
METADATA = "maven-metadata.xml"


def place(group: str, artifact: str, version: str) -> Path:
    """Where a repository keeps a version."""
    return Path(*group.split("."), artifact, version)


def write(root: Path, aar: bytes, values: Mapping[str, object]) -> None:
    """Fills the empty repository `root`."""
    group, artifact, version = (str(values[key]) for key in ("group", "artifact", "version"))
    where = place(group, artifact, version)
    stem = f"{artifact}-{version}"
    pom, metadata = f"{where.as_posix()}/{stem}.pom", f"{where.parent.as_posix()}/{METADATA}"
    render("android", root, values, {pom: "maven/pom.xml.j2", metadata: "maven/maven-metadata.xml.j2"})
    (root / where / f"{stem}.aar").write_bytes(aar)
    for file in [p for p in root.rglob("*") if p.is_file()]:
        for name in SUMS:
            file.with_name(f"{file.name}.{name}").write_text(hashlib.new(name, file.read_bytes()).hexdigest())


def updated(created: str) -> str:
    """A report's date as Maven writes it: 20261122030040; the earliest, where there is none."""
    digits = re.sub(r"[^0-9]", "", created)[:14]
    return digits if len(digits) == 14 else "19800101000000"
