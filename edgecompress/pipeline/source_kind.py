"""The kind of model of a source, and the call that loads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import registry
from edgecompress.core.catalog import check_file, is_factory
from edgecompress.core.errors import InputError
from edgecompress.core.settings import Source

TORCH = ("module", "program")
LOAD = "stages.trace:load"  # what loads a torch net
WEIGHTS = (".pth", ".pt", ".ckpt", ".bin", ".safetensors")  # files that are often taken for a model


@dataclass(frozen=True)
class SourceKind:
    """The kind of a source. `call` loads it; `runs_code`: loading it runs its author's code."""

    kind: str
    call: str
    runs_code: bool

    @property
    def torch(self) -> bool:
        """Whether it is a torch net, which is loaded with samples."""
        return self.kind in TORCH

    @property
    def runtime(self) -> str:
        """The runtime that reads it, where it is no torch net."""
        return "" if self.torch else self.call.split(":")[0].removeprefix("runtimes.")


def of(source: Source) -> SourceKind:
    """The kind of a source; raises InputError for a model that no runtime loads."""
    if is_factory(source.model):
        return SourceKind("module", LOAD, True)
    path = Path(source.model)
    suffixes = {".pt2": SourceKind("program", LOAD, True)}
    offered = set(suffixes)
    for runtime in registry.runtimes():
        read = SourceKind(runtime.format, f"runtimes.{runtime.name}:read", runtime.runs_code)
        if runtime.suffix:
            suffixes[runtime.suffix] = read
            offered |= set() if runtime.for_tests else {runtime.suffix}
        if runtime.folder and _holds(path, runtime.folder):
            return read
    if path.suffix in WEIGHTS:
        raise InputError(
            f"{source.model}: has the weights of a net, not the net; give a factory pkg.mod:fn that makes the net and "
            "loads them, or export it to .pt2 or .onnx"
        )
    if path.suffix not in suffixes:
        known = ", ".join(sorted(offered))
        raise InputError(
            f"{source.model}: a model must be a factory pkg.mod:fn, a SavedModel, or a file ending in {known}"
        )
    check_file(path, "model file")
    return suffixes[path.suffix]


def _holds(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except OSError:  # a name that is too long
        return False
