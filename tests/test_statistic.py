"""Intervals of few sessions: the protocol's own numbers, and coverage shown by drawing."""

import math
import random
import statistics
from types import ModuleType

import msgspec
import prove
import pytest

from edgecompress.core import sequential_comparison, stats
from edgecompress.reporting import model_numbers, session_noise


def test_one_session_has_no_interval():
    assert stats.interval([3.0]) is None
    assert stats.interval([]) is None


def test_six_sessions_give_min_and_max_at_96_9_percent():
    low, high, coverage = stats.interval([5, 1, 4, 2, 6, 3])
    assert (low, high) == (1, 6)
    assert coverage == pytest.approx(0.96875)


def test_ten_sessions_give_second_and_ninth_at_97_9_percent():
    low, high, coverage = stats.interval(list(range(10)))
    assert (low, high) == (1, 8)
    assert coverage == pytest.approx(0.978515625)


def test_fewer_than_six_say_how_little_they_cover():
    assert stats.interval([1, 2, 3, 4, 5]) == (1, 5, 0.9375)
    assert stats.interval([2, 1]) == (1, 2, 0.5)


@pytest.mark.parametrize("n", [7, 11, 23, 100, 501])
def test_interval_is_the_innermost_that_covers_95_percent(n):
    low, high, coverage = stats.interval(list(range(1, n + 1)))
    assert low + high == n + 1
    assert coverage >= 0.95
    one_further_in = 1 - 2 * sum(math.comb(n, i) for i in range(int(low) + 1)) / 2**n
    assert one_further_in < 0.95


def test_interval_covers_the_true_median_as_often_as_it_says():
    draw = random.Random(4)
    hits = 0
    for _ in range(4000):
        low, high, coverage = stats.interval([draw.lognormvariate(0, 0.5) for _ in range(10)])
        hits += low <= 1.0 <= high  # the median of lognormal(0, s) is 1
    assert hits / 4000 == pytest.approx(coverage, abs=0.01)


def test_ratio_pairs_the_rounds_so_that_drift_cancels():
    drift = [1.0, 1.3, 1.6, 2.0, 1.1, 0.9]
    found = stats.ratio([1.5 * d for d in drift], drift)
    assert (found.median, found.n, found.changed) == (pytest.approx(1.5), 6, True)
    assert found.low == pytest.approx(1.5) and found.high == pytest.approx(1.5)


def test_ratio_within_two_percent_is_no_change():
    assert not stats.ratio([1.019] * 6, [1.0] * 6).changed
    assert stats.ratio([1.021] * 6, [1.0] * 6).changed
    assert stats.ratio([0.97] * 6, [1.0] * 6).changed


def test_ratio_whose_interval_holds_one_is_no_change():
    assert not stats.ratio([1.5, 1.5, 1.5, 1.5, 1.5, 0.99], [1.0] * 6).changed


def test_one_session_or_five_never_call_a_change():
    one = stats.ratio([2.0], [1.0])
    assert (one.median, one.low, one.high, one.changed) == (2.0, None, None, False)
    assert not stats.ratio([2.0] * 5, [1.0] * 5).changed


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], []), ([1.0], [0.0])])
def test_ratio_refuses_what_has_none(a, b):
    with pytest.raises(ValueError, match="ratio needs"):
        stats.ratio(a, b)


def test_percentile_agrees_with_the_standard_library():
    values = [random.Random(1).random() for _ in range(50)]
    assert stats.percentile(values, 90) == pytest.approx(statistics.quantiles(values, n=10, method="inclusive")[8])
    assert stats.percentile([7.0], 99) == 7.0
    with pytest.raises(ValueError, match="at least one value"):
        stats.percentile([], 50)


def test_outliers_are_counted_beyond_the_far_fence():
    assert stats.outliers([1.0, 1.1, 1.2, 1.3, 1.4, 9.0]) == 1
    assert stats.outliers([1.0] * 20) == 0


TABLE = [(1, 12.706), (4, 2.776), (15, 2.131), (20, 2.086), (60, 2.000), (1, 63.657, 0.99), (30, 1.697, 0.9)]


