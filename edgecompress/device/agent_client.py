"""Sends a request to an agent through a shell and fetches its answer: the client of device.agent."""

from __future__ import annotations

import importlib
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgecompress.core import child_process, environments, registry
from edgecompress.core.errors import InputError, StageFailed, kind_of
from edgecompress.core.json import read_json
from edgecompress.core.protocols import Shell
from edgecompress.device import bundle, machine
from edgecompress.device.request import REQUEST, RESULT, AgentRequest, PluginModule

LARGEST = 256 << 20  # bytes of an answer
NO_PYTHON = (
    "there is no Python on the device to run an agent: name one with --set device.options.python=PATH; "
    "a phone is profiled by the benchmark screen of its app package"
)


def ask(shell: Shell, request: AgentRequest, out: Path, deadline_s: float) -> Any:
    """Runs an agent on a device and returns its result; what it wrote is then in `out`.

    The result is JSON; its shape is the answer of the request's mode, a TypedDict of device.agent.
    The paths of the request are paths on this side. The agent's log goes to our stderr.
    Raises the error that the agent names, or StageFailed when it died or gave no answer in time.
    """
    there = replace(carried(shell, request), tied=shell.here, deadline_s=deadline_s, out="")
    (out / REQUEST).write_text(there.to_json(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        log_file = Path(scratch) / "agent.log"
        command = _agent(shell, request, Path(scratch))
        place = shell.scratch(out)
        try:
            code = shell.run([*command, f"{place}/{REQUEST}"], deadline_s, log_file)
            shell.pull(place, out)
        finally:
            shell.discard(place)
        log = log_file.read_text(encoding="utf-8", errors="replace") if log_file.exists() else ""
    sys.stderr.write(log[-20000:])
    (out / REQUEST).unlink()
    return _answer(out / RESULT, f"the agent {child_process.ending(code, deadline_s)}{_last_words(log)}")


def plugin(kind: str, name: str) -> PluginModule:
    """A plug-in as a request names it."""
    return PluginModule(name, registry.load(kind, name).__name__)


def carried(shell: Shell, request: AgentRequest) -> AgentRequest:
    """The request with its artifacts and samples as paths on the device, where they now lie."""
    return replace(
        request,
        artifact=_pushed(shell, request.artifact),
        artifacts={label: _pushed(shell, path) for label, path in request.artifacts.items()},
        samples=_pushed(shell, request.samples),
    )


def _pushed(shell: Shell, path: str) -> str:
    return shell.push(Path(path)) if path else ""


def _answer(file: Path, died: str) -> object:
    """What the agent answered; raises the error that it names, or that it `died`. The device is a stranger."""
    if not file.is_file():
        raise StageFailed(died)
    try:
        answer = read_json(file, LARGEST)
    except (InputError, ValueError) as error:
        raise StageFailed(f"the agent's answer is not JSON: {machine.line(str(error))}") from error
    file.unlink()
    if not isinstance(answer, dict):
        raise StageFailed(f"the agent answered {machine.line(repr(answer), 40)}, which is not a JSON object")
    if "error" in answer:
        raise kind_of(str(answer.get("class")))(machine.line(str(answer["error"]), 1000))
    return answer


def _agent(shell: Shell, request: AgentRequest, scratch: Path) -> list[str]:
    """The command of an agent: here our own package, elsewhere one file that holds what this request needs."""
    if shell.here:
        return child_process.python("edgecompress.device.agent", by=_python(request))
    python = shell.facts()["python"]
    if not python:
        raise StageFailed(NO_PYTHON)
    return [str(python), shell.push(bundle.write(scratch / "agent.pyz", request.modules))]


def _python(request: AgentRequest) -> str:
    """The Python here: that of the runtime's own environment, where it has one."""
    if request.runtime is None:
        return sys.executable
    try:
        return environments.python(importlib.import_module(request.runtime.module))
    except ImportError:  # a plug-in that only its agent can see
        return sys.executable


def _last_words(log: str) -> str:
    lines = [line for each in log.splitlines() if (line := machine.line(each))]
    return f": {lines[-1]}" if lines else ""
