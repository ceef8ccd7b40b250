"""The user's folders stand behind all that is installed, and for nothing that an installed library looks for.

Behind in `sys.path` is not enough: a module `google.py` there comes before an installed `google` without `__init__.py`,
and a module called as a library that is not installed stands in for it where another library tries to import it.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import FrameType, ModuleType

from edgecompress.core import package_files

IMPORT = dis.opmap["IMPORT_NAME"]


def append(folders: Iterable[str]) -> None:
    """Lets the user's modules be imported from these folders, too."""
    added = [folder for folder in dict.fromkeys(folders) if folder not in sys.path]
    sys.path += added
    guard = next((finder for finder in sys.meta_path if isinstance(finder, _Guard)), None)
    if guard is None:
        guard = _Guard()
        sys.meta_path.insert(sys.meta_path.index(PathFinder), guard)
    guard.folders |= {*added}


class _Guard(MetaPathFinder):
    """Asked before Python's own finder of modules in `sys.path`."""

    def __init__(self) -> None:
        self.folders: set[str] = set()

    def find_spec(self, name: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A top-level module that is not the user's; None leaves it to the finders behind this one.

        Raises ModuleNotFoundError for one that only the user has, at an import statement of an installed library.
        """
        if path is not None:
            return None
        found = PathFinder.find_spec(name, [folder for folder in sys.path if folder not in self.folders])
        if found or not _by_installed(sys._getframe(1)):
            return found
        for finder in sys.meta_path[sys.meta_path.index(PathFinder) + 1 :]:
            if found := finder.find_spec(name, None, target):
                return found
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _by_installed(frame: FrameType | None) -> bool:
    """Whether a statement of an installed file imports; a library that is given a name may be given the user's."""
    while frame and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    if frame is None or frame.f_code.co_code[frame.f_lasti] != IMPORT:
        return False
    file = frame.f_code.co_filename
    return not file.startswith("<") and not package_files.is_users(file) and not package_files.is_ours(file)
