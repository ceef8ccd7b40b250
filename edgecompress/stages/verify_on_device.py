"""The stage that runs an artifact on its device and compares its outputs there with those here."""

from __future__ import annotations

import math
import tempfile
from dataclasses import asdict
from pathlib import Path

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Check, Request
from edgecompress.device import agent_client
from edgecompress.device.agent.outputs import Outputs
from edgecompress.device.request import AgentRequest
from edgecompress.stages import reference_answers

SPLIT = "test"
DEADLINE_S = 900.0

# Two machines need not answer alike: float sums go in another order, and int8 kernels round or saturate differently
# (VNNI and SDOT add four products exactly, others in 16-bit steps). The limit on the distance is the target's.


def run(request: Request) -> Artifact:
    """The stage: {"model", "excerpt", "verdict"} -> "agreement": how far each output is from that here (relative RMS).

    options: "runtime", "limit" (None: the distance is told, and not verified). `lost` in the facts names the first
    output that is further away. Raises StageFailed when the runtime there does not run the artifact.
    """
    verdict, limit = request.inputs["verdict"], request.options["limit"]
    device = request.context.device
    shell = registry.load("transports", device["transport"]).connect(device)
    try:
        with tempfile.TemporaryDirectory(dir=request.out) as scratch:
            answer: Outputs = agent_client.ask(shell, _agent_request(request), Path(scratch), DEADLINE_S)
            try:
                outputs = reference_answers.moved(Path(scratch), SPLIT, verdict, math.inf if limit is None else limit)
            except InputError as error:  # what cannot be read of them is the device's fault, not the user's
                raise StageFailed(f"the outputs from the device: {str(error).replace(f'{scratch}/', '')}") from error
        there = {**shell.facts(), **answer["environment"]}
    finally:
        shell.close()
    checks = [_check(moved, limit) for moved in outputs]
    lost = next((c.says for c in checks if c.ok is False), "")
    facts = {"outputs": outputs, "checks": [asdict(c) for c in checks], "limit": limit, "environment": there}
    return Artifact(request.out, "agreement", facts={**facts, **({"lost": lost} if lost else {})}).write()


def _agent_request(request: Request) -> AgentRequest:
    return AgentRequest(
        "outputs",
        runtime=agent_client.plugin("runtimes", request.options["runtime"]),
        artifact=str(request.model.path),
        samples=str(request.inputs["excerpt"].path),
        split=SPLIT,
        threads=request.context.threads,
        batch=request.context.batch,
    )


def _check(moved: reference_answers.Moved, limit: float | None) -> Check:
    value, output = moved["moved"], f"output '{moved['name']}'"
    if value is None:
        return Check("on_device", False, None, limit, f"{output} {moved['reason']}")
    says = f"{output} on the device is {100 * value:.3g} % from that of the same artifact on this machine"
    if limit is None:
        return Check("on_device", None, value, None, says)
    first = f", first at operator {moved['operator']}" if moved["operator"] else ""
    return Check("on_device", value <= limit, value, limit, f"{says}{first}, limit {100 * limit:g} %")
