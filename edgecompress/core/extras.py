"""The capabilities that lie in folders of their own, `extras/NAME`: the core reaches them by name, and goes on without.

Each brings its plug-ins in folders of their kinds (`extras/NAME/commands`, `techniques`, `sections`), which the
registry finds there.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType

from edgecompress.core.errors import MissingDependency
from edgecompress.core.package_files import PACKAGE

# What a user misses where a folder is not there, so that it is told and not unknown: its commands, its techniques.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "apps": ("pack", "package", "package verify", "unpack"),
    "fleet": ("sweep",),
    "hugging_face": ("trim",),
    "mcp": ("mcp",),
    "schedules": ("schedule",),
    "search": ("advise", "search"),
}
TECHNIQUES: Mapping[str, tuple[str, ...]] = {"schedules": ("schedule",)}


def is_here(name: str) -> bool:
    """Whether an extra is installed."""
    return (PACKAGE / "extras" / name).is_dir()


class Absent(MissingDependency, AttributeError):
    """What an extra that is not installed would have: so `hasattr(edgecompress, "search")` is an answer."""


def part(name: str, module: str, who: str = "") -> ModuleType:
    """A module of an extra, for an option `who`. Raises Absent where the extra is not installed."""
    if not is_here(name):
        raise Absent(f"{who}: {lacking(name)}" if who else lacking(name))
    return importlib.import_module(f"edgecompress.extras.{name}.{module}")


def lacking(name: str) -> str:
    """That an extra is not installed, and what to do."""
    return f"the extra '{name}' is not here; install edgecompress whole, in its checkout: pip install -e ."


def lost(name: str, brought: Mapping[str, tuple[str, ...]]) -> str:
    """Why a name of COMMANDS or TECHNIQUES is not here, or ""."""
    owner = next((extra for extra, names in brought.items() if name in names and not is_here(extra)), "")
    return f"{name}: {lacking(owner)}" if owner else ""
