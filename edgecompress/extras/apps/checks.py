"""The checks of a package, each made whatever the others find. Nothing in a package is executed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from edgecompress.core import plain_file, plain_text
from edgecompress.core.errors import EdgeError, brief
from edgecompress.core.package_contents import PackageCheck


class NotChecked(Exception):
    """Why something was not looked at."""


def made(looks: Mapping[str, Callable[[], str | None]]) -> Iterator[PackageCheck]:
    """Each check by its name; a look may tell what it saw, or raises: what is wrong, or NotChecked."""
    for name, look in looks.items():
        try:
            yield PackageCheck(name, "pass", look() or "")
        except NotChecked as why:
            yield PackageCheck(name, "skipped", str(why))
        except Exception as error:  # whatever a library raises for a stranger's bytes: zlib.error, AssertionError, ...
            yield PackageCheck(name, "fail", wrong(error))


def wrong(error: Exception) -> str:
    """What an error tells, in a line."""
    line = brief(plain_text.escaped(str(error)))
    return line if isinstance(error, EdgeError) else f"{type(error).__name__}: {line}"


def text(file: Path, most: int) -> str:
    """The text of a file of at most so many bytes. Raises InputError, OSError, UnicodeDecodeError."""
    return plain_file.read(file, most).decode("utf-8")
