"""A layer of the source with all that is known of it: the row of the table, and the clue that the advice goes by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from edgecompress.stages.diagnose.advice import Clue
from edgecompress.stages.diagnose.noise import LayerNoise, Power, decibels, largest

NO_OUTPUT = "the file has no output of this layer: it is fused with another layer"
FIRST = "it has no preceding layer"


class _Numbers(TypedDict):
    """The numbers of a layer; None where they are not known."""

    sqnr_db: float | None
    own_sqnr_db: float | None
    growth_db: float | None
    effect: float | None
    range: list[float] | None
    found: list[float] | None
    outlier: float | None
    channel: int | None
    not_finite: int | None
    clipped: float | None


class _Words(TypedDict):
    """Where a layer stands, in the source and in the file."""

    name: str
    node: str
    type: str
    module: str
    operator: str
    output: str
    dtype: str
    shape: list[int]


class LayerDiagnosis(_Words, _Numbers):
    """A row of facts["layers"]."""

    reason: str


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
class LayerRecord:
    """A layer and what was added up of it; `output` is None where the file has no output of it."""

    place: Place
    output: Mapping[str, str] | None = None
    tally: LayerNoise | None = None
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


def row(record: LayerRecord, every: Sequence[LayerRecord]) -> LayerDiagnosis:
    """The row of facts["layers"]."""
    place, output, tally = record.place, record.output, record.tally
    if output is None or tally is None:
        return {**_words(place, {}), **_nothing(), "reason": NO_OUTPUT}
    growth, why = _growth(record, every)
    outlier, channel = tally.outlier
    reasons = [tally.whole.reason, *record.reasons, why]
    return {
        **_words(place, output),
        "sqnr_db": tally.whole.sqnr_db,
        "own_sqnr_db": tally.own.sqnr_db,
        "growth_db": growth,
        "effect": record.effect,
        "range": [tally.least, tally.most],
        "found": [tally.low, tally.high],
        "outlier": outlier,
        "channel": channel,
        "not_finite": tally.bad,
        "clipped": tally.cut.share,
        "reason": "; ".join(dict.fromkeys(filter(None, reasons))),
    }


def _words(place: Place, output: Mapping[str, str]) -> _Words:
    return {
        "name": place.name,
        "node": place.node,
        "type": place.type,
        "module": place.module,
        "operator": str(output.get("operator", "")),
        "output": str(output.get("output", "")),
        "dtype": str(output.get("dtype", "")),
        "shape": list(place.shape),
    }


def _nothing() -> _Numbers:
    return {
        "sqnr_db": None,
        "own_sqnr_db": None,
        "growth_db": None,
        "effect": None,
        "range": None,
        "found": None,
        "outlier": None,
        "channel": None,
        "not_finite": None,
        "clipped": None,
    }


def _growth(record: LayerRecord, every: Sequence[LayerRecord]) -> tuple[float | None, str]:
    """How many decibels the noise grew, from the noisiest layer that it reads; or None and why."""
    before = [decibels(every[index].ratio) for index in record.place.before]
    known = [noise for noise in before if noise is not None]
    here = decibels(record.ratio)
    if here is None:
        return None, ""
    return (here - max(known), "") if known else (None, "its inputs have no noise" if before else FIRST)


def clue(record: LayerRecord, every: Sequence[LayerRecord]) -> Clue | None:
    """What the advice goes by; None of a layer that the file has no output of.

    Where a layer's own error is not known, what its noise is above that of what it reads stands for it.
    """
    place, output, tally = record.place, record.output, record.tally
    if output is None or tally is None:
        return None
    outlier, channel = tally.outlier
    before = max((every[index].ratio or 0.0 for index in place.before), default=0.0)
    added = max(0.0, (record.ratio or 0.0) - before)
    computed = bool(tally.own.signal)
    cut = tally.own_cut if computed else tally.cut
    return Clue(
        place.name,
        place.type,
        str(output["operator"]),
        own=tally.own.ratio if computed else added,
        explained=record.explained if computed else tally.rounding,
        effect=record.effect if computed else added,
        clipped=cut.share,
        clipped_noise=cut.part,
        clipped_effect=record.cut_off,
        wide=tally.wide,
        outlier=outlier,
        channel=channel,
        reads=place.reads,
        not_finite=tally.bad,
    )