@pytest.mark.parametrize(("freedom", "point", "confidence"), [*((*row, stats.COVERAGE)[:3] for row in TABLE)])
def test_student_t_equals_the_tables(freedom, point, confidence):
    assert stats.student_t(freedom, confidence) == pytest.approx(point, abs=0.002)


def test_one_preemption_changes_no_median_of_a_run():
    runs = [0.1] * 49 + [33.0]
    assert stats.of_a_run(runs, 50) == 0.1
    twice = [0.1, 0.3] * 3 + [9.0, 0.3] + [0.1, 0.3] * 5  # two times in each run, three runs of warm-up
    assert stats.of_a_run(twice, 6, 3) == pytest.approx(0.4)
    assert stats.of_a_run([1.0, 2.0, 3.0], 2) == 3.0  # of one run and a half nobody knows which is whose


def test_a_bound_narrows_with_each_session_and_one_that_is_wild_decides_nothing():
    one, six = (
        sequential_comparison.bound([1.3], 0.01),
        sequential_comparison.bound([1.3, 1.31, 1.29, 1.3, 1.31, 1.29], 0.01),
    )
    assert one.low < six.low < 1.3 < six.high < one.high
    assert six.slower and not six.equal
    assert sequential_comparison.bound([1.06, 1.05, 1.06, 1.05, 1.06, 1.05], 0.01).slower
    assert not sequential_comparison.bound([1.06, 1.05, 1.06, 1.05, 1.06, 2.0], 0.01).slower


def test_equal_is_what_both_sides_of_two_percent_exclude():
    assert sequential_comparison.bound([1.001, 0.999, 1.0, 1.002, 1.0, 0.998], 0.05).equal
    assert not sequential_comparison.bound([1.001, 0.999], 0.05).equal  # too few sessions
    assert not sequential_comparison.bound([1.02, 1.019, 1.021, 1.02, 1.02, 1.02], 0.05).equal
    assert not sequential_comparison.bound([1.02, 0.98, 1.03, 0.97, 1.01, 0.99], 0.01).equal  # too uneven


def test_student_t_needs_freedom():
    with pytest.raises(ValueError, match="degree of freedom"):
        stats.student_t(0)


# --------------------------------------------------------------------------- two runs


def test_two_runs_give_the_ratio_of_their_medians_within_the_ends_of_both():
    found = stats.unpaired([2, 2.1, 2.2, 2.3, 2.4, 2.5], [1.0, 1.0, 1.0, 1.0, 1.0, 1.25])
    assert (found.median, found.low, found.high) == (2.25, 2 / 1.25, 2.5)
    assert found.changed and found.n == 6


def test_two_runs_that_overlap_are_no_change():
    assert not stats.unpaired([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [0.9, 0.9, 0.9, 0.9, 0.9, 1.05]).changed


@pytest.mark.parametrize(("a", "b"), [([2.0], [1.0] * 6), ([2.0] * 6, [1.0])])
def test_a_run_of_one_session_calls_nothing(a, b):
    found = stats.unpaired(a, b)
    assert (found.median, found.low, found.high, found.changed) == (2.0, None, None, False)


def test_two_runs_of_five_cover_too_little_to_call_a_change():
    assert not stats.unpaired([2.0] * 5, [1.0] * 6).changed


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], []), ([1.0], [1.0, 0.0])])
def test_two_runs_refuse_what_has_no_ratio(a, b):
    with pytest.raises(ValueError, match="sessions of both"):
        stats.unpaired(a, b)


# --------------------------------------------------------------------------- what is not steady


def test_a_ramp_and_a_step_are_trends_with_their_size():
    draw = random.Random(5)
    ramp = [5 * (1 + 0.1 * i / 3000) * draw.lognormvariate(0, 0.02) for i in range(3000)]
    step = [(6 if i > 1400 else 5) * draw.lognormvariate(0, 0.02) for i in range(3000)]
    assert stats.trend(ramp) == pytest.approx(0.066, abs=0.01)
    assert stats.trend(step) == pytest.approx(0.2, abs=0.01)
    assert stats.trend(ramp[::-1]) == pytest.approx(-0.062, abs=0.01)


