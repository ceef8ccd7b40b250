"""The files that a module depends on: modules that it imports or names, and data files beside it."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgecompress.core.errors import InputError

OWN = "edgecompress"
PLUGINS = f"{OWN}.plugins"
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")  # where a statement holds statements
LOADERS = {"import_module", "__import__", "iter_modules", "walk_packages"}  # these take a name that is computed
HERE = {"__file__", "__name__", "__package__", "__path__"}
READERS = ("__file__", "__path__", "__package__", "get_data", "resources")  # with one of these a file beside is read
REFERENCE = re.compile(r"""["'](\w+(?:\.\w+)+)(?::\w+)?["']""")  # "edgecompress.device.agent", "stages.verify:run"
PLUGIN = re.compile(r"""\bload\(\s*["'](\w+)["'],\s*["'](\w+)["']\s*\)""")  # registry.load("transports", "host")
FILE = re.compile(r"""["'](\w[\w./-]*)["']""")


Places = Sequence[tuple[str, Path]]  # modules, each with its source


@dataclass(frozen=True)
class Needs:
    """The dependencies of one source file."""

    around: Places  # the package that it is in
    imports: Places
    named: Places  # modules that it names in strings, or may load by a name that it computes
    files: Sequence[Path]  # data beside it


NOTHING = Needs((), (), (), ())


def imported(modules: Sequence[str]) -> dict[str, Path]:
    """The modules, the packages around them, and what they import of those, wherever in a file; with their sources.

    Raises InputError for a module that is not there.
    """
    files: dict[str, Path] = {}
    waiting = [(name, _source(name)) for name in modules]
    while waiting:
        name, file = waiting.pop()
        if name not in files:
            files[name] = file
            # the front door of a whole package leads to rooms that nobody asked for
            needs = _needs(name, file) if "." in name else NOTHING
            waiting += [*needs.around, *needs.imports]
    return files


def sources(module: str, without: Collection[str]) -> dict[str, Path]:
    """All files that can change what a module does, except the modules in `without` and what only those need.

    The modules that it imports or names, the packages around them, and the data that they read beside them.
    Raises InputError for a module that is not there.
    """
    files: dict[str, Path] = {}
    waiting = [(module, _source(module))]
    while waiting:
        name, file = waiting.pop()
        if name not in files and name not in without:
            files[name] = file
            needs = _needs(name, file)
            files |= {f"{name}/{path.relative_to(file.parent)}": path for path in needs.files}
            waiting += [*needs.around, *needs.imports, *needs.named]
    return files


def _source(name: str) -> Path:
    if file := _file(name):
        return file
    raise InputError(f"{name}: no Python source was found for this module, so its dependencies cannot be determined")


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


def _places(names: set[str]) -> Places:
    """Those of some names that are modules; a folder without a source is none, and holds no code."""
    return [(name, file) for name in sorted(names) if (file := _file(name))]


def _needs(name: str, file: Path) -> Needs:
    return _needs_of_content(name, file, file.read_bytes())


@cache
def _needs_of_content(name: str, file: Path, content: bytes) -> Needs:
    """What a source file needs: read once for each content that it has in the life of this process."""
    text, tree = content.decode("utf-8"), ast.parse(content)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    tops = {name.split(".")[0], OWN}
    imports = {n for n in _imports(tree, package) if n.split(".")[0] in tops}
    named = {n for n in _references(text) if n.split(".")[0] in tops} | set(_loaded(tree, package, text))
    named |= {f"{n}.__main__" for n in named - tops}  # a package is named to be run, too
    around = {name.rpartition(".")[0]} - {""}
    return Needs(_places(around), _places(imports - tops), _places(named - tops), list(_beside(file.parent, text)))


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
    for block in BLOCKS[_types_only(node) :]:
        for child in getattr(node, block, ()):
            yield child
            yield from _statements(child)


def _types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _name(node.test) == "TYPE_CHECKING"


def _references(text: str) -> Iterator[str]:
    """The modules that strings may name; those of stages and plug-ins stand there without our name."""
    for name in REFERENCE.findall(text):
        yield from (name, f"{OWN}.{name}", f"{PLUGINS}.{name}")
    yield from (f"{PLUGINS}.{kind}.{name}" for kind, name in PLUGIN.findall(text))


def _loaded(tree: ast.Module, package: str, text: str) -> Iterator[str]:
    """The modules that may be imported by a name that is computed: all of the package that it begins with.

    Not those of this whole package: a stage says which plug-ins it loads.
    """
    if any(loader in text for loader in LOADERS):
        begun = {_begun(node, package) for node in ast.walk(tree) if isinstance(node, ast.Call) and _loads(node)}
        for name in begun - {"", OWN}:
            yield from _inside(name)


def _loads(call: ast.Call) -> bool:
    return _name(call.func) in LOADERS


def _name(node: ast.AST) -> str:
    """The last word of a name: `iter_modules` of `pkgutil.iter_modules`."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _begun(call: ast.Call, package: str) -> str:
    """The package that a computed name begins with, or ""."""
    parts = [node for argument in call.args for node in ast.walk(argument)]
    texts = [str(node.value) for node in parts if isinstance(node, ast.Constant)]
    if any(_name(node) in HERE for node in parts) or any(text.startswith(".") for text in texts):
        return package
    return next((t.rpartition(".")[0] for t in texts if len(parts) > 1 and "." in t), "")


def _inside(package: str) -> Iterator[str]:
    """Every module below a package."""
    file = _file(package)
    if file and file.name == "__init__.py":
        for path in file.parent.rglob("*.py"):
            parts = path.relative_to(file.parent).with_suffix("").parts
            yield ".".join((package, *(p for p in parts if p != "__init__")))


def _beside(folder: Path, text: str) -> Iterator[Path]:
    """The files below a folder that the strings of a text name, part by part; of a named folder without code, all."""
    if any(reader in text for reader in READERS):
        for path in {folder / name for name in FILE.findall(text)}:
            if path.is_dir() and not (path / "__init__.py").exists():
                yield from (p for p in path.rglob("*") if p.is_file())
            elif path.is_file() and path.suffix != ".py":
                yield path
