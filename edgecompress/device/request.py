"""The typed request to an agent, as JSON. Runs on Python 3.10."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from edgecompress.core.json import Json
from edgecompress.core.protocols import Windows

REQUEST = "request.json"
RESULT = "result.json"


@dataclass(frozen=True)
class PluginModule:
    """A plug-in as an agent loads it."""

    name: str
    module: str


@dataclass(frozen=True)
class ProfilerModule(PluginModule):
    """A profiler as an agent loads it, with its options as plain data."""

    options: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class AgentRequest:
    """One request. A field that its mode does not use keeps its default.

    `artifact`, those of `artifacts` (by label) and `samples` are paths on the side that reads the request.
    """

    mode: str
    runtime: PluginModule | None = None
    artifact: str = ""
    artifacts: Mapping[str, str] = field(default_factory=dict)
    runtimes: Mapping[str, PluginModule] = field(default_factory=dict)  # by label, in mode round
    pythons: Mapping[str, str] = field(default_factory=dict)  # by label: who runs it, where it is not this program
    samples: str = ""
    split: str = "test"
    items: int = 0  # of the split, in mode layer_outputs
    defaults: int = 0  # items of the split that mode outputs runs by the engine's own defaults too
    threads: int = 1
    own_threads: Mapping[str, int] = field(default_factory=dict)  # by label, in mode round: where they are others
    batch: int = 1
    rounds: int = 0  # of mode interleaved
    number: int = 0  # of this round, in mode round: the order of its turns
    resident_bytes: int = 0  # that a session of mode round may hold; 0: any
    profile: Windows = field(default_factory=lambda: Windows())
    profiler: ProfilerModule | None = None
    sensors: tuple[PluginModule, ...] = ()
    device: Mapping[str, Json] = field(default_factory=dict)  # its TOML as plain data, as sensors are given it
    root: str = "/"  # below which sensors look for /sys
    out: str = ""  # where the result goes; empty: the folder of the request
    tied: bool = True  # the end of stdin ends the agent; else it ends itself after `deadline_s`
    deadline_s: float = 0.0

    @property
    def modules(self) -> list[str]:
        """The modules of the plug-ins that it names."""
        named = [self.runtime, self.profiler, *self.sensors, *self.runtimes.values()]
        return list(dict.fromkeys(plugin.module for plugin in named if plugin))

    def to_json(self) -> str:
        """Its text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> AgentRequest:
        """The request in a text; unknown keys are ignored."""
        table = json.loads(text)
        known = {each.name: table[each.name] for each in fields(cls) if each.name in table}
        if runtime := known.get("runtime"):
            known["runtime"] = PluginModule(**runtime)
        if profiler := known.get("profiler"):
            known["profiler"] = ProfilerModule(**profiler)
        known["runtimes"] = {k: PluginModule(**runtime) for k, runtime in known.get("runtimes", {}).items()}
        known["sensors"] = tuple(PluginModule(**sensor) for sensor in known.get("sensors", ()))
        return cls(**known)
