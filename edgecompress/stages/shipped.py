"""What an artifact answered when it was verified: it ships along, and a later verify holds the answers against it.

What was wrong already when it shipped is not found here but by the other limits, against the source's answers.
Only the bytes, the machine and the runtime's version can differ, so the tolerance (`limits.as_shipped`, half a percent
of an output's RMS: a fault of one percent is found whatever items it is looked for on) is that of one artifact on two
machines. Float sums in another order move an output by far less, int8 kernels may round to the other neighbour; those
that saturate (x86 without VNNI, of unsigned activations and large weights) can move it by more: then the machine
computes something else than was shipped, and this is where it is told.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress import sketch, tensors
from edgecompress.agent import TRACE
from edgecompress.model import Artifact

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

ITEMS = 16  # test items that ship with the artifact, inputs and outputs: what devices and apps check against
ANSWERS = "answers"  # the folder of a verdict that holds the artifact's outputs for those items

Moved = dict[str, Any]  # "name", "moved" (relative RMS, None where it is none), "reason", "operator" ("" or the first)


def keep(answered: Path, split: str, model: Artifact, verdict: Path) -> None:
    """The first ITEMS answers of `answered` (a folder that an agent filled) into a verdict's folder."""
    found = {name: tensors.load(Artifact(answered, ""), split, name)[:ITEMS] for name in _names(model)}
    tensors.write_split(verdict / ANSWERS, found)
    if (answered / TRACE).is_file():
        (verdict / TRACE).write_bytes((answered / TRACE).read_bytes())


def moved(answered: Path, split: str, verdict: Artifact, limit: float) -> list[Moved]:
    """How far each output of the excerpt lies from what the verdict that shipped holds of it."""
    names = sorted(f.stem for f in (verdict.path / ANSWERS).glob("*.npy"))
    before = {name: tensors.load(verdict, ANSWERS, name) for name in names}
    after = {name: tensors.load(Artifact(answered, ""), split, name) for name in names}
    found = [{"name": name, **_distance(before[name], after[name]), "operator": ""} for name in names]
    if any(m["moved"] is None or m["moved"] > limit for m in found):
        operator = _operator(verdict.path / TRACE, answered / TRACE, limit)
        found = [{**m, "operator": operator} for m in found]
    return found


def _names(model: Artifact) -> Sequence[str]:
    return [spec.name for spec in model.outputs if not spec.feeds]


def _distance(before: Array, after: Array) -> Moved:
    """Relative RMS of the change of one output over the items that both have."""
    import numpy as np

    old, new = (a[: min(len(before), len(after))].astype(np.float64) for a in (before, after))
    if old.shape != new.shape:
        return {"moved": None, "reason": f"is {list(new.shape)} now, and was {list(old.shape)}"}
    if not np.isfinite(new).all():
        return {"moved": None, "reason": "holds NaN or infinite values"}
    change, size = (math.sqrt(float(np.square(x).sum())) for x in (new - old, old))
    if not size and change:
        return {"moved": None, "reason": "was zero, and is not now"}
    return {"moved": change / size if size else 0.0, "reason": ""}


def _operator(before: Path, after: Path, limit: float) -> str:
    """The first operator that moved, where both sides were traced."""
    if not (before.is_file() and after.is_file()):
        return ""
    old, new = (json.loads(file.read_text(encoding="utf-8")) for file in (before, after))
    found = sketch.parted(old, new, limit)
    return f"{found['name']} ({found['type']})" if found else ""
