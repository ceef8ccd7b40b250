"""Gives the scale of a null net one of few levels."""

from __future__ import annotations

import json
from dataclasses import dataclass

from edgecompress.core.model import Artifact, Request

REQUIRES: tuple[str, ...] = ()
EXTRA = ""
READS: tuple[str, ...] = ("null",)
WRITES = "null"
PROVIDES = "few-levels"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How many levels there are between 0 and 1."""

    levels: int = 16  # at least 2

    def __post_init__(self) -> None:
        if self.levels < 2:
            raise ValueError("levels must be at least 2")


def apply(request: Request) -> Artifact:
    """The net with its scale at the nearest level; its facts are what the section shows."""
    net = json.loads(request.model.file(".null").read_text(encoding="utf-8"))
    step = 1 / (request.options.levels - 1)
    facts = {"levels": request.options.levels, "moved": abs(round(net["scale"] / step) * step - net["scale"])}
    net["scale"] = round(net["scale"] / step) * step
    (request.out / "model.null").write_text(json.dumps(net), encoding="utf-8")
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()
