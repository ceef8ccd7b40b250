"""`device blocks`: measures a device's latency by number of channels and writes its channel block to its file."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from edgecompress.commands import device_file
from edgecompress.core import atomic_file, catalog, channel_blocks
from edgecompress.core.catalog import Found
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.plain_text import aligned
from edgecompress.core.settings import Device
from edgecompress.pipeline import channel_block, store_place
from edgecompress.pipeline.job import context
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store

BAR = 32  # characters of the widest


class BlockFacts(TypedDict, total=False):
    """The result of the stage: the block, and the share of the slope left within blocks of each size."""

    runtime: str
    precision: str
    status: str
    block: int
    left: dict[str, float]
    instructions: dict[str, int]
    medians_ms: dict[str, list[float]]


@dataclass(frozen=True)
class Staircase:
    """The facts of the stage: the times of each width and the block in them; when it was measured, of which device."""

    device: Found[Device]
    facts: BlockFacts
    made: float  # seconds since 1970


def measure(place: Found[Device], runtime: str, precision: str, options: Options) -> Staircase:
    """The staircase of a device, measured or found in the store; raises EdgeError."""
    stage = channel_block.stage(runtime, precision, place.value)
    known, scope = context(place.name, place.value, {}), f"blocks>{place.path}"
    walk = PlanRun(
        Store(store_place.root(options.store)),
        known,
        scope=scope,
        offline=options.offline,
        remeasure=options.remeasure,
        listener=options.hears,
    )
    outcome = walk.stage(stage)
    if outcome.artifact is None:
        raise StageFailed(f"{stage.name}: {outcome.reason}")
    facts: BlockFacts = outcome.artifact.facts  # type: ignore[assignment]
    return Staircase(place, facts, outcome.made)


# --------------------------------------------------------------------------- text


def text(staircase: Staircase, file: Path, brief: bool = False) -> str:
    """The staircase as a table with a picture, what was found in it, and where that is written."""
    facts = staircase.facts
    name = channel_blocks.key(facts["runtime"], facts["precision"])
    ending = f'{file}: [{device_file.TABLE}] "{name}" = {facts["block"]}'
    if brief:
        return ending
    title = f"{staircase.device.name}: {facts['runtime']} {facts['precision']}, six 3x3 convolutions, {facts['status']}"
    head = ("channels", "instructions" if "instructions" in facts else "ms", "of the widest", "")
    rows = aligned([head, *_rows(facts)])
    return "\n".join([title, *(f"  {row}" for row in rows), _says(facts), ending])


def _rows(facts: BlockFacts) -> Iterator[tuple[str, ...]]:
    staircase = channel_blocks.staircase(facts)
    widest, counted = staircase[max(staircase)], "instructions" in facts
    for width, value in staircase.items():
        share = value / widest
        mark = "  <" if width % facts["block"] == 0 else ""
        number = f"{value:,.0f}" if counted else f"{value:.4f}"
        yield str(width), number, f"{share:.2f}", "#" * round(BAR * share) + mark


def _says(facts: BlockFacts) -> str:
    """The block, and what it was judged by."""
    left = ", ".join(f"{size}: {share:.2f}" for size, share in facts["left"].items())
    why = f"of the slope is left within blocks of {left}; at most {channel_blocks.LEFT} makes a block"
    if facts["block"] == channel_blocks.FINEST:
        return f"no block: every {channel_blocks.FINEST} channels less save time ({why})"
    if facts["block"] == channel_blocks.WIDEST:
        return f"block {channel_blocks.WIDEST}: no width up to there saves time"
    return f"block {facts['block']}: widths that are a multiple of it (<) waste nothing ({why})"


# --------------------------------------------------------------------------- the device's file


def write(staircase: Staircase) -> Path:
    """The block in the device's file, all else as it was; of an installed device in a copy, ./devices/my-NAME.toml.

    Raises InputError where it cannot be written.
    """
    own, facts = staircase.device.path, staircase.facts
    here = Path("devices") / own.name
    copied = here.resolve() != own.resolve() and catalog.is_installed("devices", str(own))
    file = here.with_name(f"my-{here.name}") if copied else own
    source = file if file.is_file() else own
    name, day = (
        channel_blocks.key(facts["runtime"], facts["precision"]),
        time.strftime("%Y-%m-%d", time.gmtime(staircase.made)),
    )
    words = ["edgecompress", "device", "blocks", staircase.device.name]
    command = shlex.join([*words, "--runtime", facts["runtime"], "--precision", facts["precision"]])
    try:
        before = source.read_text(encoding="utf-8")
        after = device_file.written(before, name, facts["block"], f"{facts['status']} on {day}: {command}")
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_file.write(file, after.encode())
    except OSError as error:
        line = f'"{name}" = {facts["block"]}'
        raise InputError(
            f"{file}: cannot be written: {error}; add the line {line} to its [{device_file.TABLE}]"
        ) from error
    return file
