"""Plain text: tables, and what a terminal may be sent of a stranger's words."""

from __future__ import annotations

import re
import sys
import textwrap
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

ROOM = 24  # letters of the last column, where it stands beside the others
BELOW = 4  # where it stands below them: its margin

Row = dict[str, Any]


def columns(rows: Sequence[Row], width: int = sys.maxsize) -> str:
    """Rows as columns under their names, `fitted`; a column that is empty everywhere is left out."""
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if any(row.get(n) not in HIDDEN for row in rows)]
    table = [tuple(n.replace("_", " ") for n in names), *(tuple(cell(row.get(n)) for n in names) for row in rows)]
    return "\n".join(fitted(table, width)) if rows else ""


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


def fitted(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """`aligned`, in lines of `width`: the last column alone is wrapped, below the others if it has little room."""
    lines = aligned(rows)
    if not rows or max(map(len, lines)) <= width:
        return lines
    first = aligned([row[:-1] for row in rows])
    beside = max(map(len, first)) + 2
    margin = beside if width - beside >= ROOM else BELOW
    shown: list[str] = []
    for start, row in zip(first, rows, strict=True):
        words = wrapped(one_line(row[-1]), width, margin)
        if margin == beside and words:
            words[0] = start.ljust(beside) + words[0][beside:]
        shown += words if margin == beside and words else [start, *words]
    return shown


def wrapped(text: str, width: int, margin: int = 0, first: int | None = None) -> list[str]:
    """Lines that break between words alone: a name or path is never split. `first`: the margin of the first line."""
    margins = (" " * (margin if first is None else first), " " * margin)
    return textwrap.wrap(
        text,
        width,
        initial_indent=margins[0],
        subsequent_indent=margins[1],
        break_long_words=False,
        break_on_hyphens=False,
    )


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
