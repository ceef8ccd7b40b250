"""Probes a board behind sshd and writes its device file: what `edgecompress device add` does."""

from __future__ import annotations

import dataclasses
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

from edgecompress.commands import init
from edgecompress.core import catalog, environments, registry
from edgecompress.core.errors import EdgeError, InputError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.plugins import RuntimePlugin
from edgecompress.core.protocols import Shell
from edgecompress.device import agent_client, machine
from edgecompress.device.request import AgentRequest, PluginModule

LOOK_S = 60.0
SCOPES = ("wall", "battery", "board", "package", "rail")  # of sensors, the one that sees most first
AGENT = "numpy"  # what every agent needs beside Python

# Prints names that /sys lists, each kind below a line that `machine.told` reads.
PLACES = {
    "governors": "/sys/devices/system/cpu/cpu*/cpufreq/scaling_available_governors",
    "hwmon": "/sys/class/hwmon/*/name",
    "iio": "/sys/bus/iio/devices/*/name",
    "powercap": "/sys/class/powercap/*/name",
    "power_supply": "/sys/class/power_supply/*/type",
    "thermal": "/sys/class/thermal/thermal_zone*/type",
    "sve_bytes": "/proc/sys/abi/sve_default_vector_length",
}
LOOK = "\n".join(f"echo '{machine.MARK} {name}'; cat {place} 2>/dev/null" for name, place in PLACES.items())

# Which modules Python finds there: MODULE=PACKAGE words in, {MODULE: version} out, None where there is none.
# The Python there may be too old to be told not to look in its working folder: the code begins with that.
FIND = """
import sys
sys.path = [folder for folder in sys.path if folder]
import importlib.metadata, importlib.util, json
found = {}
for module, package in (word.split("=") for word in sys.argv[1:]):
    found[module] = None
    if importlib.util.find_spec(module):
        try:
            found[module] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[module] = "of unknown version"
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Added:
    """A device file that was written: what was found on the board, and what is missing, with the remedy."""

    file: Path
    present: tuple[str, ...]
    missing: tuple[str, ...]


class AgentFacts(TypedDict, total=False):
    """What an agent reports of its machine: the version of its Python, and why each sensor cannot be read, or ""."""

    python: str
    sensors: dict[str, str]


@dataclass(frozen=True)
class ProbedBoard:
    """What was found on a board. `sensors`: why each cannot read, or ""; `modules`: the version of each, or None."""

    facts: Mapping[str, Any]
    listed: Mapping[str, str]
    python: str  # its version, or ""
    sensors: Mapping[str, str]
    modules: Mapping[str, str | None]


def add(host: str, name: str = "", output: Path | None = None, options: Mapping[str, Json] | None = None) -> Added:
    """Probes user@board and writes devices/NAME.toml, or `output`. `options`: more of the transport's (port, python).

    Raises InputError where the file is there already, Unreachable when the board does not answer.
    """
    file = output or init.place("device", name or default_name(host))
    init.check(file)  # before the board is asked
    address, ssh = {"host": host, **(options or {})}, registry.load("transports", "ssh")
    known = [field.name for field in dataclasses.fields(ssh.Address)]
    if wrong := sorted(address.keys() - known):
        raise InputError(f"--set {wrong[0]}: transport ssh has no such option{did_you_mean(wrong[0], known)}")
    shell = ssh.connect({"options": address})
    try:
        facts = shell.facts()
        listed = machine.parsed(_output(shell, ["sh", "-c", LOOK]))
        agent = _agent(shell, facts)
        wanted = {AGENT: AGENT}
        for runtime in registry.runtimes():
            wanted |= _needs(runtime)
        words = [f"{module}={package}" for module, package in wanted.items()]
        modules = _json(_output(shell, [facts["python"], "-c", FIND, *words])) if agent else {}
        board = ProbedBoard(facts, listed, machine.line(agent.get("python", "")), agent.get("sensors", {}), modules)
    finally:
        shell.close()
    init.write(file, _toml(board, address))
    catalog.device(str(file))  # what was written is read: no word of a stranger breaks it
    return Added(file, tuple(_present(board)), tuple(_missing(board)))


def default_name(host: str) -> str:
    """A device's name from user@board.local: "board"."""
    return re.sub(r"[^a-z0-9]+", "-", host.rpartition("@")[2].split(".")[0].lower()).strip("-") or "board"


