"""A rung of the accuracy guard as it was tried: what it changed, what came of it, and which of two is better."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgecompress.core.json import Json

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """What a rung changes: techniques put before quantization, options laid over its own."""

    before: tuple[str, ...] = ()
    options: Table = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class RungTrial:
    """One rung, built and compared with the source. `over`: what it loses beyond the budget, None where it broke."""

    rung: str
    label: str
    recipe: Recipe
    stage: str  # that made the artifact
    over: float | None
    sqnr_db: float | None
    facts: Table  # what the report tells of it
    reason: str = ""
    lost: float = 0.0  # without what is gained by luck

    @property
    def inside(self) -> bool:
        """Whether it keeps the budget."""
        return self.over is not None and self.over <= 0

    def better(self, other: RungTrial) -> bool:
        """Inside the budget, or else less lost; of equal ones the one that is nearer to the source."""
        return self._rank() < other._rank()

    def _rank(self) -> tuple[bool, bool, bool, float, float]:
        near = math.inf if self.sqnr_db is None else self.sqnr_db  # None: identical
        return self.over is None, self.over == math.inf, not self.inside, self.lost, -near

    def row(self, chosen: bool) -> dict[str, Json]:
        """What the report has of it."""
        over = self.over if self.over is not None and math.isfinite(self.over) else None
        return {**dataclasses.asdict(self), "over": over, "inside": self.inside, "chosen": chosen}


def nothing(rung: str, best: RungTrial, reason: str) -> RungTrial:
    """A rung that does not apply."""
    return RungTrial(rung, rung, best.recipe, "", None, None, {}, reason)
