"""What packages' benchmarks return, and a folder like that of a deploy to add it to."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report_inputs

from edgecompress.core.model import Artifact
from edgecompress.reporting import external_results

Told = dict[str, Any]
SHA256 = "ab" * 32


def told(name: str = "Pixel 8", median_ns: int = 300_000, n: int = 60, session: int = 0, **changes: Any) -> Told:
    """A benchmark's JSON; `changes` replace its parts, or those of its tables: device__cores=4."""
    rng = random.Random(f"{name} {session}")
    base = median_ns * (1 + 0.01 * session)
    found: Told = {
        "schema": external_results.SCHEMA,
        "model": {"name": "Digits", "sha256": SHA256},
        "runtime": {"name": "litert", "version": "2.3.0"},
        "device": {"name": name, "platform": "android-arm64", "os": "Android 15", "cpu": "Tensor G3", "cores": 9},
        "run": {"threads": 1, "batch": 1, "warmup": 10, "started": f"2026-01-{session + 1:02}T12:00:00Z"},
        "self_test": "pass",
        "latencies_ns": [int(base * rng.uniform(0.98, 1.02)) for _ in range(n)],
        "clock": "System.nanoTime",
        "clock_step_ns": 1,
    }
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        if inner:
            found[table][inner] = value
        else:
            found[table] = value
    return found


def without(given: Told, key: str) -> Told:
    """The same without a part."""
    found = copy.deepcopy(given)
    table, _, inner = key.partition("__")
    del (found[table] if inner else found)[inner or table]
    return found


def read(*given: Told) -> list[external_results.Measurement]:
    """As they are read."""
    return [external_results.parsed(json.dumps(one).encode(), "x.json") for one in given]


def shipped(folder: Path) -> Path:
    """What a deploy writes, of a model of three files; its report has the numbers of report_inputs."""
    found = report_inputs.written(report_inputs.request(folder / "made", sessions=2, runs=60))
    files = {"model.onnx": b"m" * 999, "weights.bin": b"w" * 99, "notes.txt": b"n"}
    report_inputs.write(folder / "out" / "artifact", "onnx", {"here": ["notes.txt"]}, files)
    (folder / "out" / "report.json").write_text(json.dumps(found), encoding="utf-8")
    return folder / "out"


def of(folder: Path, *given: Told) -> list[Path]:
    """The measurements as files, of the model that shipped in `folder`."""
    sha256 = external_results.digest(Artifact.read(folder / "artifact"))
    files = [folder.parent / f"told-{i}.json" for i in range(len(given))]
    for file, one in zip(files, given, strict=True):
        file.write_text(json.dumps({**one, "model": {**one["model"], "sha256": sha256}}), encoding="utf-8")
    return files


def sessions(count: int, **changes: Any) -> Sequence[Told]:
    """So many sessions of one device."""
    return [told(session=i, **changes) for i in range(count)]
