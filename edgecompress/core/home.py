"""The user's own folders. In a container a user may have no account: its home is then `/`, as Docker has it, too."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def home() -> Path:
    """The user's home folder, which may not be there, nor be writable."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("/")


def has_account() -> bool:
    """Whether the system knows the user by a name."""
    try:
        return bool(pwd.getpwuid(os.getuid()))
    except KeyError:
        return False


def cache() -> Path:
    """Where we keep what was fetched or built; deleting it loses nothing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or home() / ".cache") / "edgecompress"


def state() -> Path:
    """Where we keep what outlives a working folder and is no setting."""
    return Path(os.environ.get("XDG_STATE_HOME") or home() / ".local" / "state") / "edgecompress"
