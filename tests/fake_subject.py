"""A subject of a profiler whose session is a function of this test: what throttles, stalls, or cannot run a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.core.protocols import Meter
from edgecompress.device.agent import timing


@dataclass
class FakeSession:
    """Calls `act` for each run."""

    act: Callable[[Mapping[str, Any]], object]

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        self.act(inputs)
        return {}

    def ops(self, inputs: Mapping[str, Any], runs: int) -> Mapping[str, Any]:
        return {"ops": [], "why": "a fake", "fallback": []}

    def close(self) -> None: ...


@dataclass
class FakeSubject:
    """What agent.profiler.ArtifactSubject is, without a process."""

    act: Callable[[Mapping[str, Any]], object]
    root: Path
    sensor: Meter | None = None
    axis: Dim | int = field(default_factory=lambda: Dim("batch", 1, 64))
    batch: int = 1
    threads: int = 1
    profile: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Artifact:
        return Artifact(self.root, "null", (TensorSpec("x", (self.axis, 4)),))

    @property
    def out(self) -> Path:
        return self.root

    def open(self, profile: bool = False) -> FakeSession:
        return FakeSession(self.act)

    def inputs(self, batch: int | None = None) -> list[dict[str, Any]]:
        return [{"batch": batch or self.batch}]

    def timed(self, run: Callable[..., Any], inputs: Sequence[Any], seconds: float, runs: int) -> Any:
        return timing.timed(run, inputs, seconds, runs)

    def warm_up(self, run: Callable[..., Any], inputs: Sequence[Any]) -> Mapping[str, Any]:
        return {"warm": True, "warmup_s": 0.0, "warmup_runs": 0}

    def meter(self) -> tuple[Meter | None, str]:
        return self.sensor, "" if self.sensor else "no sensor in this test"


class Clock:
    """Stands in for the module `time`: only a sleep makes it go."""

    def __init__(self) -> None:
        self.ns = 0

    def sleep(self, seconds: float) -> None:
        self.ns += round(seconds * 1e9)

    def monotonic(self) -> float:
        return self.ns / 1e9

    perf_counter = monotonic

    def perf_counter_ns(self) -> int:
        return self.ns
