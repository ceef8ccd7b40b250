"""Instructions per inference, where what runs the artifact counts them: an emulator, or a simulator of this machine."""

from __future__ import annotations

import dataclasses
import json
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.device.agent.environment import Environment
from edgecompress.device.agent.instructions import Counts
from edgecompress.device.agent.measuring_round import Crashed
from edgecompress.stages.device_bench import (
    DeviceBench,
    connected,
    environment,
    named,
    quantity,
    raise_if_all_crashed,
    variants,
)

PROCESSES = 3  # that count: whether they agree is told


class CountNumbers(TypedDict):
    """The instructions of a variant per inference."""

    instructions: int
    classes: dict[str, int]
    overhead: int  # of the empty marks, already taken off
    processes: list[int]  # of each process
    identical: bool
    runs: int


def run(request: Request) -> Artifact:
    """Instructions per inference of each variant, by class, each in PROCESSES agents; a variant may be "crashed".

    The figure is the median over the processes of the median over their inferences, less what the marks around an
    inference take. options: "runtimes", "profile", "order". Raises StageFailed when no variant gave an answer.
    """
    numbers, environments, order = dict[str, CountNumbers | Crashed](), dict[str, Environment](), variants(request)
    with connected(request) as bench:
        sensor = counter(bench)
        before = bench.shell.facts()
        for i, variant in enumerate(order):
            request.progress(i / len(order), f"counting {variant}")
            try:
                numbers[variant], environments[variant] = counted(bench, sensor, variant, PROCESSES)
            except EdgeError as error:
                numbers[variant] = {"crashed": str(error)}
        around = environment(bench, before, environments)
    raise_if_all_crashed(numbers)
    legend = registry.sensor(sensor).legend  # what a class of instructions is
    source = {"sensor": sensor, "status": "simulated", "legend": dict(legend), "environment": around}
    facts = {"variants": numbers, "order": order, **source}
    return Artifact(request.out, "count", facts=facts).write()


def counter(bench: DeviceBench) -> str:
    """The first of the device's sensors that counts instructions; raises InputError where it names none."""
    sensor = next((s for s in bench.device.get("sensors", ()) if quantity(s) == "instructions"), "")
    if not sensor:
        raise InputError('the device names no sensor that counts instructions; add "instructions" to its sensors')
    return sensor


def counted(bench: DeviceBench, sensor: str, variant: str, processes: int) -> tuple[CountNumbers, Environment]:
    """A variant's numbers, from so many agents, and its environment; their answers are kept as VARIANT.json."""
    answers = list[Counts]()
    request = dataclasses.replace(bench.agent_request("count", variant), sensors=(named(sensor),))
    for _ in range(processes):
        with tempfile.TemporaryDirectory() as scratch:
            answers.append(bench.ask(request, Path(scratch)))
        if why_not := answers[-1]["why_not"]:
            raise StageFailed(f"sensor {sensor}: {why_not}")
    (bench.request.out / f"{variant}.json").write_text(json.dumps(answers, allow_nan=False), encoding="utf-8")
    each = [  # by class, the median over the inferences less the median over empty marks
        {name: _median_of(told["runs"], name) - _median_of(told["empty"], name) for name in told["runs"][0]}
        for told in answers
    ]
    totals = [counts["instructions"] for counts in each]
    middle = sorted(each, key=lambda counts: counts["instructions"])[len(each) // 2]
    numbers: CountNumbers = {
        "instructions": middle["instructions"],
        "classes": {name: n for name, n in middle.items() if name != "instructions"},
        "overhead": _median_of(answers[0]["empty"], "instructions"),
        "processes": totals,
        "identical": len(set(totals)) == 1,
        "runs": len(answers[0]["runs"]),
    }
    return numbers, answers[0]["environment"]


def _median_of(counts: Sequence[Mapping[str, int]], name: str) -> int:
    return int(statistics.median_low([each.get(name, 0) for each in counts]))
