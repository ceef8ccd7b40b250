"""What an artifact's choices are worth by the source's own probabilities: the loss of a task that nobody labelled.

A net that scores classes says how probable it holds each. Taken at its word, it tells what accuracy, overlap and
average precision its own choices have, and what those of the artifact have: choices that differ where the source is
undecided cost little, those that differ where it is sure cost all. Where the source is too sure of itself (most nets
are, somewhat) the loss is overestimated by the same factor.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["probabilities", "log-probabilities", "shares", "logits", "logit", "values"]
CLASSES: tuple[Kind, ...] = ("probabilities", "log-probabilities", "logits")  # of which one is chosen

LEAST_LOGIT, LARGEST_LOGIT = -1000.0, 100.0  # scores lie between: what goes beyond are lengths, places, prices
UNIT = 1e-3  # how near to 1 sums of probabilities, and lengths of normalised vectors, are
RARE = 0.2  # of the places at most hold what a detector looks for
LEAST = 1e-3  # of a probability in a logarithm: 8 bits have no smaller one
DECIDED, POSSIBLE = 0.5, 0.05  # probabilities from which on something is found, and may be found
MOST_RANKED = 1 << 22  # numbers of an output that are put in order; of more, those of evenly spaced places


@dataclass
class Tally:
    """What tells what the numbers of an output can be, over the items seen so far."""

    low: float = 0.0
    high: float = 0.0
    off_sum: float = 0.0  # the farthest that a sum over channels is from 1
    off_exp: float = 0.0  # that of a sum of powers of e
    off_unit: float = 0.0  # that of a sum of squares

    def add(self, rows: np.ndarray) -> None:
        """Some items of the source's output, [items, places, channels]."""
        import numpy as np

        self.low, self.high = min(self.low, float(rows.min())), max(self.high, float(rows.max()))
        self.off_sum = max(self.off_sum, float(np.abs(rows.sum(-1) - 1).max()))
        self.off_unit = max(self.off_unit, float(np.abs(np.square(rows).sum(-1) - 1).max()))
        powers = np.exp(np.minimum(rows, 1.0)).sum(-1)
        self.off_exp = max(self.off_exp, float(np.abs(powers - 1).max()))

    def kind(self, channels: int) -> Kind:
        """probabilities: at least 0, of sum 1. log-probabilities: their logarithms. shares: in 0..1, each for itself.

        logits: of two channels or more, from LEAST_LOGIT to LARGEST_LOGIT, no vectors of length 1. logit: the same of
        one channel, of both signs. values: anything else.
        """
        many = channels > 1
        if self.low >= 0 and self.high <= 1 + UNIT:
            return "probabilities" if many and self.off_sum < UNIT else "shares"
        if many and self.high <= UNIT and self.off_exp < UNIT:
            return "log-probabilities"
        scores = self.low >= LEAST_LOGIT and self.high <= LARGEST_LOGIT
        if not scores or (many and self.off_unit < UNIT):
            return "values"
        return "logits" if many else "logit" if self.low < 0 < self.high else "values"


def probabilities(rows: np.ndarray, what: Kind) -> np.ndarray:
    """The probabilities [items, places, channels] that an output of a kind stands for."""
    import numpy as np

    if what in ("logits", "log-probabilities"):
        powers = np.exp(rows - rows.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)  # type: ignore[no-any-return]
    if what == "logit":
        rows = 1 / (1 + np.exp(-np.clip(rows, -700, 700)))
    return np.asarray(np.clip(rows, 0.0, 1.0))


@dataclass
class Overlap:
    """Of each class: what the source believes to be there, what is chosen, and what it believes of the chosen."""

    believed: np.ndarray | float = 0.0
    chosen: np.ndarray | float = 0.0
    both: np.ndarray | float = 0.0

    def add(self, p: np.ndarray, chosen: np.ndarray) -> None:
        """Probabilities and choices (0 or 1) [items, places, channels]."""
        self.believed = self.believed + p.sum((0, 1))
        self.chosen = self.chosen + chosen.sum((0, 1))
        self.both = self.both + (p * chosen).sum((0, 1))

    def shares(self) -> np.ndarray:
        """The intersection over the union of each class, as the source expects it."""
        import numpy as np

        union = np.asarray(self.believed + self.chosen - self.both)
        return np.asarray(self.both / np.where(union > 0, union, 1.0))


