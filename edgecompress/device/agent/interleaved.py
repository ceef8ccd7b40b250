"""Mode interleaved: several artifacts of one runtime, timed by turns in one process."""

from __future__ import annotations

import functools
import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Session
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.timing import timed
from edgecompress.device.request import AgentRequest

AT = "at"  # a file with the label of the artifact that is loaded or run
RUNS = 3  # a window holds at least so many
ITEMS = 4  # batches of samples that each of the artifacts rotates through: they are all in memory at once


class Interleaved(TypedDict):
    """The answer of mode interleaved."""

    medians_ms: dict[str, list[float]]  # by label, one of each round
    environment: Environment


def run(request: AgentRequest, out: Path) -> Interleaved:
    """Median milliseconds of each of `artifacts` in each of `rounds`, in one process; the order rotates every round.

    They all take the inputs of `samples`. A window lasts the profile's window_s, after a warm-up of its warmup_s. The
    file AT tells who took the process down.
    """
    runtime = runtime_module(request)
    sessions: dict[str, Session] = {}
    windows: dict[str, Callable[[float], Sequence[int]]] = {}
    for label, path in request.artifacts.items():
        mark(out, label)
        model = Artifact.read(Path(path))
        inputs = preloaded(request, model, ITEMS)
        sessions[label] = runtime.open(model, request.threads)
        windows[label] = functools.partial(timed, sessions[label].run, inputs, runs=RUNS)
        windows[label](request.profile["warmup_s"])
    medians_ms = _medians_ms(windows, request, out)
    for each in sessions.values():
        each.close()
    return {"medians_ms": medians_ms, "environment": environment(request, runtime)}


def _medians_ms(
    windows: Mapping[str, Callable[[float], Sequence[int]]], request: AgentRequest, out: Path
) -> dict[str, list[float]]:
    medians_ms: dict[str, list[float]] = {label: [] for label in windows}
    order = list(windows)
    gc.collect()
    gc.disable()
    for number in range(request.rounds):
        first = number % len(order)
        for label in (*order[first:], *order[:first]):
            mark(out, label)
            medians_ms[label].append(statistics.median(windows[label](request.profile["window_s"])) / 1e6)
    gc.enable()
    return medians_ms


def mark(out: Path, label: str) -> None:
    """Notes which artifact runs now."""
    (out / AT).write_text(label, encoding="utf-8")
