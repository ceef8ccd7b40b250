"""Where a quantized model departs by more than 8 bits explain: nothing is equal there, every operator adds noise."""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import replace

from edgecompress.stages.diagnose import advice
from edgecompress.stages.diagnose.advice import Clue
from edgecompress.stages.diagnose.noise import LayerNoise, extremes
from edgecompress.stages.diff import match
from edgecompress.stages.diff.departure import Departure
from edgecompress.stages.diff.match import Pair, Pairs, laid_out
from edgecompress.stages.diff.sides import Side
from edgecompress.stages.diff.words import family

ALIKE = 0.5  # from which on values of operators of other types are a pair
LEAST = 1e-6  # noise over signal, below which there is none
GROWN_DB, AUDIBLE = 10.0, 1e-2  # the noise of an operator at fault over that of what it reads, and over its signal
CUT_DB, CUT_AUDIBLE, MOSTLY = 5.0, 5e-3, 0.6  # of one whose noise is mostly what its range cuts off


def departure(a: Side, b: Side, pairs: Pairs) -> Departure | None:
    """The first operator that adds far more noise than 8 bits explain, and far more than it reads.

    What an operator adds is the noise of what it makes less that of what it reads.
    """
    chosen = {key: pair for key in a.values if (pair := _rounded(a, b, pairs.aligned.get(key))) is not None}
    ratios: dict[str, float] = {}
    clues, growth = list[Clue](), list[float]()
    for key, pair in chosen.items():
        ours = a.values[key].array()
        theirs = laid_out(b.values[pair.b].array(), pair.axes, ours.shape[1:])
        tally = LayerNoise(*extremes(theirs), axis=0 if ours.ndim < 3 else 1)
        for x, z in zip(ours, theirs, strict=True):
            tally.add(x, z)
        ratios[key] = tally.whole.ratio or 0.0
        before = max((ratios.get(k, 0.0) for k in _known(a, key, chosen)), default=0.0)
        growth.append(10 * math.log10(max(ratios[key], LEAST) / max(before, LEAST)))
        added = max(0.0, ratios[key] - before)
        clue = Clue(key, "", "", own=added, explained=tally.rounding, not_finite=tally.bad)
        clues.append(replace(clue, clipped=tally.cut.share, clipped_noise=tally.cut.part))
    wrong = [clue for clue, grown in zip(clues, growth, strict=True) if clue.not_finite or _is_fault(clue, grown)]
    if not wrong:
        return None
    key = wrong[0].name
    read = _known(a, key, chosen)
    segment_a = a.between(key, {*read})
    segment_b = b.between(chosen[key].b, {chosen[k].b for k in read})
    level = min((chosen[k].near_db for k in read), default=200.0)
    return Departure(chosen[key], segment_a, segment_b, level, tuple(read))


def _is_fault(clue: Clue, grown_db: float) -> bool:
    own = clue.own or 0.0
    cut = clue.clipped_noise > MOSTLY and clue.clipped < advice.ALL_CUT
    if cut and own > CUT_AUDIBLE and grown_db > CUT_DB:
        return True
    return own > AUDIBLE and grown_db > GROWN_DB and (clue.beyond_db or 0.0) > advice.BEYOND_DB


def _rounded(a: Side, b: Side, pair: Pair | None) -> Pair | None:
    """The pair with B's value as it is once it is rounded; None where A's is no operator's end, or only moved."""
    if pair is None or pair.a not in a.makers or family(a.makers[pair.a].type) in ("move", "part", "pad", "rounding"):
        return None
    readers = a.readers.get(pair.a, [])
    if len(readers) == 1 and family(readers[0].type) in ("activation", "batch norm"):  # rounded behind that one alone
        return None
    maker = b.between(pair.b, {*b.values} - {pair.b})[:1]
    if pair.likeness < ALIKE and not (maker and family(maker[0].type) == family(a.makers[pair.a].type)):
        return None
    key = pair.b
    while readers := [op for op in b.readers.get(key, ()) if family(op.type) == "rounding"]:
        if len(readers) < len(b.readers[key]) or not readers[0].writes:
            break
        key = readers[0].writes[0]
    return match.compare(a, b, pair.a, key) if key != pair.b and key in b.values else pair


def _known(side: Side, key: str, chosen: Container[str]) -> list[str]:
    """The nearest values before one that are among the chosen."""
    found, seen, todo = list[str](), set[str](), [*side.before(key)]
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            if value in chosen:
                found.append(value)
            else:
                todo += side.before(value)
    return found
