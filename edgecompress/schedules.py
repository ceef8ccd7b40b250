"""The public name of Distiller's schedules: `edgecompress.schedules.nets` is the module of `extras.schedules`."""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from edgecompress.core import extras

__path__: list[str] = []  # its modules lie elsewhere


class _Alias(MetaPathFinder, Loader):
    """Finds a module under this name as the one that it is: once, with its own classes."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name.startswith(f"{__name__}.") else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return import_module(f"edgecompress.extras.schedules.{spec.name.removeprefix(f'{__name__}.')}")

    def exec_module(self, module: ModuleType) -> None:
        """It has run as what it is."""


if not extras.is_here("schedules"):
    raise ImportError(extras.lacking("schedules"))
sys.meta_path.append(_Alias())
