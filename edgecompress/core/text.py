"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

HIDDEN: tuple[Any, ...] = (None, "", (), [])  # shown as an empty cell

Row = dict[str, Any]


def columns(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under their names; a column that is empty everywhere is left out."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if any(row.get(n) not in HIDDEN for row in rows)]
    table = [tuple(n.replace("_", " ") for n in names), *(tuple(cell(row.get(n)) for n in names) for row in rows)]
    return "\n".join(aligned(table)) if rows else ""


def cell(value: Any) -> str:
    if value in HIDDEN:
        return ""
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Cells padded to columns, a line per row."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
