"""Sparse weights in MNN: zeros of convolutions and matrix products are not stored, and are left out of the arithmetic.

MNN's converter chooses the weights, about from two thirds of zeros on; nothing is pruned here. Whether it is faster
depends on the layer: measure it beside the dense file.
"""

from __future__ import annotations

from dataclasses import dataclass

from edgecompress.core.model import Artifact, Request
from edgecompress.engines.mnn import convert

REQUIRES = ("mnn>=3.6",)
EXTRA = "mnn"
READS: tuple[str, ...] = ("mnn",)
WRITES = "mnn"
PROVIDES = ""
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """None: MNN's converter decides."""


def apply(request: Request) -> Artifact:
    """The file with sparse weights where there are zeros enough; inputs: "model".

    facts: {"bytes": {"before", "after"}}; "lost" where no weight became sparse.
    """
    model = request.model
    convert.convert(model.file(".mnn"), "MNN", request.out, "--detectSparseSpeedUp")
    made = Artifact(request.out, model.kind, model.inputs, model.outputs)
    sizes = {"before": model.size_bytes, "after": made.file(".mnn").stat().st_size}
    facts = {**model.facts, "bytes": sizes}
    if sizes["after"] >= sizes["before"]:
        facts["lost"] = "no weight has zeros enough for MNN's sparse form: prune to two thirds or more, and train"
    return Artifact(request.out, model.kind, model.inputs, model.outputs, facts).write()