def text(added: Added) -> str:
    """What was found and what is missing, as text."""
    missing = [f"  missing: {line}" for line in added.missing]
    command = f"edgecompress profile dist/TARGET --device {added.file}"
    return "\n".join([f"wrote {added.file}", *(f"  {line}" for line in added.present), *missing, f"next: {command}"])


# --------------------------------------------------------------------------- asking


def _output(shell: Shell, argv: Sequence[str]) -> str:
    """What a program prints there."""
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch) / "log"
        shell.run(argv, LOOK_S, log)
        return log.read_text(encoding="utf-8", errors="replace")


def _agent(shell: Shell, facts: Mapping[str, Json]) -> AgentFacts:
    """What an agent says of itself and of each sensor of energy; nothing where no agent runs."""
    sensors = tuple(PluginModule(name, module.__name__) for name, module in _sensors().items())
    device: dict[str, Json] = {"options": {}, "cores": facts.get("cores"), "power": None, "threads": 1}
    with tempfile.TemporaryDirectory() as out:
        try:
            request = AgentRequest("facts", sensors=sensors, device=device)
            answer = agent_client.ask(shell, request, Path(out), LOOK_S)
        except EdgeError:
            return AgentFacts()
    why = answer.get("sensors")
    reasons = {str(k): str(v) for k, v in why.items()} if isinstance(why, Mapping) else {}
    return AgentFacts(python=str(answer.get("python")), sensors=reasons)


def _sensors() -> dict[str, ModuleType]:
    """The sensors that measure energy, the one that sees most first."""
    measured = [s for s in registry.sensors() if s.quantity == "energy" and s.status == "measured"]
    return {s.name: s.module for s in sorted(measured, key=lambda each: (*SCOPES, each.scope).index(each.scope))}


def _needs(runtime: RuntimePlugin) -> dict[str, str]:
    """The modules that running a runtime takes, each with its package."""
    packages = {environments.package(r).replace("-", "_"): environments.package(r) for r in runtime.requires}
    roots = dict.fromkeys(name.split(".")[0] for name in runtime.imports)
    return {root: packages.get(root, root) for root in roots}


def _json(text: str) -> dict[str, str | None]:
    """The last line as an object of texts; nothing where a stranger says something else."""
    try:
        table = json.loads(text.strip().splitlines()[-1])
        return {str(k): None if v is None else machine.line(str(v)) for k, v in table.items()}
    except (ValueError, IndexError, AttributeError):
        return {}


# --------------------------------------------------------------------------- telling


def _names(board: ProbedBoard, kind: str) -> list[str]:
    return sorted({machine.line(name) for name in board.listed.get(kind, "").split()} - {""})


def _readable(board: ProbedBoard) -> list[str]:
    return [name for name in _sensors() if board.sensors.get(name) == ""]


def _vector_bits(board: ProbedBoard) -> int | None:
    """Of the widest unit that inference uses."""
    features, sve = board.facts["features"], board.listed.get("sve_bytes", "")
    if "sve" in features and sve.isdigit():
        return 8 * int(sve)
    widths = {"avx512f": 512, "avx2": 256, "asimd": 128}
    return next((bits for feature, bits in widths.items() if feature in features), None)


def _what(board: ProbedBoard) -> str:
    facts = board.facts
    return machine.line(facts["board"] or facts["cpu"] or facts["machine"] or "a board")


