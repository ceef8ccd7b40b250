"""Mode facts: the description of this device."""

from __future__ import annotations

import importlib
import platform
from pathlib import Path
from typing import TypedDict

from edgecompress.device.request import AgentRequest


class DeviceFacts(TypedDict):
    """The answer of mode facts."""

    python: str
    machine: str
    system: str
    sensors: dict[str, str]  # why each cannot read, "" when it can


def run(request: AgentRequest, out: Path) -> DeviceFacts:
    """The description of this device, and why each sensor cannot be read ("" if it can)."""
    sensors = {sensor.name: importlib.import_module(sensor.module) for sensor in request.sensors}
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "sensors": {name: module.unavailable(request.device, Path(request.root)) for name, module in sensors.items()},
    }
