"""Faults planted into artifacts: verify finds those that matter, names the output, and passes what is sound."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import prove
import pytest
from mutators import FAULTS, plant

import edgecompress
from edgecompress.core import registry
from edgecompress.core.errors import StageFailed, kind_of
from edgecompress.core.model import Artifact, Context, Request
from edgecompress.core.settings import Limits
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.agent import __main__ as agent
from edgecompress.device.request import AgentRequest
from edgecompress.pipeline.job_request import Options
from edgecompress.stages import verify

pytestmark = pytest.mark.slow

TARGET = """
description = "an artifact to plant faults in"
platforms = ["elsewhere"] # nothing is measured
runtime = "{runtime}"
[limits]
items_lost = 5
cosine = 0.95
[[variant]]
name = "int8"
compress = [{compress}]
"""
FORMATS = {
    "onnx": '{ use = "int8" }',
    "openvino": '{ use = "int8" }',
    "litert": '{ use = "int8" }',
    "executorch": '{ use = "int8" }',
    "coreml": '{ use = "coreml_fp16" }, { use = "int8-weights" }',
    "qnn": '{ use = "int8" }',
}
LONG = ("executorch", "coreml", "openvino", "qnn")  # with `make prove`: what compares is the same
MARKS = {name: [pytest.mark.prove] if name in LONG else [] for name in FORMATS}
PARAMS = [pytest.param(n, marks=[*m, *([pytest.mark.qnn] if n == "qnn" else [])]) for n, m in MARKS.items()]
SEEDS = 4 if prove.WHOLE else 2  # of each fault
SOUND = 20 if prove.WHOLE else 5  # verdicts on what is sound
MATTERS = 0.01  # relative RMS of the output's change
UNSEEN = 32  # items at the end of the test split, with which nothing ships


@dataclass(frozen=True)
class Deployed:
    """What a deploy of the demo's net shipped, and what verify is given with it."""

    folder: Path
    runtime: str
    inputs: Mapping[str, Artifact]  # "golden", "samples"

    def artifact(self, copy: Path) -> Artifact:
        """A copy to damage."""
        return Artifact.read(Path(shutil.copytree(self.folder / "artifact", copy)))


@pytest.fixture(scope="module", params=PARAMS)
def deployed(request: pytest.FixtureRequest, shared_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Deployed:
    """The demo's net in one format."""
    folder = tmp_path_factory.mktemp(request.param)
    target = folder / f"{request.param}.toml"
    target.write_text(TARGET.format(runtime=request.param, compress=FORMATS[request.param]), encoding="utf-8")
    options = Options(store=shared_store, out=folder / "dist")
    few = {"samples": 100} if request.param == "qnn" else {}  # an emulator takes its time
    result = edgecompress.deploy(target=str(target), options=options, **few)
    assert result.exit_code in (0, 4 if few else 0), result.message
    found = {"golden": result.outcomes["golden"].artifact, "samples": result.outcomes["data"].artifact}
    return Deployed(folder / "dist", request.param, {role: a for role, a in found.items() if a})


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents answer in this process: hundreds of them in seconds. (A process each is what the last test has.)"""

    def ask(shell: Any, request: AgentRequest, out: Path, deadline_s: float) -> Mapping[str, Any]:
        answer = agent.answer(request, out)
        if "error" in answer:
            raise kind_of(answer["class"])(answer["error"])
        return answer

    monkeypatch.setattr(agent_client, "ask", ask)


def judged(deployed: Deployed, artifact: Artifact, out: Path) -> Mapping[str, Any]:
    """The facts of the verdict that `edgecompress verify` comes to."""
    out.mkdir()
    along = {role: Artifact.read(deployed.folder / role) for role in ("excerpt", "verdict")}
    limits = dataclasses.asdict(Limits(items_lost=5, cosine=0.95))
    options = {"runtime": deployed.runtime, "metric": "top1", "limits": limits}
    return verify.run(Request({"model": artifact, **deployed.inputs, **along}, out, options, Context())).facts


def planted(deployed: Deployed, fault: str, folder: Path) -> Iterator[tuple[Artifact, str, Mapping[str, Any]]]:
    """Damaged artifacts that their runtime still takes, what is wrong with them, and the facts of the verdict."""
    for seed in range(5 * SEEDS):
        says = fault
        try:
            artifact, says = plant(deployed.artifact(folder / f"{fault}-{seed}"), fault, seed)
            facts = judged(deployed, artifact, folder / f"{fault}-{seed}-verdict")
        except StageFailed as error:
            print(f"{deployed.runtime}: {says}: refused: {error}")
        else:
            yield artifact, says, facts


def answers(deployed: Deployed, artifact: Artifact) -> np.ndarray:
    """What an artifact computes, asked of its runtime directly, on items that it did not ship with."""
    session = registry.load("runtimes", deployed.runtime).open(artifact, 1)
    batches = list(tensors.batches(deployed.inputs["samples"], "test", model=artifact))[-UNSEEN:]
    name = artifact.outputs[0].name
    found = np.concatenate([np.array(session.run(batch)[name], np.float64) for batch in batches])
    session.close()
    return found


def moved(before: np.ndarray, after: np.ndarray) -> float:
    """Relative RMS."""
    return float(np.linalg.norm(after - before) / np.linalg.norm(before)) if np.isfinite(after).all() else np.inf


@pytest.mark.usefixtures("here")
def test_planted_faults_that_move_the_output_are_found_and_named(deployed: Deployed, tmp_path: Path) -> None:
    sound = answers(deployed, deployed.artifact(tmp_path / "sound"))
    found, missed = [], []
    for fault in FAULTS:
        for artifact, says, facts in itertools.islice(planted(deployed, fault, tmp_path), SEEDS):
            change, lost = moved(sound, answers(deployed, artifact)), facts.get("lost", "")
            named = "output 'output'" in lost and ("operator" in lost or deployed.runtime != "coreml")
            broken = {check["name"] for check in facts["checks"] if check["ok"] is False}
            print(f"{deployed.runtime}: {says}: moved {change:.2%}: {', '.join(sorted(broken)) or 'passed'}: {lost}")
            if change > MATTERS:
                (found if named else missed).append(says)
    assert len(found) + len(missed) >= len(FAULTS) * SEEDS // 2, "too few of the faults matter"
    assert len(found) >= 0.95 * (len(found) + len(missed)), missed


@pytest.mark.usefixtures("here")
def test_a_sound_artifact_passes_every_time(deployed: Deployed, tmp_path: Path) -> None:
    for attempt in range(SOUND):
        artifact = deployed.artifact(tmp_path / f"{attempt}").write()
        facts = judged(deployed, artifact, tmp_path / f"{attempt}-verdict")
        assert "lost" not in facts
        assert all(check["ok"] for check in facts["checks"]), facts["checks"]


def test_verify_exits_with_1_for_a_planted_fault_and_with_0_without(
    deployed: Deployed, shared_store: Path, tmp_path: Path
) -> None:
    options = Options(store=shared_store)
    assert edgecompress.verify(deployed.folder, options=options).exit_code == 0
    dist = Path(shutil.copytree(deployed.folder, tmp_path / "dist"))
    artifact, _ = plant(Artifact.read(dist / "artifact"), "transpose", 0)
    origin = json.loads((dist / "deploy.json").read_text())
    (dist / "deploy.json").write_text(json.dumps({**origin, "sha256": artifact.sha256}))
    result = edgecompress.verify(dist, options=options)
    assert result.exit_code == 1
    assert "output 'output' changed by" in result.message
