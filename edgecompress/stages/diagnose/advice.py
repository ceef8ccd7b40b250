"""From the layers' numbers to one word of advice, the layer it is about, and a sentence for people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

FINE_DB = 30.0  # an output so near to the source's is that of a sound int8 file
BEYOND_DB = 10.0  # own noise so far above what eight bits explain is no rounding,
APART_DB = 12.0  # where the other layers' is so far below that:
FEW = 0.1  # such layers are few of all, else the whole file is of fewer bits
HEARD = 0.1  # of the largest effect at the output: what does less than that is not what is wrong
MOST = 0.6  # of the noise at the output: whose it is
UNLIKE = 8.0  # a channel's maximum over the median channel's, from which on one scale is too coarse for the others
WIDE = 4.0  # the largest magnitude over that of 99.9 % of the values: few values take most of the range
CUT = 0.5  # of a layer's effect, from which on it comes from what was cut off
ALL_CUT = 0.2  # of the values: so many are not cut off by a range, they are wrong
CONVOLUTIONS = ("conv", "convolution")
PRODUCTS = {"linear", "matmul", "addmm", "mm", "bmm"}


@dataclass(frozen=True)
class Clue:
    """What is known of one layer. Ratios are noise over signal; None: not known.

    `clipped`: the share of values cut off at the artifact's extremes; theirs of the layer's noise, and of its effect;
    `explained`: the own noise of eight bits, one range per tensor. `effect`: at the net's output, by this layer alone.
    """

    name: str
    type: str
    operator: str
    own: float | None = None
    explained: float | None = None
    effect: float | None = None
    clipped: float = 0.0
    clipped_noise: float = 0.0
    clipped_effect: float = 0.0
    wide: float = 1.0
    outlier: float | None = None
    channel: int | None = None
    reads: frozenset[str] = frozenset()  # the operators that read it
    not_finite: int = 0

    @property
    def says(self) -> str:
        """The layer as a sentence names it."""
        return f"{self.name} ({self.type}; {short(self.operator, 60)} in the file)"

    @property
    def beyond_db(self) -> float | None:
        """Its own noise, but for what was cut off, over what eight bits explain, in decibels."""
        if self.own is None:
            return None
        left = self.own * (1 - self.clipped_noise if self.clipped < ALL_CUT else 1)
        return 10 * math.log10(left / max(self.explained or 0.0, 1e-12)) if left > 0 else -math.inf


@dataclass(frozen=True)
class Verdict:
    """The word, the first layer in the order of computing that it is about, all of those, and a sentence."""

    advice: str
    says: str
    culprits: tuple[str, ...] = ()

    @property
    def first(self) -> str | None:
        """Where to look first."""
        return self.culprits[0] if self.culprits else None


def short(text: str, limit: int) -> str:
    """A name with its middle left out where it is longer than `limit`."""
    return text if len(text) <= limit else f"{text[: limit // 2 - 1]}…{text[-(limit - limit // 2) :]}"


def verdict(clues: Sequence[Clue], output_db: float | None, refused: str = "") -> Verdict:
    """What is wrong, from the layers in the order of computing and the least SQNR of an output (None: identical).

    `refused`: why verification refuses what the artifact answers.
    """
    if broken := [clue for clue in clues if clue.not_finite]:
        first = broken[0]
        items = f"{first.not_finite} item{'s' if first.not_finite > 1 else ''}"
        says = (
            f"{first.says} is the first that is not finite, for {items}: its values leave the range of their type; "
            "keep it in float32."
        )
        return Verdict("overflow", says, tuple(clue.name for clue in broken[:1]))
    if wrong := faults(clues):
        return _fault(wrong)
    far = "identical to the source's" if output_db is None else f"{output_db:.1f} dB from the source's"
    if output_db is None or (output_db >= FINE_DB and not refused):
        return Verdict("", f"{_refused(refused)}No layer stands out: the outputs are {far}.")
    found = _noise(clues, output_db)
    return replace(found, says=_refused(refused) + found.says)


def _refused(why: str) -> str:
    return f"Verification refuses it: {why}. " if why else ""


# --------------------------------------------------------------------------- what no precision explains


def faults(clues: Sequence[Clue]) -> list[Clue]:
    """The few layers whose own noise is far above what eight bits explain, and far above every other layer's.

    What ranges cut off explains itself, files of four bits are noisy everywhere, and little noise is no fault.
    """
    known = [c for c in clues if c.beyond_db is not None]
    order = sorted(known, key=lambda c: -(c.beyond_db or 0.0))
    most = max(1, math.floor(FEW * len(known)))
    chosen: list[Clue] = []
    for count in range(1, min(most, len(order) - 1) + 1):
        last, following = order[count - 1].beyond_db, order[count].beyond_db
        assert last is not None and following is not None
        if last >= BEYOND_DB and last - following >= APART_DB:
            chosen = order[:count]
    largest = max((c.effect or 0.0 for c in clues), default=0.0)
    return [c for c in clues if c in chosen and (c.effect or 0.0) >= HEARD * largest]


def _fault(wrong: Sequence[Clue]) -> Verdict:
    first = wrong[0]
    more = f", and so {'are' if len(wrong) > 2 else 'is'} {', '.join(c.name for c in wrong[1:])}" if wrong[1:] else ""
    says = (
        f"{first.says} computes something different from the source{more}: from the same inputs its error is "
        f"{first.beyond_db:.0f} dB above what 8-bit rounding explains, as in no other layer; the file or the "
        "converter is wrong there."
    )
    return Verdict("fault", says, tuple(clue.name for clue in wrong))


# --------------------------------------------------------------------------- noise of a precision


def _noise(clues: Sequence[Clue], output_db: float) -> Verdict:
    """Whose noise is most of that at the output, and what is the matter with those layers."""
    total = sum(clue.effect or 0.0 for clue in clues)
    if not total:
        says = f"The outputs are {output_db:.1f} dB from the source's; the layer responsible is not known."
        return Verdict("train", says)
    culprits = _most(clues, total)
    part = sum(clue.effect or 0.0 for clue in culprits) / total
    worst = max(culprits, key=lambda clue: clue.effect or 0.0)
    advice = _advice(culprits, len(clues))
    others = (
        f" and {len(culprits) - 1} more layers" if len(culprits) > 2 else " and one more layer" * (len(culprits) - 1)
    )
    says = (
        f"The outputs are {output_db:.1f} dB from the source's; {worst.says}{others} "
        f"make{'' if others else 's'} {part:.0%} of the noise there: {_reason(advice, worst)}."
    )
    return Verdict(advice, says, tuple(clue.name for clue in culprits))


def _most(clues: Sequence[Clue], total: float) -> list[Clue]:
    """The fewest layers that make MOST of the noise, in the order of computing."""
    culprits, sum_ = list[Clue](), 0.0
    for clue in sorted(clues, key=lambda c: -(c.effect or 0.0)):
        if sum_ >= MOST * total:
            break
        culprits.append(clue)
        sum_ += clue.effect or 0.0
    return [clue for clue in clues if clue in culprits]


def _advice(culprits: Sequence[Clue], layers: int) -> str:
    """The cause of most of their noise; without one: few layers are kept, many are trained."""
    votes: dict[str, float] = {}
    for clue in culprits:
        votes[cause(clue)] = votes.get(cause(clue), 0.0) + (clue.effect or 0.0)
    word = max(votes, key=votes.__getitem__)
    return word or ("keep" if len(culprits) <= max(2, FEW * layers) else "train")


def cause(clue: Clue) -> str:
    """What makes a layer's noise, where its values tell: "calibrate", "equalize", "smooth", or ""."""
    if _cut_off(clue):
        return "calibrate"
    if clue.outlier is not None and clue.outlier >= UNLIKE:
        convolution = clue.type.startswith(CONVOLUTIONS) or any(r.startswith(CONVOLUTIONS) for r in clue.reads)
        if convolution:
            return "equalize"
        return "smooth" if clue.reads & PRODUCTS else "equalize" if clue.type in PRODUCTS else ""
    return "calibrate" if clue.wide >= WIDE else ""


def _cut_off(clue: Clue) -> bool:
    return clue.clipped_effect >= CUT and 0 < clue.clipped < ALL_CUT


def _reason(advice: str, worst: Clue) -> str:
    unlike = f"its channel {worst.channel} is {worst.outlier or 0:.0f} times as large as the median one"
    return {
        "calibrate": (
            f"{worst.clipped:.2%} of its values are cut off; calibrate it with a wider range"
            if _cut_off(worst)
            else f"its range is {worst.wide:.0f} times that of nearly all its values; calibrate it with a narrower one"
        ),
        "equalize": f"{unlike}, and one scale serves both; equalize the channels",
        "smooth": f"{unlike}, before a product of matrices; smooth it (SmoothQuant)",
        "keep": "keep that in higher precision",
        "train": "no single layer is responsible; train with quantization (QAT)",
    }[advice]
