"""Holds two models against each other on the same items: outputs, inner values, the first operator that departs."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.stages.diff import answer, sides
from edgecompress.stages.diff.ends import EndFacts

if TYPE_CHECKING:
    import numpy as np

KIND = "diff"


def run(request: Request) -> Artifact:
    """The stage: {"a", "b": the models, "watched_a", "watched_b" (of files), "items_a", "items_b"} -> "diff".

    "items_b" is what `ends` made of A's. options: "runtime_a", "runtime_b" ("" of a torch program), "split", "items",
    "map" (which `ends` went by), "graphs" (for the page). Raises StageFailed where a runtime does not run one of them,
    InputError where their outputs have other sizes.
    """
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        # files first: their engines run in processes of their own, before torch is in this one
        order = sorted("ab", key=lambda which: not request.options[f"runtime_{which}"])
        both = {which: _side(request, which, Path(scratch) / which) for which in order}
        request.progress(0.6, "aligning")
        ends = cast("EndFacts", request.inputs["items_b"].facts)
        facts = answer.facts(both["a"], both["b"], ends, request.options["graphs"])
    return Artifact(request.out, KIND, facts=facts).write()


def _side(request: Request, which: str, out: Path) -> sides.Side:
    request.progress(0.1, f"running {which.upper()}")
    model = request.inputs[which]
    if not request.options[f"runtime_{which}"]:
        return sides.of_program(model, _runs(request, model, request.inputs[f"items_{which}"]), out)
    sides.ask(request, which, out)
    side = sides.of_file(model, request.inputs.get(f"watched_{which}"), out, request.options["split"])
    side.times = sides.times(request, which, out / "times") if request.options["graphs"] else {}
    return side


def _runs(request: Request, model: Artifact, samples: Artifact) -> Iterator[Mapping[str, np.ndarray]]:
    batch = request.inputs["items_b"].facts["batch"]
    return tensors.batches(samples, request.options["split"], batch, request.options["items"], model)
