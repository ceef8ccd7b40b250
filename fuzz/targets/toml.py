"""A stranger's TOML: a target with its recipes, a device, a profile, a source."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from random import Random
from typing import Any

from edgecompress.core import catalog, config
from edgecompress.core.errors import ConfigError
from edgecompress.core.settings import Device, Profile, Source, Target
from edgecompress.pipeline import conversion
from fuzz import trees

KINDS = {"[[variant]]": "targets", "sessions": "profiles", "model": "sources"}  # what each has; else a device
CLASSES = (Target, Device, Profile, Source)
KEYS = {field.name for cls in CLASSES for field in dataclasses.fields(cls)}
WORDS = (*(key.encode() for key in sorted(KEYS)), b"[[variant]]", b"use", b'"""', b"'''", b"0x", b"inf", b"1979-05-27")


def check(data: bytes, folder: Path) -> None:
    """What is read says what it says once more as plain data; each variant has its calls, or a reason."""
    file = folder / "theirs.toml"
    file.write_bytes(data)
    kind = next((kind for word, kind in KINDS.items() if word.encode() in data), "devices")
    found: catalog.Found[Any] = READERS[kind](str(file))
    assert config.build(type(found.value), _present(dataclasses.asdict(found.value)), "again") == found.value
    if kind == "targets":
        _planned(found.value, str(file))


READERS: dict[str, Any] = {
    "targets": catalog.target,
    "devices": catalog.device,
    "profiles": catalog.profile,
    "sources": lambda name: catalog.source(name, {}),
}


def _present(value: Any) -> Any:
    """Without the keys that are left out, which TOML has no word for."""
    if isinstance(value, dict):
        return {key: _present(inner) for key, inner in value.items() if inner is not None}
    return [_present(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _planned(target: Target, where: str) -> None:
    for variant in target.variant:
        for kind in ("module", "onnx"):
            try:
                conversion.steps(target, variant, kind, where)
            except ConfigError:
                continue


def changed(data: bytes, random: Random) -> bytes:
    """The file with one line changed."""
    return trees.lines(data, random)
