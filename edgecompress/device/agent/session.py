"""Mode session: load, first inference, warm-up, timed window, memory."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TypedDict

from edgecompress.core.model import SETTINGS, Artifact
from edgecompress.core.protocols import Arena, Session, Windows
from edgecompress.device.agent import call_cost
from edgecompress.device.agent.call_cost import CallCost
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.memory import ProcessMemory, ResidentMemory
from edgecompress.device.agent.timing import Inputs, Run, clocked, timed, warm_up
from edgecompress.device.request import AgentRequest

LATENCIES = "latencies.ns"  # nanoseconds per run, 64-bit whole numbers of this machine, in run order


class Neighbours(TypedDict):
    """Processor seconds that others took during a window; None where the kernel does not tell."""

    stolen_s: float | None  # other guests of the hypervisor
    others_s: float | None  # other processes here


class Window(Neighbours):
    """The timed window of a session, whose latencies are in a file."""

    n: int
    window_s: float
    preempted: int
    cpu_s: float


class SessionMemory(ResidentMemory, Arena):
    """The resident memory of a session, and the arena that its runtime planned."""


class SessionFacts(Window, CallCost):
    """What one session measured."""

    import_ms: float
    load_ms: float
    first_ms: float
    warm: bool
    warmup_s: float
    warmup_runs: int
    batch: int


class SessionAnswer(SessionFacts):
    """The answer of mode session."""

    warmup_blocks_ms: list[float]
    memory: SessionMemory
    environment: Environment


def run(request: AgentRequest, out: Path) -> SessionAnswer:
    """Load, first inference, warm-up, timed window, memory: the protocol of one session."""
    runtime, import_ms = clocked(lambda: runtime_module(request))
    model = Artifact.read(Path(request.artifact))
    inputs = preloaded(request, model)
    memory = ProcessMemory()
    session, load_ms = clocked(lambda: runtime.open(model, request.threads))
    _, first_ms = clocked(lambda: session.run(inputs[0]))
    warm = warm_up(session.run, inputs, request.profile)
    before = memory.peak()
    window = _window(session.run, inputs, request.profile, out)
    used: SessionMemory = {**memory.facts(before, 8 * window["n"]), **arena(session, runtime)}
    session.close()
    return {
        **call_cost.measured(runtime, model.facts.get(SETTINGS), request.threads),
        "import_ms": import_ms,
        "load_ms": load_ms,
        "first_ms": first_ms,
        **warm,
        **window,
        "memory": used,
        "batch": request.batch,
        "environment": environment(request, runtime),
    }


def _window(run: Run, inputs: Sequence[Inputs], profile: Windows, out: Path) -> Window:
    """The timed window: latencies to a file, and what disturbed them."""
    gc.collect()
    gc.disable()
    ticks, preempted, busy, begin = _ticks(), _preempted(), time.process_time(), time.perf_counter()
    times = timed(run, inputs, profile["window_s"], profile["window_runs"])
    window_s = time.perf_counter() - begin
    preempted, cpu_s = _preempted() - preempted, time.process_time() - busy
    neighbours = _neighbours(ticks, _ticks(), cpu_s)
    gc.enable()
    with (out / LATENCIES).open("wb") as file:
        times.tofile(file)
    return {"n": len(times), "window_s": window_s, "preempted": preempted, "cpu_s": cpu_s, **neighbours}


def _ticks() -> list[int]:
    """Of all processors since boot: user, nice, system, idle, iowait, irq, softirq, steal; empty where none tells."""
    try:
        return [int(n) for n in Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return []


def _neighbours(before: list[int], after: list[int], cpu_s: float) -> Neighbours:
    """Processor seconds that other guests of the hypervisor took, and that other processes here did."""
    if len(before) < 8 or len(after) < 8:
        return {"stolen_s": None, "others_s": None}
    spent = [(b - a) / os.sysconf("SC_CLK_TCK") for a, b in zip(before, after, strict=False)]
    busy_s = sum(spent[:3]) + sum(spent[5:7])
    return {"stolen_s": max(0.0, spent[7]), "others_s": max(0.0, busy_s - cpu_s)}


def _preempted() -> int:
    """Times the kernel took the processor away from this process (its threads too); 0 where nothing counts them."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def arena(session: Session, runtime: ModuleType) -> Arena:
    """What the session tells of its plan; a plan that breaks is told, and costs no measurement."""
    if not hasattr(session, "arena"):
        reason = getattr(runtime, "NO_ARENA", "its runtime tells nothing of its memory plan")
        return {"arena_bytes": None, "arena_reason": reason, "arena_peak": ""}
    try:
        planned: Arena = session.arena()
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        return {"arena_bytes": None, "arena_reason": f"{type(error).__name__}: {message}", "arena_peak": ""}
    return planned
