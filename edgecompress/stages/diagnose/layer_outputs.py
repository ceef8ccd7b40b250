"""What an artifact's layers compute: its runtime runs it in an agent, with the layers as outputs, into arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import registry
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.stages.diagnose import noise

if TYPE_CHECKING:
    import numpy as np

DEADLINE_S = 3000.0


@dataclass(frozen=True)
class LayerValues:
    """One row of facts["taps"], and what it computed: [runs, *shape], memory-mapped."""

    row: Mapping[str, str]
    values: np.ndarray

    @cached_property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest value that is finite."""
        return noise.extremes(self.values)


@dataclass(frozen=True)
class NetOutputs:
    """What an artifact computed on some items: its own outputs by name, then its layers, in the order of computing."""

    outputs: Mapping[str, np.ndarray]
    layers: tuple[LayerValues, ...] = ()


def ask(request: Request, roles: Sequence[str], runtime: str, out: Path) -> list[NetOutputs]:
    """Runs the inputs `roles` by `runtime` on the first items of the split; the arrays lie below `out`.

    Raises StageFailed where the runtime does not run one.
    """
    options, context = request.options, request.context
    out.mkdir()
    agent_request = AgentRequest(
        "layer_outputs",
        runtime=agent_client.plugin("runtimes", runtime),
        artifacts={role: str(request.inputs[role].path) for role in roles},
        samples=str(request.inputs["samples"].path),
        split=options["split"],
        items=options["items"],
        threads=context.threads,
        batch=context.batch,
    )
    agent_client.ask(registry.load("transports", "host").connect({}), agent_request, out, DEADLINE_S)
    return [_read(request.inputs[role], Artifact(out / role, "taps"), options["split"]) for role in roles]


def _read(model: Artifact, folder: Artifact, split: str) -> NetOutputs:
    rows = {str(row["output"]): row for row in model.facts.get("taps", ())}
    if missing := sorted(rows.keys() - {spec.name for spec in model.outputs}):
        raise StageFailed(f"{model.path}: it has no output '{missing[0]}' that its layers name")
    arrays = {spec.name: tensors.load(folder, split, spec.name) for spec in model.outputs}
    own = {spec.name: arrays[spec.name] for spec in model.outputs if spec.name not in rows}
    return NetOutputs(own, tuple(LayerValues(rows[name], array) for name, array in arrays.items() if name in rows))
