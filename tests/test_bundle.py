"""The agent as one file: it runs alone, holds only what an agent needs, and any Python from 3.10 on can read it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgecompress import bundle, registry
from edgecompress.errors import InputError

CORE = {"agent", "errors", "lifeline", "model", "sketch", "tensors"}
PLUGINS = [(kind, name) for kind in ("runtimes", "sensors", "passes") for name in registry.names(kind)]


def test_it_answers_alone(tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "agent.pyz", ["edgecompress.sensors.rapl"])
    asked = {"mode": "facts", "tied": False, "deadline_s": 20, "device": {}, "root": str(tmp_path)}
    asked["sensors"] = [{"name": "rapl", "module": "edgecompress.sensors.rapl"}]
    (tmp_path / "request.json").write_text(json.dumps(asked))
    done = subprocess.run([sys.executable, "-I", "-S", file, tmp_path / "request.json"], timeout=30)
    assert done.returncode == 0
    assert "no RAPL" in json.loads((tmp_path / "result.json").read_text())["sensors"]["rapl"]


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (bundle.write(tmp_path / name, ["edgecompress.runtimes.onnx"]).read_bytes() for name in ("a", "b"))
    assert first == second


def test_the_agent_alone_needs_six_modules() -> None:
    assert set(bundle.closure([bundle.AGENT])) == {"edgecompress", *(f"edgecompress.{name}" for name in CORE)}


def test_what_a_plugin_imports_of_its_folder_comes_along() -> None:
    found = bundle.closure(["edgecompress.runtimes.litert", "edgecompress.runtimes.coreml"])
    assert {"edgecompress.runtimes._tflite", "edgecompress.tflite_file", "edgecompress.mil.ops"} <= set(found)


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"edgecompress\.runtimes\.nowhere"):
        bundle.write(tmp_path / "agent.pyz", ["edgecompress.runtimes.nowhere"])


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=lambda part: part)
def test_what_travels_is_python_3_10_and_none_of_the_core(kind: str, name: str, tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "agent.pyz", [registry.load(kind, name).__name__])
    with zipfile.ZipFile(file) as archive:
        inside = {entry: archive.read(entry).decode() for entry in archive.namelist()}
    for entry, text in inside.items():
        ast.parse(text, entry, feature_version=(3, 10))
    folders = {"runtimes", "sensors", "passes", "mil"}
    core = {e.split("/")[1].removesuffix(".py") for e in inside if e.startswith("edgecompress/")} - folders
    assert core <= CORE | {"__init__", "machine", "openvino_ir", "statistic", "tflite_file"}
