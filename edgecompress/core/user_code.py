"""The user's own functions, named `pkg.mod:fn`: imported from the source's folder, with errors in one line."""

from __future__ import annotations

import ast
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress.core import package_files, user_folders
from edgecompress.core.errors import InputError, brief, did_you_mean


def check(reference: str, folders: Iterable[str]) -> None:
    """Raises InputError, as `function` does, where the module of `pkg.mod:fn`, or in its text the name, is not there.

    Nothing is imported but what Python asks of an installed package; what only an import can tell passes.
    """
    where, _, name = reference.partition(":")
    if where.endswith(".py"):
        raise InputError(f"{reference}: write the module's name without .py, {where.removesuffix('.py')}:{name}")
    file = _text(where, reference, [*sys.path, *folders])
    if not file:
        return
    try:
        known = _bound(ast.parse(Path(file).read_bytes()))
    except (OSError, SyntaxError, ValueError) as error:
        line, says = (f":{error.lineno}", error.msg) if isinstance(error, SyntaxError) else ("", str(error))
        raise InputError(f"{reference}: {file}{line}: {says}; correct it") from error
    if known and name not in known:
        raise InputError(f"{reference}: {where} has no function '{name}'{did_you_mean(name, known)}")


def _text(where: str, reference: str, places: Sequence[str]) -> str:
    """The file with a module's text, or "" where there is none. Raises InputError where there is no such module."""
    importlib.invalidate_caches()  # a notebook may have written it just now
    top, *below = where.split(".")
    spec, known = PathFinder.find_spec(top, places), top
    if spec is None and top not in sys.modules and importlib.util.find_spec(top) is None:
        raise InputError(_missing(reference, top))
    for name in below:
        inside, known = spec and spec.submodule_search_locations, f"{known}.{name}"
        spec = PathFinder.find_spec(known, inside) if inside else None
        if spec is None and inside and all(map(package_files.is_users, inside)):
            raise InputError(_missing(reference, known))
    origin = spec.origin if spec else None
    return origin if origin and origin.endswith(".py") else ""


def _bound(tree: ast.Module) -> set[str]:
    """The names that a module's text binds anywhere; nothing where running it may bind others."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return set() if names & {"*", "__getattr__", "globals", "exec", "setattr"} else names


def _missing(reference: str, module: str) -> str:
    where = f"no module '{module}' in {os.getcwd()} or installed"
    return f"{reference}: {where}; run the command in the folder that contains it"


def function(reference: str) -> Callable[..., Any]:
    """The function that `pkg.mod:fn` names; raises InputError saying what is not there, or what its import raised."""
    where, _, name = reference.partition(":")
    if not where or not name:
        raise InputError(f"'{reference}' is neither a file nor pkg.mod:function; give one of them")
    user_folders.append([os.getcwd()])
    module = _module(where, reference)
    attribute = getattr(module, name, None)
    if not callable(attribute):
        known = [n for n in vars(module) if not n.startswith("_") and callable(getattr(module, n))]
        raise InputError(f"{reference}: {where} has no function '{name}'{did_you_mean(name, known)}")
    return attribute  # type: ignore[no-any-return]


def _module(where: str, reference: str) -> ModuleType:
    before = set(sys.modules)
    _check_not_hidden(where.partition(".")[0], f"{reference}:")
    try:
        module = importlib.import_module(where)
    except ModuleNotFoundError as error:
        missing = error.name or where
        if (where + ".").startswith(missing + "."):
            raise InputError(_missing(reference, missing)) from error
        raise InputError(f"{reference}: {error_line(error)}; install '{missing}', or add its folder") from error
    except Exception as error:
        raise InputError(
            f"{reference}: importing {where} raised {error_line(error)}; run it in Python to debug it"
        ) from error
    # the user's own source files of these modules; a name without a folder is made up (torch.classes has one)
    files = (getattr(sys.modules.get(name), "__file__", None) for name in set(sys.modules) - before)
    for file in sorted(f for f in files if f and f.endswith(".py") and os.path.isabs(f) and package_files.is_users(f)):
        for name in _imports(file):
            _check_not_hidden(name, f"{file} imports {name}, but")
    return module


def _check_not_hidden(name: str, where: str) -> None:
    """Raises InputError for a module of the user's that is not the one found: their folders stand behind all others."""
    own = PathFinder.find_spec(name, [folder for folder in sys.path if package_files.is_users(folder)])
    if own is None or own.origin is None:  # none, or a folder of no package
        return
    spec = importlib.util.find_spec(name)
    other = str(spec.origin) if spec else ""  # "built-in", "frozen", or a file
    if not package_files.is_ours(other) and os.path.realpath(other) != os.path.realpath(own.origin):
        raise InputError(f"{where} {own.origin} is hidden by the installed {other}; rename it")


def _imports(file: str) -> set[str]:
    """What a source file imports by absolute names, inside functions too: the first part of each."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def error_line(error: BaseException) -> str:
    """`ValueError: its first line (nets.py:12)`: the line is the innermost one of the user's own code."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    frames = [f for f in traceback.extract_tb(error.__traceback__) if package_files.is_users(f.filename)]
    where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    said = " ".join(lines[: 2 if lines[:1] and lines[0].endswith(":") else 1])  # a heading says nothing alone
    return f"{type(error).__name__}: {brief(said) or 'no message'}{where}"
