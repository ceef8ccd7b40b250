"""What every measuring stage works with: the device, its shell, the variants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.core import registry
from edgecompress.core.errors import StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Request
from edgecompress.core.protocols import Shell, Windows
from edgecompress.device import agent_client, machine
from edgecompress.device.agent.environment import Environment
from edgecompress.device.request import AgentRequest, PluginModule

START_S = 300.0  # an agent's imports, load and first inference, at most
SLACK = 10.0  # a slow model may take so many times its windows


@dataclass(frozen=True)
class DeviceBench:
    """One device, and what is asked of every agent that runs there."""

    shell: Shell
    request: Request

    @property
    def profile(self) -> Windows:
        """How to measure: settings.Profile as plain data."""
        profile: Windows = self.request.options["profile"]
        return profile

    def agent_request(self, mode: str, variant: str) -> AgentRequest:
        """What an agent is asked about a variant."""
        context = self.request.context
        return AgentRequest(
            mode,
            runtime=agent_client.plugin("runtimes", self.request.options["runtimes"][variant]),
            artifact=str(self.request.inputs[variant].path),
            samples=str(self.request.inputs["samples"].path),
            threads=self.threads(variant),
            batch=context.batch,
            profile=self.profile,
            device={**self.device, "threads": self.threads(variant)},
            root=str(machine.root()),
        )

    @property
    def own_threads(self) -> Mapping[str, int]:
        """Of the variants whose threads are not those that were asked for."""
        own: Mapping[str, int] = self.request.options.get("threads", {})
        return own

    def threads(self, variant: str) -> int:
        """Those of its own, or as many as were asked for."""
        return self.own_threads.get(variant, self.request.context.threads)

    def ask(self, request: AgentRequest, out: Path, deadline_s: float = 0.0) -> Any:
        """The answer of the request's mode, as agent_client.ask returns it; raises EdgeError where there is none."""
        p = self.profile
        energy_s = p["energy_windows"] * p["energy_window_s"] + 2 * p["idle_s"] if request.mode == "energy" else 0.0
        within_s = START_S + SLACK * (float(p["warmup_cap_s"]) + energy_s)
        return agent_client.ask(self.shell, request, out, deadline_s or within_s)

    @property
    def device(self) -> dict[str, Any]:
        """The device as plug-ins are given it: its TOML, its cores, the threads that compute."""
        known = dict(self.request.context.device)
        known["cores"] = known.get("cores") or self.shell.facts().get("cores")
        return {**known, "options": known.get("options") or {}, "threads": self.request.context.threads}

    @property
    def sensors(self) -> list[str]:
        """The device's sensors of energy."""
        return [name for name in self.device.get("sensors", ()) if quantity(name) == "energy"]


@contextlib.contextmanager
def connected(request: Request) -> Iterator[DeviceBench]:
    """The device, connected."""
    device = request.context.device
    shell = registry.load("transports", device.get("transport", "host")).connect(device)
    try:
        yield DeviceBench(shell, request)
    finally:
        shell.close()


def quantity(sensor: str) -> str:
    """What a sensor tells: "energy", where its module does not name another quantity."""
    return registry.sensor(sensor).quantity


def variants(request: Request) -> list[str]:
    """The variants that are measured, in order."""
    return list(request.options.get("order") or (v for v in request.inputs if v != "samples"))


def raise_if_all_crashed(variants: Mapping[str, Mapping[str, object]]) -> None:
    """Raises StageFailed when no variant gave an answer."""
    if all("crashed" in numbers for numbers in variants.values()):
        raise StageFailed("; ".join(f"{v} crashed: {numbers['crashed']}" for v, numbers in variants.items()))


def environment(bench: DeviceBench, before: Mapping[str, Any], each: Mapping[str, Environment]) -> dict[str, Json]:
    """The device, how it was asked, and each variant's runtime with its versions."""
    context, facts = bench.request.context, {k: v for k, v in before.items() if k != "now"}
    now = {"before": before.get("now"), "after": bench.shell.facts().get("now")}
    return {**facts, "now": now, "threads": context.threads, "batch": context.batch, "runtimes": dict(each)}


def named(sensor: str) -> PluginModule:
    """A sensor as a request names it."""
    return agent_client.plugin("sensors", sensor)
