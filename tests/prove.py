"""The long and the short form of a test: `make prove` runs every case, `make test` those that cover every pair.

Benchmarks, whose functions tests use in a short form, are found here.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Hashable, Sequence
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import TypeVar

WHOLE = bool(os.environ.get("EDGECOMPRESS_PROVE")) or os.environ.get("EDGECOMPRESS_GOLDEN") == "write"
Case = TypeVar("Case")


def pairwise(
    cases: Sequence[Case],
    axes: Callable[[Case], Sequence[Hashable]],
    always: Callable[[Case], bool] = lambda case: False,
    whole: bool = WHOLE,
) -> list[Case]:
    """As few of the cases, in their order, as hold every pair of values of two axes that occurs among them.

    Those that are `always` in count for the pairs that they hold.

    Faults that need one value, or two together, are found by pairs: Kuhn et al., "Software fault interactions", 2004.
    The choice is greedy: the case with the most new pairs first, the earlier of equals.
    """
    if whole:
        return list(cases)
    pairs = [set(combinations(enumerate(axes(case)), 2)) for case in cases]
    chosen = {number for number, case in enumerate(cases) if always(case)}
    missing = set().union(*pairs).difference(*(pairs[number] for number in chosen))
    while missing:
        best = max(range(len(cases)), key=lambda number: (len(pairs[number] & missing), -number))
        chosen.add(best)
        missing -= pairs[best]
    return [case for number, case in enumerate(cases) if number in chosen]


def some(cases: Sequence[Case], count: int, whole: bool = WHOLE) -> list[Case]:
    """`count` of the cases, evenly spread, the first and the last among them."""
    if whole or count >= len(cases):
        return list(cases)
    return [cases[round(number * (len(cases) - 1) / max(1, count - 1))] for number in range(count)]


def benchmark(name: str) -> ModuleType:
    """A file of benchmarks/ as a module, which finds those beside it by their names."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    try:
        return importlib.import_module(name)
    finally:
        del sys.path[0]
