"""The agent as one file: it runs alone, holds only what an agent needs, and any Python from 3.10 on can read it."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.device import bundle, imported_modules

MODES = {
    "device_facts",
    "energy",
    "instructions",
    "interleaved",
    "operators",
    "outputs",
    "profiler",
    "measuring_round",
    "session",
    "start",
}
SHARED = {
    "__main__",
    "call_cost",
    "disturbance",
    "environment",
    "inputs",
    "memory",
    "start",
    "timing",
    "window_schedule",
}
AGENT = {
    *(f"edgecompress.core.{name}" for name in ("child_process", "errors", "json", "model", "plain_file", "protocols")),
    *(f"edgecompress.data.{name}" for name in ("npy", "states", "tensors")),
    *(f"edgecompress.device.{name}" for name in ("agent", "request", "operator_sketches")),
    *(f"edgecompress.device.agent.{name}" for name in MODES | SHARED),
}
ROOMS = {
    "edgecompress",
    *(f"edgecompress.{name}" for name in ("core", "data", "device", "formats", "plugins", "engines")),
}
ALONG = {  # what some plug-ins need besides
    *(f"edgecompress.core.{name}" for name in ("config", "settings")),  # of a raw head, which a user's file may have
    *("edgecompress.data.channel_axis", "edgecompress.formats.box_heads"),
    "edgecompress.data.declared_ends",
    "edgecompress.data.dynamic_axes",
    "edgecompress.formats.empty_model",
    "edgecompress.formats.mlpackage",
    "edgecompress.formats.torch_decompositions",
    "edgecompress.formats.tensorflow_replacements",
    "edgecompress.formats.torch_faults",
    "edgecompress.formats.torch_foresight",
    "edgecompress.formats.torch_paddings",
    "edgecompress.formats.torch_program",
    "edgecompress.formats.torch_replacements",
    "edgecompress.formats.torch_replacements.convolutions",
    "edgecompress.formats.torch_replacements.elementwise",
    "edgecompress.formats.torch_replacements.places",
    "edgecompress.formats.torch_replacements.pools",
    "edgecompress.formats.torch_replacements.samples",
    "edgecompress.formats.torch_replacements.sums",
    "edgecompress.formats.torch_replacements.table",
    "edgecompress.formats.torch_shortcuts",
    "edgecompress.device.input_buffers",
    "edgecompress.core.sandbox",
    "edgecompress.core.engine_settings",
    "edgecompress.core.watched_graph",
    "edgecompress.core.package_files",
    "edgecompress.core.stats",
    "edgecompress.core.syscall_filter",
    "edgecompress.device.machine",
    "edgecompress.core.operations",
    "edgecompress.core.operator_graph",
    *(
        f"edgecompress.formats.precision{name}"
        for name in ("", ".from_mil", ".from_onnx", ".from_openvino", ".from_tflite", ".walk")
    ),
}
PLUGIN_FOLDERS = ("edgecompress.plugins.", "edgecompress.engines.")
PLUGINS = [(kind, name) for kind in ("runtimes", "sensors", "profilers") for name in registry.names(kind)]


def test_it_answers_alone(tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "agent.pyz", ["edgecompress.plugins.sensors.rapl"])
    asked = {"mode": "facts", "tied": False, "deadline_s": 20, "device": {}, "root": str(tmp_path)}
    asked["sensors"] = [{"name": "rapl", "module": "edgecompress.plugins.sensors.rapl"}]
    (tmp_path / "request.json").write_text(json.dumps(asked))
    done = subprocess.run([sys.executable, "-I", "-S", file, tmp_path / "request.json"], timeout=30)
    assert done.returncode == 0
    assert "no RAPL" in json.loads((tmp_path / "result.json").read_text())["sensors"]["rapl"]


def test_the_same_bytes_each_time(tmp_path: Path) -> None:
    first, second = (
        bundle.write(tmp_path / name, ["edgecompress.engines.onnx.runtimes.onnx"]).read_bytes() for name in ("a", "b")
    )
    assert first == second


def test_the_agent_alone_needs_few_modules() -> None:
    rooms = {"edgecompress", "edgecompress.core", "edgecompress.data", "edgecompress.device"}
    assert set(imported_modules.sources([bundle.AGENT])) == AGENT | rooms


def test_what_a_plugin_imports_of_its_folder_comes_along() -> None:
    found = imported_modules.sources(
        ["edgecompress.engines.litert.runtimes.litert", "edgecompress.engines.coreml.runtimes.coreml"]
    )
    assert {
        "edgecompress.engines.litert.session",
        "edgecompress.engines.litert.model_file",
        "edgecompress.engines.coreml.mil.ops",
    } <= set(found)


def test_a_module_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"edgecompress\.engines\.nowhere\.runtimes\.nowhere"):
        bundle.write(tmp_path / "agent.pyz", ["edgecompress.engines.nowhere.runtimes.nowhere"])


@pytest.mark.parametrize(("kind", "name"), PLUGINS, ids=lambda part: part)
def test_what_travels_is_python_3_10_and_none_of_the_core(kind: str, name: str, tmp_path: Path) -> None:
    file = bundle.write(tmp_path / "agent.pyz", [registry.load(kind, name).__name__])
    with zipfile.ZipFile(file) as archive:
        inside = {entry: archive.read(entry).decode() for entry in archive.namelist()}
    for entry, text in inside.items():
        ast.parse(text, entry, feature_version=(3, 10))
    modules = {e.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for e in inside if "/" in e}
    ours = {name for name in modules if name.startswith("edgecompress") and not name.startswith(PLUGIN_FOLDERS)}
    assert ours <= AGENT | ROOMS | ALONG
