"""The type of any JSON or TOML value, and how JSON is read that a stranger may have written."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from edgecompress.core import plain_file

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

LARGEST = 32 << 20  # bytes of a file
DEEPEST = 100  # tables and lists in each other
LARGEST_INT = 1 << 63


def read_json(file: Path, largest: int = LARGEST) -> Any:
    """The JSON in a file. Raises OSError, InputError as `plain_file.read`, ValueError as `parsed`."""
    return parsed(plain_file.read(file, largest).decode("utf-8"))


def parsed(text: str) -> Any:
    """The JSON that a text holds. Raises ValueError for what readers would not read alike, or not at all: a key that
    occurs twice, a number that is none or huge, tables and lists nested too deeply."""
    try:
        document = json.loads(
            text, parse_float=_finite, parse_constant=_finite, parse_int=_whole, object_pairs_hook=_once
        )
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    level = [document]
    for _ in range(DEEPEST):
        level = [inner for each in level for inner in inside(each)]
        if not level:
            return document
    raise ValueError("is nested too deeply")


def is_number(value: object, least: float = -sys.float_info.max, most: float = sys.float_info.max) -> TypeGuard[float]:
    """Whether a value is a number from `least` to `most`: infinities, NaN, true and false are none."""
    return isinstance(value, (int, float)) and type(value) is not bool and least <= value <= most


def inside(value: object) -> Sequence[object]:
    """What a table or a list holds; nothing in anything else."""
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ()


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a finite number")
    return number


def _whole(text: str) -> int:
    number = int(text[:40])
    if not -LARGEST_INT <= number < LARGEST_INT:
        raise ValueError(f"{text[:20]}… is larger than any count")
    return number


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    table: dict[str, Json] = {}
    for key, value in pairs:
        if key in table:
            raise ValueError(f"the key {key[:80]!a} occurs twice")
        table[key] = value
    return table
