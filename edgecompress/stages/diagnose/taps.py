"""What an artifact's layers answer: its tapped twin run by its runtime in an agent, its arrays read run by run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress import dispatch, registry, tensors
from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.stages.diagnose import noise

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

DEADLINE_S = 3000.0


@dataclass(frozen=True)
class Tap:
    """One row of facts["taps"], and what it answered: [runs, *shape], memory-mapped."""

    row: Mapping[str, str]
    values: Array

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value that is finite."""
        return noise.extremes(self.values)


@dataclass(frozen=True)
class Answers:
    """What an artifact answered on some items: its own outputs by name, then its taps, in the order of computing."""

    outputs: Mapping[str, Array]
    taps: tuple[Tap, ...] = ()


def ask(request: Request, roles: Sequence[str], runtime: str, out: Path) -> list[Answers]:
    """Runs the inputs `roles` by `runtime` on the first items of the split; the arrays lie below `out`.

    Raises StageFailed where the runtime does not run one.
    """
    options, context = request.options, request.context
    out.mkdir()
    asked = {
        "mode": "taps",
        "runtime": {"name": runtime, "module": registry.load("runtimes", runtime).__name__},
        "artifacts": {role: str(request.inputs[role].path) for role in roles},
        "samples": str(request.inputs["samples"].path),
        "split": options["split"],
        "items": options["items"],
        "threads": context.threads,
        "batch": context.batch,
    }
    dispatch.ask(registry.load("transports", "host").connect({}), asked, out, DEADLINE_S)
    return [_read(request.inputs[role], Artifact(out / role, "taps"), options["split"]) for role in roles]


def _read(model: Artifact, folder: Artifact, split: str) -> Answers:
    rows = {str(row["output"]): row for row in model.facts.get("taps", ())}
    if missing := sorted(rows.keys() - {spec.name for spec in model.outputs}):
        raise StageFailed(f"{model.path}: it has no output '{missing[0]}' that its taps name")
    found = {spec.name: tensors.load(folder, split, spec.name) for spec in model.outputs}
    own = {spec.name: found[spec.name] for spec in model.outputs if spec.name not in rows}
    return Answers(own, tuple(Tap(rows[name], array) for name, array in found.items() if name in rows))
