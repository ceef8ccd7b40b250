"""What this machine can do: runtimes, sensors and why not, CPU, memory, versions. Imports no runtime."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any, TypedDict

from edgecompress.core import catalog, environments, registry, sandbox
from edgecompress.core.errors import EdgeError, InputError
from edgecompress.core.json import Json

ALSO = ("numpy", "torch", "safetensors", "rich", "vl-convert-python")  # worth knowing beside what the plug-ins require
NVIDIA = ("proc/driver/nvidia", "dev/nvidiactl", "dev/nvhost-gpu")  # one of them is where a driver is; the last: Jetson
HERE = "host"  # the installed device that is this machine
KINDS = ("runtimes", "techniques", "transports", "packagers")


def report(device: str = "", root: Path = Path("/")) -> dict[str, Any]:
    """What runs here and what does not, with the reason or the command that fixes it. `root` is where sensors look.

    `device`: this machine unless named. Raises NotFound for an unknown one; the report says why one cannot be reached.
    """
    plain = dataclasses.asdict(catalog.device(device or HERE, own=bool(device)).value)
    facts: dict[str, Json]
    try:
        facts = dict(registry.load("transports", plain["transport"]).connect(plain).facts())
    except EdgeError as error:
        facts = {"unreachable": str(error)}
    known = {**plain, "cores": plain["cores"] or facts.get("cores")}
    modules = [module for kind in registry.KINDS for _, module in registry.every(kind)]
    names = {environments.package(r) for module in modules for r in getattr(module, "REQUIRES", ())} | set(ALSO)
    return {
        "edgecompress": environments.version("edgecompress"),
        "python": {"version": platform.python_version(), "executable": sys.executable, "prefix": sys.prefix},
        "platform": platform.platform(),
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "device": {"name": device or HERE, "transport": plain["transport"], **facts},
        **{kind: [_plugin(*each) for each in registry.every(kind)] for kind in KINDS},
        "sensors": [sensor(name, module, known, root) for name, module in registry.every("sensors")],
        "libraries": {name: version for name in sorted(names) if (version := environments.version(name))},
        "licences": [m.LICENCE for m in modules if hasattr(m, "LICENCE") and not environments.missing(m)],
        "advice": list(_advice(root)),
    }


class PluginStatus(TypedDict):
    """Whether a plug-in can run here, and what to do where it cannot."""

    name: str
    available: bool
    versions: dict[str, str]
    missing: list[str]
    install: str
    why_not: str  # what else this machine lacks, as `devices` tells it


class SensorStatus(TypedDict):
    """Whether a sensor can read here, or why not."""

    name: str
    available: bool
    status: str
    scope: str
    why_not: str
    used_by_device: bool


def _plugin(name: str, module: ModuleType) -> PluginStatus:
    missing, lacking = environments.missing(module), getattr(module, "lacking", None)
    why_not = lacking() if lacking and not missing else ""
    return {
        "name": name,
        "available": not missing and not why_not,
        "versions": {package: version for package, version in environments.versions(module).items() if version},
        "missing": missing,
        "install": environments.install_command(module) if missing else "",
        "why_not": why_not,
    }


def sensor(name: str, module: ModuleType, device: Mapping[str, Any], root: Path) -> SensorStatus:
    """What a sensor reads on a device, or why it cannot."""
    why_not = module.unavailable(device, root)
    listed = name in device["sensors"]
    return {
        "name": name,
        "available": not why_not,
        "status": module.STATUS,
        "scope": module.SCOPE,
        "why_not": why_not,
        "used_by_device": listed,
    }


def _advice(root: Path) -> Iterable[str]:
    """What is installed and of no use here, what would make stages faster, and what does not limit them."""
    if why := sandbox.missing():
        yield f"stages are not isolated here: {why}; deploy untrusted models on Linux 5.13 or newer"
    try:
        catalog.path_of("devices", HERE)
    except InputError as error:
        yield str(error)
    if packages := _uncompiled():
        yield (
            f"the libraries in {packages} have no bytecode, and you may not write it: each stage compiles them again; "
            f"run, as one who may: {sys.executable} -m compileall -q -j 0 {packages}"
        )
    version = environments.version("torch") or ""
    brought = [environments.package(r) for r in metadata.requires("torch") or ()] if version else []
    cuda = [name for name in brought if name.startswith(("nvidia-", "cuda-")) and environments.version(name)]
    if (cuda or "+cu" in version) and not any((root / path).exists() for path in NVIDIA):
        files = (Path(str(path.locate())) for name in cuda for path in metadata.files(name) or ())
        size = sum(file.stat().st_size for file in files if file.is_file())
        yield (
            f"torch {version} is a CUDA build{f', with {size / 1e9:.1f} GB of CUDA libraries' if size else ''}; this "
            "machine has no NVIDIA driver, and no target of a CPU needs it; run: pip install uv && "
            f"uv pip install --reinstall torch=={version.partition('+')[0]} --torch-backend=cpu"
        )


def _uncompiled() -> str:
    """The folder of installed packages, where they are not compiled (uv leaves that out) and no run will, or ""."""
    place = Path(str(metadata.distribution("numpy").locate_file("numpy")))
    kept = not sys.dont_write_bytecode and os.access(place, os.W_OK)
    return "" if kept or any(place.glob("__pycache__/*.pyc")) else str(place.parent)


def text(report: Mapping[str, Json]) -> str:
    """A report as lines to read, and to paste into a bug report."""
    return "\n".join(_lines(report))


def _lines(report: Mapping[str, Any]) -> Iterable[str]:
    yield f"edgecompress {report['edgecompress']}, Python {report['python']['version']}, {report['platform']}"
    yield f"disk free here: {report['disk_free_bytes'] / 2**30:.1f} GiB"
    yield "\ndevice"
    yield from (f"  {key}: {_words(key, value)}" for key, value in report["device"].items())
    for kind in (k for k in KINDS if report[k]):
        yield f"\n{kind}"
        yield from (_row(p["available"], p["name"], _versions(p)) for p in report[kind])
    yield "\nsensors"
    for sensor in report["sensors"]:
        says = sensor["why_not"] or f"{sensor['status']}, scope {sensor['scope']}"
        used = "" if sensor["used_by_device"] else f" (not among the sensors of device {report['device']['name']})"
        yield _row(sensor["available"], sensor["name"], says + used)
    yield "\nlibraries"
    yield "  " + ", ".join(f"{name} {version}" for name, version in report["libraries"].items())
    if report["licences"]:
        yield "\nlicences"
        yield from (f"  {line}" for line in report["licences"])
    if report["advice"]:
        yield "\nadvice"
        yield from (f"  {line}" for line in report["advice"])


def _words(key: str, value: Json) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(k, v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if key.endswith("_bytes") and isinstance(value, (int, float)):
        return f"{value / 2**30:.1f} GiB"
    return "unknown" if value is None else str(value)


def _versions(plugin: PluginStatus) -> str:
    if plugin["why_not"]:
        return plugin["why_not"]
    if not plugin["available"]:
        return f"needs {', '.join(plugin['missing'])}; run: {plugin['install']}"
    return ", ".join(f"{name} {version}" for name, version in plugin["versions"].items())


def _row(available: bool, name: str, says: str) -> str:
    return f"  {'yes' if available else 'no ':3} {name:14} {says}".rstrip()
