"""The checks of a profiler: defaults, an estimate of its time, and a result in JSON and in lines."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import config, registry
from edgecompress.core.plugins import ProfilerPlugin
from edgecompress.device import agent_client
from edgecompress.device.agent import profiler
from edgecompress.device.request import AgentRequest, ProfilerModule
from edgecompress.testing.conformance.common import check_described, default_options
from edgecompress.testing.conformance.nets import net, samples

if TYPE_CHECKING:
    from edgecompress.core.json import Json

DEADLINE_S = 120.0  # of the processes that a profiler starts


def check_pass(name: str, tmp_path: Path, options: Mapping[str, Json] | None = None) -> None:
    """A profiler has a default for every option, says how long it takes, and answers in JSON and in lines.

    `options`: brief ones, for the trial on a small net.
    """
    module = registry.load("profilers", name)
    says = f"profiler {name}"
    check_described(module, ProfilerPlugin, says)
    seconds = module.estimate_s(default_options(module, says))
    assert math.isfinite(seconds) and seconds > 0, f"{says}: estimate_s says {seconds!r} s by default"
    config.build(module.Options, options or {}, says)
    answer = profiler.run(_request(module, tmp_path / name, options or {}), tmp_path / name)
    lines = module.lines(json.loads(json.dumps(answer, allow_nan=False)))
    assert lines, f"{says}: lines says nothing"
    assert all(isinstance(line, str) and "\n" not in line for line in lines), f"{says}: lines are single lines of text"


def _request(module: ModuleType, folder: Path, options: Mapping[str, Json]) -> AgentRequest:
    """The request of a profiler over the null net, under no sensor."""
    model = net("null", folder)
    return AgentRequest(
        "profiler",
        runtime=agent_client.plugin("runtimes", "null"),
        artifact=str(model.path),
        samples=str(samples(model, folder).path),
        profile={"warmup_s": 0.02, "warmup_runs": 2, "warmup_tolerance": 0.5, "warmup_cap_s": 0.1},
        device={"options": {}},
        profiler=ProfilerModule("tried", module.__name__, options),
        deadline_s=DEADLINE_S,
    )
