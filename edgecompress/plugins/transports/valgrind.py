"""This machine's own processor, simulated by Valgrind: instructions are counted; times mean nothing.

Valgrind knows vectors up to AVX2: runtimes do not see AVX-512, VNNI or AMX there and choose other kernels than here.
"""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core.errors import Unreachable
from edgecompress.core.json import Json
from edgecompress.device import machine
from edgecompress.plugins.transports._simulator import Simulator

REQUIRES: tuple[str, ...] = ()
LOCAL = True
SIMULATED = "Valgrind (AVX2 kernels at most)"
FEATURES = ("avx2",)  # of those that machine.py tells
COUNTS = "callgrind"


def unavailable(device: Mapping[str, Json]) -> str:
    """Why nothing can be simulated now, or ""."""
    return lacking()


def lacking() -> str:
    """What this machine lacks for it, or ""."""
    system = f"{platform.system()} {platform.machine()}"
    if system != "Linux x86_64":
        return f"it simulates Linux x86_64 only, this is {system}"
    missing = [name for name in ("valgrind", "setpriv", "setarch") if not shutil.which(name)]
    return f"{missing[0]} is not installed (Debian, Ubuntu: apt-get install valgrind util-linux)" if missing else ""


def connect(device: Mapping[str, Json]) -> Simulator:
    """The simulator as a Shell. Raises Unreachable where there is none."""
    if why := lacking():
        raise Unreachable(f"transport valgrind: {why}")
    return Simulator(_facts(), _wrap)


def _wrap(argv: Sequence[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """The program under Callgrind, which counts once it is asked to: it ends with its parent, at the same addresses."""
    counts = folder / COUNTS
    tools = [f"{shutil.which(name)}" for name in ("setpriv", "setarch", "valgrind")]
    how = ["-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={counts}"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
        "EDGECOMPRESS_COUNTS": str(counts),
    }
    return [tools[0], "--pdeathsig", "KILL", tools[1], "-R", tools[2], *how, *argv], environment


def _facts() -> dict[str, Any]:
    """This machine's, with what a program sees of its processor."""
    here = machine.facts(machine.here())
    output = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout
    version = output.strip().removeprefix("valgrind-")
    seen = [feature for feature in here["features"] if feature in FEATURES]
    made = {"virtual": f"Valgrind {version}", "emulator": {"valgrind": version}}
    return {**here, "features": seen, "memory_bytes": None, **made, "python": sys.executable}
