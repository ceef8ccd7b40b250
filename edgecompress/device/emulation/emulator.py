"""A finished build of the emulated machine: where its parts are, and how a program of it is run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import home
from edgecompress.device.emulation import cpus

NAME = "qemu-arm64"
PLACE = "EDGECOMPRESS_EMULATED"  # where it is, instead of the user's cache folder
COUNTS = "EDGECOMPRESS_COUNTS"  # tells the plugin, and the sensor, which file the snapshots are in
EXECUTORCH = "EDGECOMPRESS_EXECUTORCH"  # tells the engine which file is ExecuTorch's runtime without torch
PYTHON = "/usr/bin/python3"


def place() -> Path:
    """The folder of the build, which may not exist yet."""
    if named := os.environ.get(PLACE):
        return Path(named).absolute()
    return home.cache() / NAME


@dataclass(frozen=True)
class Emulator:
    """The folder of a build, and the versions of what is in it."""

    place: Path
    versions: Mapping[str, str]

    def root(self, cpu: str) -> Path:
        """The userland that describes itself as having this core."""
        return self.place / "cpus" / cpu

    @property
    def executorch(self) -> Path:
        """ExecuTorch's runtime as C functions."""
        return self.place / "native/executorch.so"

    def command(self, cpu: str, argv: Sequence[str]) -> list[str]:
        """A program of the userland as one of this machine: it ends with its parent, and its addresses never vary."""
        library = self.place / "host/lib/x86_64-linux-gnu"
        libraries = f"{library}:{self.place / 'host/usr/lib/x86_64-linux-gnu'}"
        loader = [str(library / "ld-linux-x86-64.so.2"), "--library-path", libraries]
        plugin = str(self.place / "plugin/count.so").replace(",", ",,")
        core = cpus.CPUS[cpu].emulates or cpu
        qemu = [str(self.place / "host/usr/bin/qemu-aarch64"), "-seed", "0", "-cpu", core, "-L", str(self.root(cpu))]
        alone = [_tool("setpriv"), "--pdeathsig", "KILL", _tool("setarch"), "-R"]
        # the program's file below the root: an absolute path there, or a name that is looked for as a shell does
        name, *words = argv
        places = [name.lstrip("/")] if name.startswith("/") else [f"{folder}/{name}" for folder in ("usr/bin", "bin")]
        program = next((str(file) for p in places if (file := self.root(cpu) / p).exists()), name)
        return [*alone, *loader, *qemu, "-plugin", plugin, program, *words]

    def environment(self, counts: Path) -> dict[str, str]:
        """The environment variables of a program: no setting of this machine changes the counts."""
        return {
            "LANG": "C.UTF-8",
            "PYTHONPATH": str(self.place / "site"),
            "PYTHONHASHSEED": "0",
            "PYTHONSAFEPATH": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
            COUNTS: str(counts),
            EXECUTORCH: str(self.executorch),
        }


def _tool(name: str) -> str:
    return shutil.which(name) or name
