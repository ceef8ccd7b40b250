"""What the tests of measuring share: a null net with its samples, a device, and a profile that takes moments."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.core import registry
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.settings import Device, PowerModel, Profile
from edgecompress.data import tensors
from edgecompress.device.request import AgentRequest
from edgecompress.engines.null.runtimes import null

POWER = PowerModel(idle_w=0.5, active_w=4.0, error=0.25, source="a data sheet")
MOMENT = Profile("a moment", 1, 0.02, 2, 0.05, 20, 2, 0.1, idle_s=0.1, windows=4, warmup_cap_s=0.5, ops_runs=3)


def net(folder: Path, batch: int | None = None, **more: Any) -> Artifact:
    """A null net of 6 inputs and 3 outputs; its batch is free unless `batch` fixes it."""
    folder.mkdir(parents=True)
    axis = Dim("batch", 1, 64) if batch is None else batch
    spec = null.NullNet((TensorSpec("x", (axis, 6)),), (TensorSpec("y", (axis, 3)),), **more)
    null.write(folder / "model.null", spec)
    return Artifact(folder, "null", spec.inputs, spec.outputs).write()


def samples(folder: Path, count: int = 10) -> Artifact:
    """`count` seeded items in the split "test"."""
    tensors.write_split(folder / "test", {"x": np.random.default_rng(3).random((count, 6), dtype=np.float32)})
    return Artifact(folder, "samples", (TensorSpec("x", (Dim("batch", 1, 64), 6)),)).write()


def request(
    folder: Path, variants: dict[str, Artifact], device: dict[str, Any] | None = None, **options: Any
) -> Request:
    """What a worker would give a measuring stage."""
    (folder / "out").mkdir(parents=True)
    given = {
        "order": list(variants),
        "runtimes": dict.fromkeys(variants, "null"),
        "profile": dataclasses.asdict(MOMENT),
    }
    known = {**dataclasses.asdict(Device("a test")), "cores": 2, **(device or {})}
    inputs = {**variants, "samples": samples(folder / "samples")}
    return Request(inputs, folder / "out", {**given, **options}, Context(device=known))


class RaplTree:
    """A fake /sys/class/powercap. `turn` moves every counter as a machine would."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "sys/class/powercap"
        self.folder.mkdir(parents=True)

    def zone(self, zone: str, name: str, energy_uj: int = 1000, range_uj: int = 262143328850) -> Path:
        """One domain, as the kernel shows it."""
        folder = self.folder / zone
        folder.mkdir()
        for file, value in (("name", name), ("energy_uj", energy_uj), ("max_energy_range_uj", range_uj)):
            (folder / file).write_text(f"{value}\n")
        return folder


def asked(model: Artifact, data: Artifact, runtime: str = "null", **more: Any) -> dict[str, Any]:
    """What is asked of an agent: a model's outputs, or what another mode tells of it."""
    return {
        "mode": "outputs",
        "runtime": {"name": runtime, "module": registry.runtime(runtime).module.__name__},
        "artifact": str(model.path),
        "samples": str(data.path),
        "threads": 1,
        "batch": 1,
        **more,
    }


def agent_request(table: Mapping[str, Any]) -> AgentRequest:
    """A request of an agent from plain data."""
    return AgentRequest.from_json(json.dumps({"mode": "", **table}))
