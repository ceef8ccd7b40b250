"""Reads the plan of an ExecuTorch program, a .pte file, in milliseconds: ExecuTorch's own reader loads its exporter.

The format is the flatbuffer of ExecuTorch's `schema/program.fbs`; new fields are only ever added at a table's end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    from flatbuffers.table import Table

MAGIC = b"ET12"
# Fields of the schema's tables, by their place in a table's index.
PLANS, CHAINS, OPERATORS, DELEGATES, BUFFER_BYTES, INSTRUCTIONS = 6, 14, 16, 18, 20, 8
CALL_KIND, CALL, FIRST, SECOND = 4, 6, 4, 6
KERNEL, DELEGATE = 1, 2  # of the union InstructionArguments
BYTES_OF_INT64 = 8


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
    from flatbuffers.table import Table

    content = file.read_bytes()
    if content[4:8] != MAGIC:
        raise InputError(f"{file}: not an ExecuTorch program; give the path of a .pte file")
    try:
        return _plan(next(_tables(Table(content, int.from_bytes(content[:4], "little")), PLANS)))
    except Exception as error:  # an offset that points outside: struct.error, IndexError, StopIteration, ...
        raise InputError(f"{file}: this ExecuTorch program is damaged; export it again") from error


def _plan(plan: Table) -> Plan:
    operators = tuple(_operator(each) for each in _tables(plan, OPERATORS))
    delegates = tuple(_text(each, FIRST) for each in _tables(plan, DELEGATES))
    calls = list(_calls(next(_tables(plan, CHAINS))))
    return Plan(
        operators,
        delegates,
        {step: operators[index] for step, kind, index in calls if kind == KERNEL},
        {step: delegates[index] for step, kind, index in calls if kind == DELEGATE},
        sum(_longs(plan, BUFFER_BYTES)),
    )


def _operator(operator: Table) -> str:
    name, overload = _text(operator, FIRST), _text(operator, SECOND)
    return f"{name}.{overload}" if overload else name


def _calls(chain: Table) -> Iterator[tuple[int, int, int]]:
    """Each instruction that calls something: its place, the kind of what it calls, and that one's place in its list."""
    from flatbuffers import number_types as types
    from flatbuffers.table import Table

    for step, instruction in enumerate(_tables(chain, INSTRUCTIONS)):
        kind = instruction.GetSlot(CALL_KIND, 0, types.Uint8Flags)
        if kind in (KERNEL, DELEGATE):
            call = Table(instruction.Bytes, instruction.Indirect(_field(instruction, CALL)))
            yield step, kind, call.GetSlot(FIRST, 0, types.Int32Flags)


def _field(table: Table, field: int) -> int:
    """Where a field lies in the file. Raises IndexError where the table has none."""
    if not (offset := table.Offset(field)):
        raise IndexError(field)
    return int(table.Pos + offset)


def _tables(table: Table, field: int) -> Iterator[Table]:
    """The tables of a list; none where it is absent."""
    from flatbuffers.table import Table

    if offset := table.Offset(field):
        begin = table.Vector(offset)
        for i in range(table.VectorLen(offset)):
            yield Table(table.Bytes, table.Indirect(begin + 4 * i))


def _longs(table: Table, field: int) -> Iterator[int]:
    """The numbers of a list of int64; none where it is absent."""
    from flatbuffers import number_types as types

    if offset := table.Offset(field):
        begin = table.Vector(offset)
        for i in range(table.VectorLen(offset)):
            yield table.Get(types.Int64Flags, begin + BYTES_OF_INT64 * i)


def _text(table: Table, field: int) -> str:
    """A text; "" where it is absent."""
    offset = table.Offset(field)
    return table.String(table.Pos + offset).decode("utf-8") if offset else ""
