"""The stage that times artifacts of one runtime interleaved in one process: a part costs the difference of two."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, Status
from edgecompress.device.agent.environment import Environment
from edgecompress.device.agent.interleaved import AT, Interleaved
from edgecompress.stages.device_bench import SLACK, START_S, DeviceBench, connected, environment, variants
from edgecompress.stages.instructions import counted, counter


def run(request: Request) -> Artifact:
    """Each input but "samples", a label, timed on the inputs of "samples"; instructions where the device is simulated.

    options: "runtime", "rounds", "window_s", "profile" (its warmup_s, count_runs), "order" of the labels. What `facts`
    tells are the artifact's facts.
    """
    return Artifact(request.out, "turns", facts={**facts(request)}).write()


class CostTable(TypedDict, total=False):
    """What each label costs: times, or instructions."""

    medians_ms: dict[str, list[float]]  # one of each round
    instructions: dict[str, int]  # per inference
    status: Status


class InterleavedFacts(CostTable, total=False):
    """The costs, which labels crashed and why, and the environment."""

    crashed: dict[str, str]
    environment: dict[str, Json]


@dataclass(frozen=True)
class _Costs:
    table: CostTable
    crashed: dict[str, str]
    environment: Environment


def facts(request: Request) -> InterleavedFacts:
    """{"medians_ms": {label: one of each round}, "status": "measured"}, or {"instructions": {label: per inference},
    "status": "simulated"}; with "crashed": {label: why} of those that cost only themselves, and "environment".

    Raises StageFailed where all of them crashed.
    """
    order = variants(request)
    options = {**request.options, "runtimes": dict.fromkeys(order, request.options["runtime"])}
    with connected(dataclasses.replace(request, options=options)) as bench:
        before = bench.shell.facts()
        simulated = registry.transport(request.context.device.get("transport", "host")).simulated
        costs = _counted(bench, order) if simulated else _timed(bench, order)
        around = environment(bench, before, {request.options["runtime"]: costs.environment})
    return {**costs.table, "crashed": costs.crashed, "environment": around}


def _timed(bench: DeviceBench, order: Sequence[str]) -> _Costs:
    """In one agent; one that an artifact takes down is asked again without it."""
    crashed, left = dict[str, str](), list(order)
    while left:
        with tempfile.TemporaryDirectory() as scratch:
            try:
                answer = _interleaved(bench, left, Path(scratch))
                table: CostTable = {"medians_ms": answer["medians_ms"], "status": "measured"}
                return _Costs(table, crashed, answer["environment"])
            except EdgeError as error:
                file = Path(scratch) / AT  # whose turn it was when the agent ended
                blamed = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
                if blamed not in left:
                    raise
                crashed[blamed] = str(error)
                left.remove(blamed)
    raise _all_crashed(crashed)


def _all_crashed(crashed: Mapping[str, str]) -> StageFailed:
    return StageFailed("; ".join(f"{label} crashed: {why}" for label, why in crashed.items()) or "nothing to measure")


def _interleaved(bench: DeviceBench, labels: Sequence[str], out: Path) -> Interleaved:
    options, warmup_s = bench.request.options, bench.profile["warmup_s"]
    seconds = len(labels) * (warmup_s + options["rounds"] * options["window_s"])
    request = dataclasses.replace(
        bench.agent_request("interleaved", labels[0]),
        artifact="",
        artifacts={label: str(bench.request.inputs[label].path) for label in labels},
        rounds=options["rounds"],
        profile={**bench.profile, "window_s": options["window_s"]},
    )
    bench.request.progress(0.0, f"{len(labels)} artifacts interleaved, {seconds:.0f} s")
    answer: Interleaved = bench.ask(request, out, START_S + SLACK * seconds)
    return answer


def _counted(bench: DeviceBench, order: Sequence[str]) -> _Costs:
    """One after the other, in an agent each: a count is the same every time."""
    sensor, instructions, crashed, environments = counter(bench), dict[str, int](), dict[str, str](), []
    for i, label in enumerate(order):
        bench.request.progress(i / len(order), f"counting {label}")
        try:
            numbers, around = counted(bench, sensor, label, 1)
            instructions[label] = numbers["instructions"]
            environments.append(around)
        except EdgeError as error:
            crashed[label] = str(error)
    if not environments:
        raise _all_crashed(crashed)
    return _Costs({"instructions": instructions, "status": "simulated"}, crashed, environments[-1])
