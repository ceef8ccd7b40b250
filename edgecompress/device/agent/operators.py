"""Mode ops: milliseconds per operator."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core.model import Artifact
from edgecompress.core.protocols import OperatorTimes
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.request import AgentRequest


class OperatorsAnswer(OperatorTimes):
    """The answer of mode ops."""

    environment: Environment


def run(request: AgentRequest, out: Path) -> OperatorsAnswer:
    """Milliseconds per operator, from a session made for profiling."""
    runtime = runtime_module(request)
    model = Artifact.read(Path(request.artifact))
    inputs = preloaded(request, model)
    session = runtime.open(model, request.threads, True)
    times: OperatorTimes = session.ops(inputs[0], request.profile["ops_runs"])
    session.close()
    return {**times, "environment": environment(request, runtime)}
