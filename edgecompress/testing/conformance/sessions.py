"""Sessions of a runtime, in this process or in the environment that its libraries have, and what their runs give."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from edgecompress.core import environments, registry
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest, PluginModule
from edgecompress.testing.conformance.common import item

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.protocols import OperatorTimes, Session

AGENT_S = 900.0  # that a runtime may take for its cells of the zoo


def opened(module: ModuleType, artifact: Artifact, profile: bool) -> Session:
    """A session, in this process or where the plug-in's libraries are."""
    if environments.environment(module):
        return _Apart(module, artifact)
    session: Session = module.open(artifact, 1, profile=profile)
    return session


@dataclass(frozen=True)
class _Apart:
    """A session in the environment that a plug-in has of its own: an agent for each call."""

    module: ModuleType
    artifact: Artifact

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        with tempfile.TemporaryDirectory() as scratch:
            self._ask("outputs", inputs, Path(scratch))
            answered = Artifact(Path(scratch), "golden")
            return {s.name: tensors.load(answered, "test", s.name).copy() for s in self.artifact.outputs}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        with tempfile.TemporaryDirectory() as scratch:
            answer = self._ask("ops", inputs, Path(scratch))
        assert set(answer) == {"ops", "why", "fallback", "environment"}, (
            f"ops answers ops, why and fallback: {sorted(answer)}"
        )
        return {"ops": answer["ops"], "why": answer["why"], "fallback": answer["fallback"]}

    def close(self) -> None: ...

    def _ask(self, mode: str, inputs: Mapping[str, np.ndarray], out: Path) -> dict[str, Any]:
        tensors.write_split(out / "samples" / "test", inputs)
        data = Artifact(out / "samples", "samples", self.artifact.inputs, (), {"splits": {"test": 1}}).write()
        request = AgentRequest(
            mode,
            runtime=PluginModule("apart", self.module.__name__),
            artifact=str(self.artifact.path),
            samples=str(data.path),
            batch=len(next(iter(inputs.values()))),
            profile={"ops_runs": 3},
        )
        answer: dict[str, Json] = agent_client.ask(
            registry.load("transports", "host").connect({}), request, out, AGENT_S
        )
        return answer


def check_outputs(session: Session, artifact: Artifact, data: Artifact, says: str) -> dict[str, np.ndarray]:
    """One run gives every output of the specs, in their shapes and dtypes, finite, and leaves its input alone."""
    import numpy as np

    inputs = item(data)
    kept = {name: array.copy() for name, array in inputs.items()}
    answers = {name: np.array(array) for name, array in session.run(inputs).items()}
    batch = len(next(iter(inputs.values())))
    assert set(answers) == {s.name for s in artifact.outputs}, f"{says}: it answered {sorted(answers)}"
    for spec in artifact.outputs:
        output = answers[spec.name]
        shape = spec.concrete(batch)
        assert output.shape == shape, f"{says}: '{spec.name}' is {output.shape}, its spec says {shape}"
        assert str(output.dtype) == spec.dtype, f"{says}: '{spec.name}' is {output.dtype}, its spec says {spec.dtype}"
        assert np.isfinite(output).all(), f"{says}: '{spec.name}' holds NaN or infinity"
    assert all((kept[name] == inputs[name]).all() for name in inputs), f"{says}: a run changed its input"
    return answers


def check_answers_stay(session: Session, data: Artifact, says: str) -> None:
    """What a run answered is the caller's: a run on other arrays leaves it alone."""
    inputs = item(data)
    given = session.run(inputs)
    kept = {name: array.copy() for name, array in given.items()}
    session.run({name: array + array.dtype.type(1) for name, array in inputs.items()})
    assert all((kept[name] == given[name]).all() for name in kept), f"{says}: a run changed an earlier answer"
