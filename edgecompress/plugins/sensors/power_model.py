"""A device's power model: watts by the number of busy threads, times the measured time. Reported as an estimate."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.model import Measured
from edgecompress.plugins.sensors._counter import no_energy

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "estimated"
SCOPE = "package"  # where the device's [power] table names no other


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no estimate, or "": the device has no [power] table, or nobody knows its cores."""
    if not device.get("power"):
        return "the device has no [power] table; add idle_w, active_w, error and source to its TOML"
    return "" if device.get("cores") else "the device's number of cores is unknown; add `cores` to its TOML"


def open(device: Mapping[str, Any], root: Path) -> ModelMeter:
    """A meter for `device["threads"]` computing threads (default 1; 0: idle)."""
    return ModelMeter(device["power"], int(device["cores"]), int(device.get("threads", 1)))


class ModelMeter:
    """idle_w * (cores - threads) + active_w * threads, over any window."""

    def __init__(self, power: Mapping[str, Any], cores: int, threads: int) -> None:
        busy = min(threads, cores)
        self.watts = power["idle_w"] * (cores - busy) + power["active_w"] * busy
        self.error = float(power["error"])
        self.source = f"power model: {power['source']}"
        self.scope = str(power.get("scope", SCOPE))

    def start(self) -> None:
        """Nothing to start."""

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules of a window, with the model's error band."""
        if end_s <= begin_s:
            return no_energy(self.scope, self.source, "an empty window")
        joules = self.watts * (end_s - begin_s)
        low, high = joules * (1 - self.error), joules * (1 + self.error)
        return Measured("energy", joules, "J", "estimated", 1, low, high, self.source, self.scope)

    def stop(self) -> None:
        """Nothing to stop."""
