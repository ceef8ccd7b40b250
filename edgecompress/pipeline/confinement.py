"""What the worker of a stage may do: by whose code it runs, by whose files it reads, and by the device that it asks."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from edgecompress.core import registry, sandbox
from edgecompress.core.model import Artifact, Stage
from edgecompress.core.sandbox import Limits

MAKE_BYTES = 4 << 30  # what the libraries need that convert a small model
READ_S = 240.0  # for a file of up to READ_BYTES_S a second
READ_BYTES_S = 4 << 20
WITH_WEIGHTS = (".onnx",)  # files whose weights may lie in files beside them
CACHES = "/proc/sys/vm/drop_caches"  # what the profiler `cold` writes to


def input_bytes(stage: Stage, inputs: Mapping[str, Artifact]) -> int:
    """The bytes that a stage is given: its artifacts, and the user's files."""
    files = [file for file in stage.user_files if os.path.isfile(file)]
    beside = set[str]()
    for folder in {os.path.dirname(file) or "." for file in files if file.endswith(WITH_WEIGHTS)}:
        with os.scandir(folder) as entries:
            beside |= {entry.path for entry in entries if entry.is_file()}
    return sum(a.size_bytes for a in inputs.values()) + sum(map(os.path.getsize, {*files, *beside}))


def deadline_s(stage: Stage, size: int) -> float:
    """Seconds after which a stage is stopped: minutes for one that only reads a file."""
    return min(stage.timeout_s, READ_S + size / READ_BYTES_S) if stage.reads else stage.timeout_s


def limits(stage: Stage, size: int, folders: tuple[str, ...], device: Mapping[str, Any], offline: bool) -> Limits:
    """The limits of a stage whose inputs have `size` bytes and that writes to `folders`."""
    if stage.user_code:
        return Limits(network=not offline)
    faces = device if "device" in stage.context else {}
    transport = registry.transport(faces.get("transport", "host"))
    if not transport.local or not all(registry.sensor(name).local for name in faces.get("sensors", ())):
        return Limits()  # ssh, adb, a meter act for the user who named the device: with their own files and network
    read = sandbox.reading(size, folders, deadline_s(stage, size))
    if stage.reads:
        return read
    makes = stage.call.startswith(("techniques.", "runtimes."))
    return dataclasses.replace(
        read,
        writes=(*(read.writes or ()), *((CACHES,) if faces else ())),
        programs=None,
        data_bytes=sandbox.ALL,
        resident_bytes=sandbox.resident_bytes(MAKE_BYTES if makes else sandbox.READ_BYTES, size),
    )