@dataclass
class Choices:
    """The largest of several classes at each place, the source's and the artifact's, by the source's probabilities."""

    plane: bool  # classes are chosen at each place of a plane
    ours: Overlap = field(default_factory=Overlap)
    theirs: Overlap = field(default_factory=Overlap)
    rows: int = 0
    divergence: float = 0.0
    changed: int = 0

    def add(self, p: np.ndarray, q: np.ndarray) -> None:
        """The source's probabilities and the artifact's, [items, places, channels]."""
        import numpy as np

        classes = np.arange(p.shape[-1])
        chosen = [np.asarray(side.argmax(-1)[..., None] == classes) for side in (p, q)]
        self.ours.add(p, chosen[0])
        self.theirs.add(p, chosen[1])
        self.rows += p[..., 0].size
        self.changed += int((chosen[0] & ~chosen[1]).sum())
        logs = np.log(np.maximum(p, LEAST)) - np.log(np.maximum(q, LEAST))
        self.divergence += float((p * logs).sum())

    def confidence(self) -> float:
        """The mean probability of what the source chooses."""
        import numpy as np

        return float(np.sum(self.ours.both)) / self.rows

    def loss(self, background: int | None) -> float:
        """Of right choices, or of the mean overlap of the classes of a plane or beside a background, the part lost."""
        import numpy as np

        if not self.plane and background is None:
            ours, theirs = (float(np.sum(side.both)) for side in (self.ours, self.theirs))
        else:
            counted = np.asarray(self.ours.chosen) > 0
            if background is not None and counted.sum() > 1:
                counted[background] = False
            ours, theirs = (float(side.shares()[counted].mean()) for side in (self.ours, self.theirs))
        return max(0.0, 1 - theirs / ours) if ours else 0.0


@dataclass
class Findings:
    """What is found where each channel is a probability for itself: above one half, and in what order.

    `kept` are channel, source's and artifact's probability of all that either may have found, [3, some].
    """

    ours: Overlap = field(default_factory=Overlap)
    theirs: Overlap = field(default_factory=Overlap)
    kept: list[np.ndarray] = field(default_factory=list)
    rows: int = 0

    def add(self, p: np.ndarray, q: np.ndarray, step: int = 1) -> None:
        """The source's probabilities and the artifact's; every `step`-th place is kept for their order."""
        import numpy as np

        self.ours.add(p, p >= DECIDED)
        self.theirs.add(p, q >= DECIDED)
        self.rows += p[..., 0].size
        flat = [side.reshape(-1, side.shape[-1])[::step] for side in (p, q)]
        places, channels = np.nonzero(np.maximum(*flat) >= POSSIBLE)
        self.kept.append(np.stack([channels, flat[0][places, channels], flat[1][places, channels]]))

    def loss(self) -> np.ndarray:
        """Of the overlap of what is found, the part lost, by channel; 0 where the source finds nothing."""
        import numpy as np

        ours, theirs = self.ours.shares(), self.theirs.shares()
        return np.where(ours > 0, 1 - theirs / np.where(ours > 0, ours, 1.0), 0.0)

    def order_loss(self) -> np.ndarray:
        """Of the average precision, the part lost, by channel."""
        import numpy as np

        channels, p, q = np.concatenate(self.kept, axis=1)
        each = [(p[own], q[own]) for own in (channels == c for c in range(len(np.atleast_1d(self.ours.both))))]
        ours, theirs = (np.array([_precision(pair[0], pair[side]) for pair in each]) for side in (0, 1))
        return np.where(ours > 0, 1 - theirs / np.where(ours > 0, ours, 1.0), 0.0)


def _precision(p: np.ndarray, scores: np.ndarray) -> float:
    """The average precision that probabilities expect of an order by some scores, the highest first."""
    import numpy as np

    right = p[np.argsort(-scores, kind="stable")]
    total = float(right.sum())
    precision = right.cumsum() / np.arange(1, len(right) + 1)
    return float((precision * right).sum() / total) if total else 0.0
