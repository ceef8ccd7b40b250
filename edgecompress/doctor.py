"""What this machine can do: runtimes, sensors and why not, CPU, memory, versions. Imports no runtime."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress import catalog, envs, registry
from edgecompress.errors import EdgeError

ALSO = ("numpy", "torch", "safetensors", "rich", "vl-convert-python")  # worth knowing beside what the plug-ins require
KINDS = ("runtimes", "techniques", "transports", "packages")


def report(device: str = "host", root: Path = Path("/")) -> dict[str, Any]:
    """What runs here and what not, with the reason or the command that mends it. `root` is where sensors look.

    Raises NotFound for an unknown device; a device that cannot be reached is said in the report.
    """
    plain = dataclasses.asdict(catalog.device(device).value)
    facts = _facts(plain)
    known = {**plain, "cores": plain["cores"] or facts.get("cores")}
    return {
        "edgecompress": envs.version("edgecompress"),
        "python": {"version": platform.python_version(), "executable": sys.executable, "prefix": sys.prefix},
        "platform": platform.platform(),
        "disk_free_bytes": shutil.disk_usage(Path.cwd()).free,
        "device": {"name": device, "transport": plain["transport"], **facts},
        **{kind: [_plugin(*each) for each in registry.every(kind)] for kind in KINDS},
        "sensors": [sensor(name, module, known, root) for name, module in registry.every("sensors")],
        "libraries": _libraries(),
    }


def _facts(device: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return dict(registry.load("transports", device["transport"]).connect(device).facts())
    except EdgeError as error:
        return {"unreachable": str(error)}


def _plugin(name: str, module: ModuleType) -> dict[str, Any]:
    missing = envs.missing(module)
    return {
        "name": name,
        "available": not missing,
        "versions": {package: version for package, version in envs.versions(module).items() if version},
        "missing": missing,
        "install": envs.install_command(module) if missing else "",
    }


def sensor(name: str, module: ModuleType, device: Mapping[str, Any], root: Path) -> dict[str, Any]:
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


def _libraries() -> dict[str, str]:
    modules = [module for kind in registry.KINDS for _, module in registry.every(kind)]
    names = {envs.package(r) for module in modules for r in getattr(module, "REQUIRES", ())} | set(ALSO)
    return {name: found for name in sorted(names) if (found := envs.version(name))}


def text(told: Mapping[str, Any]) -> str:
    """A report as lines to read, and to paste into a bug report."""
    return "\n".join(_lines(told))


def _lines(told: Mapping[str, Any]) -> Iterable[str]:
    yield f"edgecompress {told['edgecompress']}, Python {told['python']['version']}, {told['platform']}"
    yield f"disk free here: {told['disk_free_bytes'] / 2**30:.1f} GiB"
    yield "\ndevice"
    yield from (f"  {key}: {_words(key, value)}" for key, value in told["device"].items())
    for kind in (k for k in KINDS if told[k]):
        yield f"\n{kind}"
        yield from (_row(p["available"], p["name"], _versions(p)) for p in told[kind])
    yield "\nsensors"
    for sensor in told["sensors"]:
        says = sensor["why_not"] or f"{sensor['status']}, scope {sensor['scope']}"
        used = "" if sensor["used_by_device"] else f" (not among the sensors of device {told['device']['name']})"
        yield _row(sensor["available"], sensor["name"], says + used)
    yield "\nlibraries"
    yield "  " + ", ".join(f"{name} {version}" for name, version in told["libraries"].items())


def _words(key: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {_words(k, v)}" for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    if key.endswith("_bytes") and value is not None:
        return f"{value / 2**30:.1f} GiB"
    return "unknown" if value is None else str(value)


def _versions(plugin: Mapping[str, Any]) -> str:
    if not plugin["available"]:
        return f"needs {', '.join(plugin['missing'])}; run: {plugin['install']}"
    return ", ".join(f"{name} {version}" for name, version in plugin["versions"].items())


def _row(available: bool, name: str, says: str) -> str:
    return f"  {'yes' if available else 'no ':3} {name:14} {says}".rstrip()
