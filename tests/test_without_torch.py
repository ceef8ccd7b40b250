"""An .onnx file goes through the whole pipeline with no torch: nothing on its way imports it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_bad_input import QUICK, conv_net, images

# What Python runs at its start, here and in every process that it starts: torch is not to be found.
NO_TORCH = """
from importlib.machinery import PathFinder

found = PathFinder.find_spec


def find_spec(name, path=None, target=None):
    return None if name.partition(".")[0] == "torch" else found(name, path, target)


PathFinder.find_spec = staticmethod(find_spec)
"""
VARIANTS = ("int8", "openvino-int8", "fp32", "openvino-fp32")


@pytest.mark.slow
def test_an_onnx_file_ships_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "sitecustomize.py").write_text(NO_TORCH, encoding="utf-8")
    name = "serving/image:0"  # as TensorFlow's exporters call it
    conv_net(tmp_path / "net.onnx", weight=0.5, image=name, scores="Identity/../scores:0")
    images(tmp_path / "images.npz", image=name)
    words = f"net.onnx --data images.npz --target x86 --only {','.join(VARIANTS)} --set limits.items_lost=16".split()
    argv = [sys.executable, "-P", "-m", "edgecompress", "deploy", *words, *QUICK]
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "absent")}
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "dist" / "x86" / "report.json").read_text(encoding="utf-8"))
    verdicts = {variant["name"]: variant["verdict"] for variant in report["variants"]}
    assert set(verdicts) == {*VARIANTS}
    assert "failed" not in verdicts.values(), verdicts
