"""The stage that reads which operators a model has, before anything is built of it."""

from __future__ import annotations

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.core.operations import Foreseen, Operation


def run(request: Request) -> Artifact:
    """The stage: {"model"} -> "operations": facts {"operations": [[type, word, dtype, behind]]}, in their order; and
    "foreseen": {name: [rewritten, why]}, what each runtime of the option "converters" will replace and refuse."""
    told = {}
    for name in request.options.get("converters", ()):
        foresee = registry.runtime(name).foreseen
        found = foresee(request.model) if foresee else Foreseen()
        told[name] = [[*found.rewritten], found.refused]
    operations = [[op.type, op.word, op.dtype, op.behind] for op in _read(request.model)]
    return Artifact(request.out, "operations", facts={"operations": operations, "foreseen": told}).write()


def _read(model: Artifact) -> list[Operation]:
    if model.kind == "program":
        from edgecompress.formats import torch_operations

        return torch_operations.operations(model)
    for runtime in registry.of_format(model.kind):
        if runtime.operations:
            return list(runtime.operations(model))
    raise InputError(f"check reads no operators of kind '{model.kind}'")
