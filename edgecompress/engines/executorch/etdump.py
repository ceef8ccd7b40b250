"""Reads the events of an ExecuTorch run, an .etdp file, in milliseconds: ExecuTorch's Inspector loads its exporter.

The format is the flatbuffer of ExecuTorch's `devtools/etdump/etdump_schema_flatcc.fbs`, behind its length.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.engines.executorch.flatbuffer_tables import root, table, tables, text

if TYPE_CHECKING:
    from flatbuffers.table import Table

MAGIC = b"ED00"
LENGTH_BYTES = 4
EXECUTE = "Execute"  # the runs of a method; loading it is another
# Fields of the schema's tables, by their place in a table's index.
RUNS, RUN_NAME, EVENTS, TIMED = 6, 4, 10, 4
NAME, INSTRUCTION, DELEGATE_NUMBER, DELEGATE_NAME, BEGIN, END = 4, 8, 10, 12, 16, 18
NO_NUMBER = -1
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Event:
    """Something timed within a method: an operator, or what holds others."""

    name: str  # within a delegate: the delegate's own name of it
    instruction: int  # its place in the program's plan
    delegated: bool


def read(file: Path) -> dict[Event, list[float]]:
    """The events in the order in which they began first, each with its milliseconds in every run.

    Raises InputError for a file that is no such trace.
    """
    content = file.read_bytes()[LENGTH_BYTES:]
    if content[4:8] != MAGIC:
        raise InputError(f"{file}: not a trace of ExecuTorch's events")
    try:
        runs = [run for run in tables(root(content), RUNS) if text(run, RUN_NAME) == EXECUTE]
        found: dict[Event, list[float]] = {}
        for number, run in enumerate(runs):
            for event, ms in _timed(run):
                found.setdefault(event, [0.0] * len(runs))[number] += ms
    except Exception as error:  # an offset that points outside: struct.error, IndexError, ...
        raise InputError(f"{file}: this trace of ExecuTorch's events is damaged") from error
    return found


def _timed(run: Table) -> Iterator[tuple[Event, float]]:
    from flatbuffers import number_types as types

    for each in tables(run, EVENTS):
        if not each.Offset(TIMED):  # of an allocation, or of an operator's output
            continue
        timed = table(each, TIMED)
        number = timed.GetSlot(DELEGATE_NUMBER, NO_NUMBER, types.Int32Flags)
        inner = text(timed, DELEGATE_NAME) if number == NO_NUMBER else str(number)
        begin, end = (timed.GetSlot(place, 0, types.Uint64Flags) for place in (BEGIN, END))
        place = timed.GetSlot(INSTRUCTION, NO_NUMBER, types.Int32Flags)
        yield Event(inner or text(timed, NAME), place, bool(inner)), (end - begin) / NS_PER_MS
