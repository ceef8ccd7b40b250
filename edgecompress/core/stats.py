"""Intervals, ratios and trends of the measurement protocol: order statistics and ranks, no distribution assumed."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

COVERAGE = 0.95  # below it no change is called
CHANGE = 0.02  # a smaller change is not called one
SPREAD = 0.03  # sessions further apart than this are said to be: another run may differ as much
BLOCKS = 60  # of a long series, whose medians are looked at for a trend
FEW = 10  # values, up to which the chance of an order is counted out
CHANCE = 0.02  # of calling a trend where the order of a few is chance
SURE = 4.2  # sigmas that a trend of many needs: far out, because neighbours in time are correlated
CORRELATED = 0.35  # of neighbouring energy windows, at most: what the interval of their mean allows for
ENOUGH = {90: 29, 95: 59, 99: 299}  # percentile -> values that hold it with 95 % confidence: ceil(ln 0.05 / ln p)


@dataclass(frozen=True)
class Ratio:
    """a / b over sessions. `low` and `high` are None with one session; `changed` needs an interval of 95 %."""

    median: float
    low: float | None
    high: float | None
    n: int
    changed: bool


def interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """(low, high, coverage) of the median: the innermost order statistics that cover it with at least 95 %.

    With fewer than six values it is their min and max, with the coverage that they have (n=5: 93.75 %); with one, None.
    The coverage of [x(k), x(n+1-k)] is 1 - 2 P(Binomial(n, 1/2) < k) (David and Nagaraja, Order Statistics, 7.1).
    """
    ordered, n = sorted(values), len(values)
    if n < 2:
        return None
    k, below = 1, 1  # below: of the 2^n equally likely sign patterns, those with fewer than k values under the median
    term = 1
    while 2 * (k + 1) <= n:
        term = term * (n - k + 1) // k  # n over k, whole: exact for any n
        if 1 - 2 * (below + term) / (1 << n) < COVERAGE:
            break
        k, below = k + 1, below + term
    return ordered[k - 1], ordered[n - k], 1 - 2 * below / (1 << n)


def ratio(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The median of a[i] / b[i] with its interval; sessions are paired because they ran in the same round.

    A change is called when the interval excludes 1, covers 95 %, and the median is more than 2 % from 1.
    Raises ValueError when the two differ in length, are empty, or b holds a zero.
    """
    if len(a) != len(b) or not a or not all(b):
        raise ValueError("a paired ratio needs the same number of sessions of both, at least one, and no zeros")
    return of_ratios([x / y for x, y in zip(a, b)])  # noqa: B905 (Python 3.9)


def of_ratios(each: Sequence[float]) -> Ratio:
    """The median of ratios, one of each session, with its interval; raises StatisticsError when there is none."""
    return _ratio(statistics.median(each), interval(each), len(each))


def unpaired(a: Sequence[float], b: Sequence[float]) -> Ratio:
    """The ratio of the medians of sessions that nothing pairs, of two runs; its interval is made of the ends of theirs.

    Whatever the two distributions, it misses with at most 2 t (1 + u), t the larger and u the smaller chance that all
    of an interval lies above its own median: two times six sessions cover 96.8 %. Alike ones cover more.
    Raises ValueError when either is empty, or b holds a zero.
    """
    if not a or not b or not all(b):
        raise ValueError("a ratio needs sessions of both, and no zeros in the second")
    median, n = statistics.median(a) / statistics.median(b), min(len(a), len(b))
    mine, other = interval(a), interval(b)
    if mine is None or other is None:
        return Ratio(median, None, None, n, False)
    u, t = sorted((1 - bounds[2]) / 2 for bounds in (mine, other))
    return _ratio(median, (mine[0] / other[1], mine[1] / other[0], 1 - 2 * t * (1 + u)), n)


