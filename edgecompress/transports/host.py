"""This machine: nothing travels, a program is a child that dies with us."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgecompress import lifeline, machine

REQUIRES: tuple[str, ...] = ()
DEADLINE = 124  # the code of a program that was ended at its deadline, as timeout(1) has it
NVIDIA = Path("/proc/driver/nvidia/version")


def unavailable(device: Mapping[str, Any]) -> str:
    """Why this machine is not the device, or ""."""
    if device.get("platform") == "cuda" and not NVIDIA.exists():
        return "no NVIDIA driver on this machine"
    return ""


def connect(device: Mapping[str, Any]) -> Host:
    """The machine this process runs on."""
    return Host()


@dataclass(frozen=True)
class Host:
    """A Shell on this machine. `root` is where /proc and /sys are looked for."""

    root: Path = Path("/")
    here = True

    def push(self, path: Path) -> str:
        """The path itself: it is here already."""
        return str(path)

    def scratch(self, path: Path) -> str:
        """The folder itself: it is the caller's."""
        return str(path)

    def discard(self, there: str) -> None:
        """Nothing: it is the caller's."""

    def pull(self, there: str, path: Path) -> None:
        """Copies a file or folder, unless it lies where it should."""
        if Path(there).resolve() == path.resolve():
            return
        if Path(there).is_dir():
            shutil.copytree(there, path, dirs_exist_ok=True)
        else:
            shutil.copyfile(there, path)

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """Runs a program with its output in `log`; ends its whole session at the deadline and returns DEADLINE then."""
        # a file of the user's working folder must not stand in for a library's module
        process = lifeline.spawn(argv, log, {**os.environ, "PYTHONSAFEPATH": "1"})
        assert process.stdout and process.stdin
        drain = threading.Thread(target=_drain, args=(process.stdout, log), daemon=True)
        drain.start()
        try:
            return process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            return DEADLINE
        finally:
            lifeline.end(process)
            process.stdin.close()
            drain.join(1.0)

    def facts(self) -> Mapping[str, Any]:
        """What this machine is."""
        return {**machine.facts(machine.here(self.root)), "python": sys.executable}

    def close(self) -> None:
        """Nothing is left open."""


def _drain(stream: IO[bytes], log: Path) -> None:
    with log.open("ab") as file:
        shutil.copyfileobj(stream, file)
