"""Modules as one file that any Python from 3.10 on runs: a zip of the agent, or of another, and what it needs."""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from edgecompress.errors import InputError

AGENT = "edgecompress.agent"
MAIN = f"import sys\n\nfrom {AGENT} import main\n\nsys.exit(main())\n"
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest moment that a zip can hold: the same bytes each time


def write(file: Path, modules: Sequence[str]) -> Path:
    """The agent, the plug-ins `modules` and what they import of their packages, as `file`.

    Raises InputError for a module that is not there.
    """
    return pack(file, [AGENT, *modules], MAIN, {})


def pack(file: Path, modules: Sequence[str], main: str, data: Mapping[str, bytes]) -> Path:
    """The modules and what they import of their packages as `file`, which runs the text `main`; `data`: files beside.

    Raises InputError for a module that is not there.
    """
    entries = {**data, "__main__.py": main.encode()}
    for name, path in closure(modules).items():
        inside = name.replace(".", "/")
        package = path.name == "__init__.py"
        # the front door of a whole package would open rooms that were not carried along
        text = b"" if package and "." not in name else path.read_bytes()
        entries[f"{inside}/__init__.py" if package else f"{inside}.py"] = text
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry in sorted(entries):
            archive.writestr(zipfile.ZipInfo(entry, EPOCH), entries[entry], zipfile.ZIP_DEFLATED)
    return file


def closure(modules: Sequence[str]) -> dict[str, Path]:
    """The modules, the packages around them, and what they import of those, wherever in a file; with their sources."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = _source(name)
        parent = name.rpartition(".")[0]
        waiting += [parent] if parent else []
        if parent:
            waiting += _imports(name, found[name])
    return found


def _source(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise InputError(f"{name}: no Python source of this module; an agent elsewhere cannot be given it")
    return Path(spec.origin)


def _imports(module: str, source: Path) -> Iterator[str]:
    """The modules of its own top package that a module imports; not those that only a type checker sees."""
    package = module if source.name == "__init__.py" else module.rpartition(".")[0]
    for node in _walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            whole = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [whole, *(f"{whole}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (n for n in names if n.split(".")[0] == module.split(".")[0] and "." in n and _is_module(n))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        yield child
        yield from _walk(child)


def _is_module(name: str) -> bool:
    """Whether this names a module, and not something inside one."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent is no package
        return False
