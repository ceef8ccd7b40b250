"""A file Maven repository of one artifact: the .aar, its sources and Javadoc, the .pom, the versions, and all sums."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

from edgecompress.extras.apps.render import render

SUMS = ("md5", "sha1", "sha256")  # md5: Maven Central asks for it
METADATA = "maven-metadata.xml"


def place(group: str, artifact: str, version: str) -> Path:
    """Where a repository keeps a version."""
    return Path(*group.split("."), artifact, version)


def file(values: Mapping[str, object], end: str) -> Path:
    """Where a repository keeps a file of the artifact, by the end of its name: ".aar", "-sources.jar"."""
    group, artifact, version = (str(values[key]) for key in ("group", "artifact", "version"))
    return place(group, artifact, version) / f"{artifact}-{version}{end}"


def finish(root: Path, values: Mapping[str, object]) -> None:
    """Adds pom, versions and sums to a repository that holds the artifact's files."""
    pom = file(values, ".pom")
    metadata = f"{pom.parent.parent.as_posix()}/{METADATA}"
    render("android", root, values, {pom.as_posix(): "maven/pom.xml.j2", metadata: "maven/maven-metadata.xml.j2"})
    for each in [p for p in root.rglob("*") if p.is_file()]:
        for name in SUMS:
            digest = hashlib.new(name, each.read_bytes(), usedforsecurity=False).hexdigest()
            each.with_name(f"{each.name}.{name}").write_text(digest)


def updated(created: str) -> str:
    """A report's date as Maven writes it: 20261122030040; the earliest, where there is none."""
    digits = re.sub(r"[^0-9]", "", created)[:14]
    return digits if len(digits) == 14 else "19800101000000"
