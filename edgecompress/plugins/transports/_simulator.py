"""A Shell of what simulates a device on this machine: it sees our files, and runs programs of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core.json import Json
from edgecompress.plugins.transports import _process

# (argv, an empty folder) -> the program here that simulates it, and its whole environment
Wrap = Callable[[Sequence[str], Path], tuple[Sequence[str], Mapping[str, str]]]


@dataclass(frozen=True)
class Simulator:
    """A Shell. Nothing travels: only what runs is another machine's."""

    known: Mapping[str, Json]
    wrap: Wrap
    here = False

    def push(self, path: Path) -> str:
        """The path itself: it is seen there too."""
        return str(path.absolute())

    def scratch(self, path: Path) -> str:
        """A copy of the folder, in this machine's temporary one."""
        return str(shutil.copytree(path, Path(tempfile.mkdtemp()) / path.name))

    def discard(self, there: str) -> None:
        """Removes what `scratch` made."""
        shutil.rmtree(Path(there).parent, ignore_errors=True)

    def pull(self, there: str, path: Path) -> None:
        """Copies a file or folder, unless it lies where it should."""
        _process.copy(there, path)

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """Simulates a program with its output in `log`; it is ended at the deadline, and when this process ends."""
        with tempfile.TemporaryDirectory() as folder:
            command, environment = self.wrap(argv, Path(folder))
            return _process.run(command, deadline_s, log, environment)

    def facts(self) -> Mapping[str, object]:
        """What is simulated."""
        return self.known

    def close(self) -> None:
        """Nothing is left open."""
