"""Decisions by interval: that "inside" is right as often as stated, and how many items decide what is undecided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.core import catalog
from edgecompress.core.limit_decision import Decision, decide
from edgecompress.core.settings import Limits
from edgecompress.data import metric_limits, metrics, paired_proportions

WRONG = 0.05  # of decisions, at most
SURE = 4.0  # standard errors of a share of wrong decisions that are chance

finite = st.floats(-1e6, 1e6)


# --------------------------------------------------------------------------- the rule


@given(st.tuples(finite, finite, finite).map(sorted), finite)
def test_a_whole_interval_on_one_side_decides_and_nothing_else_does(ends: list[float], limit: float) -> None:
    low, value, high = ends
    word = decide(value, (low, high), limit).word
    assert word == ("inside" if high <= limit else "outside" if low > limit else "undecided")
    assert decide(value, (None, None), limit).word == "undecided"


@given(st.tuples(finite, finite, finite).map(sorted), finite)
def test_a_least_value_is_the_mirror_of_a_most(ends: list[float], limit: float) -> None:
    low, value, high = ends
    assert decide(value, (low, high), limit, least=True) == decide(-value, (-high, -low), -limit)


@pytest.mark.parametrize(
    ("decided", "ships", "ships_where_strict"),
    [
        (Decision("inside", near=True), True, True),
        (Decision("undecided", near=True), True, False),
        (Decision("undecided", near=False), False, False),
        (Decision("outside", near=False), False, False),
    ],
)
def test_what_is_undecided_ships_only_if_its_value_is_inside_and_never_where_strict(
    decided: Decision, ships: bool, ships_where_strict: bool
) -> None:
    assert (decided.passes(strict=False), decided.passes(strict=True)) == (ships, ships_where_strict)


# --------------------------------------------------------------------------- items lost


def table(lost: int, gained: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores of n items of which so many are lost and gained."""
    before, after = np.ones(n), np.ones(n)
    after[:lost] = 0
    before[lost : lost + gained] = 0
    return before, after


def check(lost: int, gained: int, n: int, limit: float, strict: bool = False) -> Any:
    top1 = metrics.find("top1")
    assert top1
    compared = metrics.compare(top1, *table(lost, gained, n))
    (found,) = metric_limits.checks(compared, Limits(items_lost=limit, strict=strict))
    return found


def test_exactly_the_limit_is_undecided_and_says_so() -> None:
    found = check(5, 0, 500, 5)
    assert (found.ok, found.decision, found.needed) == (True, "undecided", None)
    assert found.says == (
        "net 5 of 500 items lost (5 became wrong, 0 became right): 1.15 to 11.6 with 95 % confidence, limit 5: "
        "undecided, and at this rate no number of items would decide (there are 500)"
    )
    assert check(5, 0, 500, 5, strict=True).ok is False


def test_what_is_surely_inside_or_outside_needs_no_more_items() -> None:
    inside, outside = check(0, 0, 500, 5), check(30, 2, 500, 5)
    assert (inside.ok, inside.decision, inside.needed) == (True, "inside", None)
    assert (outside.ok, outside.decision, outside.needed) == (False, "outside", None)
    assert inside.says.endswith(": at most 3.81 with 95 % confidence, within the limit of 5")


RIGHT = (np.arange(100) % 5 < 2).astype(float), np.ones(100)
NOISE = np.random.default_rng(0).normal(0, 1, 100)


@pytest.mark.parametrize(
    ("kind", "before", "after", "limit", "says"),
    [
        ("top1", *RIGHT, "items_lost", "(0 became wrong, 60 became right): at least 46.1 gained with 95 % confidence"),
        ("psnr", 20 + NOISE, np.full(100, 26), "metric_drop", "at least 5.64 gained with 95 % confidence"),
        ("psnr", 20 + NOISE, np.full(100, 26), "metric_loss", "at least 0.727 gained with 95 % confidence"),
        ("psnr", 20 + NOISE, 26 + NOISE, "metric_drop", "at least 6 gained with 95 % confidence"),
        ("psnr", 20 + NOISE, 19.5 + NOISE, "metric_drop", "at most 0.5 with 95 % confidence"),
        ("psnr", 20 + NOISE, 20 + NOISE, "metric_drop", "the same answers"),
        ("mse", 20 + NOISE, 8 + NOISE, "metric_ratio", "at most 0.411 with 95 % confidence"),
        ("mse", 20 + NOISE, 20 + NOISE, "metric_ratio", "the same answers"),
    ],
)
def test_a_sure_gain_is_told_as_one_and_not_as_a_limit_below_zero(
    kind: str, before: np.ndarray, after: np.ndarray, limit: str, says: str
) -> None:
    metric = metrics.find(kind)
    assert metric
    (found,) = metric_limits.checks(metrics.compare(metric, before, after), Limits(**{"metric_loss": None, limit: 1}))
    assert found.says.endswith(f"{says}, within the limit of 1")


