"""The folder that a deploy wrote: the artifact, its excerpt of test items, and its origin."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgecompress.core import catalog, config, environments, registry
from edgecompress.core.errors import InputError, blamed, brief
from edgecompress.core.json import read_json
from edgecompress.core.model import CARD, Artifact
from edgecompress.core.settings import MOST_THREADS, Limits, Source
from edgecompress.pipeline import shipping
from edgecompress.pipeline.job_request import JobRequest, Name
from edgecompress.pipeline.shipping import ORIGIN


@dataclass(frozen=True)
class Called:
    """What reports call a source, and the reference that its author gave."""

    name: str = ""
    model: str = ""


@dataclass(frozen=True)
class Origin:
    """deploy.json: what a shipped artifact was made from, and `sha256`, its own. A file of an older version has less.

    `model`, `data` and `metric` are as a command takes them; the latter two are in the .toml where `model` is one.
    """

    variant: str = ""
    runtime: str = ""
    model: str | None = None
    target: str = "x86"
    data: str | None = None
    metric: str | None = None
    source: Called = Called()
    limits: Mapping[str, bool | int | float] = field(default_factory=dict)
    sha256: str = ""
    threads: int = 1  # that it was measured with

    def write(self, folder: Path) -> None:
        """Writes it beside the artifact."""
        told = {key: value for key, value in dataclasses.asdict(self).items() if value is not None}
        (folder / ORIGIN).write_text(json.dumps(told, indent=1), encoding="utf-8")


def folder_named(path: Name) -> Path:
    """The folder that a call names. Raises InputError for what names none."""
    if isinstance(path, (str, os.PathLike)):
        return Path(path)
    raise InputError(f"path: is a {type(path).__name__}; give the folder that a deploy wrote, as result.out has it")


def shipped(path: Path) -> tuple[Artifact, Artifact | None, Origin]:
    """The artifact in a folder that a deploy wrote (or in its `artifact`), its excerpt, and its origin."""
    inner = path / "artifact" if (path / "artifact").is_dir() else path
    if inner == path and not (path / CARD).exists() and (path / "report.json").is_file():
        raise InputError(f"{path}: nothing was shipped, see `edgecompress report {path}`; deploy again")
    artifact = shipping.sound(inner)
    excerpt = inner.parent / "excerpt"
    file = inner.parent / ORIGIN
    origin = _origin_in(file) if os.path.lexists(file) else Origin()
    if origin.sha256 not in ("", artifact.sha256):
        raise InputError(f"{inner}: is not the artifact that shipped with {file} (sha256 differs); deploy again")
    return artifact, shipping.sound(excerpt) if excerpt.is_dir() else None, origin


def shipped_with(origin: Origin, request: JobRequest) -> JobRequest:
    """The request for the model that was deployed, with its data and its metric where none are given."""
    told = (request.get("data") or origin.data, request.get("metric") or origin.metric)
    return request | JobRequest(model=origin.model, data=told[0], metric=told[1])


def _origin_in(file: Path) -> Origin:
    import msgspec

    try:
        origin = msgspec.convert(read_json(file), Origin)
    except (OSError, ValueError) as error:
        raise blamed(error)(f"{file}: damaged: {brief(str(error))}; deploy again") from error
    config.build(Limits, origin.limits, f"{file}: limits")
    if not 1 <= origin.threads <= MOST_THREADS:
        raise InputError(f"{file}: damaged: threads is {origin.threads}, not 1 to {MOST_THREADS}; deploy again")
    return origin


def runtime_of(artifact: Artifact, shipped_for: str = "") -> str:
    """The runtime that it was shipped for, or the first that runs this kind; raises InputError when there is none."""
    for name, module in sorted(registry.every("runtimes"), key=lambda entry: entry[0] != shipped_for):
        if artifact.kind == module.FORMAT:
            environments.require(module, f"runtime '{name}'")
            return name
    raise InputError(f"{artifact.path}: no runtime runs the format '{artifact.kind}'")


def shipped_source(path: Path, origin: Origin) -> catalog.FoundSource:
    """The source as the shipped folder describes it; nothing of it is loaded."""
    model = origin.source.model or origin.model or str(path)
    return catalog.FoundSource(model, None, Source(model, name=origin.source.name))
