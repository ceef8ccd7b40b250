"""Lists: targets, devices, profiles, plug-ins, and what is in the store; as data, and as text."""

from __future__ import annotations

import dataclasses
import json
import os
import typing
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

from edgecompress import catalog, doctor, envs, registry
from edgecompress.errors import EdgeError, InputError, did_you_mean
from edgecompress.settings import Device
from edgecompress.store import Store

Row = dict[str, Any]
HIDDEN: tuple[Any, ...] = (None, "", (), [])  # shown as an empty cell
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
    """One of them, whole: a file with its text, a plug-in with its options. Raises NotFound."""
    if kind in READERS:
        path = catalog.path_of(kind, name)
        return {**_file(kind, name), "text": path.read_text(encoding="utf-8")}
    module = registry.load(kind, name)
    return {**_plugin(kind, name, module), "options": options(module), "text": (module.__doc__ or "").strip()}


def sensors(device: str = "host", root: Path = Path("/")) -> list[Row]:
    """Every sensor with what it reads on a device, or why it cannot."""
    plain = dataclasses.asdict(catalog.device(device).value)
    plain["cores"] = plain["cores"] or os.cpu_count()
    told = [(module, doctor.sensor(name, module, plain, root)) for name, module in registry.every("sensors")]
    return [{**row, "description": summary(module)} for module, row in told]


def devices() -> list[Row]:
    """Every device with what it is, and whether it can be reached now; all are asked at once."""
    names = catalog.names("devices")
    with ThreadPoolExecutor(max(1, len(names))) as pool:
        return list(pool.map(_device, names))


def _device(name: str) -> Row:
    row = _file("devices", name)
    if "error" in row:
        return row
    device = catalog.device(name).value
    why = unreachable(device)
    facts = {"cores": device.cores, "vector_bits": device.vector_bits, "memory_mib": device.memory_mib}
    reach = {"reachable": "no" if why else "yes", "why_not": why}
    return {
        "name": name,
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
    path = catalog.path_of(kind, name)
    try:
        description = READERS[kind](name).value.description
    except EdgeError as error:
        return {"name": name, "error": str(error), "path": str(path)}
    return {"name": name, "description": description, "path": str(path)}


def _plugin(kind: str, name: str, module: ModuleType) -> Row:
    words = {
        "techniques": ("PROVIDES", "READS", "WRITES"),
        "runtimes": ("FORMAT", "READS", "SUFFIX"),
        "sensors": ("STATUS", "SCOPE"),
    }
    row: Row = {"name": name, **{word.lower(): getattr(module, word) for word in words.get(kind, ())}}
    missing = envs.missing(module)
    row |= {"description": summary(module), "missing": missing}
    return {**row, "install": envs.install_command(module) if missing else ""}


def summary(module: ModuleType) -> str:
    """The first line of a plug-in's docstring."""
    return (module.__doc__ or "").strip().partition("\n")[0]


def options(module: ModuleType) -> list[Row]:
    """The options of a plug-in: name, type, default."""
    if not hasattr(module, "Options"):
        return []
    hints = typing.get_type_hints(module.Options)
    fields = dataclasses.fields(module.Options)
    return [{"name": f.name, "type": _type(hints[f.name]), "default": _default(f)} for f in fields]


def _type(hint: Any) -> str:
    if typing.get_origin(hint) is typing.Literal:
        return " or ".join(map(str, typing.get_args(hint)))
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint).replace("typing.", "")


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    return "required" if field.default_factory is dataclasses.MISSING else field.default_factory()


# --------------------------------------------------------------------------- as text


def text(found: Sequence[Row] | Row) -> str:
    """Rows as columns; one row as its fields, its text last."""
    if isinstance(found, Mapping):
        body = found.get("text", "")
        rows = [(k, _cell(v)) for k, v in found.items() if k not in ("text", "options") and v not in HIDDEN]
        rows += [(f"option {o['name']}", f"{o['type']}, default {o['default']}") for o in found.get("options", [])]
        return "\n".join(aligned(rows)) + (f"\n\n{body.rstrip()}" if body else "")
    return devices_text(found) if found and "reachable" in found[0] else columns(found)


def devices_text(rows: Sequence[Row]) -> str:
    """The devices as columns, and below why some cannot be reached: reasons are sentences, too long for a column."""
    away = aligned([(f"  {row['name']}", row["why_not"]) for row in rows if row.get("why_not")])
    table = columns([{k: v for k, v in row.items() if k not in ("why_not", "path", "description")} for row in rows])
    return "\n".join([table, "", "not reachable now:", *away] if away else [table])


def columns(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under their names; a column that is empty everywhere is left out."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if any(row.get(n) not in HIDDEN for row in rows)]
    table = [tuple(n.replace("_", " ") for n in names), *(tuple(_cell(row.get(n)) for n in names) for row in rows)]
    return "\n".join(aligned(table)) if rows else ""


def _cell(value: Any) -> str:
    if value in HIDDEN:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Cells padded to columns, a line per row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]


def report(folder: Path) -> dict[str, Any]:
    """The report.json that a deploy wrote into `folder` (or the file itself); raises InputError where there is none."""
    file = folder if folder.suffix == ".json" else folder / "report.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"{folder}: no report.json here; give the folder that a deploy wrote") from error
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: damaged: {error}; deploy again") from error
    if not isinstance(told, dict) or not str(told.get("schema", "")).startswith("edgecompress/stages/report/"):
        raise InputError(f"{file}: not a report of edgecompress; give the folder that a deploy wrote")
    return told


# --------------------------------------------------------------------------- the store


def opened(root: Path) -> Store:
    """The store in a folder; raises InputError when there is none: looking makes nothing."""
    if not (root / "store").is_dir():
        raise InputError(f"{root}: no store of results here; give --store, or deploy first")
    return Store(root)


def stored(root: Path) -> list[Row]:
    """Every stored result, the newest first."""
    return [
        {
            "stage": entry.receipt["stage"],
            "kind": entry.artifact.kind,
            "size_bytes": entry.artifact.size_bytes,
            "age_h": round(entry.age_s / 3600, 2),
            "took_s": round(entry.receipt["wall_s"], 2),
            "lost": str(entry.artifact.facts.get("lost") or ""),
            "key": entry.key[:16],
        }
        for entry in opened(root).entries()
    ]


def reasons(root: Path, stage: str) -> list[Row]:
    """What the key of a stage was made of the last time it ran, for each model and target it ran for."""
    known = opened(root).remembered()
    found = [r for r in known if r["name"].rpartition(":")[2] == stage]
    if not found:
        names = {r["name"].rpartition(":")[2] for r in known}
        raise InputError(f"{root}: no stage '{stage}' has run{did_you_mean(stage, names)}")
    return [{"for": r["name"].rpartition(":")[0], **r} for r in found]


def reasons_text(found: Sequence[Row]) -> str:
    """The same as text: a change of any of these lines makes the stage run again."""
    return "\n\n".join("\n".join(_reason_lines(row)) for row in found)


def _reason_lines(row: Row) -> list[str]:
    parts = [(f"  {key}", str(value)) for key, value in sorted(row["parts"].items())]
    files = [(f"  file {path}", f"sha256 {digest[:16]}…") for path, digest in sorted(row.get("files", {}).items())]
    return [f"{row['name']} runs again when one of these changes:", *aligned(parts + files)]
