"""Mode start: import, load and first inferences in a fresh process."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core.model import Artifact
from edgecompress.core.protocols import StartTimes
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.timing import clocked
from edgecompress.device.request import AgentRequest


def run(request: AgentRequest, out: Path) -> StartTimes:
    """Times the import, the load, and the first and second inference of a fresh process."""
    runtime, import_ms = clocked(lambda: runtime_module(request))
    model = Artifact.read(Path(request.artifact))
    inputs = preloaded(request, model)[0]
    session, load_ms = clocked(lambda: runtime.open(model, request.threads))
    first_ms, second_ms = (clocked(lambda: session.run(inputs))[1] for _ in range(2))
    session.close()
    return {"import_ms": import_ms, "load_ms": load_ms, "first_ms": first_ms, "second_ms": second_ms}
