"""Fields of a flatbuffer's tables, by their place in a table's index (4, 6, 8, ...), for formats without a reader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flatbuffers.table import Table

BYTES_OF_INT64 = 8


def root(content: bytes) -> Table:
    """The table that a file begins with."""
    from flatbuffers.table import Table

    return Table(content, int.from_bytes(content[:4], "little"))


def table(of: Table, place: int) -> Table:
    """The table that a field holds. Raises IndexError where it is absent."""
    from flatbuffers.table import Table

    if not (offset := of.Offset(place)):
        raise IndexError(place)
    return Table(of.Bytes, of.Indirect(of.Pos + offset))


def tables(of: Table, place: int) -> Iterator[Table]:
    """The tables of a list; none where it is absent."""
    from flatbuffers.table import Table

    if offset := of.Offset(place):
        begin = of.Vector(offset)
        for i in range(of.VectorLen(offset)):
            yield Table(of.Bytes, of.Indirect(begin + 4 * i))


def longs(of: Table, place: int) -> Iterator[int]:
    """The numbers of a list of int64; none where it is absent."""
    from flatbuffers import number_types as types

    if offset := of.Offset(place):
        begin = of.Vector(offset)
        for i in range(of.VectorLen(offset)):
            yield of.Get(types.Int64Flags, begin + BYTES_OF_INT64 * i)


def text(of: Table, place: int) -> str:
    """A text; "" where it is absent."""
    offset = of.Offset(place)
    return of.String(of.Pos + offset).decode("utf-8") if offset else ""
