"""Both graphs for the page: operators, what they read, how near they are, how their values are spread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgecompress.stages.diff.match import Pair
from edgecompress.stages.diff.sides import HELD, Side

SPREAD, BINS = 20_000, 24  # of a value: numbers that are counted, and in how many bins


def graphs(a: Side, b: Side, aligned: Mapping[str, Pair], equal: tuple[set[str], set[str]]) -> dict[str, Any]:
    """The operators of "a" and of "b"; `equal`: the values of each that count as equal."""
    back = {pair.b: pair for pair in aligned.values()}
    names = [{id(op): name for op, name in zip(side.operators, _unique(side), strict=True)} for side in (a, b)]

    def rows(side: Side, own: int) -> list[dict[str, Any]]:
        made = []
        for op in side.operators:
            key = next((v for v in op.writes if v in side.values), "")
            pair = (back if own else aligned).get(key)
            partner = ((a, b)[1 - own]).makers.get(pair.a if own else pair.b) if pair else None
            row = {
                "name": names[own][id(op)],
                "type": op.type,
                "module": op.module,
                "reads": [names[own][id(side.makers[r])] if r in side.makers else r for r in op.reads],
                "dtype": side.values[key].dtype if key else str(op.attributes.get(HELD, "")),
                "error_db": None if pair is None else pair.sqnr_db,
                "exact": key in equal[own],
                "other": names[1 - own][id(partner)] if partner else "",
                "ms": side.times.get(op.name),
                "spread": _spread(a, b, pair) if pair and not own else None,
            }
            made.append(row)
        return made

    return {"a": rows(a, 0), "b": rows(b, 1)}


def _unique(side: Side) -> list[str]:
    """A name for each operator that is its alone."""
    seen: dict[str, int] = {}
    names = []
    for op in side.operators:
        seen[op.name] = seen.get(op.name, 0) + 1
        names.append(op.name if seen[op.name] == 1 else f"{op.name} #{seen[op.name]}")
    return names


def _spread(a: Side, b: Side, pair: Pair) -> dict[str, Any] | None:
    """The values of both in the same bins."""
    import numpy as np

    x, z = (side.values[key].array()[0].reshape(-1) for side, key in ((a, pair.a), (b, pair.b)))
    step = max(1, x.size // SPREAD)
    x, z = (each[::step][np.isfinite(each[::step])].astype(np.float64) for each in (x, z))
    if not x.size or not z.size:
        return None
    low, high = min(x.min(), z.min()), max(x.max(), z.max())
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    counts = [[int(n) for n in np.histogram(each, edges)[0]] for each in (x, z)]
    return {"edges": [float(e) for e in edges], "a": counts[0], "b": counts[1]}
