"""The stages that verify an artifact: against the source's outputs and its limits, and on its device."""

from __future__ import annotations

import dataclasses

from edgecompress.core import catalog, config, registry
from edgecompress.core.json import Json
from edgecompress.core.model import TRAINING, Outcome, Stage
from edgecompress.core.settings import Limits, Variant
from edgecompress.data import metric_limits, output_checks
from edgecompress.pipeline import conversion
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.job import Job

VERIFY_S, PARITY_S = 2.0, 12.0
METRIC_LIMITS = (*metric_limits.NAMES, metric_limits.RELATIVE)
LIKENESS = ("cosine", "sqnr_db")  # to the source's answers, which a net that is trained further need not give
QUALITIES = (*METRIC_LIMITS, *output_checks.LIMITS, *LIKENESS)  # limits on what an artifact answers
HERE = ("seed", "batch", "threads", "here")  # of stages that run an artifact on this machine
RUN_CONTEXT = ("seed", "batch", "threads", "device")  # of those that run it on the device


def limits(job: Job, variant: Variant | None) -> Limits:
    """The target's limits, the variant's own, those of the command line for all and for this variant: later ones count.

    Those on likeness are not for a variant that is trained, unless it or the command line says them: the metric judges
    it, and `output_checks` what no metric does. Raises ConfigError for a limit that there is not.
    """
    shared = job.target.value.limits
    if variant is None or not (variant.limits or is_trained(variant)):
        return shared
    left = dict.fromkeys(LIKENESS) if is_trained(variant) else {}
    told = {**catalog.told(job.target, "limits"), **_told(job, variant)}
    table = {**dataclasses.asdict(shared), **left, **variant.limits, **told}
    return config.build(Limits, table, f"{job.target.path}: variant {variant.name}: limits")


def is_trained(variant: Variant) -> bool:
    """Whether a step of its recipe trains on items."""
    uses = [str(step.get("use")) for step in variant.compress]
    return any(TRAINING in registry.technique(use).needs for use in uses if use in registry.names("techniques"))


def _told(job: Job, variant: Variant) -> dict[str, Json]:
    """The limits of the command line for one variant."""
    index = next((i for i, each in enumerate(job.target.value.variant) if each.name == variant.name), None)
    return catalog.told(job.target, f"variant[{index}].limits")


def refused(verified: Outcome) -> str:
    """The first check of what an artifact answers that it fails, in words, or ""."""
    checks = verified.facts.get("checks", [])
    return next((c["says"] for c in checks if c["ok"] is False and c["name"] in (*QUALITIES, "dead")), "")


def verify(job: Job, name: str, runtime: str, artifact: str, variant: Variant | None = None) -> Stage:
    """The stage that compares the artifact of a stage with the golden outputs and its limits."""
    source = job.source.value
    given = {"given": _given(job, variant)} if variant and not variant.compress else {}
    return Stage(
        name,
        "stages.verify:run",
        {"model": artifact, "golden": "golden", "samples": "data"},
        {
            "runtime": runtime,
            "metric": source.metric,
            "limits": dataclasses.asdict(limits(job, variant)),
            **detect(job),
            **given,
        },
        context=HERE,
        plugins=tuple(dict.fromkeys((f"runtimes.{runtime}", *registry.readers(registry.runtime(runtime).format)))),
        user_code=source.calls("metric"),
        estimate_s=VERIFY_S,
    )


def detect(job: Job) -> dict[str, Json]:
    """The option of stages that read a detector's outputs, where they are declared."""
    declared = job.source.value.detect
    return {"detect": dataclasses.asdict(declared)} if declared else {}


def labels(job: Job) -> dict[str, Json]:
    """The option of the stage that says what is doubtful: how many classes the source names, and what it decodes."""
    source = job.source.value
    told = {"labels": len(source.labels), "head": source.decode.head if source.decode else ""}
    return {name: value for name, value in told.items() if value}


def _given(job: Job, variant: Variant) -> dict[str, Json]:
    """A variant without steps by name; by precision the limits on answers where the source came in that one.

    They are those of the target's first variant that reaches it; of a precision that none reaches (""), the target's.
    What the command line says of the variant itself counts in any case.
    """
    first = {conversion.precision(each): each for each in reversed(job.target.value.variant) if each.compress}
    told = {name: value for name, value in _told(job, variant).items() if name in QUALITIES}
    table: dict[str, Json] = {}
    for word, like in {**first, "": None}.items():
        own = limits(job, like)
        table[word] = {name: getattr(own, name) for name in QUALITIES} | told
    return {"name": variant.name, "limits": table}


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
