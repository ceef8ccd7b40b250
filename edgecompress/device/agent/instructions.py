"""Mode count: instructions of single inferences."""

from __future__ import annotations

import gc
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict

from edgecompress.core.model import Artifact
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.request import AgentRequest

WARM = 3  # inferences before any is counted: the first ones allocate


class _CountReason(TypedDict):
    why_not: str  # why the sensor cannot count, or ""


class Counts(_CountReason, total=False):
    """The answer of mode count; nothing but the reason where the sensor cannot count."""

    empty: list[Mapping[str, int]]  # of empty marks, by class of instructions
    runs: list[Mapping[str, int]]  # of single inferences
    environment: Environment


def run(request: AgentRequest, out: Path) -> Counts:
    """Instructions of single inferences of one input, and of empty marks, by the first of `sensors`."""
    sensor, root = importlib.import_module(request.sensors[0].module), Path(request.root)
    if why_not := sensor.unavailable(request.device, root):
        return {"why_not": why_not}
    runtime = runtime_module(request)
    model = Artifact.read(Path(request.artifact))
    session, inputs = runtime.open(model, request.threads), preloaded(request, model)[0]
    counter = sensor.open(request.device, root)
    for _ in range(WARM):
        session.run(inputs)
    times = range(request.profile["count_runs"])
    gc.collect()
    gc.disable()
    empty = [counter.count(lambda: None) for _ in times]
    runs = [counter.count(lambda: session.run(inputs)) for _ in times]
    session.close()
    return {"why_not": "", "empty": empty, "runs": runs, "environment": environment(request, runtime)}
