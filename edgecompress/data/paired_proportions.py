"""The interval of a difference of two shares of the same items, and how many items would narrow it enough."""

from __future__ import annotations

import math
from collections.abc import Callable

Z = 1.959964  # two-sided 95 %
TAIL = 0.025  # on each side of 95 %
STEPS = 60  # of a bisection: 2 / 2^60 is below a double's resolution
NEGLIGIBLE = 1e-15  # of a sum: the terms after one that small are left out
MOST_ITEMS = 10**7  # nobody will label more

Ends = tuple[float, float]


def interval(gained: int, lost: int, n: int) -> Ends:
    """The 95 % interval of (gained - lost) / n that also holds for few items and few changes.

    Tango's score interval; the end on the side of the net change is no nearer than the exact bound of a share as large
    (C. J. Clopper, E. S. Pearson: The use of confidence or fiducial limits, Biometrika 26 (1934), 404-413). Where half
    of the items or more changed, no end is nearer than the difference of the exact bounds of both shares. A net loss is
    beyond the interval with a chance below 5 %, whatever the shares: tests/test_limit_decision.py sums up all outcomes.
    """
    return -_most_lost(gained, lost, n), _most_lost(lost, gained, n)


def _most_lost(gained: int, lost: int, n: int) -> float:
    """The upper end of (lost - gained) / n."""
    ends = [-tango(gained, lost, n)[0]]
    if lost >= gained:
        ends.append(clopper_pearson(lost - gained, n))
    if 2 * (lost + gained) >= n:
        ends.append(clopper_pearson(lost, n) - (1 - clopper_pearson(n - gained, n)))
    return max(ends)


def items_needed(lost: int, gained: int, n: int, limit: float) -> int | None:
    """How many items would put all of the interval on one side of a limit on (lost - gained) / n; None: more than
    anybody has.

    The interval itself is asked, with the shares that were seen: so many items decide with a chance of one half.
    """

    def decides(items: int) -> bool:
        low, high = interval(round(gained * items / n), round(lost * items / n), items)
        return -low <= limit or -high > limit

    enough = n
    while not decides(enough):
        enough *= 2
        if enough > MOST_ITEMS:
            return None
    few = enough // 2
    while enough - few > max(1, enough // 200):  # it is told in two digits
        middle = (few + enough) // 2
        few, enough = (few, middle) if decides(middle) else (middle, enough)
    return enough


def tango(gained: int, lost: int, n: int) -> Ends:
    """The 95 % score interval of (gained - lost) / n, a difference of two shares of the same n items.

    T. Tango: Equivalence test and confidence interval for the difference in proportions for the paired-sample design,
    Statistics in Medicine 17 (1998), 891-908. The ends are where the score statistic is +-1.96, by bisection.
    """

    def score(delta: float) -> float:
        b = -gained - lost + (2 * n - gained + lost) * delta
        c = -lost * delta * (1 - delta)
        share = (math.sqrt(max(0.0, b * b - 8 * n * c)) - b) / (4 * n)  # of items lost, given delta
        variance = n * (2 * share + delta * (1 - delta))
        return (gained - lost - n * delta) / math.sqrt(variance) if variance > 0 else math.copysign(math.inf, -delta)

    estimate = (gained - lost) / n
    return _crossing(score, (-1.0, estimate), Z), _crossing(score, (estimate, 1.0), -Z)


def clopper_pearson(count: int, n: int) -> float:
    """The largest share of which `count` of n items or fewer are seen with a chance of TAIL; 1 where all are."""
    if count >= n:
        return 1.0
    return _crossing(lambda share: _at_most(count, n, share), (count / n, 1.0), TAIL)


def _at_most(count: int, n: int, share: float) -> float:
    """P(Binomial(n, share) <= count), for a share above count / n: each term is smaller than the one before it."""
    if not 0 < share < 1:
        return float(share <= 0)
    logs = math.lgamma(n + 1) - math.lgamma(count + 1) - math.lgamma(n - count + 1)
    term = total = math.exp(logs + count * math.log(share) + (n - count) * math.log1p(-share))
    for k in range(count, 0, -1):
        term *= k / (n - k + 1) * (1 - share) / share
        total += term
        if term < NEGLIGIBLE * total:
            break
    return total


def _crossing(falling: Callable[[float], float], bounds: Ends, level: float) -> float:
    """Where a falling function takes the value `level`, between two bounds."""
    low, high = bounds
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > level else (low, middle)
    return (low + high) / 2
