"""Emulated 64-bit Arm Linux: real aarch64 runtimes in QEMU's user mode. Instructions are counted; times mean nothing.

options: `cpu`, one of `emulated.cpus`. The machine is built at first use.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core.errors import EdgeError, InputError, Unreachable, did_you_mean
from edgecompress.core.json import Json
from edgecompress.device import machine
from edgecompress.device.emulation import build, cpus
from edgecompress.device.emulation.emulator import PYTHON, Emulator
from edgecompress.plugins.transports._simulator import Simulator

REQUIRES: tuple[str, ...] = ()
SIMULATED = "emulated arm64 (QEMU)"
CARRIES = tuple(build.WHEELS)
COUNTS = "counts.jsonl"


def unavailable(device: Mapping[str, Json]) -> str:
    """Why nothing can be emulated now, or ""."""
    try:
        _cpu(device)
    except InputError as error:
        return str(error)
    return lacking()


def lacking() -> str:
    """What this machine lacks for it, or ""."""
    return "" if build.find() else f"not built: run `{build.COMMAND}`"


def connect(device: Mapping[str, Json]) -> Simulator:
    """The emulator as a Shell, built where it is not. Raises InputError for another core than there is, Unreachable."""
    cpu = _cpu(device)
    emulator = build.find() or _built()

    def wrap(argv: Sequence[str], folder: Path) -> tuple[list[str], dict[str, str]]:
        return emulator.command(cpu, argv), emulator.environment(folder / COUNTS)

    return Simulator(_facts(emulator, cpu), wrap)


def _cpu(device: Mapping[str, Any]) -> str:
    """The core that the device is to have; raises InputError for one that there is not."""
    cpu = str((device.get("options") or {}).get("cpu", ""))
    if cpu not in cpus.CPUS:
        raise InputError(f"transport qemu: options.cpu '{cpu}'{did_you_mean(cpu, cpus.CPUS)}")
    return cpu


def _built() -> Emulator:
    print("edgecompress: building the emulated arm64 machine, once; it takes about a minute", file=sys.stderr)
    try:
        build.build(lambda step: None)
    except EdgeError as error:
        raise Unreachable(f"not built yet, and it cannot be built now: {error}") from error
    built = build.find()
    assert built
    return built


def _facts(emulator: Emulator, cpu: str) -> dict[str, Any]:
    """What it says of itself. No memory and no clock: those that are seen are this machine's."""
    texts = {
        "system": "Linux",
        "machine": "aarch64",
        "kernel": platform.release(),
        "nproc": str(cpus.CORES),
        "proc/cpuinfo": cpus.files(cpus.CPUS[cpu])["proc/cpuinfo"],
        "etc/os-release": 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"',
    }
    made = {"virtual": f"QEMU {emulator.versions['qemu']}", "emulator": {**emulator.versions, "recipe": build.recipe()}}
    return {**machine.facts(texts), **made, "python": PYTHON}
