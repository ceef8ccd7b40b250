"""The digest of the code behind a stage, and a memory of it that holds while no file of the code's packages changes."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from edgecompress.core import closure
from edgecompress.core.model import sha256_of
from edgecompress.core.place import PACKAGE

CORE = (  # covered by STAGE_ABI
    "edgecompress",
    "edgecompress.core",
    *(f"edgecompress.core.{name}" for name in ("child_process", "closure", "config", "errors", "model", "place")),
    *(f"edgecompress.core.{name}" for name in ("protocols", "registry", "sandbox", "settings", "version")),
    *(f"edgecompress.device.{name}" for name in ("bundle", "machine")),
    *(f"edgecompress.pipeline.{name}" for name in ("bytecode", "confinement", "worker")),
    *(f"edgecompress.pipeline.{name}" for name in ("worker_process", "worker_protocol")),
)


def code_digest(module: ModuleType) -> str:
    """The sha256 over all files that can change what a module does, but for what STAGE_ABI covers."""
    files = closure.sources(module.__name__, CORE)
    told = json.dumps({name: sha256_of(path) for name, path in files.items()}, sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:16]


@dataclass
class CodeDigests:
    """The digests of one run; `file` remembers them for the next: {state of the packages: {module: digest}}."""

    file: Path
    _ours: str = ""
    _known: dict[str, dict[str, str]] = field(default_factory=dict)

    def of(self, module: ModuleType) -> str:
        """`code_digest`, computed anew where a file of the module's package, or of this one, is not as it was."""
        name = module.__name__
        self._ours = self._ours or _state(PACKAGE)
        state = (
            self._ours if name.startswith(f"{PACKAGE.name}.") else f"{self._ours} {_state_of(name.partition('.')[0])}"
        )
        known = self._remembered().setdefault(state, {})
        if name not in known:
            known[name] = code_digest(module)
            with contextlib.suppress(OSError):  # it is computed again then
                self.file.write_text(json.dumps({state: known}), encoding="ascii")
        return known[name]

    def _remembered(self) -> dict[str, dict[str, str]]:
        """What the file says; nothing where it is not there, or damaged."""
        if not self._known:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                told = json.loads(self.file.read_text(encoding="ascii"))
                digests = (digest for each in told.values() for digest in each.values())
                if all(isinstance(digest, str) and len(digest) == 16 for digest in digests):
                    self._known = told
        return self._known


def _state_of(top: str) -> str:
    """The state of another top-level module or package."""
    spec = importlib.util.find_spec(top)
    places = [*(spec.submodule_search_locations or ())] if spec else []
    return " ".join(map(_state, map(Path, places or ([spec.origin] if spec and spec.origin else []))))


def _state(place: Path) -> str:
    """The sha256 over the names, sizes and times of change of all files in a package, or of one file."""
    told = sorted(_marks(str(place))) if place.is_dir() else [(str(place), *_mark(place.stat()))]
    return hashlib.sha256(repr(told).encode(errors="surrogateescape")).hexdigest()


def _marks(folder: str) -> Iterator[tuple[str, int, int, int]]:
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _marks(entry.path)
        else:
            yield entry.path, *_mark(entry.stat())


def _mark(stat: os.stat_result) -> tuple[int, int, int]:
    """The time of change is that of the inode: no program sets it."""
    return stat.st_ino, stat.st_size, stat.st_ctime_ns
