"""Keeps the bytecode of what workers import: a worker may not write it, and each would compile the same files again."""

from __future__ import annotations

import compileall
import functools
import os
import py_compile
import sys
import sysconfig
from collections.abc import Iterable

from edgecompress.core import package_files

LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")


def missing() -> list[str]:
    """The source files of the imported modules that have no bytecode on disk."""
    specs = (getattr(module, "__spec__", None) for module in list(sys.modules.values()))
    origins = {spec.origin: spec.cached for spec in specs if spec and spec.has_location and spec.cached}
    return sorted(str(origin) for origin, cached in origins.items() if not os.path.exists(cached))


def keep(sources: Iterable[str]) -> None:
    """Compiles these files of the installed libraries, and no others. Does nothing where they may not be written."""
    if sys.dont_write_bytecode:
        return
    for source in sources:
        real = os.path.realpath(source)
        if real.endswith(".py") and os.path.isfile(real) and real.startswith(_libraries()):
            try:
                py_compile.compile(real, quiet=2)
            except OSError:
                return


@functools.cache
def keep_package() -> None:
    """Compiles this package, once in a process."""
    if not sys.dont_write_bytecode:
        compileall.compile_dir(package_files.PACKAGE, quiet=2)


@functools.cache
def _libraries() -> tuple[str, ...]:
    return tuple(os.path.join(os.path.realpath(sysconfig.get_path(name)), "") for name in LIBRARIES)
