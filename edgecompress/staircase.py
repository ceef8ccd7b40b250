"""What `device blocks` does: measures a device's staircase of latency against channels, and writes down its block."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress import api, blocks, catalog, listing
from edgecompress.catalog import Found
from edgecompress.errors import InputError, StageFailed
from edgecompress.job import context
from edgecompress.run import Run
from edgecompress.settings import Device
from edgecompress.store import Store

BAR = 32  # characters of the widest


@dataclass(frozen=True)
class Staircase:
    """The facts of the stage: the times of each width and the block in them; when it was measured, of which device."""

    device: Found[Device]
    facts: Mapping[str, Any]
    made: float  # seconds since 1970


def measure(place: Found[Device], runtime: str, precision: str, options: api.Options) -> Staircase:
    """The staircase of a device, measured or found in the store; raises EdgeError."""
    stage = blocks.stage(runtime, precision, place.value)
    known, scope = context(place.name, place.value, {}), f"blocks>{place.path}"
    walk = Run(
        Store(options.store.resolve()),
        known,
        scope=scope,
        offline=options.offline,
        remeasure=options.remeasure,
        listener=options.listener,
    )
    outcome = walk.stage(stage)
    if outcome.artifact is None:
        raise StageFailed(f"{stage.name}: {outcome.reason}")
    return Staircase(place, outcome.facts, outcome.made)


# --------------------------------------------------------------------------- text


def text(found: Staircase, file: Path, brief: bool = False) -> str:
    """The staircase as a table with a picture, what was found in it, and where that is written."""
    facts = found.facts
    name = blocks.key(facts["runtime"], facts["precision"])
    ending = f'{file}: [{blocks.TABLE}] "{name}" = {facts["block"]}'
    if brief:
        return ending
    title = f"{found.device.name}: {facts['runtime']} {facts['precision']}, six 3x3 convolutions, {facts['status']}"
    rows = listing.aligned([_head(facts), *_rows(facts)])
    return "\n".join([title, *(f"  {row}" for row in rows), _says(facts), ending])


def _head(facts: Mapping[str, Any]) -> tuple[str, ...]:
    return "channels", "instructions" if "instructions" in facts else "ms", "of the widest", ""


def _rows(facts: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    staircase = blocks.told(facts)
    widest, counted = staircase[max(staircase)], "instructions" in facts
    for width, value in staircase.items():
        share = value / widest
        mark = "  <" if width % facts["block"] == 0 else ""
        number = f"{value:,.0f}" if counted else f"{value:.4f}"
        yield str(width), number, f"{share:.2f}", "#" * round(BAR * share) + mark


def _says(facts: Mapping[str, Any]) -> str:
    """The block, and what it was judged by."""
    left = ", ".join(f"{size}: {share:.2f}" for size, share in facts["left"].items())
    why = f"of the slope is left within blocks of {left}; at most {blocks.LEFT} makes a block"
    if facts["block"] == blocks.FINEST:
        return f"no block: every {blocks.FINEST} channels less save time ({why})"
    if facts["block"] == blocks.WIDEST:
        return f"block {blocks.WIDEST}: no width up to there saves time"
    return f"block {facts['block']}: widths that are a multiple of it (<) waste nothing ({why})"


# --------------------------------------------------------------------------- the device's file


def write(found: Staircase) -> Path:
    """The block in the device's file, all else as it was; of an installed device in a copy, ./devices/NAME.toml.

    Raises InputError where it cannot be written.
    """
    source, facts = found.device.path, found.facts
    file = Path("devices") / source.name if catalog.reference("devices", found.device) == found.device.name else source
    name, day = blocks.key(facts["runtime"], facts["precision"]), time.strftime("%Y-%m-%d", time.gmtime(found.made))
    words = ["edgecompress", "device", "blocks", found.device.name]
    command = shlex.join([*words, "--runtime", facts["runtime"], "--precision", facts["precision"]])
    try:
        before = source.read_text(encoding="utf-8")
        after = blocks.written(before, name, facts["block"], f"{facts['status']} on {day}: {command}")
        file.parent.mkdir(parents=True, exist_ok=True)
        part = file.with_name(f".{file.name}.part")
        part.write_text(after, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        line = f'"{name}" = {facts["block"]}'
        raise InputError(f"{file}: cannot be written: {error}; add {line} to its [{blocks.TABLE}]") from error
    return file
