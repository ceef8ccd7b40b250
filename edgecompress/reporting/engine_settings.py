"""The settings that an artifact ships with, and what its engine's own defaults compute instead."""

from __future__ import annotations

from collections.abc import Iterator

from edgecompress.reporting.formatting import significant
from edgecompress.reporting.model_variant import Variant


def notes(variant: Variant) -> Iterator[str]:
    """What somebody who opens it without its settings gets; nothing where that is the same."""
    told = variant.verify.defaults if variant.verify else None
    if not told:
        return
    opened = f"{variant.name}, opened with {variant.runtime}'s own defaults instead of its settings,"
    if told.reason:
        yield f"{opened} does not run: {told.reason}."
    others = []
    for output in (output for output in told.outputs if not output.same):
        ends = (output.sqnr_db, output.shipped_sqnr_db)
        theirs, shipped = ("unknown" if end is None else f"{significant(end, 3)} dB" for end in ends)
        others.append(f"{output.name} has SQNR {theirs} to the source, {shipped} as it ships")
    settings = (variant.artifact.settings if variant.artifact else None) or {}
    changed = [f"{name} is {value}" for name, value in told.settings.items() if value != settings.get(name)]
    in_effect = f" ({', '.join(changed)})" if changed else ""
    if others:
        yield f"{opened} answers otherwise{in_effect}: {'; '.join(others)}."
