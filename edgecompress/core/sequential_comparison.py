"""The sequential comparison of latencies: what may be said of two variants after each round, and how surely."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from edgecompress.core import stats

PRIOR, PRIOR_SESSIONS = 0.02, 2  # processes of one variant differ by so much: counts as so many sessions seen before
ERROR = 0.05  # chance that the fastest is given up, or that a pair further apart than stats.CHANGE is called equal
APART = 0.25  # of their median: pairs of windows whose middle half is further apart tell nothing


@dataclass(frozen=True)
class Bound:
    """The ratio of two latencies, and between which values it lies at this look, each side with the error asked for."""

    ratio: float
    low: float
    high: float

    @property
    def slower(self) -> bool:
        """Whether the first is shown to be slower than the second."""
        return self.low > 1

    @property
    def equal(self) -> bool:
        """Whether both are shown to be within stats.CHANGE of each other: two one-sided tests."""
        return self.low > 1 / (1 + stats.CHANGE) and self.high < 1 + stats.CHANGE


def paired(a: Sequence[float | None], b: Sequence[float | None]) -> float | None:
    """The ratio of two sessions of a round: the median over the windows taken beside each other, `a[k]` and `b[k]`.

    None where something disturbed more than half of the pairs, or where they disagree by more than APART.
    """
    each = [x / y for x, y in zip(a, b, strict=False) if x and y]
    if not each or 2 * len(each) < len(a):
        return None
    middle = stats.percentile(each, 75) - stats.percentile(each, 25)
    ratio = statistics.median(each)
    return ratio if middle <= APART * ratio else None


def bound(ratios: Sequence[float], error: float) -> Bound:
    """The ratio that sessions in rounds tell, with an error of `error` on each side.

    Student's t on the logarithms. Their variance is moderated by a prior, PRIOR for two processes worth PRIOR_SESSIONS
    (Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004): a first round decides what is far
    apart, and two that agree by chance decide nothing. Raises StatisticsError when there are no ratios.
    """
    logs = [math.log(ratio) for ratio in ratios]
    middle, freedom = statistics.fmean(logs), PRIOR_SESSIONS + len(logs) - 1
    squares = PRIOR_SESSIONS * PRIOR**2 + math.fsum((x - middle) ** 2 for x in logs)
    half = stats.student_t(freedom, 1 - 2 * error) * math.sqrt(squares / freedom / len(logs))
    return Bound(math.exp(middle), math.exp(middle - half), math.exp(middle + half))


def spent(looks: int, comparisons: int = 1) -> float:
    """The error of one look at one pair: ERROR is shared among all of them, so that its sum keeps (Bonferroni)."""
    return ERROR / (max(1, looks) * max(1, comparisons))
