"""Ranges of activations: tables of the published optima, and what holds of every histogram."""

from __future__ import annotations

from collections.abc import Callable
from math import erf, exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.techniques import _activation_ranges

Ends = tuple[float, float]
FINE = 1 << 14  # bins of a distribution that is known exactly


def normal(x: float) -> float:
    """The share of a standard normal distribution below x."""
    return 0.5 * (1 + erf(x / 2**0.5))


def laplace(x: float) -> float:
    """The share of a Laplace distribution of scale 1 below x."""
    return 0.5 * exp(x) if x < 0 else 1 - 0.5 * exp(-x)


def of(below: Callable[[float], float], reach: float) -> np.ndarray:
    """The histogram of a distribution from -reach to reach."""
    return np.diff([below(x) for x in np.linspace(-reach, reach, FINE + 1)])


def measured(data: np.ndarray) -> tuple[np.ndarray, Ends]:
    """A histogram of numbers, and their extremes."""
    extremes = float(data.min()), float(data.max())
    return _activation_ranges.histogram(data, extremes), extremes


def quantized(data: np.ndarray, ends: Ends, levels: int = 256) -> np.ndarray:
    """Numbers rounded to so many levels, zero among them, and clipped (Jacob et al. 2018, arXiv:1712.05877, eq. 11)."""
    step = (ends[1] - ends[0]) / (levels - 1)
    first = round(ends[0] / step)
    return np.clip(np.round(data / step), first, first + levels - 1) * step


# --------------------------------------------------------------------------- the least squared error


@pytest.mark.parametrize(
    ("levels", "step", "error"),
    [(3, 1.224, 0.1902), (5, 0.8430, 0.08218), (7, 0.6508, 0.04686), (9, 0.5338, 0.03069), (15, 0.3534, 0.01289)],
)
def test_mse_finds_the_step_of_max_s_table_for_a_normal_distribution(levels: int, step: float, error: float) -> None:
    """Max, "Quantizing for minimum distortion" (1960), table II: equal steps, an odd number of levels."""
    counts, extremes = of(normal, 8), (-8.0, 8.0)
    low, high = _activation_ranges.mse_range(counts, extremes, levels)
    assert (high - low) / (levels - 1) == pytest.approx(step, rel=0.02)
    (found,) = _activation_ranges.squared_error(counts, extremes, ([low], [high]), levels)
    assert found == pytest.approx(error, rel=0.002)


@pytest.mark.parametrize(
    ("below", "reach", "bits", "clip"),
    [
        *[(normal, 8, 6, 3.28), (normal, 8, 7, 3.61), (normal, 8, 8, 3.92)],
        *[(laplace, 20, 4, 5.03), (laplace, 20, 6, 7.41), (laplace, 20, 8, 9.89)],
    ],
)
def test_mse_clips_where_aciq_does(below: Callable[[float], float], reach: float, bits: int, clip: float) -> None:
    """Banner et al. 2019, arXiv:1810.05723: the clipping values for Gauss and Laplace, section 3 and its code."""
    low, high = _activation_ranges.mse_range(of(below, reach), (-reach, reach), 2**bits)
    assert (-low, high) == (pytest.approx(clip, rel=0.03), pytest.approx(clip, rel=0.03))


def test_mse_of_magnitudes_is_the_fixed_point_of_octav() -> None:
    """Sakr et al. 2022, arXiv:2206.06501, eq. 6, for numbers that are not negative: Δ = s / 2^B, noise Δ²/12."""
    data = np.abs(np.random.default_rng(0).laplace(size=200_000))
    s = 1.0
    for _ in range(40):
        s = data[data > s].sum() / (4.0**-8 / 12 * (data <= s).sum() + (data > s).sum())
    low, high = _activation_ranges.mse_range(*measured(data))
    assert low == pytest.approx(0, abs=1e-4)
    assert high == pytest.approx(s, rel=0.05)


@pytest.mark.parametrize("kind", ["normal", "relu", "gelu", "outliers", "constant"])
def test_the_error_that_mse_minimises_is_that_of_the_quantized_numbers(kind: str) -> None:
    seeded = np.random.default_rng(0)
    x = seeded.normal(size=100_000)
    data = {
        "normal": x,
        "relu": np.maximum(x, 0),
        "gelu": np.where(x > 0, x, 0.1 * x),
        "outliers": np.append(x, [40.0, -70.0]),
        "constant": np.full(1000, 3.0),
    }[kind]
    counts, extremes = measured(data)
    whole = min(extremes[0], 0.0), max(extremes[1], 0.0)
    for ends in (whole, (whole[0] / 2, whole[1] / 2), (whole[0] / 2, whole[1] / 4)):
        (told,) = _activation_ranges.squared_error(counts, extremes, ([ends[0]], [ends[1]]), 256)
        real = ((quantized(data, ends) - data) ** 2).sum()
        bins = 2 * max(map(abs, extremes)) / _activation_ranges.BINS  # what a bin hides of its values
        assert told == pytest.approx(real, rel=0.15, abs=len(data) * bins**2)


