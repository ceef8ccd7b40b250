"""The stages before anything is built: the source, its program where the way leads over one, and its operators."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from edgecompress.core import registry
from edgecompress.core.model import Stage
from edgecompress.pipeline import conversion, plan, variant_stages
from edgecompress.pipeline.conversion import Call
from edgecompress.pipeline.job import Job

READ = "stages.operations:run"
ALONE = ("check",)  # where one of them fails, the others go on


def operators(job: Job, calls: Mapping[str, Sequence[Call]]) -> tuple[list[Stage], dict[str, str]]:
    """The stages in order, and of each variant the stage that reads what its net consists of.

    The stages are those that a deploy of the job begins with, under the same names: nothing is done twice.
    """
    stages: dict[str, Stage] = {}
    readers = {name: _reader(job, way, stages) for name, way in calls.items()}
    front = {stage.name: stage for stage in plan.front(job)}
    needed, todo = set[str](), [maker for stage in stages.values() for maker in stage.inputs.values()]
    while todo:
        if (name := todo.pop()) in front and name not in needed:
            needed.add(name)
            todo += front[name].inputs.values()
    return [*(stage for name, stage in front.items() if name in needed), *stages.values()], readers


def _reader(job: Job, way: Sequence[Call], stages: dict[str, Stage]) -> str:
    """Adds the stages to the graph that a variant is built from: what changes the net itself is left out."""
    at = variant_stages.SOURCE
    last = next((i for i, (call, _) in enumerate(way) if call == conversion.TRACE), -1)
    for call, _ in way[: last + 1]:
        if not call.endswith(":apply"):
            step = variant_stages.shared(job, call, at)
            stages.setdefault(step.name, dataclasses.replace(step, variants=ALONE))
            at = step.name
    name, plugins = f"operators/{at}", registry.readers(job.resolved.kind)
    if last >= 0:  # by the tables of the engines that the program goes to, all in one process: each loads torch
        plugins = (*(stages[name].plugins if name in stages else ()), *filter(None, [converter(way)]))
    names = {"converters": [each.removeprefix("runtimes.") for each in dict.fromkeys(plugins)]} if last >= 0 else {}
    stages[name] = Stage(name, READ, {"model": at}, names, ALONE, plugins=tuple(dict.fromkeys(plugins)), estimate_s=5.0)
    return name


def converter(way: Sequence[Call]) -> str:
    """The runtime that converts the program of a way, "runtimes.litert", or ""."""
    called = [call for call, _ in way]
    behind = called[called.index(conversion.TRACE) :] if conversion.TRACE in called else []
    return next((call.split(":")[0] for call in behind if call.endswith(":export")), "")
