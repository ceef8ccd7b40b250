"""Sends a request to an agent through a shell and brings its answer back: the caller's side of `agent`."""

from __future__ import annotations

import importlib
import json
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress import bundle, envs, machine
from edgecompress.agent import RESULT
from edgecompress.errors import EdgeError, NoPath, StageFailed, kind_of
from edgecompress.model import DEADLINE, Shell

CARRIED = ("artifact", "artifacts", "samples")  # paths on this side that the agent is given, or tables of them

NO_PYTHON = (
    "there is no Python on the device to run an agent: name one with --set device.options.python=PATH; "
    "a phone is profiled by the benchmark screen of its app package"
)


def ask(shell: Shell, asked: Mapping[str, Any], out: Path, deadline_s: float) -> dict[str, Any]:
    """Runs an agent on a device and returns its result; what it wrote is then in `out`.

    `artifact`, those of `artifacts`, and `samples` are paths on this side. The agent's log goes to our stderr.
    Raises the error that the agent names, or StageFailed when it died or gave no answer in time.
    """
    there = {key: _carried(shell, asked[key]) for key in CARRIED if key in asked}
    life = {"tied": shell.here, "deadline_s": deadline_s}
    (out / "request.json").write_text(json.dumps({**asked, **there, **life, "out": ""}), encoding="utf-8")
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "agent.log"
        command = _agent(shell, asked, Path(scratch))
        place = shell.scratch(out)
        try:
            code = shell.run([*command, f"{place}/request.json"], deadline_s, log)
            shell.pull(place, out)
        finally:
            shell.discard(place)
        said = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    sys.stderr.write(said[-20000:])
    (out / "request.json").unlink()
    return _answer(out / RESULT, f"the agent {ending(code, deadline_s)}{_last_words(said)}")


def _carried(shell: Shell, given: str | Mapping[str, str]) -> str | dict[str, str]:
    if isinstance(given, Mapping):
        return {label: shell.push(Path(path)) for label, path in given.items()}
    return shell.push(Path(given))


def _answer(file: Path, died: str) -> dict[str, Any]:
    """What the agent answered; raises the error that it names, or that it `died`. The device is a stranger."""
    if not file.is_file():
        raise StageFailed(died)
    try:
        answer = json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse)
    except ValueError as error:
        raise StageFailed(f"what the agent answered is no JSON: {machine.line(str(error))}") from error
    file.unlink()
    if not isinstance(answer, dict):
        raise StageFailed(f"the agent answered {machine.line(repr(answer), 40)}, and no table")
    if "error" in answer:
        raise _error(str(answer.get("class")), machine.line(str(answer["error"]), 1000))
    return answer


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


def _error(name: str, says: str) -> EdgeError:
    """The error that an agent names, where it is one that is made of words alone."""
    return (StageFailed if name == NoPath.__name__ else kind_of(name))(says)


def _agent(shell: Shell, asked: Mapping[str, Any], scratch: Path) -> list[str]:
    """The command of an agent: here our own package, elsewhere one file that holds what this request needs."""
    if shell.here:
        return [_python(asked), "-m", "edgecompress.agent"]
    named = [asked[key]["module"] for key in ("runtime", "pass") if key in asked]
    modules = [*named, *(sensor["module"] for sensor in asked.get("sensors", ()))]
    python = shell.facts()["python"]
    if not python:
        raise StageFailed(NO_PYTHON)
    return [str(python), shell.push(bundle.write(scratch / "agent.pyz", modules))]


def _python(asked: Mapping[str, Any]) -> str:
    """The Python here: that of the runtime's own environment, where it has one."""
    if "runtime" not in asked:
        return sys.executable
    try:
        return envs.python(importlib.import_module(asked["runtime"]["module"]))
    except ImportError:  # a plug-in that only its agent can see
        return sys.executable


def ending(code: int, deadline_s: float) -> str:
    """How a process ended, from its code: words after "the process"."""
    if code == DEADLINE:
        return f"gave no answer within {deadline_s:.0f} s"
    number = -code if code < 0 else code - 128  # a shell reports a signal as 128 + its number
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with code {code} and no result"


def _last_words(log: str) -> str:
    lines = [line for each in log.splitlines() if (line := machine.line(each))]
    return f": {lines[-1]}" if lines else ""
