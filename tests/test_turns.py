"""Artifacts in turns in one process: a median of each round, a crash that costs one, instructions where simulated."""

from __future__ import annotations

import dataclasses
import json
import sys
import types
from pathlib import Path
from typing import Any

import bench_inputs
import pytest
import sshd

from edgecompress.commands import energy_calibrate
from edgecompress.commands.energy_calibrate import Micro
from edgecompress.core import catalog, registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.device import agent_client
from edgecompress.device.agent import interleaved as interleaved_mode
from edgecompress.device.request import AgentRequest, PluginModule
from edgecompress.plugins.transports import host
from edgecompress.stages import interleaved

ROUNDS = 3
WIDTHS = {"narrow": 8, "wide": 64}
# A runtime that is the null one, but for a net whose folder says otherwise.
TOUCHY = """
import os
from edgecompress.engines.null.runtimes import null
REQUIRES = ()
def open(artifact, threads, profile=False):
    opened = null.open(artifact, threads, profile)
    if artifact.path.name == "raises":
        raise ValueError("not this one")
    if artifact.path.name == "aborts":
        opened.run = lambda inputs: os.abort()
    return opened
"""


@pytest.fixture
def touchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a runtime that some nets take down."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "touchy.py").write_text(TOUCHY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    real, stub = registry.load, types.SimpleNamespace(__name__="touchy")
    monkeypatch.setattr(registry, "load", lambda kind, name: stub if name == "touchy" else real(kind, name))
    return "touchy"


def nets(folder: Path, **spin_ms: float) -> dict[str, Artifact]:
    return {label: bench_inputs.net(folder / "nets" / label, spin_ms=ms) for label, ms in spin_ms.items()}


def request(
    folder: Path, artifacts: dict[str, Artifact], device: dict[str, Any] | None = None, **options: Any
) -> Request:
    given = {"runtime": "null", "rounds": ROUNDS, "window_s": 0.01, **options}
    return bench_inputs.request(folder, artifacts, device, **given)


def test_each_label_has_a_median_of_each_round(tmp_path):
    found = interleaved.run(request(tmp_path, nets(tmp_path, brief=0.5, slow=3.0)))
    facts = Artifact.read(found.path).facts
    assert found.kind == "turns" and (facts["status"], facts["crashed"]) == ("measured", {})
    brief, slow = facts["medians_ms"]["brief"], facts["medians_ms"]["slow"]
    assert len(brief) == len(slow) == ROUNDS
    assert min(brief) >= 0.5 and min(slow) >= 3.0
    assert facts["environment"]["runtimes"]["null"]["threads"] == 1 and "cpu" in facts["environment"]


def test_the_order_rotates_from_round_to_round(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(interleaved_mode, "mark", lambda out, label: said.append(label))
    names = {name: bench_inputs.net(tmp_path / name) for name in "abc"}
    asked = AgentRequest(
        "interleaved",
        runtime=PluginModule("null", "edgecompress.engines.null.runtimes.null"),
        artifacts={label: str(net.path) for label, net in names.items()},
        samples=str(bench_inputs.samples(tmp_path / "samples").path),
        rounds=4,
        profile={"window_s": 0.0, "warmup_s": 0.0},
    )
    interleaved_mode.run(asked, tmp_path)
    loaded, *rounds = ("".join(said[i : i + 3]) for i in range(0, len(said), 3))
    assert (loaded, rounds) == ("abc", ["abc", "bca", "cab", "abc"])


@pytest.mark.parametrize(("bad", "why"), [("raises", "ValueError: not this one"), ("aborts", "SIGABRT")])
def test_one_that_takes_the_agent_down_costs_only_itself(tmp_path, touchy, bad, why):
    found = interleaved.facts(request(tmp_path, nets(tmp_path, first=0.0, **{bad: 0.0}, last=0.0), runtime=touchy))
    assert found["medians_ms"].keys() == {"first", "last"}
    assert found["crashed"].keys() == {bad} and why in found["crashed"][bad]


def test_where_all_crash_the_stage_fails(tmp_path, touchy):
    with pytest.raises(StageFailed, match=r"raises crashed: .*not this one.*; aborts crashed: .*SIGABRT"):
        interleaved.facts(request(tmp_path, nets(tmp_path, raises=0.0, aborts=0.0), runtime=touchy))


def test_what_is_no_labels_fault_is_an_error(tmp_path):
    with pytest.raises(StageFailed, match="has no module 'nowhere'"):
        asked = AgentRequest("interleaved", runtime=PluginModule("x", "nowhere"))
        agent_client.ask(host.connect({}), asked, _folder(tmp_path / "out"), 60)


def test_a_simulated_device_without_a_counter_is_refused(tmp_path, monkeypatch):
    pretended = dataclasses.replace(registry.transport("host"), simulated="a pretence")
    monkeypatch.setattr(registry, "transport", lambda name: pretended)
    with pytest.raises(InputError, match="names no sensor that counts instructions"):
        interleaved.facts(request(tmp_path, nets(tmp_path, one=0.0)))


@pytest.mark.slow
@pytest.mark.qemu
@pytest.mark.prove
def test_an_emulated_device_counts_instead(tmp_path):
    device = dataclasses.asdict(catalog.device("qemu-cortex-a76").value)
    found = interleaved.facts(request(tmp_path, nets(tmp_path, one=0.0, two=0.0), device))
    assert found["status"] == "simulated" and "medians_ms" not in found
    assert found["instructions"]["one"] == found["instructions"]["two"] > 1000


def test_paths_in_a_table_are_carried_one_by_one(tmp_path):
    class Far(host.Host):
        def push(self, path: Path) -> str:
            return f"/there/{path.name}"

        def run(self, argv, deadline_s, log):
            told = json.loads((tmp_path / "out" / "request.json").read_text())
            (tmp_path / "out" / "result.json").write_text(json.dumps({"told": told}))
            return 0

    asked = AgentRequest("interleaved", artifacts={"a": "/here/a", "b": "/here/b"}, samples="/here/data")
    told = agent_client.ask(Far(), asked, _folder(tmp_path / "out"), 60)["told"]
    assert told["artifacts"] == {"a": "/there/a", "b": "/there/b"} and told["samples"] == "/there/data"


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


@pytest.mark.slow
def test_nets_of_a_real_runtime_take_turns(tmp_path):
    built = {label: energy_calibrate.build(Micro("conv", (8, width, 16)), tmp_path) for label, width in WIDTHS.items()}
    asked = request(tmp_path, {label: net for label, (net, _) in built.items()}, runtime="onnx")
    samples = next(iter(built.values()))[1]
    found = interleaved.facts(dataclasses.replace(asked, inputs={**asked.inputs, "samples": samples}))
    assert {label: len(times) for label, times in found["medians_ms"].items()} == dict.fromkeys(WIDTHS, ROUNDS)
    assert all(ms > 0 for times in found["medians_ms"].values() for ms in times)
    assert "onnxruntime" in found["environment"]["runtimes"]["onnx"]["versions"]


@pytest.mark.slow
@pytest.mark.sshd
def test_on_a_board_they_take_turns_too_and_one_that_crashes_costs_only_itself(tmp_path):
    found = nets(tmp_path, good=0.5, other=0.0)
    card = Artifact.read(found["other"].path)
    (card.path / "model.null").write_text("no net at all")
    asked = {**found, "other": card.write()}
    with sshd.serving() as running:
        told = interleaved.facts(request(tmp_path, asked, running.device(python=sys.executable)))
    assert len(told["medians_ms"]["good"]) == ROUNDS and told["medians_ms"].keys() == {"good"}
    assert "not a null net" in told["crashed"]["other"]
