"""What an artifact computes when it is opened with its engine's own defaults, beside the settings it ships with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.model import Artifact
from edgecompress.data import output_error, tensors
from edgecompress.device.agent.outputs import DEFAULTS, EngineDefaults

if TYPE_CHECKING:
    import numpy as np

ITEMS = 32  # of the split


class DefaultOutput(TypedDict):
    """The error of an output against the source's over the same items, by the defaults and as it ships."""

    name: str
    sqnr_db: float | None
    shipped_sqnr_db: float | None
    same: bool  # bit for bit as it ships


class DefaultsFacts(EngineDefaults):
    """What verify tells of an engine's own defaults."""

    outputs: list[DefaultOutput]


def facts(
    told: EngineDefaults | None, answers: Path, split: str, golden: Artifact, pairs: Mapping[str, str]
) -> dict[str, DefaultsFacts]:
    """{"defaults": ...}, or nothing where the runtime has no settings. `answers`: what an agent wrote for a split.

    `pairs`: the artifact's output for each of the source's.
    """
    if told is None:
        return {}
    if told["reason"]:
        return {"defaults": {**told, "outputs": []}}
    theirs, shipped = Artifact(answers / DEFAULTS, "golden"), Artifact(answers, "golden")

    def first(where: Artifact, name: str) -> np.ndarray:
        return tensors.load(where, split, name)[: told["items"]]

    outputs = [
        _output(name, first(golden, name), first(theirs, other), first(shipped, other)) for name, other in pairs.items()
    ]
    return {"defaults": {**told, "outputs": outputs}}


def _output(name: str, golden: np.ndarray, theirs: np.ndarray, shipped: np.ndarray) -> DefaultOutput:
    sqnr_db, shipped_sqnr_db = (
        output_error.compare(golden, each, name).facts()["sqnr_db"] for each in (theirs, shipped)
    )
    same = theirs.tobytes() == shipped.tobytes()
    return {"name": name, "sqnr_db": sqnr_db, "shipped_sqnr_db": shipped_sqnr_db, "same": same}
