"""Mode energy: windows of inference under a sensor, between idle ones."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from edgecompress.core.model import Artifact, MeasuredTable, measured_table
from edgecompress.core.protocols import Meter
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.timing import timed, warm_up
from edgecompress.device.request import AgentRequest

RUNS = 10  # a window holds at least so many


class EnergyWindow(TypedDict):
    """A span of time and its energy."""

    n: int  # inferences
    begin_s: float
    seconds: float
    energy: MeasuredTable


class PowerTrace(TypedDict):
    """The samples of power that a sensor took."""

    t_s: list[float]
    watts: list[float]


class _EnergyReason(TypedDict):
    why_not: str  # why the sensor cannot read, or ""


class EnergyAnswer(_EnergyReason, total=False):
    """The answer of mode energy; nothing but the reason where the sensor cannot read."""

    warm: bool
    idle: list[EnergyWindow]
    windows: list[EnergyWindow]
    trace: PowerTrace


def run(request: AgentRequest, out: Path) -> EnergyAnswer:
    """Idle, windows back to back, idle, under the first of `sensors`; {"why_not": reason} when it cannot read."""
    sensor, root = importlib.import_module(request.sensors[0].module), Path(request.root)
    if why_not := sensor.unavailable(request.device, root):
        return {"why_not": why_not}
    runtime = runtime_module(request)
    model = Artifact.read(Path(request.artifact))
    inputs, profile = preloaded(request, model), request.profile
    session = runtime.open(model, request.threads)
    meter = sensor.open(request.device, root)
    warm = warm_up(session.run, inputs, profile)

    def rest() -> int:
        time.sleep(profile["idle_s"])
        return 0

    def work() -> int:
        return len(timed(session.run, inputs, profile["energy_window_s"], RUNS))

    meter.start()
    try:
        idle = [_metered(meter, rest, 0)]
        windows = [_metered(meter, work, request.batch) for _ in range(profile["energy_windows"])]
        idle.append(_metered(meter, rest, 0))
    finally:
        meter.stop()
    session.close()
    samples = meter.samples() if hasattr(meter, "samples") else []  # of power, where the sensor keeps them
    trace: PowerTrace = {"t_s": [t for t, _ in samples], "watts": [w for _, w in samples]}
    return {"why_not": "", "warm": warm["warm"], "idle": idle, "windows": windows, "trace": trace}


def _metered(meter: Meter, act: Callable[[], int], batch: int) -> EnergyWindow:
    """The energy of `act`, asked for at its end; `n` is the inferences that it made."""
    begin = time.monotonic()
    runs = act()
    end = time.monotonic()
    energy = measured_table(meter.energy(begin, end))
    return {"n": runs * batch, "begin_s": begin, "seconds": end - begin, "energy": energy}