@pytest.mark.parametrize(("n", "most"), [(10, 0), (99, 0), (500, 5), (700, 7), (50_000, 500)])
def test_a_share_of_items_allows_as_many_of_any_number(n: int, most: int) -> None:
    allowed, beyond = check(most, 0, n, 0.01), check(most + 1, 0, n, 0.01)
    assert allowed.ok and not beyond.ok
    assert allowed.limit == beyond.limit == pytest.approx(0.01 * n)


def test_a_number_of_items_is_whole_and_a_share_is_below_one() -> None:
    for wrong in (1.5, 100.25):
        with pytest.raises(ValueError, match="whole number of items, or a share of them below 1"):
            Limits(items_lost=wrong)


@pytest.mark.parametrize("target", sorted(Path(__file__).parents[1].glob("targets/*.toml")), ids=lambda file: file.stem)
def test_the_shipped_targets_allow_a_share_of_any_number_of_items(target: Path) -> None:
    assert 0 < catalog.target(str(target)).value.limits.items_lost < 0.02


def test_a_net_gain_is_called_one() -> None:
    assert check(1, 3, 500, 5).says.startswith("net 2 of 500 items gained (1 became wrong, 3 became right): at most ")


def test_an_undecided_number_past_its_limit_does_not_ship() -> None:
    found = check(7, 0, 500, 5)
    assert (found.ok, found.decision) == (False, "undecided") and found.needed


@pytest.mark.parametrize(
    ("lost", "gained", "n", "limit"), [(0, 0, 100, 1), (2, 0, 500, 5), (3, 1, 200, 3), (9, 2, 500, 5)]
)
def test_the_items_that_are_needed_decide_and_half_of_them_do_not(lost: int, gained: int, n: int, limit: int) -> None:
    needed = check(lost, gained, n, limit).needed
    assert needed > n

    def word(items: int) -> str:
        low, high = paired_proportions.interval(*(round(count * items / n) for count in (gained, lost)), items)
        return decide((lost - gained) / n, (-high, -low), limit / n).word

    assert word(needed) != "undecided"
    assert word(needed // 2) == "undecided"


def wrong(n: int, shares: tuple[float, float], bounds: np.ndarray, counts: np.ndarray) -> float:
    """The chance of all outcomes of n items, lost and gained with these chances, whose bound is below the true loss."""
    lost, gained = counts.T
    same = n - lost - gained
    logs = np.array([math.lgamma(k + 1) for k in range(n + 1)])
    chance = math.lgamma(n + 1) - logs[lost] - logs[gained] - logs[same]
    for share, count in zip((*shares, 1 - sum(shares)), (lost, gained, same), strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            chance = chance + np.where(count > 0, count * np.log(max(share, 0.0)), 0.0)
    return float(np.exp(chance)[bounds < shares[0] - shares[1] - 1e-9].sum())


def worst(n: int, step: float) -> float:
    """The largest chance of a bound below the truth, over a grid of chances to lose and to gain an item, a net loss."""
    counts = np.array([(lost, gained) for lost in range(n + 1) for gained in range(n + 1 - lost)])
    bounds = np.array([-paired_proportions.interval(int(gained), int(lost), n)[0] for lost, gained in counts])
    few = np.array([0.0, 0.002, 0.005, 0.01, 0.015, 0.02, 0.035])
    grid = np.unique(np.concatenate([few, 1 - few, np.arange(0, 1 + step / 2, step)]))
    pairs = ((lost, gained) for lost, gained in itertools.product(grid, grid) if gained <= lost <= 1 - gained)
    return max(wrong(n, (float(lost), float(gained)), bounds, counts) for lost, gained in pairs)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 12])
def test_no_share_of_lost_and_gained_items_makes_the_bound_of_a_few_wrong_more_often_than_stated(n: int) -> None:
    assert worst(n, 0.05) <= WRONG


@pytest.mark.prove
@pytest.mark.parametrize("n", [*range(1, 31), 40, 60, 80, 120, 160])
def test_the_bound_of_lost_items_holds_over_a_fine_grid(n: int) -> None:
    assert worst(n, 0.01) <= WRONG


