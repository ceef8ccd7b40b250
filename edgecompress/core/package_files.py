"""Where this package is, and the owner of a file: this package, an installation, or the user."""

from __future__ import annotations

import shlex
import sys
import sysconfig
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
DEMO = PACKAGE / "demo"  # a user's code, which we ship
INSTALLED = {"site-packages", "dist-packages"}
BELOW = ("bin", "sbin", "lib", "lib32", "lib64", "libexec", "include", "share")  # of what is installed in a prefix
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/tmp/torchinductor")


def install(extras: str) -> str:
    """The command that installs extras of this package: in a checkout one that leaves it where it can be edited.

    A copy would age beside the checkout, and be what every command there runs.
    """
    place = PACKAGE.parent
    if place.name in INSTALLED or not (place / "pyproject.toml").is_file():
        return f"pip install 'edgecompress[{extras}]'"
    return f"pip install -e {shlex.quote(f'{place}[{extras}]')}"


def is_ours(path: str | Path) -> bool:
    """Whether a file belongs to this package, links resolved; the demo does not."""
    real = Path(path).resolve()
    return real.is_relative_to(PACKAGE) and not real.is_relative_to(DEMO)


def is_users(path: str) -> bool:
    """Whether a file belongs to the user: it is not part of this package, the system or an installation."""
    return not (path.startswith("<") or is_ours(path) or _installed(Path(path)) or _installed(Path(path).resolve()))


def _installed(path: Path) -> bool:
    """Projects lie beside an installation too (/usr/src/app, a virtual environment's own folder): those are not."""
    return bool(INSTALLED & set(path.parts)) or any(map(path.is_relative_to, _system()))


@cache
def _system() -> tuple[str, ...]:
    prefixes = dict.fromkeys((sys.prefix, sys.base_prefix, "/", "/usr", "/usr/local"))
    below = (f"{prefix.rstrip('/')}/{name}" for prefix in prefixes for name in BELOW)
    return (*SYSTEM, *below, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))
