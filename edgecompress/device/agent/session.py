"""Mode session: load, first inference, warm-up, then a timed window each time that mode `round` asks for one."""

from __future__ import annotations

import array
import gc
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress.core import child_process
from edgecompress.core.errors import brief
from edgecompress.core.model import SETTINGS, Artifact
from edgecompress.core.protocols import Arena, Session
from edgecompress.device.agent import call_cost, disturbance
from edgecompress.device.agent.call_cost import CallCost
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.memory import ProcessMemory, ResidentMemory
from edgecompress.device.agent.timing import Inputs, Run, clocked, timed, warm_up
from edgecompress.device.request import AgentRequest

LATENCIES = "latencies.ns"  # nanoseconds per run, 64-bit whole numbers of this machine, in run order
WINDOW = "window"  # what the conductor says: one more; anything else is the list of the windows that are kept


class SessionMemory(ResidentMemory, Arena):
    """The resident memory of a session, and the arena that its runtime planned."""


class SessionFacts(CallCost):
    """What a session tells beside its windows."""

    import_ms: float
    load_ms: float
    first_ms: float
    warm: bool
    warmup_s: float
    warmup_runs: int
    batch: int


class SessionAnswer(SessionFacts):
    """The answer of mode session; the latencies of the windows that were kept are in a file."""

    warmup_blocks_ms: list[float]
    memory: SessionMemory
    environment: Environment


def run(request: AgentRequest, out: Path) -> SessionAnswer:
    """A session: it says when it is warm, then measures a window for each line that it reads."""
    conductor = Conductor()
    runtime, import_ms = clocked(lambda: runtime_module(request))
    model = Artifact.read(Path(request.artifact))
    inputs = preloaded(request, model)
    memory = ProcessMemory()
    session, load_ms = clocked(lambda: runtime.open(model, request.threads))
    _, first_ms = clocked(lambda: session.run(inputs[0]))
    warm = warm_up(session.run, inputs, request.profile)
    before = memory.peak()
    windows = _Windows(session.run, inputs, request, statistics.median(warm["warmup_blocks_ms"]))
    gc.collect()
    gc.disable()
    conductor.say(warm)
    while (word := conductor.hear()) == WINDOW:
        conductor.say(windows.take())
    gc.enable()
    windows.write(out / LATENCIES, word)
    used: SessionMemory = {**memory.facts(before, windows.record_bytes), **arena(session, runtime)}
    session.close()
    return {
        **call_cost.measured(runtime, model.facts.get(SETTINGS), request.threads),
        "import_ms": import_ms,
        "load_ms": load_ms,
        "first_ms": first_ms,
        **warm,
        "memory": used,
        "batch": request.batch,
        "environment": environment(request, runtime),
    }


class Conductor:
    """The other end of stdin and stdout, which nobody else in this process has from now on."""

    def __init__(self) -> None:
        child_process.end_with_parent()
        self.lines = os.fdopen(os.dup(0), encoding="utf-8")
        self.words = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)

    def say(self, word: object) -> None:
        """One JSON value, as a line."""
        self.words.write(json.dumps(word) + "\n")
        self.words.flush()

    def hear(self) -> Any:
        """The next JSON value; ends this process where the conductor has gone."""
        line = self.lines.readline()
        if not line:
            sys.exit("the process that asks for windows has gone")
        return json.loads(line)


class _Windows:
    """The windows of a session: each begins with a run that is not timed, as others ran since the last one."""

    def __init__(self, run: Run, inputs: Sequence[Inputs], request: AgentRequest, typical_ms: float) -> None:
        self.run, self.inputs, self.medians_ms = run, list(inputs), [typical_ms]
        self.times: list[array.array[int]] = []
        profile = request.profile
        self.seconds = profile["window_s"] / profile["windows"]
        self.runs = -(-profile["window_runs"] // profile["windows"])

    def take(self) -> disturbance.Window:
        """Times one."""
        turn = len(self.times) % len(self.inputs)
        self.run(self.inputs[turn])
        before = disturbance.Counters.now()
        times = timed(self.run, self.inputs[turn:] + self.inputs[:turn], self.seconds, self.runs)
        after = disturbance.Counters.now()
        self.times.append(times)
        window = disturbance.window(before, after, times, statistics.median(self.medians_ms))
        self.medians_ms.append(window["median_ms"])
        return window

    def write(self, file: Path, kept: Sequence[int]) -> None:
        """Writes the latencies of the windows with these numbers."""
        with file.open("wb") as stream:
            for number in kept:
                self.times[number].tofile(stream)

    @property
    def record_bytes(self) -> int:
        """Of all latencies."""
        return sum(times.itemsize * len(times) for times in self.times)


def arena(session: Session, runtime: ModuleType) -> Arena:
    """What the session tells of its plan; a plan that breaks is told, and costs no measurement."""
    if not hasattr(session, "arena"):
        reason = getattr(runtime, "NO_ARENA", "its runtime does not report its memory plan")
        return {"arena_bytes": None, "arena_reason": reason, "arena_peak": ""}
    try:
        planned: Arena = session.arena()
    except Exception as error:
        message = brief(str(error))
        return {"arena_bytes": None, "arena_reason": f"{type(error).__name__}: {message}", "arena_peak": ""}
    return planned
