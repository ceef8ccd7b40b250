"""Finds the layer whose outputs differ from the source's: the artifact runs in its own runtime, on real data."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TypedDict

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.stages.diagnose import advice, channel_detail, files, layer_outputs, noise_passes, rows
from edgecompress.stages.diagnose.noise import relative_rms
from edgecompress.stages.diagnose.noise_passes import Measurements

KIND = "diagnosis"


class Output(TypedDict):
    """How near an output is to the source's; None: identical."""

    name: str
    sqnr_db: float | None


class DiagnosisFacts(TypedDict):
    """What the diagnosis says of an artifact."""

    outputs: list[Output]
    layers: list[rows.LayerDiagnosis]
    closer: list[channel_detail.Detail]
    unmatched: list[str]
    first: str | None
    culprits: list[str]
    says: str
    advice: str


def run(request: Request) -> Artifact:
    """The stage: {"model": the artifact, "tapped": with its layers as outputs, "source", "samples"} -> "diagnosis".

    "source" is a program (a torch source), or else a float file with its layers as outputs. options: "runtime",
    "source_runtime" (of a file, else ""), "split", "items", "refused" (why verification refuses its answers; may be
    left out). Raises StageFailed when a runtime does not run an artifact, InputError for a source of another kind.
    """
    options, source = request.options, request.inputs["source"]
    if source.kind != "program" and not options["source_runtime"]:
        raise InputError(
            f"diagnose: the source is of kind '{source.kind}'; give a torch program, or set source_runtime for a file"
        )
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        request.progress(0.0, f"running {options['runtime']}")
        twin, plain = layer_outputs.ask(request, ("tapped", "model"), options["runtime"], Path(scratch) / "artifact")
        same = relative_rms(plain.outputs.values(), twin.outputs.values())
        request.progress(0.2, "comparing")
        if reader := options["source_runtime"]:
            (ours,) = layer_outputs.ask(request, ("source",), reader, Path(scratch) / "source")
        result = files.against(ours, twin) if reader else noise_passes.over(request, twin)
    settings = {key: options[key] for key in ("runtime", "items", "split")}
    told = facts(result, options.get("refused", ""))
    return Artifact(request.out, KIND, facts={**settings, "same": same, **told}).write()


def facts(result: Measurements, refused: str = "") -> DiagnosisFacts:
    """The outputs, the rows and the verdict of what was measured."""
    table = [rows.row(layer, result.layers) for layer in result.layers]
    clues = [clue for layer in result.layers if (clue := rows.clue(layer, result.layers))]
    known = [power.sqnr_db for power in result.outputs.values() if power.sqnr_db is not None]  # else identical
    verdict = advice.verdict(clues, min(known, default=None), refused)
    return {
        "outputs": [{"name": name, "sqnr_db": power.sqnr_db} for name, power in result.outputs.items()],
        "layers": table,
        "closer": channel_detail.rows(result.layers, verdict.culprits),
        "unmatched": result.unmatched,
        "first": verdict.first,
        "culprits": list(verdict.culprits),
        "says": verdict.says,
        "advice": verdict.advice,
    }
