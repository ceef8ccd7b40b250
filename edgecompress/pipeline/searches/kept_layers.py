"""Layers in higher precision: which are worth a trial, what each mends and costs, and what of them is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from edgecompress.core.json import Json
from edgecompress.core.stats import CHANGE
from edgecompress.pipeline.searches.rung_trial import RungTrial

FREE = 0.002  # of the latency: each layer is taken to cost that, at least
SHARES = (0.5, 0.75, 0.875)  # of what the best choice of layers mends: the cheapest that mend that are tried first

Table = Mapping[str, Any]


class KeptLayer(TypedDict):
    """A layer kept in higher precision alone: what that mends of the noise, and costs of the latency."""

    name: str
    gain: float
    cost: float | None
    sqnr_db: float | None
    reason: str


def worst(rows: Sequence[Table]) -> list[Table]:
    """The layers that can be left out, by what each does to the outputs; where that is not known, by its own noise."""
    known = [row for row in rows if row["operator"] and (row["own_sqnr_db"] is not None or row["not_finite"])]
    return sorted(known, key=lambda row: (-row["not_finite"], -(row["effect"] or 0.0), row["own_sqnr_db"] or 0.0))


def by_gain(
    best: RungTrial, alone: Sequence[tuple[Table, RungTrial]], costs: Mapping[str, float]
) -> list[tuple[KeptLayer, Table]]:
    """Each layer with what it mends and costs, those that mend most for their time first."""
    cells = []
    for row, trial in alone:
        gain = _noise(best.sqnr_db) - _noise(trial.sqnr_db) if trial.over is not None else 0.0
        cost = costs[trial.label] - 1 if trial.label in costs else None
        cell = KeptLayer(name=row["name"], gain=gain, cost=cost, sqnr_db=trial.sqnr_db, reason=trial.reason)
        cells.append((cell, row))
    return sorted(cells, key=lambda each: -each[0]["gain"] / max(each[0]["cost"] or 0.0, FREE))


def program(cells: Sequence[KeptLayer], whole: float | None, slower: float | None) -> dict[str, Json]:
    """What the integer program is asked for: the noise that stays, the time it costs, and how much time there is.

    It ends faster than `whole`, the latency before quantization, as costs are parts of the latency after it; where that
    gained none, smaller is all that it is to become, and any layer may stay. `slower`: what the user allows.
    """
    costs = [max(cell["cost"] or 0.0, FREE) for cell in cells]
    faster = [whole / (1 + CHANGE) - 1] if whole is not None and whole > 1 + CHANGE else []
    return {
        "losses": [[cell["gain"], 0.0] for cell in cells],
        "costs": [[0.0, cost] for cost in costs],
        "most": min([sum(costs), *faster, *([] if slower is None else [slower])]),
        "shares": list(SHARES),
    }


def _noise(sqnr_db: float | None) -> float:
    """Noise over signal."""
    return 0.0 if sqnr_db is None else float(10 ** (-sqnr_db / 10))