LOSSES = [(0.002, 0.0), (0.01, 0.0), (0.012, 0.004), (0.03, 0.02), (0.3, 0.3), (0.5, 0.1), (0.97, 0.01), (1.0, 0.0)]


@pytest.mark.parametrize(
    "n", [20, pytest.param(500, marks=pytest.mark.prove), pytest.param(3000, marks=pytest.mark.prove)]
)
@pytest.mark.parametrize("shares", LOSSES)
def test_a_loss_that_is_just_past_its_limit_is_seldom_called_inside(shares: tuple[float, float], n: int) -> None:
    trials = 200 if n < 100 else 2000
    lost, gained = shares
    drawn = np.random.default_rng(n).multinomial(n, [lost, gained, max(0.0, 1 - lost - gained)], trials)
    bounds = {(a, b): -paired_proportions.interval(b, a, n)[0] for a, b in {(int(a), int(b)) for a, b, _ in drawn}}
    assert sum(bounds[int(a), int(b)] < lost - gained - 1e-9 for a, b, _ in drawn) <= allowed(trials)


# --------------------------------------------------------------------------- means and ratios

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]  # scores before, after


def like_noise(draw: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    before = draw.gamma(2.0, 1.0, n)
    return before, before + draw.normal(0.02, 0.1, n)


def skewed(draw: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """A few items lose much more than the others."""
    before = draw.gamma(2.0, 1.0, n)
    return before, before + 0.02 * draw.lognormal(0.0, 1.0, n)


def rare(draw: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """One item of fifty changes, by much; of few items often none does."""
    before = np.round(draw.uniform(1, 4, n))
    return before, before + np.where(draw.random(n) < 0.02, before, 0.0)


def mixed(draw: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Gains and losses, larger where the score was."""
    before = draw.exponential(1.0, n) + 0.1
    return before, before * draw.choice([0.8, 1.0, 1.3], n, p=[0.3, 0.3, 0.4])


def every_one(draw: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Each item becomes worse by as much."""
    before = draw.gamma(2.0, 1.0, n)
    return before, before + 0.1


NUMBERS: list[Draw] = [like_noise, skewed, rare, mixed, every_one]
KINDS = {"perplexity": "metric_ratio", "mse": "metric_ratio", "own": "metric_drop"}


def compared(kind: str, before: np.ndarray, after: np.ndarray) -> metric_limits.Loss:
    """What is lost: of an own metric, where higher is better, the drop of the negated scores."""
    own = metrics.Metric("own", "mean", lambda outputs, labels: labels)
    metric = own if kind == "own" else metrics.find(kind)
    assert metric
    pair = (-before, -after) if kind == "own" else (before, after)
    return metric_limits.losses(metrics.compare(metric, *pair))[KINDS[kind]]


def wrongly_inside(kind: str, population: Draw, n: int, trials: int) -> int:
    """How often a limit that the truth is just past is taken for kept: in how many samples the bound is below it."""
    draw = np.random.default_rng([n, NUMBERS.index(population), sorted(KINDS).index(kind)])
    truth = compared(kind, *population(draw, 10**6)).value
    samples = (compared(kind, *population(draw, n)) for _ in range(trials))
    return sum(loss.decided(truth - 1e-9).word == "inside" for loss in samples)


def test_a_mean_of_few_items_is_never_decided() -> None:
    before, after = like_noise(np.random.default_rng(0), metrics.FEWEST - 1)
    for kind in KINDS:
        assert compared(kind, before, after).decided(1e9).word == "undecided"


def test_scores_of_right_and_wrong_are_decided_as_counts_whatever_the_metric_is_called() -> None:
    own = metrics.Metric("own", "mean", lambda outputs, labels: labels)
    counted = metrics.compare(own, *table(2, 1, 100))
    low, high = paired_proportions.interval(1, 2, 100)
    assert (counted["low"], counted["high"]) == (low, high)


def allowed(trials: int) -> float:
    return trials * WRONG + SURE * math.sqrt(trials * WRONG * (1 - WRONG))


@pytest.mark.parametrize("population", NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_called_inside_is(kind: str, population: Draw) -> None:
    assert wrongly_inside(kind, population, 50, 200) <= allowed(200)


@pytest.mark.prove
@pytest.mark.parametrize("n", [5, 20, 50, 200, 1000])
@pytest.mark.parametrize("population", NUMBERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_number_that_is_called_inside_is_for_few_items_and_many(kind: str, population: Draw, n: int) -> None:
    assert wrongly_inside(kind, population, n, 2000) <= allowed(2000)
