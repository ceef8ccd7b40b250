"""Intervals of few sessions: the protocol's own numbers, and coverage shown by drawing."""

import math
import random
import statistics

import pytest

from edgecompress import statistic


def test_one_session_has_no_interval():
    assert statistic.interval([3.0]) is None
    assert statistic.interval([]) is None


def test_six_sessions_give_min_and_max_at_96_9_percent():
    low, high, coverage = statistic.interval([5, 1, 4, 2, 6, 3])
    assert (low, high) == (1, 6)
    assert coverage == pytest.approx(0.96875)


def test_ten_sessions_give_second_and_ninth_at_97_9_percent():
    low, high, coverage = statistic.interval(list(range(10)))
    assert (low, high) == (1, 8)
    assert coverage == pytest.approx(0.978515625)


def test_fewer_than_six_say_how_little_they_cover():
    assert statistic.interval([1, 2, 3, 4, 5]) == (1, 5, 0.9375)
    assert statistic.interval([2, 1]) == (1, 2, 0.5)


@pytest.mark.parametrize("n", [7, 11, 23, 100, 501])
def test_interval_is_the_innermost_that_covers_95_percent(n):
    low, high, coverage = statistic.interval(list(range(1, n + 1)))
    assert low + high == n + 1
    assert coverage >= 0.95
    one_further_in = 1 - 2 * sum(math.comb(n, i) for i in range(int(low) + 1)) / 2**n
    assert one_further_in < 0.95


def test_interval_covers_the_true_median_as_often_as_it_says():
    draw = random.Random(4)
    hits = 0
    for _ in range(4000):
        low, high, coverage = statistic.interval([draw.lognormvariate(0, 0.5) for _ in range(10)])
        hits += low <= 1.0 <= high  # the median of lognormal(0, s) is 1
    assert hits / 4000 == pytest.approx(coverage, abs=0.01)


def test_ratio_pairs_the_rounds_so_that_drift_cancels():
    drift = [1.0, 1.3, 1.6, 2.0, 1.1, 0.9]
    found = statistic.ratio([1.5 * d for d in drift], drift)
    assert (found.median, found.n, found.changed) == (pytest.approx(1.5), 6, True)
    assert found.low == pytest.approx(1.5) and found.high == pytest.approx(1.5)


def test_ratio_within_two_percent_is_no_change():
    assert not statistic.ratio([1.019] * 6, [1.0] * 6).changed
    assert statistic.ratio([1.021] * 6, [1.0] * 6).changed
    assert statistic.ratio([0.97] * 6, [1.0] * 6).changed


def test_ratio_whose_interval_holds_one_is_no_change():
    assert not statistic.ratio([1.5, 1.5, 1.5, 1.5, 1.5, 0.99], [1.0] * 6).changed


def test_one_session_or_five_never_call_a_change():
    one = statistic.ratio([2.0], [1.0])
    assert (one.median, one.low, one.high, one.changed) == (2.0, None, None, False)
    assert not statistic.ratio([2.0] * 5, [1.0] * 5).changed


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], []), ([1.0], [0.0])])
def test_ratio_refuses_what_has_none(a, b):
    with pytest.raises(ValueError, match="ratio needs"):
        statistic.ratio(a, b)


def test_percentile_agrees_with_the_standard_library():
    values = [random.Random(1).random() for _ in range(50)]
    assert statistic.percentile(values, 90) == pytest.approx(statistics.quantiles(values, n=10, method="inclusive")[8])
    assert statistic.percentile([7.0], 99) == 7.0
    with pytest.raises(ValueError, match="no values"):
        statistic.percentile([], 50)


def test_outliers_are_counted_beyond_the_far_fence():
    assert statistic.outliers([1.0, 1.1, 1.2, 1.3, 1.4, 9.0]) == 1
    assert statistic.outliers([1.0] * 20) == 0


@pytest.mark.parametrize(("freedom", "point"), [(1, 12.706), (4, 2.776), (15, 2.131), (20, 2.086), (60, 2.000)])
def test_student_t_equals_the_tables(freedom, point):
    assert statistic.student_t(freedom) == pytest.approx(point, abs=0.002)


def test_student_t_needs_freedom():
    with pytest.raises(ValueError, match="degree of freedom"):
        statistic.student_t(0)