def _present(board: ProbedBoard) -> Iterator[str]:
    facts, bits = board.facts, _vector_bits(board)
    memory = f"{facts['memory_bytes'] / 2**30:.1f} GiB" if facts["memory_bytes"] else "memory unknown"
    yield f"{_what(board)}, {facts['cores'] or 'unknown'} cores, vectors of {bits or 'unknown'} bits, {memory}"
    yield f"features: {', '.join(facts['features']) or 'none that affects the choice of a kernel'}"
    yield f"{machine.line(facts['os'])}, kernel {machine.line(facts['kernel'])}, Python {board.python or 'none'}"
    governors = ", ".join(_names(board, "governors")) or "none listed"
    yield f"governor: {machine.line(facts['governor'] or 'none')} (there are: {governors})"
    for kind in ("hwmon", "iio", "powercap", "power_supply", "thermal"):
        yield f"/sys lists of {kind}: {', '.join(_names(board, kind)) or 'nothing'}"
    yield f"sensors that read: {', '.join(_readable(board)) or 'none'}"
    yield f"runtimes that run: {', '.join(_runs(board)) or 'none'}"


def _runs(board: ProbedBoard) -> list[str]:
    """The runtimes whose modules are there, with the version of what they run on."""
    needs = {runtime.name: _needs(runtime) for runtime in registry.runtimes()}
    whole = {n: m for n, m in needs.items() if m and all(board.modules.get(module) for module in m)}
    return [f"{name} ({', '.join(f'{m} {board.modules[m]}' for m in modules)})" for name, modules in whole.items()]


def _missing(board: ProbedBoard) -> Iterator[str]:
    python = machine.line(board.facts["python"])
    if not board.python:
        yield f"Python 3.10 or later: {python} cannot run the agent; install python3, or name another in options.python"
        return
    install = f"{python} -m pip install"
    if not board.modules.get(AGENT):
        yield f"{AGENT}, which every measurement needs: {install} {AGENT}"
    if not _runs(board):
        yield f"a runtime: {install} with the package of your runtime, such as onnxruntime or ai-edge-litert"
    if not _readable(board):
        yield "an energy sensor: without one, energy is estimated from a [power] table in the file"
        yield from (f"sensor {name}: {machine.line(str(why))}" for name, why in board.sensors.items())
    if board.facts["governor"] not in (None, "performance") and "performance" in _names(board, "governors"):
        yield "a steady clock: echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"


def _toml(board: ProbedBoard, options: Mapping[str, Json]) -> str:
    """The device file."""
    facts, date = board.facts, time.strftime("%Y-%m-%d")
    memory = facts["memory_bytes"] // 2**20 if facts["memory_bytes"] else None
    figures = {"cores": facts["cores"], "vector_bits": _vector_bits(board), "memory_mib": memory}
    values = {
        "description": f"{_what(board)} over ssh.",
        "transport": "ssh",
        "platform": machine.line(facts["platform"]),
        "sensors": [*_readable(board), "power_model"],
        **{key: value for key, value in figures.items() if value},
        "source": f"probed by edgecompress device add on {date}",
    }
    return "\n".join(
        [
            f"# A device: {_what(board)}, as it was found on {date}. Sensors are tried in their order.",
            *(f"# {line}" for line in _present(board)),
            *(f"# missing: {line}" for line in _missing(board)),
            *_lines(values),
            "",
            "# [power] # for the sensor power_model, when no other sensor can be read",
            "# idle_w = 0.8 # watts of the idle board, divided by its cores",
            "# active_w = 2.0 # watts of the board with all cores at work, divided by its cores",
            "# error = 0.4 # half the width of the band, as a fraction",
            '# source = "where these numbers are from"',
            "",
            "[options]",
            *_lines(options),
            "",
        ]
    )


def _lines(values: Mapping[str, Json]) -> Iterator[str]:
    """TOML; JSON's texts, numbers and lists of texts are TOML's."""
    return (f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())
