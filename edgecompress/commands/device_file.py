"""Writes a measured channel block into a device's TOML."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

from edgecompress.core.errors import InputError

TABLE = "blocks"  # in a device's file


# --------------------------------------------------------------------------- a device's file


def written(text: str, name: str, size: int, comment: str) -> str:
    """The text of a device's TOML with `name` = `size` in its table of blocks, and everything else as it was.

    Raises InputError where the table is written in a way that this does not edit.
    """
    line = f'"{name}" = {size} # {comment}'
    lines = text.rstrip("\n").split("\n")
    place = next((i for i, each in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{TABLE}\s*\]\s*(#.*)?", each)), None)
    if place is None:
        lines += ["", f"[{TABLE}]", line]
    elif (old := _entry(lines, place, name)) is not None:
        lines[old] = line
    else:
        lines.insert(place + 1, line)
    changed = "\n".join(lines) + "\n"
    expected = tomllib.loads(text)
    expected[TABLE] = {**expected.get(TABLE, {}), name: size}
    try:
        same = tomllib.loads(changed) == expected
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise InputError(
            f'[{TABLE}] of the device\'s file cannot be edited in this form; add "{name}" = {size} by hand'
        )
    return changed


def _entry(lines: Sequence[str], place: int, name: str) -> int | None:
    """The line of an entry in the table that begins at `place`."""
    for i, line in enumerate(lines[place + 1 :], place + 1):
        if line.lstrip().startswith("["):
            return None
        if re.match(rf"""\s*["']?{re.escape(name)}["']?\s*=""", line):
            return i
    return None
