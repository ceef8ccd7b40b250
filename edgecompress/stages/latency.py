"""The stage that measures latency: one session of each variant, in an agent of its own, on the device."""

from __future__ import annotations

import array
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.session_stats import GRAIN_S, KEPT, OTHERS, STOLEN, SessionStatistics, drifting, in_numbers
from edgecompress.device.agent.environment import Environment
from edgecompress.device.agent.session import LATENCIES, SessionFacts, SessionMemory
from edgecompress.stages._bench import Crashed, DeviceBench, connected, environment, raise_if_all_crashed, variants

# --------------------------------------------------------------------------- rounds


class VariantMemory(SessionMemory):
    """The memory of a session, and the size of its artifact."""

    artifact_bytes: int


class SessionNumbers(SessionStatistics, SessionFacts):
    """What a round tells of a session of a variant."""

    memory: VariantMemory
    items_per_s: float
    flags: list[str]


def round(request: Request) -> Artifact:
    """One session of each variant in `options["order"]`; a variant whose agent dies is "crashed", with the reason.

    Raises StageFailed only when no variant gave an answer.
    """
    numbers, environments, order = dict[str, SessionNumbers | Crashed](), dict[str, Environment](), variants(request)
    with connected(request) as bench:
        before = bench.shell.facts()
        for i, variant in enumerate(order):
            request.progress(i / len(order), f"measuring {variant}")
            try:
                numbers[variant], environments[variant] = _session(bench, variant)
            except EdgeError as error:
                numbers[variant] = {"crashed": str(error)}
        around = environment(bench, before, environments)
    raise_if_all_crashed(numbers)
    facts = {"variants": numbers, "order": order, "environment": around}
    return Artifact(request.out, "round", facts=facts).write()


def _session(bench: DeviceBench, variant: str) -> tuple[SessionNumbers, Environment]:
    """A variant's numbers and its environment; its latencies are kept as VARIANT.json."""
    with tempfile.TemporaryDirectory() as scratch:
        answer = bench.ask(bench.agent_request("session", variant), Path(scratch))
        latencies_ms = _latencies_ms(Path(scratch) / LATENCIES)
    environment: Environment = answer.pop("environment")
    _keep(bench.request.out / f"{variant}.json", latencies_ms, answer)
    del answer["warmup_blocks_ms"]
    memory: SessionMemory = answer.pop("memory")
    session: SessionFacts = answer
    statistics = in_numbers(latencies_ms)
    return {
        **statistics,
        **session,
        "memory": {"artifact_bytes": bench.request.inputs[variant].size_bytes, **memory},
        "items_per_s": session["batch"] * session["n"] / session["window_s"],
        "flags": _flags(session, statistics),
    }, environment


def _latencies_ms(file: Path) -> list[float]:
    times = array.array("q")
    times.frombytes(file.read_bytes())
    return [t / 1e6 for t in times]


def _keep(file: Path, latencies_ms: Sequence[float], answer: Mapping[str, object]) -> None:
    """The raw session: latencies in run order, the medians of the warm-up's blocks, and how often one was kept."""
    every = max(1, math.ceil(len(latencies_ms) / KEPT))
    raw = {"latencies_ms": latencies_ms[::every], "every": every, **answer}
    file.write_text(json.dumps(raw, allow_nan=False), encoding="utf-8")


def _flags(session: SessionFacts, statistics: SessionStatistics) -> list[str]:
    """What a reader of the numbers should know."""
    flags = [] if session["warm"] else [f"not warm after {session['warmup_s']:.0f} s"]
    if statistics["drift"]:
        flags.append(drifting(statistics["drift"], "window"))
    if statistics["outliers"]:
        flags.append(f"outliers: {statistics['outliers']} of {session['n']}")
    if session["preempted"] > session["n"] / 100:
        flags.append(f"preempted: {session['preempted']} in {session['n']} runs")
    return flags + _neighbours(session)


def _neighbours(session: SessionFacts) -> list[str]:
    """What else took the processors during the window, where the kernel tells."""
    flags, window_s = [], session["window_s"]
    stolen_s, others_s = session.get("stolen_s") or 0.0, session.get("others_s") or 0.0
    if stolen_s > GRAIN_S + STOLEN * window_s:
        flags.append(f"stolen: the hypervisor took {stolen_s:.1f} s of processor in {window_s:.0f} s")
    if others_s > GRAIN_S + OTHERS * window_s:
        flags.append(f"not alone: other processes kept {others_s / window_s:.1f} processors busy")
    return flags
