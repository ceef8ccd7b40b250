"""What a plug-in of each kind defines, as tables, from the classes in core/plugins.py."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any

from edgecompress.core import plugins

OPENED = {
    "An opened session of a runtime": plugins.OpenedSession,
    "An opened meter of a sensor": plugins.OpenedMeter,
}


def tables() -> str:
    """A table for each kind."""
    kinds = {f"A {kind.removesuffix('s')}": cls for kind, cls in plugins.KINDS.items()}
    described: dict[str, type[Any]] = {"Every plug-in": plugins.Plugin, **kinds, **OPENED}
    return "\n\n".join(_table(title, cls) for title, cls in described.items())


def _table(title: str, cls: type[Any]) -> str:
    """A row for each field that a class has beside those of every plug-in, those first that must be defined."""
    shared = {} if cls is plugins.Plugin else plugins.capabilities(plugins.Plugin)
    own = {key: f for key, f in plugins.capabilities(cls).items() if key not in shared or plugins.required(f)}
    says = _sentences(cls)
    rows = [
        f"| `{_called(key, f)}` | {_default(f)} | {says[f.name]} |"
        for key, f in sorted(own.items(), key=lambda each: not plugins.required(each[1]))
    ]
    head = f"**{title}**" if cls is plugins.Plugin else f"**{title}**: {_first_line(cls)}"
    return "\n".join([head, "", "| name | default | what it says |", "|---|---|---|", *rows])


def _first_line(cls: type[Any]) -> str:
    line = inspect.cleandoc(cls.__doc__ or "").splitlines()[0]
    return line[0].lower() + line[1:]


def _called(key: str, field: dataclasses.Field[Any]) -> str:
    """A constant by its name, a function with what it takes and returns."""
    found = next((n for n in ast.walk(ast.parse(str(field.type))) if isinstance(n, ast.List)), None)
    if found is None:
        return key
    takes, gives = ast.unparse(found)[1:-1], str(field.type).partition(f"{ast.unparse(found)}, ")[2]
    return f"{key}({takes}) -> {gives.removesuffix(' | None').removesuffix(']')}".replace("|", "\\|")


def _default(field: dataclasses.Field[Any]) -> str:
    if plugins.required(field):
        return "required"
    value = {} if field.default is dataclasses.MISSING else field.default
    return "" if value is None else f"`{value!r}`".replace('"', "").replace("'", '"')


def _sentences(cls: type[Any]) -> dict[str, str]:
    """What stands below each field, in the class itself or in one that it extends."""
    says: dict[str, str] = {}
    for each in reversed([base for base in cls.__mro__ if dataclasses.is_dataclass(base)]):
        (tree,) = ast.parse(inspect.getsource(each)).body
        assert isinstance(tree, ast.ClassDef)
        for field, text in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                says[ast.unparse(field.target)] = " ".join(str(text.value.value).split()).replace("|", "\\|")
    return says
