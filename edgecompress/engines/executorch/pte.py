"""Reads the plan of an ExecuTorch program, a .pte file, in milliseconds: ExecuTorch's own reader loads its exporter.

The format is the flatbuffer of ExecuTorch's `schema/program.fbs`; new fields are only ever added at a table's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.engines.executorch.flatbuffer_tables import longs, root, table, tables, text

if TYPE_CHECKING:
    from flatbuffers.table import Table

MAGIC = b"ET12"
# Fields of the schema's tables, by their place in a table's index.
PLANS, CHAINS, OPERATORS, DELEGATES, BUFFER_BYTES, INSTRUCTIONS = 6, 14, 16, 18, 20, 8
CALL_KIND, CALL, FIRST, SECOND = 4, 6, 4, 6
KERNEL, DELEGATE = 1, 2  # of the union InstructionArguments


@dataclass(frozen=True)
class Plan:
    """How a program's first method runs: what each instruction calls, and the bytes that it plans for tensors."""

    operators: tuple[str, ...]  # "aten::relu.out"
    delegates: tuple[str, ...]  # "XnnpackBackend", one for each part of the program that it took
    kernel_calls: dict[int, str]  # the instruction -> the operator
    delegate_calls: dict[int, str]  # the instruction -> the delegate
    planned_bytes: int


def read(file: Path) -> Plan:
    """The plan of a program. Raises InputError for a file that is none."""
    content = file.read_bytes()
    if content[4:8] != MAGIC:
        raise InputError(f"{file}: not an ExecuTorch program; give the path of a .pte file")
    try:
        plan = next(tables(root(content), PLANS))
        names = ((text(each, FIRST), text(each, SECOND)) for each in tables(plan, OPERATORS))
        operators = tuple(f"{name}.{overload}" if overload else name for name, overload in names)
        delegates = tuple(text(each, FIRST) for each in tables(plan, DELEGATES))
        calls = list(_calls(next(tables(plan, CHAINS))))
        return Plan(
            operators,
            delegates,
            {step: operators[index] for step, kind, index in calls if kind == KERNEL},
            {step: delegates[index] for step, kind, index in calls if kind == DELEGATE},
            sum(longs(plan, BUFFER_BYTES)),
        )
    except Exception as error:  # an offset that points outside: struct.error, IndexError, StopIteration, ...
        raise InputError(f"{file}: this ExecuTorch program is damaged; export it again") from error


def _calls(chain: Table) -> Iterator[tuple[int, int, int]]:
    """Each instruction that calls something: its place, the kind of what it calls, and that one's place in its list."""
    from flatbuffers import number_types as types

    for step, instruction in enumerate(tables(chain, INSTRUCTIONS)):
        kind = instruction.GetSlot(CALL_KIND, 0, types.Uint8Flags)
        if kind in (KERNEL, DELEGATE):
            call = table(instruction, CALL)
            yield step, kind, call.GetSlot(FIRST, 0, types.Int32Flags)
