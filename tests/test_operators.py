"""Some of the operators of torch's own tests go through engines: each is right, or refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("coremltools")

pytestmark = pytest.mark.slow

BENCHMARK = Path(__file__).resolve().parent.parent / "benchmarks" / "operators.py"


def test_a_sample_of_operators_is_right_or_refused(tmp_path: Path) -> None:
    words = ["--engines", "onnx,coreml", "--only", "^(relu|std|clamp|nn_Conv2d|masked_select|digamma)$"]
    words += ["--work", str(tmp_path), "--json", str(tmp_path / "found.json")]
    done = subprocess.run([sys.executable, BENCHMARK, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    for engine in ("onnx fp32", "coreml fp32"):
        outcomes = {name: each["outcome"] for name, each in found[engine].items()}
        assert len(outcomes) >= 12
        assert {outcomes[name] for name in outcomes if name.startswith(("relu", "std", "clamp", "nn_Conv2d"))} == {
            "equal"
        }
        assert {outcomes[name] for name in outcomes if name.startswith("digamma")} == {"refused"}
