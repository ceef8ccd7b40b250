"""Which stored results living runs need: a file per run, under a lock that the kernel frees when the run ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from edgecompress.core import file_lock


class Pins:
    """The pins of one run in a folder that all runs of a store share. They end with this object or its process."""

    def __init__(self, folder: Path, gate: Path) -> None:
        self.folder, self.gate = folder, gate
        self._name = f"{os.getpid()}-{secrets.token_hex(8)}"
        self._own: TextIO | None = None

    def __del__(self) -> None:
        if self._own:
            with contextlib.suppress(OSError):  # the store may be gone
                os.unlink(self._own.name)
            with contextlib.suppress(OSError):
                self._own.close()

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Blocks removal, so that a result can be found and pinned in one step."""
        with file_lock.held(self.gate, shared=True):
            yield

    @contextlib.contextmanager
    def removing(self, key: str) -> Iterator[bool]:
        """Whether no other run has pinned that key; blocks pinning meanwhile."""
        with file_lock.held(self.gate):
            yield all(key not in keys for keys in self.others().values())

    def pin(self, key: str) -> None:
        """This run needs the result of that key from now on."""
        if self._own is None:
            own = (self.folder / self._name).open("w", encoding="ascii")
            fcntl.flock(own, fcntl.LOCK_EX)
            self._own = own
        self._own.write(f"{key}\n")
        self._own.flush()

    def others(self) -> dict[str, set[str]]:
        """The keys that other living runs have pinned, by the number of their process; pins of ended runs go.

        Raises OSError.
        """
        pinned: dict[str, set[str]] = {}
        for file in self.folder.iterdir():
            if file.name == self._name:
                continue
            # one that cannot be read is raised: what it pins must not go
            with contextlib.suppress(FileNotFoundError), file.open(encoding="ascii", errors="replace") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    file.unlink(missing_ok=True)
                except BlockingIOError:
                    pinned.setdefault(file.name.partition("-")[0], set()).update(held.read().split())
        return pinned
