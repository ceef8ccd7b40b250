"""A lock between processes: a file that the kernel frees when the process that holds it ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def held(file: Path, shared: bool = False, wait: bool = True) -> Iterator[int]:
    """Holds a file, which is made; `shared` with others that ask for the same. Yields its descriptor.

    Raises BlockingIOError, without `wait`, where another process holds it.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(file, flags, 0o666), "w") as stream:
        fcntl.flock(stream, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        yield stream.fileno()
