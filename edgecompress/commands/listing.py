"""Lists: targets, devices, profiles, plug-ins, and what is in the store; as data, and as text."""

from __future__ import annotations

import dataclasses
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress.commands import doctor
from edgecompress.core import catalog, environments, registry
from edgecompress.core.errors import EdgeError, NotFound
from edgecompress.core.plain_text import HIDDEN, Row, cell, columns, fitted
from edgecompress.core.plugins import STABLE, Plugin, described, with_stability
from edgecompress.core.settings import Device

# What a list does not show: reasons stand below it, the rest is told of a single one.
ASIDE = ("why_not", "missing", "install", "path", "cores", "vector_bits", "memory_mib", "stability")
READERS: dict[str, Callable[[str], catalog.Found[Any]]] = {
    "targets": catalog.target,
    "devices": catalog.device,
    "profiles": catalog.profile,
}


def all_of(kind: str) -> list[Row]:
    """Every target, device, profile, technique, runtime or sensor: a row each."""
    if kind == "devices":
        return devices()
    if kind in READERS:
        return [_file(kind, name) for name in catalog.names(kind)]
    if kind == "sensors":
        return sensors()
    return [_plugin(kind, name, module) for name, module in registry.every(kind)]


def one(kind: str, name: str) -> Row:
    """One entry in full: a file with its text, a plug-in with its options. Raises NotFound."""
    if kind in READERS:
        path = catalog.path_of(kind, name)
        row = _device(name) if kind == "devices" else _file(kind, name)
        return {**row, "text": path.read_text(encoding="utf-8")}
    provide = [each.name for each in registry.techniques() if name in (each.provides, *each.synonyms)]
    if kind == "techniques" and provide and name not in registry.names(kind):
        raise NotFound(f"'{name}' is what {', '.join(provide)} provide, each for its engine; give one of them")
    module = registry.load(kind, name)
    return {**_plugin(kind, name, module), "options": options(module), "text": (module.__doc__ or "").strip()}


def sensors(device: str = "host", root: Path = Path("/")) -> list[Row]:
    """Every sensor with what it reads on a device, or why it cannot."""
    plain = dataclasses.asdict(catalog.device(device).value)
    plain["cores"] = plain["cores"] or os.cpu_count()
    rows = [(module, doctor.sensor(name, module, plain, root)) for name, module in registry.every("sensors")]
    return [{**row, "description": summary(module)} for module, row in rows]


def devices() -> list[Row]:
    """Every device with its description, and whether it can be reached now; all installed ones are asked at once."""
    names = catalog.names("devices")
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(_listed, names))


def _listed(name: str) -> Row:
    """A device in the list; nothing is connected to because its file stands in the folder that somebody is in."""
    row = _file("devices", name)
    if "error" in row or catalog.is_installed("devices", name):
        return _device(name)
    why = f"not checked, as it is from ./devices; `edgecompress devices {name}` checks it"
    return _row(row, catalog.device(name).value, {"reachable": "", "why_not": why})


def _device(name: str) -> Row:
    row = _file("devices", name)
    if "error" in row:
        return row
    device = catalog.device(name).value
    why = unreachable(device)
    return _row(row, device, {"reachable": "no" if why else "yes", "why_not": why})


def _row(row: Row, device: Device, reach: Row) -> Row:
    facts = {"cores": device.cores, "vector_bits": device.vector_bits, "memory_mib": device.memory_mib}
    return {
        "name": row["name"],
        **reach,
        **facts,
        "transport": "" if device.unreachable else device.transport,
        "sensors": list(device.sensors),
        **row,
    }


def unreachable(device: Device) -> str:
    """Why nothing can be run on a device now, or ""."""
    if device.unreachable:
        return device.unreachable
    try:
        return str(registry.load("transports", device.transport).unavailable(dataclasses.asdict(device)))
    except EdgeError as error:
        return str(error)


def _file(kind: str, name: str) -> Row:
    """A file that is wrong is listed with what is wrong: the others are still of use."""
    try:
        parsed = READERS[kind](name)
    except EdgeError as error:
        return {"name": name, "error": str(error)}
    return {"name": name, "description": parsed.value.description, "path": str(parsed.path)}


def _plugin(kind: str, name: str, module: ModuleType) -> Row:
    words = {
        "techniques": ("PROVIDES", "READS", "WRITES"),
        "runtimes": ("FORMAT", "READS", "SUFFIX"),
        "sensors": ("STATUS", "SCOPE"),
        "packagers": ("SUFFIX", "FORMATS"),
    }
    row: Row = {"name": name, **{word.lower(): getattr(module, word, "") for word in words.get(kind, ())}}
    missing = environments.missing(module)
    if kind == "techniques":
        row["stability"] = getattr(module, "STABILITY", STABLE)
    row |= {"description": summary(module), "missing": missing}
    return {**row, "install": environments.install_command(module) if missing else ""}


def summary(module: ModuleType) -> str:
    """The first line of a plug-in's docstring, and whether it is experimental."""
    return with_stability((module.__doc__ or "").strip().partition("\n")[0], getattr(module, "STABILITY", STABLE))


def options(module: ModuleType) -> list[Row]:
    """The options of a plug-in: name, type, default."""
    own = described(Plugin, module.__name__, module).options
    if own is None:
        return []
    hints = typing.get_type_hints(own)
    fields = dataclasses.fields(own)
    return [{"name": f.name, "type": _type(hints[f.name]), "default": _default(f)} for f in fields]


def _type(hint: object) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _default(field: dataclasses.Field[object]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    return "required" if field.default_factory is dataclasses.MISSING else field.default_factory()


# --------------------------------------------------------------------------- as text


def text(table: Sequence[Row] | Row, width: int) -> str:
    """Rows as columns, with why one is not here below; one row as its fields, its text last."""
    if isinstance(table, Mapping):
        body = table.get("text", "")
        rows = [(k, cell(v)) for k, v in table.items() if k not in ("text", "options") and v not in HIDDEN]
        rows += [(f"option {o['name']}", f"{o['type']}, default {o['default']}") for o in table.get("options", [])]
        return "\n".join(fitted(rows, width)) + (f"\n\n{body.rstrip()}" if body else "")
    aside = {*ASIDE, *(["description"] if table and "why_not" in table[0] else [])}
    shown = columns([{name: value for name, value in row.items() if name not in aside} for row in table], width)
    reasons = [(f"  {row['name']}", _away(row)) for row in table if _away(row)]
    return "\n".join([shown, "", "not here, because:", *fitted(reasons, width)] if reasons else [shown])


def _away(row: Row) -> str:
    """Why one cannot be used here, or ""."""
    if row.get("missing"):
        return f"it needs {cell(row['missing'])}: {row['install']}"
    return str(row.get("why_not") or "")
