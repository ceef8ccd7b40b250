"""Static int8, for any runtime: what it promises, and a source that is int8 already."""

from __future__ import annotations

import shutil
from typing import Protocol

from edgecompress.core.model import CARD, Artifact, Promise, Request
from edgecompress.techniques import _skipped_layers

LEVELS = 16  # of 255: with fewer left to an input of a join, the join stays in float


class Skipping(Protocol):
    """Options of a technique that can leave operators in float."""

    @property
    def skip(self) -> tuple[str, ...]: ...


def promises(options: Skipping) -> Promise:
    """Int8 weights, multiplied with int8 activations."""
    return _skipped_layers.promise("int8", "int8", options.skip)


def given(request: Request) -> Artifact | None:
    """The model as it is, where it is of whole numbers already: rounded once more it would only lose.

    facts: {"given": True}.
    """
    from edgecompress.formats.precision import facts

    model = request.model
    if not facts.whole(facts.of(model)):
        return None
    shutil.copytree(model.path, request.out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
    return Artifact(request.out, model.kind, model.inputs, model.outputs, {"given": True}).write()
