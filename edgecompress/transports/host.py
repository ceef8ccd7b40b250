"""This machine: nothing travels, a program is a child that dies with us."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgecompress import lifeline

REQUIRES: tuple[str, ...] = ()
DEADLINE = 124  # the code of a program that was ended at its deadline, as timeout(1) has it

# What decides which kernels a runtime picks (names of /proc/cpuinfo, x86 then Arm).
FEATURES = (
    *("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_int8", "amx_bf16"),
    *("asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)


def connect(device: Mapping[str, Any]) -> Host:
    """The machine this process runs on."""
    return Host()


@dataclass(frozen=True)
class Host:
    """A Shell on this machine. `root` is where /proc and /sys are looked for."""

    root: Path = Path("/")

    def push(self, path: Path) -> str:
        """The path itself: it is here already."""
        return str(path)

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
        """What this machine is. Everything but "now" stays the same from run to run: a fingerprint may hold it."""
        cpu = _cpuinfo(self.root)
        flags = set((cpu.get("flags") or cpu.get("Features") or "").split())
        return {
            "machine": platform.machine(),
            "platform": f"{platform.system()}-{platform.machine()}".lower(),
            "os": _os_name(self.root),
            "kernel": platform.release(),
            "cpu": cpu.get("model name") or platform.processor() or None,
            "cores": _cores(),
            "features": [f for f in FEATURES if f in flags],
            "memory_bytes": _meminfo(self.root, "MemTotal"),
            "governor": _text(self.root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            "virtual": _virtual(self.root, flags),
            "python": sys.executable,
            "now": {"loadavg": _loadavg(), "memory_available_bytes": _meminfo(self.root, "MemAvailable")},
        }


def _drain(stream: IO[bytes], log: Path) -> None:
    with log.open("ab") as file:
        shutil.copyfileobj(stream, file)


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip("\0 \n")
    except OSError:
        return None


def _cpuinfo(root: Path) -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo; empty where there is none."""
    lines = (_text(root / "proc/cpuinfo") or "").split("\n\n")[0].splitlines()
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _os_name(root: Path) -> str:
    lines = (_text(root / "etc/os-release") or "").splitlines()
    named = [line.partition("=")[2].strip('"') for line in lines if line.startswith("PRETTY_NAME=")]
    return named[0] if named else f"{platform.system()} {platform.mac_ver()[0]}".strip()


def _cores() -> int | None:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def _meminfo(root: Path, key: str) -> int | None:
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _virtual(root: Path, flags: set[str]) -> str | None:
    """Who the hypervisor is ("yes" when it does not say), "no", or None where nothing tells."""
    named = _text(root / "sys/hypervisor/type") or _text(root / "proc/device-tree/hypervisor/compatible")
    if named or "hypervisor" in flags:
        return named or _text(root / "sys/class/dmi/id/sys_vendor") or "yes"
    return "no" if flags and platform.machine() in ("x86_64", "AMD64") else None


def _loadavg() -> list[float] | None:
    return [round(x, 2) for x in os.getloadavg()] if hasattr(os, "getloadavg") else None
