"""Artifacts of one runtime that run in turns in one process: what a part of a net costs is a difference of two."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress import agent, registry
from edgecompress.errors import EdgeError, StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.stages.count import counted, counter
from edgecompress.stages.measure import SLACK, START_S, Bench, connected, environment, variants


def run(request: Request) -> Artifact:
    """Each input but "samples", a label, timed on the inputs of "samples"; instructions where the device is simulated.

    options: "runtime", "rounds", "window_s", "profile" (its warmup_s, count_runs), "order" of the labels. What `facts`
    tells are the artifact's facts.
    """
    return Artifact(request.out, "turns", facts=facts(request)).write()


def facts(request: Request) -> dict[str, Any]:
    """{"medians_ms": {label: one of each round}, "status": "measured"}, or {"instructions": {label: per inference},
    "status": "simulated"}; with "crashed": {label: why} of those that cost only themselves, and "environment".

    Raises StageFailed where all of them crashed.
    """
    order = variants(request)
    options = {**request.options, "runtimes": dict.fromkeys(order, request.options["runtime"])}
    with connected(dataclasses.replace(request, options=options)) as bench:
        before, simulated = bench.shell.facts(), getattr(_transport(request), "SIMULATED", "")
        found, crashed, around = _counted(bench, order) if simulated else _timed(bench, order)
        told = environment(bench, before, {request.options["runtime"]: around})
    return {**found, "crashed": crashed, "environment": told}


def _transport(request: Request) -> Any:
    return registry.load("transports", request.context.device.get("transport", "host"))


def _timed(bench: Bench, order: Sequence[str]) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """In one agent; one that an artifact takes down is asked again without it."""
    crashed, left = dict[str, str](), list(order)
    while left:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                answer = _asked(bench, left, Path(scratch))
                return {"medians_ms": answer["medians_ms"], "status": "measured"}, crashed, answer["environment"]
            except EdgeError as error:
                blamed = _blamed(Path(scratch), left, error)
                crashed[blamed] = str(error)
                left.remove(blamed)
    raise _all_crashed(crashed)


def _all_crashed(crashed: Mapping[str, str]) -> StageFailed:
    return StageFailed("; ".join(f"{label} crashed: {why}" for label, why in crashed.items()) or "nothing to measure")


def _asked(bench: Bench, labels: Sequence[str], out: Path) -> dict[str, Any]:
    options, warmup_s = bench.request.options, bench.profile["warmup_s"]
    how = {"rounds": options["rounds"], "window_s": options["window_s"], "warmup_s": warmup_s}
    artifacts = {label: str(bench.request.inputs[label].path) for label in labels}
    seconds = len(labels) * (warmup_s + options["rounds"] * options["window_s"])
    bench.request.progress(0.0, f"{len(labels)} artifacts in turns, {seconds:.0f} s")
    return bench.ask("turns", labels[0], out, START_S + SLACK * seconds, artifacts=artifacts, **how)


def _blamed(out: Path, labels: Sequence[str], error: EdgeError) -> str:
    """Whose turn it was when the agent ended; raises the error where it was nobody's."""
    file = out / agent.AT
    label = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    if label not in labels:
        raise error
    return label


def _counted(bench: Bench, order: Sequence[str]) -> tuple[dict[str, Any], dict[str, str], dict[str, Any]]:
    """One after the other, in an agent each: a count is the same every time."""
    sensor, instructions, crashed, around = counter(bench), dict[str, int](), dict[str, str](), dict[str, Any]()
    for i, label in enumerate(order):
        bench.request.progress(i / len(order), f"counting {label}")
        try:
            numbers, around = counted(bench, sensor, label, 1)
            instructions[label] = numbers["instructions"]
        except EdgeError as error:
            crashed[label] = str(error)
    if not instructions:
        raise _all_crashed(crashed)
    return {"instructions": instructions, "status": "simulated"}, crashed, around
