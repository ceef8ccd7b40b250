"""Some of the operators of torch's own tests, and graphs of them, go through engines: right, or refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("coremltools")

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


def outcomes_of(benchmark: str, work: Path, *words: str) -> dict[str, dict[str, str]]:
    command = [sys.executable, BENCHMARKS / benchmark, *words, "--work", work, "--json", work / "found.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((work / "found.json").read_text(encoding="utf-8"))
    return {engine: {name: each["outcome"] for name, each in told.items()} for engine, told in found.items()}


def test_graphs_of_operators_are_right(tmp_path: Path) -> None:
    found = outcomes_of("operator_graphs.py", tmp_path, "--engines", "onnx,coreml", "--seed", "1", "--sample", "6")
    for engine in ("onnx fp32", "coreml fp32"):
        assert len(found[engine]) == 6
        assert set(found[engine].values()) <= {"equal", "tolerance"}


def test_a_sample_of_operators_is_right_or_refused(tmp_path: Path) -> None:
    words = "^(relu|std|clamp|nn_Conv2d|masked_select|digamma)$"
    found = outcomes_of("operators.py", tmp_path, "--engines", "onnx,coreml", "--only", words)
    for outcomes in found.values():
        assert len(outcomes) >= 12
        assert {outcomes[name] for name in outcomes if name.startswith(("relu", "std", "clamp", "nn_Conv2d"))} == {
            "equal"
        }
        assert {outcomes[name] for name in outcomes if name.startswith("digamma")} == {"refused"}
