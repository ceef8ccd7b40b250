"""The stages that verify an artifact: against the source's outputs and its limits, and on its device."""

from __future__ import annotations

import dataclasses

from edgecompress.core import catalog, config
from edgecompress.core.catalog import is_factory
from edgecompress.core.model import Outcome, Stage
from edgecompress.core.settings import Limits, Variant
from edgecompress.data import metric_limits, output_checks
from edgecompress.pipeline.candidate import Candidate
from edgecompress.pipeline.job import Job

VERIFY_S, PARITY_S = 2.0, 12.0
METRIC_LIMITS = (*metric_limits.NAMES, metric_limits.RELATIVE)
QUALITIES = (*METRIC_LIMITS, *output_checks.LIMITS, "sqnr_db", "cosine")  # limits on what an artifact answers
HERE = ("seed", "batch", "threads", "here")  # of stages that run an artifact on this machine
RUN_CONTEXT = ("seed", "batch", "threads", "device")  # of those that run it on the device


def limits(job: Job, variant: Variant | None) -> Limits:
    """The target's limits, the variant's own, those of the command line for all and for this variant: later ones count.

    Raises ConfigError for a limit that there is not.
    """
    shared = job.target.value.limits
    if variant is None or not variant.limits:
        return shared
    index = next((i for i, each in enumerate(job.target.value.variant) if each.name == variant.name), None)
    own = f"variant[{index}].limits"
    told = {**catalog.told(job.target, "limits"), **catalog.told(job.target, own)}
    table = {**dataclasses.asdict(shared), **variant.limits, **told}
    return config.build(Limits, table, f"{job.target.path}: variant {variant.name}: limits")


def refused(verified: Outcome) -> str:
    """The first check of what an artifact answers that it fails, in words, or ""."""
    checks = verified.facts.get("checks", [])
    return next((c["says"] for c in checks if c["ok"] is False and c["name"] in (*QUALITIES, "dead")), "")


def verify(job: Job, name: str, runtime: str, artifact: str, variant: Variant | None = None) -> Stage:
    """The stage that compares the artifact of a stage with the golden outputs and its limits."""
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


def parity(job: Job, candidate: Candidate, verdict: str, limit: float | None) -> Stage:
    """The stage that compares the outputs on the device with those here, where the device is not this machine."""
    return Stage(
        candidate.agrees,
        "stages.verify_on_device:run",
        {"model": candidate.artifact, "excerpt": "excerpt", "verdict": verdict},
        {"runtime": candidate.runtime, "limit": limit},
        variants=(candidate.name,),
        context=RUN_CONTEXT,
        plugins=(f"runtimes.{candidate.runtime}", f"transports.{job.device.value.transport}"),
        estimate_s=PARITY_S,
    )