def test_a_change_within_two_percent_or_of_a_few_values_is_no_trend():
    assert stats.trend([100 + i / 100 for i in range(100)]) is None
    assert stats.trend([1.0, 2.0, 3.0, 4.0]) is None
    assert stats.trend([1.0] * 500) is None
    assert stats.trend([]) is None


def test_a_few_values_must_lie_in_an_order_that_chance_gives_once_in_fifty():
    assert stats.trend([1.0, 1.1, 1.2, 1.3, 1.4]) == pytest.approx(0.4)
    assert stats.trend([1.0, 1.2, 1.1, 1.3, 1.4]) is None
    assert stats.trend([1.0, 1.2, 1.1, 1.3, 1.4, 1.5]) == pytest.approx(1.45 / 1.1 - 1)


@pytest.mark.parametrize("n", [5, 6, 8, 10])
def test_the_chance_of_an_order_is_counted_out(n):
    draw, values = random.Random(n), list(range(1, n + 1))
    called = sum(stats.trend(draw.sample(values, n)) is not None for _ in range(4000))
    assert called / 4000 <= stats.CHANCE + 0.006


def test_spread_is_relative_to_the_median():
    assert stats.spread([1.9, 2.0, 2.1]) == pytest.approx(0.1)


def test_half_a_width_counts_the_degrees_of_freedom_of_what_decides_it():
    assert stats.half_width([(0.04, 5)]) == pytest.approx(2.776 * 0.2, rel=1e-3)
    assert stats.half_width([(1e-12, 5), (0.04, 2)]) == pytest.approx(12.7062 * 0.2, rel=1e-4)
    assert stats.half_width([(0.0, 5), (0.0, 2)]) == 0.0


def test_windows_that_are_alike_say_less_of_their_mean():
    plain = statistics.variance([1.0, 2.0, 3.0, 4.0, 5.0]) / 5
    assert 1.5 * plain < stats.mean_variance([1.0, 2.0, 3.0, 4.0, 5.0]) < 2 * plain


# --------------------------------------------------------------------------- what is said of it


def noise_of(measured):
    return session_noise.sentence(measured["name"], msgspec.convert(measured["sessions"], list[model_numbers.Session]))


def variant(medians, flags=()):
    sessions = [{"round": str(i), "median_ms": m, "flags": list(flags) if i < 2 else []} for i, m in enumerate(medians)]
    return {"name": "int8", "sessions": sessions}


def test_quiet_sessions_are_not_spoken_of():
    assert noise_of(variant([1.0, 1.01, 1.0, 1.02, 1.01, 1.0], ["outliers: 3 of 100", "not warm after 3 s"])) == ""
    assert noise_of(variant([None, 1.0])) == ""


def test_noise_is_said_in_one_sentence_with_how_often_it_was_seen():
    flags = ["drifting: +7% over the window", "not alone: other processes kept 0.9 processors busy"]
    said = noise_of(variant([1.0, 1.1, 1.2, 1.3, 1.4, 1.5], flags))
    assert "its sessions are 40.0% apart; drifting: +38% over the sessions; drifting: +7% over the window" in said
    assert "other processes kept 0.9 processors busy (in 2 of 6 sessions); another run may not agree." in said


# --------------------------------------------------------------------------- the promises


@pytest.fixture(scope="module")
def coverage() -> ModuleType:
    return prove.benchmark("coverage")


@pytest.mark.slow
@pytest.mark.prove
def test_every_interval_covers_and_what_drifts_is_flagged(coverage: ModuleType):
    """The reduced benchmarks/coverage.py: its functions, a fixed seed, fewer and shorter trials."""
    found = list(coverage.rows(trials=120 if prove.WHOLE else 40, runs=250, seed=0))
    assert len(found) > 50
    assert coverage.table([row for row in found if not row.kept]).count("\n") == 0


def test_the_chance_of_few_hits_is_the_binomials(coverage: ModuleType):
    assert coverage.at_most(8, 10, 0.5) == pytest.approx(1 - 11 / 1024)
    assert coverage.at_most(10, 10, 0.9) == 1.0
    assert not coverage.Row("", "", 90, 100, 0.97).kept
    assert coverage.Row("", "", 96, 100, 0.97).kept
    assert not coverage.Row("", "", 20, 100, 0.05, at_most=True).kept
