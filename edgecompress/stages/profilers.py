"""The stage of a profiler: it profiles each of the last two variants, in an agent of its own."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.device.request import ProfilerModule
from edgecompress.stages.device_bench import (
    SLACK,
    START_S,
    DeviceBench,
    connected,
    named,
    raise_if_all_crashed,
    variants,
)


def run(request: Request) -> Artifact:
    """One profiler over each variant, in an agent of its own. options: "pass", "options", "runtimes", "profile".

    Raises StageFailed when every variant crashed.
    """
    with connected(request) as bench:
        answers = {variant: _answer(bench, variant) for variant in variants(request)}
    raise_if_all_crashed(answers)
    facts = {"pass": request.options["pass"], "options": dict(request.options["options"]), "variants": answers}
    return Artifact(request.out, "pass", facts=facts).write()


def _answer(bench: DeviceBench, variant: str) -> Mapping[str, Json]:
    """What the profiler finds in a variant, or {"crashed": why}."""
    name, options = bench.request.options["pass"], dict(bench.request.options["options"])
    module = registry.load("profilers", name)
    deadline_s = START_S + SLACK * float(module.estimate_s(module.Options(**options)))
    request = dataclasses.replace(
        bench.agent_request("profiler", variant),
        profiler=ProfilerModule(name, module.__name__, options),
        sensors=tuple(named(sensor) for sensor in bench.sensors),
    )
    bench.request.progress(0.0, f"{name} of {variant}")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            answer: Mapping[str, Json] = bench.ask(request, Path(scratch), deadline_s)
            return answer
    except EdgeError as error:
        return {"crashed": str(error)}
