"""Plain text: tables, and what a terminal may be sent of a stranger's words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# What drives a terminal, hides or reorders: controls but for tab and newline, surrogates, and what Unicode calls
# Default_Ignorable_Code_Point, but for the variation selectors of emoji.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
HIDDEN: tuple[object, ...] = (None, "", (), [])  # shown as an empty cell

Row = dict[str, Any]


def columns(rows: Sequence[Row]) -> str:
    """Rows as aligned columns under their names; a column that is empty everywhere is left out."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if any(row.get(n) not in HIDDEN for row in rows)]
    table = [tuple(n.replace("_", " ") for n in names), *(tuple(cell(row.get(n)) for n in names) for row in rows)]
    return "\n".join(aligned(table)) if rows else ""


def cell(value: object) -> str:
    if value in HIDDEN:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Cells padded to columns, a line per row; what breaks a line in a cell is escaped."""
    cells = [tuple(map(one_line, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def plural(count: int, noun: str) -> str:
    """`1 session`, `6 sessions`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def escaped(text: str) -> str:
    """`text` with each character that drives a terminal, hides or reorders as JSON escapes it: "\\u202e"."""
    return _UNSEEN.sub(lambda match: escape(match[0]), text)


def one_line(text: str) -> str:
    """`escaped`, and on one line."""
    return escaped(text).replace("\n", "\\n").replace("\t", "\\t")


def escape(text: str) -> str:
    """Each character as JSON escapes it: its UTF-16 in hexadecimal."""
    return "".join(f"\\u{unit:04x}" for unit in memoryview(text.encode("utf-16", "surrogatepass")[2:]).cast("H"))
