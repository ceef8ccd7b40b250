"""This machine: nothing travels, a program is a child that dies with us."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import sandbox
from edgecompress.core.json import Json
from edgecompress.core.sandbox import Limits
from edgecompress.device import machine
from edgecompress.plugins.transports import _process

REQUIRES: tuple[str, ...] = ()
LOCAL = True
NVIDIA = Path("/proc/driver/nvidia/version")


def unavailable(device: Mapping[str, Json]) -> str:
    """Why this machine is not the device, or ""."""
    if device.get("platform") == "cuda" and not NVIDIA.exists():
        return "no NVIDIA driver on this machine"
    return ""


def connect(device: Mapping[str, Json]) -> Host:
    """The machine this process runs on."""
    return Host()


def confined(limits: Limits) -> Host:
    """The machine this process runs on, for programs within limits."""
    return Host(limits=limits)


@dataclass(frozen=True)
class Host:
    """A Shell on this machine. `root` is where /proc and /sys are looked for."""

    root: Path = Path("/")
    limits: Limits | None = None  # beside those of this process
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
        _process.copy(there, path)

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """Runs a program with its output in `log`; ends its whole session at the deadline and returns DEADLINE then."""
        # a file of the user's working folder must not stand in for a library's module
        environment = {**os.environ, "PYTHONSAFEPATH": "1"}
        if self.limits is None:
            return _process.run(argv, deadline_s, log, environment)
        return _process.run(sandbox.confined(self.limits, argv), deadline_s, log, environment, self.limits)

    def facts(self) -> Mapping[str, object]:
        """What this machine is."""
        return {**machine.facts(machine.here(self.root)), "python": sys.executable}

    def close(self) -> None:
        """Nothing is left open."""
