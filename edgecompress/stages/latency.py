"""The stage that measures latency: a session of each variant in a process of its own, their windows by turns."""

from __future__ import annotations

import array
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

from edgecompress.core import environments, registry, sandbox
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.core.session_stats import (
    GRAIN_S,
    KEPT,
    OTHERS,
    STOLEN,
    SessionStatistics,
    drifting,
    in_numbers,
    unknown,
)
from edgecompress.device import agent_client, machine
from edgecompress.device.agent.environment import Environment
from edgecompress.device.agent.measuring_round import Crashed, RoundAnswer, RoundSession
from edgecompress.device.agent.session import LATENCIES
from edgecompress.device.request import AgentRequest
from edgecompress.device.session_numbers import SessionNumbers
from edgecompress.stages.device_bench import (
    SLACK,
    START_S,
    DeviceBench,
    connected,
    environment,
    raise_if_all_crashed,
    variants,
)

# --------------------------------------------------------------------------- rounds


def round(request: Request) -> Artifact:
    """One session of each variant in `options["order"]`; a variant whose agent dies is "crashed", with the reason.

    Raises StageFailed only when no variant gave an answer.
    """
    numbers, environments, order = dict[str, SessionNumbers | Crashed](), dict[str, Environment](), variants(request)
    with connected(request) as bench, tempfile.TemporaryDirectory() as scratch:
        before = bench.shell.facts()
        request.progress(0.0, f"measuring {', '.join(order)} by turns")
        asked = _request(bench, order)
        p = bench.profile
        deadline_s = len(order) * (START_S + SLACK * (float(p["warmup_cap_s"]) + 2 * p["window_s"]))
        answer: RoundAnswer = bench.ask(asked, Path(scratch), deadline_s)
        for variant, session in answer["sessions"].items():
            if crashed := str(session.get("crashed", "")):
                numbers[variant] = {"crashed": machine.line(crashed, 1000)}
            else:
                told = cast("RoundSession", session)
                environments[variant] = told["environment"]
                numbers[variant] = _session(request, variant, told, Path(scratch) / variant / LATENCIES)
        around = environment(bench, before, environments)
    raise_if_all_crashed(numbers)
    facts = {"variants": numbers, "order": order, "environment": around}
    return Artifact(request.out, "round", facts=facts).write()


def _request(bench: DeviceBench, order: Sequence[str]) -> AgentRequest:
    """A round of all variants, each by the Python of its runtime where they run here."""
    options = bench.request.options
    modules = {v: registry.load("runtimes", options["runtimes"][v]) for v in order}
    here = bench.shell.here
    return replace(
        bench.agent_request("round", order[0]),
        runtime=None,
        threads=bench.request.context.threads,
        artifact="",
        artifacts={v: str(bench.request.inputs[v].path) for v in order},
        runtimes={v: agent_client.plugin("runtimes", options["runtimes"][v]) for v in order},
        pythons={v: environments.python(module) for v, module in modules.items()} if here else {},
        own_threads=bench.own_threads,
        number=options.get("number", 0),
        resident_bytes=sandbox.entered.resident_bytes if here and sandbox.entered.resident_bytes < sandbox.ALL else 0,
    )


def _session(request: Request, variant: str, session: RoundSession, file: Path) -> SessionNumbers:
    """A variant's numbers; its latencies are kept as VARIANT.json."""
    latencies_ms = _latencies_ms(file)
    raw = {key: value for key, value in session.items() if key != "environment"}
    _keep(request.out / f"{variant}.json", latencies_ms, raw)
    statistics = unknown() if session["noisy"] else in_numbers(latencies_ms)
    numbers = {
        **statistics,
        **{key: value for key, value in raw.items() if key != "warmup_blocks_ms"},
        "memory": {"artifact_bytes": request.inputs[variant].size_bytes, **session["memory"]},
        "items_per_s": session["batch"] * session["n"] / session["window_s"],
        "flags": _flags(session, statistics),
    }
    return cast("SessionNumbers", numbers)


def _latencies_ms(file: Path) -> list[float]:
    times = array.array("q")
    times.frombytes(file.read_bytes())
    if min(times, default=0) < 0:
        raise StageFailed(f"{file.parent.name}: the device answered a run of {min(times)} ns")
    return [t / 1e6 for t in times]


def _keep(file: Path, latencies_ms: Sequence[float], answer: Mapping[str, object]) -> None:
    """The raw session: latencies in run order, the medians of the warm-up's blocks, and how often one was kept."""
    every = max(1, math.ceil(len(latencies_ms) / KEPT))
    raw = {"latencies_ms": latencies_ms[::every], "every": every, **answer}
    file.write_text(json.dumps(raw, allow_nan=False), encoding="utf-8")


def _flags(session: RoundSession, statistics: SessionStatistics) -> list[str]:
    """What a reader of the numbers should know."""
    flags = [] if session["warm"] else [f"not warm after {session['warmup_s']:.0f} s"]
    if session["noisy"]:
        return [*flags, f"too noisy: {session['noisy']}"]
    if session["repeated"]:
        flags.append(f"disturbed: {session['repeated']} windows were repeated")
    if statistics["drift"]:
        flags.append(drifting(statistics["drift"], "window"))
    if statistics["outliers"]:
        flags.append(f"outliers: {statistics['outliers']} of {session['n']}")
    if (session["preempted"] or 0) > session["n"] / 100:
        flags.append(f"preempted: {session['preempted']} in {session['n']} runs")
    return flags + _neighbours(session)


def _neighbours(session: RoundSession) -> list[str]:
    """What else took the processors during the windows, where the kernel tells."""
    flags, window_s = [], session["window_s"]
    stolen_s, others_s = session["stolen_s"] or 0.0, session["others_s"] or 0.0
    if stolen_s > GRAIN_S + STOLEN * window_s:
        flags.append(f"stolen: the hypervisor took {stolen_s:.1f} s of processor in {window_s:.0f} s")
    if others_s > GRAIN_S + OTHERS * window_s:
        flags.append(f"not alone: other processes kept {others_s / window_s:.1f} processors busy")
    return flags
