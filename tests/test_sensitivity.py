"""The layers that analyze finds sensitive are those that cost most when they are really pruned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "sensitivity.py"


@pytest.mark.prove
@pytest.mark.shared
@pytest.mark.slow
def test_the_order_of_layers_agrees_with_brute_force(tmp_path: Path) -> None:
    found, store = tmp_path / "found.json", tmp_path / "store"
    how = ["--brief", "--images", "500", "--ratios", "0.5", "--store", str(store), "--json", str(found)]
    subprocess.run([sys.executable, str(SCRIPT), *how], check=True)
    told = json.loads(found.read_text(encoding="utf-8"))
    assert told["rho"]["analyze"]["rho"] >= 0.7
    assert len(told["layers"]) == 9 and told["images"] == 1000
    assert set(told["layers"]) < set(told["order"])
    assert sum(row["nats"] > 0.3 for row in told["layers"].values()) == 4  # brute force tells layers apart
