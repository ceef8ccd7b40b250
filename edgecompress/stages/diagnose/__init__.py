"""Finds which layer of an artifact answers something else than its source: in its own runtime, on real data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgecompress.errors import InputError
from edgecompress.model import Artifact, Request
from edgecompress.stages.diagnose import closer, files, passes, rows, taps, words
from edgecompress.stages.diagnose.noise import relative_rms
from edgecompress.stages.diagnose.passes import Passed

KIND = "diagnosis"


def run(request: Request) -> Artifact:
    """The stage: {"model": the artifact, "tapped": its tapped twin, "source", "samples"} -> "diagnosis", in the facts.

    "source" is a program (a torch source), or the tapped float file of one that is not. options: "runtime",
    "source_runtime" (of a file, else ""), "split", "items". Raises StageFailed when a runtime does not run what it is
    given, InputError for a source of another kind.
    """
    options, source = request.options, request.inputs["source"]
    if source.kind != "program" and not options["source_runtime"]:
        raise InputError(
            f"diagnose: the source is of kind '{source.kind}'; give its program, or the runtime of its file"
        )
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        request.progress(0.0, f"running {options['runtime']}")
        twin, plain = taps.ask(request, ("tapped", "model"), options["runtime"], Path(scratch) / "artifact")
        same = relative_rms(plain.outputs.values(), twin.outputs.values())
        request.progress(0.2, "comparing")
        if reader := options["source_runtime"]:
            (ours,) = taps.ask(request, ("source",), reader, Path(scratch) / "source")
        found = files.against(ours, twin) if reader else passes.over(request, twin)
    told = {key: options[key] for key in ("runtime", "items", "split")}
    return Artifact(request.out, KIND, facts={**told, "same": same, **facts(found)}).write()


def facts(found: Passed) -> dict[str, Any]:
    """The outputs, the rows and the verdict of what was passed over."""
    table = [rows.row(layer, found.layers) for layer in found.layers]
    clues = [clue for layer in found.layers if (clue := rows.clue(layer, found.layers))]
    verdict = words.judged(clues, _least(found.outputs.values()))
    return {
        "outputs": [{"name": name, "sqnr_db": power.sqnr_db} for name, power in found.outputs.items()],
        "layers": table,
        "closer": closer.rows(found.layers, verdict.culprits),
        "unmatched": found.unmatched,
        "first": verdict.first,
        "culprits": list(verdict.culprits),
        "says": verdict.says,
        "advice": verdict.advice,
    }


def _least(outputs: Any) -> float | None:
    """The SQNR of the output that is farthest from the source's; None where all are identical."""
    known: Sequence[float] = [power.sqnr_db for power in outputs if power.sqnr_db is not None]
    return min(known) if known else None
