"""The settings that an artifact ships with, and what its engine's own defaults compute instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgecompress.core.json import Json
from edgecompress.reporting.formatting import significant
from edgecompress.reporting.model import DefaultOutput, Variant


def notes(variant: Variant) -> Iterator[str]:
    """What somebody who opens it without its settings gets; nothing where that is the same."""
    told = variant.verify.defaults if variant.verify else None
    if not told:
        return
    opened = f"{variant.name}, opened with {variant.runtime}'s own defaults instead of its settings,"
    if told.reason:
        yield f"{opened} does not run: {told.reason}."
    others = [output for output in told.outputs if not output.same]
    if others:
        yield f"{opened} answers otherwise{_in_effect(variant, told.settings)}: {'; '.join(map(_output, others))}."


def _in_effect(variant: Variant, settings: Mapping[str, Json]) -> str:
    """Those that the engine then has otherwise."""
    shipped = (variant.artifact.settings if variant.artifact else None) or {}
    changed = [f"{name} is {value}" for name, value in settings.items() if value != shipped.get(name)]
    return f" ({', '.join(changed)})" if changed else ""


def _output(output: DefaultOutput) -> str:
    theirs, shipped = map(_db, (output.sqnr_db, output.shipped_sqnr_db))
    return f"{output.name} has SQNR {theirs} to the source, {shipped} as it ships"


def _db(value: float | None) -> str:
    return "unknown" if value is None else f"{significant(value, 3)} dB"
