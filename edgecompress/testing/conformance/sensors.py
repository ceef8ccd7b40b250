"""The checks of a sensor: a reason why it cannot read, or energy that grows with the window."""

from __future__ import annotations

import dataclasses
import math
import time
import typing
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import catalog, registry
from edgecompress.core.model import Measured, Status
from edgecompress.core.plugins import OpenedMeter, SensorPlugin
from edgecompress.testing.conformance.common import check_described, check_parts

if TYPE_CHECKING:
    from edgecompress.core.json import Json

WINDOW_S = 0.3  # of a sensor's trial


def check_sensor(name: str, tmp_path: Path, device: Mapping[str, Json] | None = None, root: Path = Path("/")) -> None:
    """A sensor says why it cannot read, or reads: its energy grows with the window.

    `device`: this machine's file; `root`: where /sys is looked for.
    """
    module = registry.load("sensors", name)
    says = f"sensor {name}"
    check_described(module, SensorPlugin, says)
    assert module.STATUS in typing.get_args(Status), f"{says}: STATUS {module.STATUS!r} is no status"
    here = {**dataclasses.asdict(catalog.device("host").value), "cores": 1} if device is None else device
    nowhere = tmp_path / "nowhere"
    for where, place in (({}, nowhere), (here, nowhere), (here, root)):
        reason = module.unavailable(where, place)
        assert isinstance(reason, str) and "\n" not in reason, f"{says}: unavailable says one line, or nothing"
    if module.unavailable(here, root):
        return
    meter = module.open(here, root)
    check_parts(meter, OpenedMeter, f"{says}: its meter")
    meter.start()
    begin = time.monotonic()
    while time.monotonic() < begin + WINDOW_S:  # busy, so that there is something to measure
        pass
    end = time.monotonic()
    long = meter.energy(begin, end)
    short = meter.energy(begin, (begin + end) / 2)
    meter.stop()
    for measured in (short, long):
        _check_measured(measured, module, says)
    if short.value is not None and long.value is not None:
        assert long.value >= short.value, f"{says}: {short.value} J in a part of a window that took {long.value} J"


def _check_measured(measured: Measured, module: ModuleType, says: str) -> None:
    assert measured.unit == "J", f"{says}: energy is in J, not {measured.unit!r}"
    if measured.value is None:
        assert measured.status == "unavailable" and measured.reason, f"{says}: no value, and no reason why"
        return
    assert math.isfinite(measured.value) and measured.value >= 0, f"{says}: {measured.value} J"
    assert measured.status == module.STATUS, f"{says}: it is {measured.status}, the plug-in says {module.STATUS}"
    assert measured.source and measured.scope, f"{says}: a number names its source and its scope"
