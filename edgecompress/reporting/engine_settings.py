"""The settings that an artifact ships with, and what its engine's own defaults compute instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgecompress.reporting.formatting import significant


def notes(variant: Mapping[str, Any]) -> Iterator[str]:
    """What somebody who opens it without its settings gets; nothing where that is the same."""
    told = (variant["verify"] or {}).get("defaults")
    if not told:
        return
    opened = f"{variant['name']}, opened with {variant['runtime']}'s own defaults instead of its settings,"
    if told["reason"]:
        yield f"{opened} does not run: {told['reason']}."
    others = [output for output in told["outputs"] if not output["same"]]
    if others:
        yield f"{opened} answers otherwise{_in_effect(variant, told['settings'])}: {'; '.join(map(_output, others))}."


def _in_effect(variant: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Those that the engine then has otherwise."""
    shipped = (variant["artifact"] or {}).get("settings") or {}
    changed = [f"{name} is {value}" for name, value in settings.items() if value != shipped.get(name)]
    return f" ({', '.join(changed)})" if changed else ""


def _output(output: Mapping[str, Any]) -> str:
    theirs, shipped = (_db(output[key]) for key in ("sqnr_db", "shipped_sqnr_db"))
    return f"{output['name']} has SQNR {theirs} to the source, {shipped} as it ships"


def _db(value: float | None) -> str:
    return "unknown" if value is None else f"{significant(value, 3)} dB"
