"""doctor tells the truth about this machine, and imports nothing to find out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgecompress.commands import doctor
from edgecompress.core import environments, registry
from edgecompress.core.errors import NotFound
from edgecompress.device.emulation import build, cpus


@pytest.fixture(scope="module")
def told() -> dict[str, object]:
    return doctor.report()


def test_every_plugin_is_told_of(told: dict[str, list[dict[str, object]]]) -> None:
    for kind in (*doctor.KINDS, "sensors"):
        assert [p["name"] for p in told[kind]] == registry.names(kind)


def test_what_is_not_available_says_why_or_how_to_get_it(told: dict[str, list[dict[str, object]]]) -> None:
    assert all(s["available"] != bool(s["why_not"]) for s in told["sensors"])
    assert all(p["available"] != bool(p["install"] or p["why_not"]) for kind in doctor.KINDS for p in told[kind])


@pytest.mark.parametrize("name", ["adb", "ssh", "valgrind", "qemu"])
def test_a_transport_whose_program_is_not_here_is_told_as_the_devices_tell_it(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(build, "find", lambda: None)
    monkeypatch.delenv("EDGECOMPRESS_ADB", raising=False)
    report = doctor.report()
    (listed,) = (p for p in report["transports"] if p["name"] == name)
    device = {"options": {"host": "board", "cpu": next(iter(cpus.CPUS))}}
    assert not listed["available"] and listed["why_not"]
    assert registry.load("transports", name).unavailable(device) == listed["why_not"]
    assert f"no  {name:14} {listed['why_not']}" in doctor.text(report)


def test_a_runtime_that_is_not_installed_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "version", lambda package: None)
    null = next(p for p in doctor.report()["runtimes"] if p["name"] == "null")
    assert null["available"] is False
    assert null["install"].startswith("pip install")


def test_versions_are_those_installed(told: dict[str, dict[str, str]]) -> None:
    assert told["libraries"]["numpy"] == metadata.version("numpy")
    assert told["edgecompress"] == metadata.version("edgecompress")


def test_it_is_json_and_text_and_names_the_cpu(told: dict[str, dict[str, str]]) -> None:
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    text = doctor.text(told)
    assert str(told["device"]["cpu"]) in text
    assert all(name in text for name in registry.names("sensors"))


def test_an_unknown_device_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(NotFound, match="did you mean 'host'"):
        doctor.report("hosst")


def test_sensors_are_looked_for_below_root(tmp_path: Path) -> None:
    sensors = {s["name"]: s for s in doctor.report(root=tmp_path)["sensors"]}
    assert sensors["rapl"]["available"] is False


def test_asking_imports_no_runtime() -> None:
    code = (
        "import sys\nfrom edgecompress.commands import doctor\ndoctor.text(doctor.report())\n"
        "print([m for m in ('numpy', 'torch', 'onnxruntime', 'openvino', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def distribution(site: Path, name: str, version: str, requires: str = "") -> None:
    """An installed distribution: its metadata and one file of a megabyte."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
    (site / f"{info.stem}.so").write_bytes(b"\0" * 10**6)
    (info / "RECORD").write_text(f"{info.stem}.so,,\n{info.name}/METADATA,,\n")


@pytest.mark.parametrize(
    ("version", "requires", "driver", "advised"),
    [
        ("2.13.0+cpu", "", False, False),
        ("2.13.0", "", False, False),
        ("2.13.0+cu130", "", False, True),
        ("2.13.0", "nvidia-cublas-cu13; platform_system == 'Linux'", False, True),
        ("2.13.0", "nvidia-cublas-cu13; platform_system == 'Linux'", True, False),
    ],
)
def test_a_cuda_build_of_torch_is_told_where_there_is_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, requires: str, driver: bool, advised: bool
) -> None:
    distribution(tmp_path / "site", "torch", version, requires)
    distribution(tmp_path / "site", "nvidia-cublas-cu13", "13.0")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    environments.version.cache_clear()
    if driver:
        (tmp_path / "proc" / "driver" / "nvidia").mkdir(parents=True)
    try:
        advice = doctor.report(root=tmp_path)["advice"]
    finally:
        environments.version.cache_clear()
    assert len(advice) == int(advised)
    if advised:
        assert "CUDA build" in advice[0] and "--torch-backend=cpu" in advice[0]
        assert ("0.0 GB" in advice[0]) is bool(requires)


def test_a_file_of_the_folder_that_is_named_as_this_machine_is_told_and_does_not_stop_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "host.toml").write_text('transport = "ssh"\n')
    monkeypatch.chdir(tmp_path)
    report = doctor.report(root=tmp_path)
    assert report["device"]["name"] == "host" and report["device"]["transport"] == "host"
    assert [line for line in report["advice"] if line.startswith("./devices/host.toml has the same name")]


@pytest.mark.parametrize(
    ("kept", "writable", "advised"), [(True, True, False), (True, False, True), (False, True, True)]
)
def test_libraries_without_bytecode_are_told_where_no_run_may_compile_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, writable: bool, advised: bool
) -> None:
    (tmp_path / "site" / "numpy").mkdir(parents=True)
    numpy = SimpleNamespace(locate_file=(tmp_path / "site").joinpath)
    monkeypatch.setattr(metadata, "distribution", lambda _: numpy)
    monkeypatch.setattr(sys, "dont_write_bytecode", not kept)
    monkeypatch.setattr(os, "access", lambda *_: writable)
    assert bool(doctor._uncompiled()) is advised
