"""A lock between processes: a file that the kernel frees when the process that holds it ends."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(file: Path, shared: bool = False, wait: bool = True) -> Iterator[None]:
    """Holds a file, which is made; `shared` with others that ask for the same.

    Raises BlockingIOError, without `wait`, where another process holds it.
    """
    with file.open("w") as stream:
        fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield
