"""The modules that some modules import, of their own packages and of this one: what a bundle for a device holds."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgecompress.core.errors import InputError

OWN = "edgecompress"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # where a statement holds statements


def sources(modules: Sequence[str]) -> dict[str, Path]:
    """The modules, the packages around them, and what they import of those, wherever in a file; with their sources.

    Raises InputError for a module that is not there.
    """
    files: dict[str, Path] = {}
    waiting: list[tuple[str, Path]] = []
    for name in modules:
        if not (file := _file(name)):
            why = "no Python source was found for this module, so its dependencies cannot be determined"
            raise InputError(f"{name}: {why}")
        waiting.append((name, file))
    while waiting:
        name, file = waiting.pop()
        if name not in files:
            files[name] = file
            if "." in name:  # the front door of a whole package leads to rooms that nobody asked for
                # what it imports of its top package and of ours, not all of it a module, and the package around it
                package = name if file.name == "__init__.py" else name.rpartition(".")[0]
                tops = {name.split(".")[0], OWN}
                imports = {n for n in _imports(ast.parse(file.read_bytes()), package) if n.split(".")[0] in tops}
                needed = sorted(imports - tops | {name.rpartition(".")[0]})
                waiting += [(each, found) for each in needed if (found := _file(each))]
    return files


def _file(name: str) -> Path | None:
    """The source of a module, or None. Nothing but its top package's place is asked of Python: nothing is imported."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not rest:
        return Path(spec.origin) if spec.origin and spec.origin.endswith(".py") else None
    places = [Path(folder, *rest) for folder in spec.submodule_search_locations or ()]
    files = [file for place in places for file in (place / "__init__.py", place.parent / f"{place.name}.py")]
    return next((file for file in files if file.is_file()), None)


def _imports(tree: ast.Module, package: str) -> Iterator[str]:
    """What import statements name: modules, and what may be one or something inside one."""
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            whole = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (whole, *(f"{whole}.{alias.name}" for alias in node.names))


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, but for those that only a type checker sees."""
    word = getattr(node.test, "attr", getattr(node.test, "id", "")) if isinstance(node, ast.If) else ""
    for block in BLOCKS[word == "TYPE_CHECKING" :]:
        for child in getattr(node, block, ()):
            yield child
            yield from _statements(child)