def _ratio(median: float, bounds: tuple[float, float, float] | None, n: int) -> Ratio:
    if bounds is None:
        return Ratio(median, None, None, n, False)
    low, high, coverage = bounds
    apart = (low > 1 or high < 1) and abs(median - 1) > CHANGE
    return Ratio(median, low, high, n, apart and coverage >= COVERAGE)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that `percent` of the values do not exceed, linear between neighbours; raises ValueError when empty."""
    if not values:
        raise ValueError("a percentile needs at least one value")
    ordered = sorted(values)
    at = (len(ordered) - 1) * percent / 100
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (at - below)


def of_a_run(times: Sequence[float], runs: int, warm_up: int = 0) -> float:
    """The median of what one of `runs` runs took; `times` follow one another, as many of each run and of the warm-up.

    Where they do not divide evenly, the mean.
    """
    each, left = divmod(len(times), warm_up + runs)
    if left or not each:
        return math.fsum(times) / (warm_up + runs)
    return statistics.median(math.fsum(times[i : i + each]) for i in range(each * warm_up, len(times), each))


def outliers(values: Sequence[float]) -> int:
    """The number of values more than three interquartile ranges above the third quartile (Tukey's outer fence)."""
    first, third = percentile(values, 25), percentile(values, 75)
    return sum(v > third + 3 * (third - first) for v in values)


@functools.cache
def student_t(freedom: int, confidence: float = COVERAGE) -> float:
    """The point that Student's t exceeds, on either side, with a chance of 1 - `confidence`, to 1e-9 of itself."""
    if freedom < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    low, high = 0.0, 1.0
    while _within_t(high, freedom) < confidence:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _within_t(middle, freedom) < confidence else (low, middle)
    return high


def _within_t(t: float, freedom: int) -> float:
    """The chance that Student's t lies within -t..t (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    term, total, odd = math.cos(angle) if freedom % 2 else 1.0, 0.0, freedom % 2
    for i in range(1 + odd, freedom, 2):
        total += term
        term *= math.cos(angle) ** 2 * i / (i + 1)
    inner = math.sin(angle) * total
    return 2 / math.pi * (angle + inner) if odd else inner


# --------------------------------------------------------------------------- what is not steady


def trend(values: Sequence[float]) -> float | None:
    """How much the last third is above the first (0.07: +7 %), where values in their order rise or fall; else None.

    Kendall's test of order (Mann, Econometrica 13, 1945) on the values, or on the medians of blocks of many; a change
    of 2 % or less is none. Fewer than five values never show one.
    """
    series = values
    if len(values) > BLOCKS:
        edges = [i * len(values) // BLOCKS for i in range(BLOCKS + 1)]
        series = [statistics.median(values[a:b]) for a, b in zip(edges, edges[1:])]  # noqa: B905, RUF007 (Python 3.9)
    n = len(series)
    score = sum((y > x) - (y < x) for i, x in enumerate(series) for y in series[i + 1 :])
    if n < 5 or not _ordered(abs(score), n):
        return None
    third = max(1, n // 3)
    first, last = statistics.median(series[:third]), statistics.median(series[-third:])
    change = last / first - 1 if first else 0.0
    return change if abs(change) > CHANGE else None


def _ordered(score: int, n: int) -> bool:
    """Whether chance gives n values a Kendall score as high or low as this too seldom to think of it."""
    if n > FEW:
        return score - 1 > SURE * math.sqrt(n * (n - 1) * (2 * n + 5) / 18)
    orders = [1]  # by the number of pairs out of order: the product of 1 + x + ... + x^(i-1)
    for i in range(2, n + 1):
        orders = [sum(orders[max(0, k - i + 1) : k + 1]) for k in range(len(orders) + i - 1)]
    out_of_order = (len(orders) - 1 - score) // 2
    return 2 * sum(orders[: out_of_order + 1]) <= CHANCE * sum(orders)


def spread(values: Sequence[float]) -> float:
    """The range from lowest to highest, relative to the median."""
    return (max(values) - min(values)) / statistics.median(values)


def mean_variance(values: Sequence[float]) -> float:
    """Of the mean of windows back to back: neighbours may be CORRELATED, which makes it larger than 1/n of theirs."""
    n = len(values)
    return statistics.variance(values) / n * (1 + 2 * CORRELATED * (n - 1) / n) / (1 - 2 * CORRELATED / n)


def half_width(parts: Sequence[tuple[float, int]]) -> float:
    """Half of Student's 95 % interval of a sum of means, each given as its variance and the values it is of.

    The degrees of freedom are those of Welch and Satterthwaite, rounded down.
    """
    total = sum(variance for variance, _ in parts)
    spent = sum(variance**2 / (n - 1) for variance, n in parts)
    return student_t(max(1, int(total**2 / spent))) * math.sqrt(total) if spent else 0.0
