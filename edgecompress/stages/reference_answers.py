"""The outputs of an artifact when it was verified: they ship along, and a later verify compares its own with them.

What was wrong already when it shipped is not found here but by the other limits, compared with the source's outputs.
Only the bytes, the machine and the runtime's version can differ, so the tolerance (`limits.as_shipped`, half a percent
of an output's RMS: a fault of one percent is found whatever items it is looked for on) is that of one artifact on two
machines. Float sums in another order move an output by far less, int8 kernels may round to the other neighbour; those
that saturate (x86 without VNNI, of unsigned activations and large weights) can move it by more: then the machine
computes something else than was shipped, and this is where it is reported.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.model import Artifact
from edgecompress.data import tensors
from edgecompress.data.shipped_items import ANSWERS, ITEMS
from edgecompress.device import operator_sketches
from edgecompress.device.agent.outputs import TRACE

if TYPE_CHECKING:
    import numpy as np


class Distance(TypedDict):
    """How far an output moved: relative RMS, None where there is none, with the reason."""

    moved: float | None
    reason: str


class Moved(Distance):
    """The same of an output by its name, with the first operator that moved ("" where it is not known)."""

    name: str
    operator: str


def keep(outputs: Path, split: str, model: Artifact, verdict: Path) -> None:
    """The first ITEMS items of `outputs` (a folder that an agent filled) into a verdict's folder."""
    names = [spec.name for spec in model.outputs if not spec.feeds]
    arrays = {name: tensors.load(Artifact(outputs, ""), split, name)[:ITEMS] for name in names}
    tensors.write_split(verdict / ANSWERS, arrays)
    if (outputs / TRACE).is_file():
        (verdict / TRACE).write_bytes((outputs / TRACE).read_bytes())


def moved(outputs: Path, split: str, verdict: Artifact, limit: float) -> list[Moved]:
    """How far each output of the excerpt lies from what the verdict that shipped holds of it."""
    names = sorted(map(tensors.name_of, (verdict.path / ANSWERS).glob("*.npy")))
    before = {name: tensors.load(verdict, ANSWERS, name) for name in names}
    after = {name: tensors.load(Artifact(outputs, ""), split, name) for name in names}
    facts: list[Moved] = [{"name": name, **_distance(before[name], after[name]), "operator": ""} for name in names]
    if any(m["moved"] is None or m["moved"] > limit for m in facts):
        operator = _operator(verdict.path / TRACE, outputs / TRACE, limit)
        facts = [{**m, "operator": operator} for m in facts]
    return facts


def _distance(before: np.ndarray, after: np.ndarray) -> Distance:
    """Relative RMS of the change of one output over the items that both have."""
    import numpy as np

    old, new = (a[: min(len(before), len(after))].astype(np.float64) for a in (before, after))
    if old.shape != new.shape:
        return {"moved": None, "reason": f"is {list(new.shape)} now, but was {list(old.shape)}"}
    if not np.isfinite(new).all():
        return {"moved": None, "reason": "holds NaN or infinite values"}
    change, size = (math.sqrt(float(np.square(x).sum())) for x in (new - old, old))
    if not size and change:
        return {"moved": None, "reason": "was zero, but is not now"}
    return {"moved": change / size if size else 0.0, "reason": ""}


def _operator(before: Path, after: Path, limit: float) -> str:
    """The first operator that moved, where both sides were traced."""
    if not (before.is_file() and after.is_file()):
        return ""
    old, new = (json.loads(file.read_text(encoding="utf-8")) for file in (before, after))
    operator = operator_sketches.parted(old, new, limit)
    return f"{operator['name']} ({operator['type']})" if operator else ""
