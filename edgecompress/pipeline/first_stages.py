"""The stages before anything is built: the source, its program where the way leads over one, and its operators.

A variant whose engine's compiler answers in seconds is built as well, with few samples: nothing else knows as much.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core import environments, registry
from edgecompress.core.json import Json
from edgecompress.core.model import Stage, Substitute
from edgecompress.core.settings import Variant
from edgecompress.pipeline import conversion, plan, variant_stages
from edgecompress.pipeline.conversion import Call
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.searches.bit_budget import OPTION

READ = "stages.operations:run"
ALONE = ("check",)  # where one of them fails, the others go on
FEW = 4  # samples that a compiler's answer is asked with


@dataclass(frozen=True)
class First:
    """The stages in order; by variant the one that reads what its net consists of, and the one that compiles it."""

    stages: Sequence[Stage]
    readers: Mapping[str, str]
    compilers: Mapping[str, str]


def operators(job: Job, calls: Mapping[str, Sequence[Call]]) -> First:
    """Those of a job.

    The stages are those that a deploy of the job begins with, under the same names: nothing is done twice.
    """
    stages: dict[str, Stage] = {}
    readers = {name: _reader(job, way, stages) for name, way in calls.items()}
    compilers = {v.name: _compiler(job, v, calls[v.name], stages) for v in plan.chosen(job) if v.name in calls}
    front = {stage.name: stage for stage in plan.front(job)}
    needed, todo = set[str](), [maker for stage in stages.values() for maker in stage.inputs.values()]
    while todo:
        if (name := todo.pop()) in front and name not in needed:
            needed.add(name)
            todo += front[name].inputs.values()
    every = [*(stage for name, stage in front.items() if name in needed), *stages.values()]
    return First(every, readers, {name: at for name, at in compilers.items() if at})


def _compiler(job: Job, variant: Variant, way: Sequence[Call], stages: dict[str, Stage]) -> str:
    """Adds the stages to a variant's artifact where its engine's compiler is asked; returns the last one's name, or "".

    What changes the net itself is left out, and so is the search for the bits of each layer.
    """
    runtime = variant.runtime or job.target.value.runtime
    if not registry.runtime(runtime).compiled or any(
        environments.missing(module) for module in conversion.modules(job.target.value, variant, way).values()
    ):
        return ""
    shortened = list[Call]()
    for call, given in way[len(conversion.leading(way)) :]:
        options: dict[str, Json] = {key: value for key, value in given.items() if key != OPTION}
        samples = (
            {"samples": FEW} if "samples" in getattr(registry.step(call).options, "__dataclass_fields__", ()) else {}
        )
        shortened.append((call, {**options, **samples}))
    made: dict[str, Stage | Substitute] = {}
    last, _ = variant_stages.add(job, variant, shortened, made)
    for name, stage in made.items():
        assert isinstance(stage, Stage), name
        stages.setdefault(name, dataclasses.replace(stage, variants=ALONE))
    return last


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
