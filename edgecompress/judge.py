"""The stages that judge an artifact: against the source's answers and its limits, and on its device."""

from __future__ import annotations

import dataclasses

from edgecompress import config
from edgecompress.catalog import is_factory
from edgecompress.job import Job
from edgecompress.model import Stage
from edgecompress.race import Entrant
from edgecompress.settings import Limits, Variant

VERIFY_S, AGREE_S = 3.0, 12.0
HERE = ("seed", "batch", "threads", "here")  # of stages that run an artifact on this machine
RUN_CONTEXT = ("seed", "batch", "threads", "device")  # of those that run it on the device


def limits(job: Job, variant: Variant | None) -> Limits:
    """The target's limits with the variant's laid over them; raises ConfigError for one that there is not."""
    found = job.target.value.limits
    if variant is None or not variant.limits:
        return found
    table = {**dataclasses.asdict(found), **variant.limits}
    return config.build(Limits, table, f"{job.target.path}: variant {variant.name}: limits")


def verify(job: Job, name: str, runtime: str, artifact: str, variant: Variant | None = None) -> Stage:
    """The stage that holds the artifact made by a stage against the golden outputs and its limits."""
    source = job.source.value
    return Stage(
        name,
        "stages.verify:run",
        {"model": artifact, "golden": "golden", "samples": "data"},
        {"runtime": runtime, "metric": source.metric, "limits": dataclasses.asdict(limits(job, variant))},
        context=HERE,
        plugins=(f"runtimes.{runtime}",),
        user_code=is_factory(source.metric),
        estimate_s=VERIFY_S,
    )


def agree(job: Job, entrant: Entrant, verdict: str, limit: float | None) -> Stage:
    """The stage that runs the excerpt on the device, where that is not this machine."""
    return Stage(
        entrant.agrees,
        "stages.agree:run",
        {"model": entrant.artifact, "excerpt": "excerpt", "verdict": verdict},
        {"runtime": entrant.runtime, "limit": limit},
        variants=(entrant.name,),
        context=RUN_CONTEXT,
        plugins=(f"runtimes.{entrant.runtime}", f"transports.{job.device.value.transport}"),
        estimate_s=AGREE_S,
    )
