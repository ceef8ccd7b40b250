"""Reads what a deploy wrote: the artifact, its excerpt of test items, and its origin."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core import catalog, config, environments, registry
from edgecompress.core.errors import InputError, blamed
from edgecompress.core.json import read_json
from edgecompress.core.model import Artifact
from edgecompress.core.settings import Limits, Source
from edgecompress.pipeline import shipping
from edgecompress.pipeline.job import Keys, Name
from edgecompress.pipeline.shipping import ORIGIN

TEXTS = ("variant", "runtime", "model", "target", "data", "metric")  # of deploy.json
NAMES = ("name", "model")  # of its source

# --------------------------------------------------------------------------- an artifact that is there already


def folder_named(path: Name) -> Path:
    """The folder that a call names. Raises InputError for what names none."""
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    raise InputError(f"path: is a {type(path).__name__}; give the folder that a deploy wrote, as result.out has it")


def shipped(path: Path) -> tuple[Artifact, Artifact | None, dict[str, Any]]:
    """The artifact in a folder that a deploy wrote (or in its `artifact`), its excerpt, and its origin."""
    inner = path / "artifact" if (path / "artifact").is_dir() else path
    artifact = shipping.sound(inner)
    excerpt = inner.parent / "excerpt"
    origin = inner.parent / ORIGIN
    record = _origin_in(origin) if os.path.lexists(origin) else {}
    if record.get(shipping.SHA256, artifact.sha256) != artifact.sha256:
        raise InputError(f"{inner}: is not the artifact that shipped with {origin} (sha256 differs); deploy again")
    return artifact, shipping.sound(excerpt) if excerpt.is_dir() else None, record


def shipped_with(origin: Mapping[str, Any], keys: Keys) -> Keys:
    """The keys of a job with the data and the metric that an artifact was deployed with, where they are not given."""
    kept = Keys(data=keys.get("data") or origin.get("data"), metric=keys.get("metric") or origin.get("metric"))
    return keys | kept


def _origin_in(file: Path) -> dict[str, Any]:
    try:
        origin = read_json(file)
    except (OSError, ValueError) as error:
        raise blamed(error)(f"{file}: damaged: {error}; deploy again") from error
    record: dict[str, Any] = origin if isinstance(origin, dict) else {"source": None}
    source, limits = record.get("source", {}), record.get("limits", {})
    if not (isinstance(source, dict) and isinstance(limits, dict) and _texts(record, TEXTS) and _texts(source, NAMES)):
        raise InputError(f"{file}: damaged: its content is not what deploy writes; deploy again")
    config.build(Limits, limits, f"{file}: limits")
    return record


def _texts(table: Mapping[str, Any], keys: Sequence[str]) -> bool:
    return all(isinstance(table.get(key, ""), str) for key in keys)


def runtime_of(artifact: Artifact, shipped_for: str = "") -> str:
    """The runtime that it was shipped for, or the first that runs this kind; raises InputError when there is none."""
    for name, module in sorted(registry.every("runtimes"), key=lambda entry: entry[0] != shipped_for):
        if artifact.kind == module.FORMAT:
            environments.require(module, f"runtime '{name}'")
            return name
    raise InputError(f"{artifact.path}: no runtime runs the format '{artifact.kind}'")


def shipped_source(path: Path, origin: Mapping[str, Any]) -> catalog.FoundSource:
    """The source as the shipped folder describes it; nothing of it is loaded."""
    facts = origin.get("source") or {}
    model = str(facts.get("model") or origin.get("model") or path)
    return catalog.FoundSource(model, None, Source(model, name=str(facts.get("name") or "")))
