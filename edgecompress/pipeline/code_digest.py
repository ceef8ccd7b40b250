"""The digest of the code behind a stage: the package as a whole, and the own files of techniques and runtimes."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType

from edgecompress.core.extras import COMMANDS
from edgecompress.core.package_files import PACKAGE

# Each changes its own stages alone.
PLUGINS = (PACKAGE / "engines", PACKAGE / "techniques", *PACKAGE.glob("extras/*/techniques"))
FRONT = ("cli", "commands", "demo", "extras/apps", *(f"extras/{name}/commands" for name in COMMANDS))
# No code of a stage is there, nor beside the commands of the search.
WITHOUT = (*PLUGINS, *(PACKAGE / name for name in FRONT), *PACKAGE.glob("extras/search/*.*"))
ENGINE = re.compile(rb"edgecompress\.engines\.(\w+)")


def of_package() -> str:
    """The digest of all files of this package that can change the result of any stage."""
    return _digest(PACKAGE, _below(PACKAGE, WITHOUT))


def of_plugin(module: ModuleType) -> str:
    """The digest of a plug-in's file and all helpers that it may import, or of another distribution's whole package.

    The helpers are those beside it, of its engine, of the engines that this one builds on, and of techniques. Empty for
    a module that `of_package` covers.
    """
    file = _file(module)
    if not file.is_relative_to(PACKAGE):
        # the outermost package around a module that has a file: a namespace belongs to many distributions
        parts = module.__name__.split(".")
        around = (sys.modules[".".join(parts[:end])] for end in range(1, len(parts) + 1))
        top = _file(next(each for each in around if getattr(each, "__file__", None)))
        package = top.name == "__init__.py"
        return _digest(top.parent, _below(top.parent) if package else [top])
    if not any(file.is_relative_to(place) for place in PLUGINS):
        return ""
    engine = file.relative_to(PACKAGE).parts[1] if file.is_relative_to(PACKAGE / "engines") else ""
    helpers = [PACKAGE / "techniques", file.parent, *(PACKAGE / "engines" / name for name in _engines(engine))]
    return _digest(PACKAGE, {file, *(each for folder in helpers for each in _below(folder) if _is_helper(each))})


def _file(module: ModuleType) -> Path:
    return Path(str(module.__file__)).resolve()


def _engines(name: str) -> set[str]:
    """An engine and those that its files name: which may build on others."""
    found, waiting = set[str](), {name} - {""}
    while waiting:
        found |= waiting
        files = [file for each in waiting for file in (PACKAGE / "engines" / each).rglob("*.py")]
        waiting = {word.decode() for file in files for word in ENGINE.findall(file.read_bytes())} - found
    return found


def _is_helper(file: Path) -> bool:
    """Whether a file of engines or techniques is no plug-in itself: a plug-in is imported by none."""
    public = file.parent.name in ("runtimes", "techniques") and file.suffix == ".py"
    return not public or file.name.startswith("_")


def _below(folder: Path, without: Iterable[Path] = ()) -> Iterator[Path]:
    """The files below a folder, without bytecode and what is hidden."""
    for path in folder.iterdir():
        if path in without or path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir():
            yield from _below(path, without)
        elif path.is_file():
            yield path


def _digest(folder: Path, files: Iterable[Path]) -> str:
    told = (f"{file.relative_to(folder).as_posix()} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in files)
    return hashlib.sha256("\n".join(sorted(told)).encode(errors="surrogateescape")).hexdigest()[:16]
