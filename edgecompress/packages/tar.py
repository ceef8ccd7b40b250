"""A tar for Linux boards: the model with its card and golden items, byte for byte the same whenever it is packed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.packaging.contents import Check, Contents
from edgecompress.packaging.templates import render

REQUIRES: tuple[str, ...] = ("jsonschema>=4.23", "jinja2>=3.1", "cyclonedx-python-lib>=11")
EXTRA = "package"
SUFFIX = ".tar.gz"
FORMATS: tuple[str, ...] = ()  # any
PAYLOAD = "payload"


@dataclass(frozen=True)
class Options:
    """None yet."""


def build(contents: Contents, root: Path) -> None:
    """The payload, and how to use it."""
    shutil.copytree(contents.payload, root / PAYLOAD)
    render("tar", root, {"card": contents.card}, {"README.md": "README.md.j2"})


def payload(root: Path, work: Path) -> Path:
    """It lies as it is."""
    return root / PAYLOAD


def checks(root: Path, card: Mapping[str, Any], work: Path) -> Iterator[Check]:
    """None of its own yet."""
    return iter(())
