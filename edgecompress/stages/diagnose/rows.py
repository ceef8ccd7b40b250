"""A layer of the source with all that is known of it: the row of the table, and the clue that the advice goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgecompress.stages.diagnose.noise import Power, Tally, decibels, largest
from edgecompress.stages.diagnose.words import Clue

Row = dict[str, Any]
NO_TAP = "no output of the file is this layer's: it is computed together with another"
FIRST = "nothing is computed before it"


@dataclass
class Place:
    """Where a layer stands in the source: words and shape, the rows before it, the operators behind it."""

    name: str
    node: str
    type: str
    module: str = ""
    shape: tuple[int, ...] = ()
    before: Sequence[int] = ()  # places of the matched rows that it reads
    reads: frozenset[str] = frozenset()


@dataclass
class Found:
    """A layer and what was added up of it; `tap` is None where the file has no output of it."""

    place: Place
    tap: Mapping[str, str] | None = None
    tally: Tally | None = None
    effects: Sequence[Power] = ()  # at each output of the net
    uncut: float | None = None  # the largest effect of what was not cut off
    explained: float | None = None
    reasons: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float | None:
        """Its noise over its signal."""
        return self.tally.whole.ratio if self.tally else None

    @property
    def effect(self) -> float | None:
        """Noise over signal at the net's output that it moves most; None: not known."""
        return largest(self.effects)

    @property
    def cut_off(self) -> float:
        """The part of its effect that comes from what was cut off."""
        if self.tally is None or self.effect is None:
            return self.tally.cut.part if self.tally else 0.0
        return max(0.0, 1 - (self.uncut or 0.0) / self.effect) if self.effect else 0.0


def row(found: Found, every: Sequence[Found]) -> Row:
    """The row of facts["layers"]."""
    place, tap, tally = found.place, found.tap, found.tally
    words = {"name": place.name, "node": place.node, "type": place.type, "module": place.module}
    shape = {"shape": list(place.shape)}
    if tap is None or tally is None:
        return {**words, "operator": "", "output": "", "dtype": "", **shape, **_nothing(), "reason": NO_TAP}
    growth, why = _growth(found, every)
    outlier, channel = tally.outlier
    reasons = [tally.whole.reason, *found.reasons, why]
    return {
        **words,
        **{key: str(tap[key]) for key in ("operator", "output", "dtype")},
        **shape,
        "sqnr_db": tally.whole.sqnr_db,
        "own_sqnr_db": tally.own.sqnr_db,
        "growth_db": growth,
        "effect": found.effect,
        "range": [tally.least, tally.most],
        "found": [tally.low, tally.high],
        "outlier": outlier,
        "channel": channel,
        "not_finite": tally.bad,
        "clipped": tally.cut.share,
        "reason": "; ".join(dict.fromkeys(filter(None, reasons))),
    }


def _nothing() -> Row:
    numbers = ("sqnr_db", "own_sqnr_db", "growth_db", "effect", "range", "found", "outlier", "channel")
    return {**dict.fromkeys(numbers), "not_finite": None, "clipped": None}


def _growth(found: Found, every: Sequence[Found]) -> tuple[float | None, str]:
    """How many decibels the noise grew, from the noisiest layer that it reads; or None and why."""
    before = [decibels(every[index].ratio) for index in found.place.before]
    known = [noise for noise in before if noise is not None]
    here = decibels(found.ratio)
    if here is None:
        return None, ""
    return (here - max(known), "") if known else (None, "what it reads has no noise" if before else FIRST)


def clue(found: Found, every: Sequence[Found]) -> Clue | None:
    """What the advice goes by; None of a layer without a tap.

    Where a layer's own error is not known, what its noise is above that of what it reads stands for it.
    """
    place, tap, tally = found.place, found.tap, found.tally
    if tap is None or tally is None:
        return None
    outlier, channel = tally.outlier
    before = max((every[index].ratio or 0.0 for index in place.before), default=0.0)
    added = max(0.0, (found.ratio or 0.0) - before)
    computed = bool(tally.own.signal)
    cut = tally.own_cut if computed else tally.cut
    return Clue(
        place.name,
        place.type,
        str(tap["operator"]),
        own=tally.own.ratio if computed else added,
        explained=found.explained if computed else tally.rounding,
        effect=found.effect if computed else added,
        clipped=cut.share,
        clipped_noise=cut.part,
        clipped_effect=found.cut_off,
        wide=tally.wide,
        outlier=outlier,
        channel=channel,
        reads=place.reads,
        not_finite=tally.bad,
    )
