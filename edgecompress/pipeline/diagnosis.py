"""The stages that find the layer at which an artifact departs from its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgecompress.core import registry
from edgecompress.core.model import Stage, Substitute
from edgecompress.core.source import TORCH
from edgecompress.pipeline.conversion import TRACE
from edgecompress.pipeline.job import Job

CALL = "stages.diagnose:run"
ITEMS, SPLIT = 16, "calibrate"  # data that already shows the ranges: it judges nothing
HERE = ("seed", "batch", "threads", "here")
LAYER_OUTPUTS_S, DIAGNOSED_S = 10.0, 30.0


@dataclass(frozen=True)
class DiagnosisSubject:
    """What is diagnosed, by the names of its stages.

    `source`: the net in float that the artifact is held against, of kind "module" or "program", or of a file's format:
    then `reader` is the runtime that runs it. `before`: what the artifact's export read, where its last step was one.
    """

    runtime: str
    artifact: str
    source: str = "source"
    kind: str = "module"  # of the source
    before: str = ""
    reader: str = ""
    export: tuple[tuple[str, object], ...] = ()  # options of that export
    refused: str = ""  # why verification refuses its answers


def stages(job: Job, name: str, subject: DiagnosisSubject, items: int = ITEMS, split: str = SPLIT) -> list[Stage]:
    """The stages that diagnose `subject`, the last one called `name`, the others NAME/....

    None where the artifact, or a source that is a file, has no runtime that tells what its layers answer.
    """
    readers = [subject.runtime, *([] if subject.kind in TORCH else [subject.reader])]
    if not all(reader and registry.runtime(reader).tapped for reader in readers):
        return []
    before = {"before": subject.before} if subject.before else {}
    twin = _with_layer_outputs(
        f"{name}/tapped", subject.runtime, {"model": subject.artifact, **before}, dict(subject.export)
    )
    source = _source(job, name, subject)
    inputs = {"model": subject.artifact, "tapped": twin.name, "source": source[-1].name if source else subject.source}
    options = {"runtime": subject.runtime, "source_runtime": subject.reader, "split": split, "items": items}
    options |= {"refused": subject.refused} if subject.refused else {}
    diagnosed = Stage(
        name,
        CALL,
        {**inputs, "samples": "data"},
        options,
        context=HERE,
        plugins=tuple(f"runtimes.{runtime}" for runtime in (subject.runtime, subject.reader) if runtime),
        estimate_s=DIAGNOSED_S,
    )
    return [twin, *source, diagnosed]


def float_source(steps: Mapping[str, Stage | Substitute], at: str) -> str:
    """The last float program on the way to a step, or the source where none was traced."""
    while at != "source" and _as_stage(steps[at]).call != TRACE:
        at = _as_stage(steps[at]).inputs["model"]
    return at


def _as_stage(step: Stage | Substitute) -> Stage:
    return step if isinstance(step, Stage) else step.stage


def _with_layer_outputs(
    name: str, runtime: str, inputs: dict[str, str], options: dict[str, object] | None = None
) -> Stage:
    return Stage(name, f"runtimes.{runtime}:tapped", inputs, options or {}, estimate_s=LAYER_OUTPUTS_S)


def _source(job: Job, name: str, subject: DiagnosisSubject) -> list[Stage]:
    """What makes the source readable layer by layer: a module's trace, a file's own twin with layer outputs."""
    if subject.kind == "module":
        options = {"dynamic": job.open_axes(subject.runtime)}
        inputs = {"model": subject.source, "samples": "data"}
        return [Stage(f"{name}/program", TRACE, inputs, options, user_code=True, estimate_s=6.0)]
    if subject.reader:
        return [_with_layer_outputs(f"{name}/source", subject.reader, {"model": subject.source})]
    return []
