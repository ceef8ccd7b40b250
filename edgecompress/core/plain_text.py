"""Plain text: tables, and what a terminal may be sent of a stranger's words."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby, zip_longest
from typing import Any, TextIO

# What drives a terminal, hides or reorders: controls but for tab and newline, surrogates, and what Unicode calls
# Default_Ignorable_Code_Point, but for the variation selectors of emoji.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
HIDDEN: tuple[object, ...] = (None, "", (), [])  # shown as an empty cell

_NUMBER = r"[−\d.,]*\d"
_UNIT = r"(?:min|[mµ]?[sJ]|[KMG]i?B|B|W|dB|%|/[sJ]|[kMG]|°C|MHz|GB/s|GFLOP/s)(?!\w)"
_INTERVAL = rf"[\[(]{_NUMBER}(?: %)?(?:,| –) {_NUMBER}(?: %)?[\])]"
# A number with its unit, and an interval: no line is broken inside of one.
TOGETHER = re.compile(rf"{_INTERVAL}|(?:[≈≥≤] )?{_NUMBER} {_UNIT}|≈ (?=\d)|(?<=[\d%kMG]) → (?=\d)")
_NO_BREAK = "\N{NO-BREAK SPACE}"

GAP = 2  # spaces between two columns
ROOM = 24  # letters that a column of sentences has at least; what is shorter is never broken
BELOW = 4  # where the last column stands below the others: its margin

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


@dataclass(frozen=True)
class Line:
    """A line of a table: the row it is of, or -1, and where its columns begin."""

    text: str
    row: int = -1
    begins: tuple[tuple[int, int], ...] = ()  # (column, place)


def fitted(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    """`aligned`, in lines of `width` as `laid_out` lays them."""
    return [line.text for line in laid_out(rows, width)]


def laid_out(rows: Sequence[tuple[str, ...]], width: int) -> list[Line]:
    """A table in lines of `width`, in which neither a word nor a number is broken.

    Sentences are wrapped in their column. Where the columns have no room beside each other, the last one stands below
    the others if it is of sentences; else the table is shown in blocks, each with the first column. A first column
    that is wider than half of a line is cut at its beginning: the end of a path tells more.
    """
    cells = [tuple(map(one_line, row)) for row in rows]
    if not cells or not cells[0]:
        return []
    widest = [max(map(len, column)) for column in zip(*cells, strict=True)]
    if sum(widest) + GAP * (len(widest) - 1) <= width:
        return _block(cells, range(len(widest)), widest, width)
    least = [min(_least(column), max(ROOM, width // 2)) for column in zip(*cells, strict=True)]
    if len(least) > 1 and widest[0] > max(width // 2, width - GAP - max(least[1:])):
        most = max(ROOM, width // 2)
        cells = [(c[0] if len(c[0]) <= most else f"…{c[0][1 - most :]}", *c[1:]) for c in cells]
        widest[0] = max(len(c[0]) for c in cells)
    least[0] = widest[0]
    blocks: list[list[int]] = [[]]
    for column, need in enumerate(least):
        if blocks[-1] and sum(least[c] + GAP for c in blocks[-1]) + need > width and column:
            blocks.append([0])
        blocks[-1].append(column)
    last = len(least) - 1
    if blocks[1:] == [[0, last]] and widest[last] > ROOM:
        others = _block(cells, blocks[0], widest, width, least)
        below = ([Line(text, i) for text in wrapped(row[-1], width, BELOW)] for i, row in enumerate(cells))
        rows_of = groupby(others, key=lambda line: line.row)
        return [line for (_, lines), said in zip(rows_of, below, strict=True) for line in (*lines, *said)]
    shown = _block(cells, blocks[0], widest, width, least)
    for block in blocks[1:]:
        shown += [Line(""), *_block(cells, block, widest, width, least)]
    return shown


def _least(column: Sequence[str]) -> int:
    """The letters that a column needs: all of a short one, of sentences enough to be read and for its longest word."""
    words = (len(word) for cell in column for word in _unbroken(cell).split(" "))
    return min(max(map(len, column)), max(ROOM, *words))


def _block(
    cells: Sequence[tuple[str, ...]],
    columns: Sequence[int],
    widest: Sequence[int],
    width: int,
    least: Sequence[int] | None = None,
) -> list[Line]:
    """Some columns of a table, of which the widest are narrowed where they have no room."""
    sizes = {column: widest[column] for column in columns}
    while least and sum(sizes.values()) + GAP * (len(sizes) - 1) > width:
        column = max(sizes, key=lambda c: (sizes[c] > least[c], sizes[c]))
        if sizes[column] <= least[column]:
            break
        sizes[column] -= 1
    begins, place = [], 0
    for column, size in sizes.items():
        begins.append((column, place))
        place += size + GAP
    lines = []
    for i, row in enumerate(cells):
        parts = [wrapped(row[c], size) if len(row[c]) > size else [row[c]] for c, size in sizes.items()]
        for each in zip_longest(*parts, fillvalue=""):
            padded = (part.ljust(size) for part, size in zip(each, sizes.values(), strict=True))
            lines.append(Line((" " * GAP).join(padded).rstrip(), i, tuple(begins)))
    return lines


def folded(text: str, width: int) -> str:
    """Lines that are longer than `width` broken between words, what follows a little further in.

    A command stays one line: it is to be pasted.
    """
    lines = []
    for line in text.split("\n"):
        margin = len(line) - len(line.lstrip(" "))
        whole = len(line) <= width or line.startswith("edgecompress ", margin)
        lines += [line] if whole else wrapped(line[margin:], width, margin + 2, margin)
    return "\n".join(lines)


def room(stream: TextIO) -> int:
    """The columns of a terminal; what is none has no end: no line is broken there."""
    return shutil.get_terminal_size().columns if stream.isatty() else sys.maxsize


def printed(text: Callable[[int], str]) -> str:
    """What `print` shows of a result: `text` makes it for so many columns, and what is still too long is broken."""
    columns = room(sys.stdout)
    return folded(escaped(text(columns)), columns)


def _unbroken(text: str) -> str:
    return TOGETHER.sub(lambda match: match[0].replace(" ", _NO_BREAK), text)


def wrapped(text: str, width: int, margin: int = 0, first: int | None = None) -> list[str]:
    """Lines that break between words alone: neither a name or path nor a number and its unit is split.

    `first`: the margin of the first line.
    """
    margins = (" " * (margin if first is None else first), " " * margin)
    lines = textwrap.wrap(
        _unbroken(text),
        width,
        initial_indent=margins[0],
        subsequent_indent=margins[1],
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


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
