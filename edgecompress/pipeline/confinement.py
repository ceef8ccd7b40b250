"""What the worker of a stage may do: by whose code it runs, by whose files it reads, and by the device that it asks."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Stage
from edgecompress.core.sandbox import Limits

MEMORY = "EDGECOMPRESS_MEMORY"  # GiB that a worker may hold resident, where the limit by size is too low
MIB, GIB = 1 << 20, 1 << 30
READ_BYTES, MAKE_BYTES = 1700 * MIB, 4 * GIB  # what the libraries of a stage need, with a small model
PER_BYTE = 32  # beside that, for each byte of its inputs
FILE_BYTES = 8 * GIB
READ_S = 240.0  # for a file of up to READ_BYTES_S a second
READ_BYTES_S = 4 * MIB
CACHES = "/proc/sys/vm/drop_caches"  # what the profiler `cold` writes to
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # what starts a program that is linked
OWN = ("/proc/self/task",)  # the names of its threads


def input_bytes(stage: Stage, inputs: Mapping[str, Artifact]) -> int:
    """The bytes that a stage is given: its artifacts, and the file of the user's that it reads."""
    named = (stage.options.get("path"), stage.options.get("source", {}).get("data"))
    files = [Path(name) for name in named if isinstance(name, str)] if stage.user_files else []
    return sum(a.size_bytes for a in inputs.values()) + sum(f.stat().st_size for f in files if f.is_file())


def deadline_s(stage: Stage, size: int) -> float:
    """Seconds after which a stage is stopped: minutes for one that only reads a file."""
    reads = stage.user_files and not stage.user_code
    return min(stage.timeout_s, READ_S + size / READ_BYTES_S) if reads else stage.timeout_s


def limits(stage: Stage, size: int, folders: tuple[str, ...], device: Mapping[str, Any], offline: bool) -> Limits:
    """The limits of a stage whose inputs have `size` bytes and that writes to `folders`."""
    if stage.user_code:
        return Limits(network=not offline)
    faces = device if "device" in stage.context else {}
    transport = registry.transport(faces.get("transport", "host"))
    if not transport.local or not all(registry.sensor(name).local for name in faces.get("sensors", ())):
        return Limits()  # ssh, adb, a meter act for the user who named the device: with their own files and network
    reads = stage.user_files
    return Limits(
        writes=(*folders, *OWN, *((CACHES,) if faces else ())),
        programs=(os.path.realpath(sys.executable), *map(os.path.realpath, LOADERS)) if reads else None,
        network=False,
        sockets=False,
        cpu_s=int((os.cpu_count() or 1) * deadline_s(stage, size)) + 1,
        file_bytes=FILE_BYTES + PER_BYTE * size,
        resident_bytes=_resident_bytes(stage, size),
    )


def _resident_bytes(stage: Stage, size: int) -> int:
    if given := os.environ.get(MEMORY):
        try:
            return int(float(given) * GIB)
        except ValueError as error:
            raise InputError(f"{MEMORY}={given}: not a number of GiB; give one, such as {MEMORY}=8") from error
    makes = stage.call.startswith(("techniques.", "runtimes.")) and not stage.user_files
    return (MAKE_BYTES if makes else READ_BYTES) + PER_BYTE * size