def test_mse_cuts_an_outlier_when_the_rest_gains_more() -> None:
    data = np.append(np.random.default_rng(0).normal(size=100_000), [30.0, -50.0])
    counts, extremes = measured(data)
    low, high = _activation_ranges.mse_range(counts, extremes)
    assert -45 < low < -4
    assert 4 < high < 25
    plain, mended = (((quantized(data, ends) - data) ** 2).mean() for ends in (extremes, (low, high)))
    assert mended < 0.85 * plain


# --------------------------------------------------------------------------- a share of the values


@pytest.mark.parametrize(("percentile", "kept"), [(100.0, 1.0), (99.0, 0.99), (90.0, 0.9)])
def test_a_percentile_keeps_its_share_of_the_values(percentile: float, kept: float) -> None:
    data = np.random.default_rng(0).normal(size=200_000)
    low, high = _activation_ranges.percentile_range(*measured(data), percentile)
    assert ((data >= low) & (data <= high)).mean() == pytest.approx(kept, abs=0.004)
    if kept < 1:  # quantiles of the normal distribution
        assert high == pytest.approx({0.99: 2.576, 0.9: 1.645}[kept], abs=0.03)


# --------------------------------------------------------------------------- the least divergence


def test_entropy_cuts_a_rare_outlier_and_keeps_what_fills_its_range() -> None:
    seeded = np.random.default_rng(0)
    spread = seeded.uniform(-1, 1, 100_000)
    pointed = np.append(seeded.normal(size=100_000), [1000.0])
    for data, lowest, highest in ((spread, 0.95, 1.0), (pointed, 3.0, 200.0)):
        _, high = _activation_ranges.entropy_range(*measured(data))
        assert lowest <= high <= highest


def test_entropy_is_not_led_by_the_zeros_of_a_relu() -> None:
    low, high = _activation_ranges.entropy_range(
        *measured(np.maximum(np.random.default_rng(0).normal(size=100_000), 0))
    )
    assert low == 0.0
    assert high > 2.0


def test_divergence_is_zero_for_what_needs_no_quantization() -> None:
    counts = np.zeros(1024, np.int64)
    counts[: _activation_ranges.LEVELS] = np.arange(1, _activation_ranges.LEVELS + 1)
    assert _activation_ranges.divergence(counts, _activation_ranges.LEVELS) == pytest.approx(0.0, abs=1e-12)
    counts[1 : _activation_ranges.LEVELS : 2] = 1000
    assert _activation_ranges.divergence(counts, 1024) > 0.01


def test_divergence_is_that_of_the_published_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """Migacz, "8-bit inference with TensorRT" (2017), slide 36: eight bins become two levels of four."""
    monkeypatch.setattr(_activation_ranges, "LEVELS", 2)
    found = _activation_ranges.divergence(np.array([1, 0, 2, 3, 5, 3, 1, 7]), 8)
    p = np.array([1, 2, 3, 5, 3, 1, 7]) / 22
    q = np.array([2, 2, 2, 4, 4, 4, 4]) / 22
    assert found == pytest.approx(float((p * np.log(p / q)).sum()))


# --------------------------------------------------------------------------- every histogram

numbers = st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=60).map(np.array)


@pytest.mark.parametrize("calibrator", _activation_ranges.CALIBRATORS)
@given(data=numbers)
def test_a_range_lies_within_the_extremes(calibrator: _activation_ranges.Calibrator, data: np.ndarray) -> None:
    counts, extremes = measured(data)
    low, high = _activation_ranges.calibrated(calibrator, counts, extremes, 99.9)
    assert extremes[0] <= low <= high <= extremes[1]


@given(data=numbers)
def test_mse_is_never_worse_than_the_extremes(data: np.ndarray) -> None:
    counts, extremes = measured(data)
    ranges = _activation_ranges.mse_range(counts, extremes), extremes
    lows, highs = ([pick(r[i], 0.0) for r in ranges] for i, pick in enumerate((min, max)))
    mse, minmax = _activation_ranges.squared_error(counts, extremes, (lows, highs), 256)
    assert mse <= minmax * (1 + 1e-9) + 1e-300


@pytest.mark.parametrize("calibrator", _activation_ranges.CALIBRATORS)
@given(data=numbers, power=st.integers(-8, 8))
def test_a_range_scales_with_its_values(
    calibrator: _activation_ranges.Calibrator, data: np.ndarray, power: int
) -> None:
    scale = 2.0**power
    counts, extremes = measured(np.append(data, [1.0]))
    plain, scaled = (
        _activation_ranges.calibrated(calibrator, counts, (extremes[0] * by, extremes[1] * by), 99.9)
        for by in (1.0, scale)
    )
    assert scaled == pytest.approx((plain[0] * scale, plain[1] * scale))


@given(used=st.sampled_from(_activation_ranges.CALIBRATORS))
def test_the_rungs_are_the_other_calibrators_in_order(used: str) -> None:
    found = _activation_ranges.rungs(used, _activation_ranges.CALIBRATORS)
    assert [name for name, _ in found] == [name for name in _activation_ranges.CALIBRATORS if name != used]
    assert all(change == {"calibrator": name} for name, change in found)
