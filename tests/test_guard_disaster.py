"""A net that plain int8 breaks, named, mended and resumed: the guard on real stages, real runtimes, real digits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import vectors

import edgecompress
from edgecompress.commands import diagnose
from edgecompress.core.model import Artifact

pytestmark = [pytest.mark.slow, pytest.mark.prove]

EXAMPLE = Path(__file__).parents[1] / "examples" / "depthwise" / "source.toml"
SHIPPED = "artifact"
LAYER = "blocks.0.depthwise"
ASKED: dict[str, Any] = {
    "model": str(EXAMPLE),
    "target": "x86",
    "only": ["int8"],
    "profile": "quick",
    "settings": {
        "guard.on": True,
        "guard.rungs": ["equalize"],
        "limits.items_lost": 3,
        "profile.warmup_s": 0.0,
        "profile.window_s": 0.05,
    },
}
CHILD = """
import json, sys
from pathlib import Path
import edgecompress

asked, store, out = json.loads(sys.argv[1])
tell = lambda event: print(event.kind, event.stage.name, flush=True)
result = edgecompress.deploy(**asked, options=edgecompress.Options(store=Path(store), out=Path(out), listener=tell))
print("result", result.exit_code, flush=True)
"""


def start(folder: Path) -> subprocess.Popen[str]:
    """The guarded deploy in a process of its own; it prints each stage as it starts and ends."""
    said = json.dumps([ASKED, str(folder / "store"), str(folder / "shipped")])
    return subprocess.Popen([sys.executable, "-c", CHILD, said], stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> edgecompress.Result:
    """An uninterrupted run."""
    folder = tmp_path_factory.mktemp("mended")
    options = edgecompress.Options(store=folder / "store", out=folder / "shipped")
    return edgecompress.deploy(**ASKED, options=options)


def test_plain_int8_falls_and_the_guard_brings_it_back(mended: edgecompress.Result) -> None:
    assert mended.exit_code == 0 and mended.out
    report = mended.read_report()
    (ladder,) = report["ladders"]
    assert ladder["plain_loss"] > 0.2
    assert ladder["loss"] <= 3 / 500
    inside = not vectors.adds_in_16_bits()  # saturating sums lose some images on the way: the margin is not proven
    assert [(r["label"], r["inside"], r["chosen"]) for r in ladder["rungs"]] == [
        ("plain", False, False),
        ("equalize", inside or ladder["rungs"][1]["inside"], True),
    ]
    assert all(r["ratio"] is not None for r in ladder["rungs"]), "each rung's latency is measured"
    assert "What the guard repaired" in (mended.out / "report.html").read_text(encoding="utf-8")


def test_a_second_run_finds_everything(mended: edgecompress.Result) -> None:
    assert mended.out
    options = edgecompress.Options(store=mended.out.parent / "store", out=mended.out)
    again = edgecompress.deploy(**ASKED, options=options)
    ran = [name for name, outcome in again.outcomes.items() if outcome.why_run not in ("hit", "")]
    assert not ran


def test_the_diagnosis_names_the_layer_and_what_to_do(mended: edgecompress.Result) -> None:
    assert mended.out
    options = edgecompress.Options(store=mended.out.parent / "store")
    found = diagnose.diagnose(str(EXAMPLE), diagnose.DiagnosisRequest(variant="int8"), options=options, target="x86")
    assert (found.facts["first"], found.facts["advice"]) == (LAYER, "equalize")


def test_a_climb_that_was_killed_goes_on_to_the_same_artifact(mended: edgecompress.Result, tmp_path: Path) -> None:
    process = start(tmp_path)
    assert process.stdout
    for line in process.stdout:
        if line.startswith("started int8/guard/equalize/export-onnx"):
            os.kill(process.pid, signal.SIGKILL)
    process.wait()
    again, _ = (second := start(tmp_path)).communicate(timeout=300)
    assert second.returncode == 0 and "result 0" in again
    assert "started int8/guard/equalize/equalize" not in again
    assert mended.out
    first, resumed = (Artifact.read(folder / SHIPPED).digest() for folder in (mended.out, tmp_path / "shipped"))
    assert resumed == first
