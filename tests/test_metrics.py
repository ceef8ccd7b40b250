"""Metrics against published numbers and against what must hold of any numbers."""

from __future__ import annotations

import json
import math
import sys
import types
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.data import metrics, paired_proportions
from edgecompress.data.metrics import Metric, compare, scores, summary
from edgecompress.data.paired_proportions import tango

LOGITS = npst.arrays(np.float32, (7, 5), elements=st.floats(-20, 20, width=32))
LABELS = npst.arrays(np.int64, 7, elements=st.integers(0, 4))


def metric(name: str, output: str = "") -> Metric:
    found = metrics.find(name, output)
    assert found is not None
    return found


def one(name: str, output: Any, labels: Any) -> list[float]:
    return scores(metric(name), {"y": np.asarray(output)}, np.asarray(labels)).tolist()


# --------------------------------------------------------------------------- scores


def test_top1_is_argmax_and_of_equals_the_first() -> None:
    logits = np.array([[0, 2, 1], [1, 1, 0], [1, 1, 0]], np.float32)
    assert one("top1", logits, [1, 0, 1]) == [1, 1, 0]


def test_top5_counts_ranks() -> None:
    logits = np.arange(8, dtype=np.float32)[None].repeat(8, axis=0)
    assert one("top5", logits, range(8)) == [0, 0, 0, 1, 1, 1, 1, 1]


@given(LOGITS, LABELS)
def test_top1_agrees_with_argmax_and_is_within_top5(logits: np.ndarray, labels: np.ndarray) -> None:
    assert one("top1", logits, labels) == (logits.argmax(1) == labels).astype(float).tolist()
    assert one("top5", logits, labels) == [1.0] * 7


def test_a_row_with_nan_is_wrong() -> None:
    assert one("top1", [[np.nan, 1.0], [0.0, 1.0], [0.0, np.nan]], [1, 1, 1]) == [0, 1, 0]


def test_perplexity_of_even_odds_is_the_number_of_classes() -> None:
    found = scores(metric("perplexity"), {"y": np.zeros((9, 465), np.float32)}, np.arange(9))
    assert summary(metric("perplexity"), found) == pytest.approx(465)


@given(LOGITS, LABELS, st.floats(-1000, 1000))
def test_perplexity_is_softmax_and_ignores_a_common_offset(logits: Any, labels: Any, offset: float) -> None:
    odds = np.exp(logits.astype(float))
    expected = -np.log(odds[np.arange(7), labels] / odds.sum(1))
    assert one("perplexity", logits, labels) == pytest.approx(expected.tolist(), abs=1e-9)
    assert one("perplexity", logits.astype(float) + offset, labels) == pytest.approx(expected.tolist(), abs=1e-9)


def test_perplexity_of_tokens_is_per_item_their_mean() -> None:
    logits = np.random.default_rng(0).normal(size=(3, 4, 6))
    labels = np.random.default_rng(1).integers(0, 6, (3, 4))
    flat = np.array(one("perplexity", logits.reshape(12, 6), labels.reshape(12)))
    assert one("perplexity", logits, labels) == pytest.approx(flat.reshape(3, 4).mean(1).tolist())


def test_mse_is_the_mean_square() -> None:
    assert one("mse", np.array([[1.0, 3.0]], np.float32), np.array([[0.0, 1.0]])) == [2.5]


def test_the_named_output_is_scored() -> None:
    outputs = {"a": np.array([[1.0, 0.0]]), "b": np.array([[0.0, 1.0]])}
    assert scores(metric("top1"), outputs, np.array([1])).tolist() == [0]
    assert scores(metric("top1", "b"), outputs, np.array([1])).tolist() == [1]
    with pytest.raises(InputError, match="the model has no output 'c'"):
        scores(metric("top1", "c"), outputs, np.array([1]))


@pytest.mark.parametrize(
    ("name", "output", "labels", "says"),
    [
        (
            "top1",
            np.zeros((99, 3)),
            np.where(np.arange(99) == 70, 3, 0),
            "item 70: label 3 is out of range: .* classes 0 to 2",
        ),
        ("top1", np.zeros((3, 3)), np.array([1, 2, 3]), r"item 2: label 3 is out .*they run from 1: take 1 from each"),
        ("perplexity", np.zeros((2, 3)), np.array([0, 7]), r"item 1: label 7 is out of range: .* 0 to 2"),
        (
            "top1",
            np.zeros((2, 3)),
            np.array([0.5, 1]),
            r"labels are float64 \[2\], but classes are whole numbers; of a regression",
        ),
        ("top1", np.zeros((2, 3)), np.zeros((2, 2), int), r"labels \[2, 2\] do not fit an output \[2, 3\]"),
        (
            "top1",
            np.zeros((2, 3)),
            np.zeros((2, 3, 4, 4)),
            r"labels are float64 \[2, 3, 4, 4\], .*\(inputs, label\), in this",
        ),
        (
            "top1",
            np.zeros((2, 1)),
            np.array([0, 7]),
            "item 1: label 7 is out of range: .* of a regression give --metric",
        ),
        ("top5", np.zeros((2, 3, 4)), np.zeros(2, int), r"top-5 needs an output \[items, classes\]"),
        ("top1", np.zeros((2, 3, 4)), np.zeros((2, 3), int), r".*not \[2, 3, 4\]; .*give --metric perplexity"),
        ("top1", np.zeros((2, 3, 4, 4)), np.zeros((2, 4, 4), int), r".*give --metric miou"),
        ("mse", np.zeros((2, 3)), np.zeros(2), r"it needs labels of the output's shape \[2, 3\], but they"),
    ],
)
def test_labels_that_do_not_fit_are_named(name: str, output: Any, labels: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"metric {name}: {says}"):
        one(name, output, labels)


def test_unknown_names_and_none() -> None:
    assert metrics.find("none") is None
    with pytest.raises(InputError, match=r"no metric 'perplexty' .*did you mean 'perplexity'"):
        metrics.find("perplexty")


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("users_metric")
    monkeypatch.setitem(sys.modules, "users_metric", module)
    return module


def test_the_users_metric_is_called_with_outputs_and_labels(users: types.ModuleType) -> None:
    users.__dict__["f1"] = lambda outputs, labels: outputs["y"][:, 0] * labels
    assert one("users_metric:f1", [[2.0], [3.0]], [10, 20]) == [20, 60]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda outputs, labels: 1 / 0, r"metric users_metric:f1: it raised ZeroDivisionError.*debug it"),
        (lambda outputs, labels: 0.5, r"it returned \[\] for 2 items; return one number per item"),
    ],
)
def test_a_users_metric_that_fails_is_the_users(users: types.ModuleType, function: Any, says: str) -> None:
    users.__dict__["f1"] = function
    with pytest.raises(InputError, match=says):
        one("users_metric:f1", [[2.0], [3.0]], [1, 2])


# --------------------------------------------------------------------------- the paired comparison


def test_the_interval_is_tangos() -> None:
    """Fagerland, Lydersen, Laake, Statistics in Medicine 33 (2014), 2850-2875: 1, 1, 7, 12 gives -0.517 to -0.026."""
    low, high = tango(1, 7, 21)
    assert (round(low, 3), round(high, 3)) == (-0.517, -0.026)


def test_without_any_change_the_interval_has_a_closed_form() -> None:
    z2 = paired_proportions.Z**2
    assert tango(0, 0, 500) == pytest.approx((-z2 / (500 + z2), z2 / (500 + z2)))


@given(st.integers(1, 300), st.data())
def test_the_interval_is_a_mirror_and_holds_its_estimate(n: int, draw: st.DataObject) -> None:
    gained = draw.draw(st.integers(0, n))
    lost = draw.draw(st.integers(0, n - gained))
    low, high = tango(gained, lost, n)
    assert -1 <= low <= (gained - lost) / n <= high <= 1
    assert tango(lost, gained, n) == pytest.approx((-high, -low), abs=1e-9)


def test_the_interval_covers_the_truth_nineteen_times_in_twenty() -> None:
    generator = np.random.default_rng(0)
    drawn = generator.multinomial(500, [0.012, 0.02, 0.968], 2000)
    inside = [low <= -0.008 <= high for low, high in (tango(int(g), int(lost), 500) for g, lost, _ in drawn)]
    assert 0.935 < np.mean(inside) < 0.965


def test_items_lost_and_gained_are_counted_in_pairs() -> None:
    found = compare(metric("top1"), np.array([1, 1, 1, 0, 0.0]), np.array([1, 0, 0, 1, 0.0]))
    assert (found["items_lost"], found["items_gained"], found["net_lost"]) == (2, 1, 1)
    assert (found["before"], found["after"], found["unit"], found["n"]) == (0.6, 0.4, "fraction", 5)
    assert found["low"] < -0.2 < found["high"]


def test_a_perplexity_has_a_ratio_and_its_interval() -> None:
    before = np.random.default_rng(0).exponential(1.7, 4000)
    after = before + np.random.default_rng(1).normal(0.01, 0.1, 4000)
    found = compare(metric("perplexity"), before, after)
    assert found["ratio"] == pytest.approx(found["after"] / found["before"])
    assert found["low"] < math.exp(0.01) < found["high"] < found["low"] * 1.01


def test_an_error_that_doubles_for_every_item_has_a_ratio_of_exactly_two() -> None:
    before = np.random.default_rng(0).random(50)
    found = compare(metric("mse"), before, 2 * before)
    assert (found["ratio"], found["low"], found["high"]) == pytest.approx((2, 2, 2))


def test_the_mse_ratio_covers_the_truth() -> None:
    generator, inside = np.random.default_rng(0), 0
    for _ in range(400):
        before = generator.exponential(1.0, 200)
        found = compare(metric("mse"), before, before * generator.normal(1.2, 0.3, 200))
        inside += found["low"] <= 1.2 <= found["high"]
    assert inside / 400 > 0.95


def test_nothing_to_divide_by_has_a_reason() -> None:
    found = compare(metric("mse"), np.zeros(3), np.ones(3))
    assert found["ratio"] is None
    assert "zero" in found["reason"]


@pytest.mark.parametrize("name", ["perplexity", "mse"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_none_with_a_reason(name: str, bad: float) -> None:
    found = compare(metric(name), np.ones(3), np.array([1, bad, 1]))
    assert found["after"] is None
    assert found["reason"] == "a score is not finite"
    json.dumps(found, allow_nan=False)


def test_other_items_cannot_be_paired() -> None:
    with pytest.raises(StageFailed, match="3 items before and 4 after cannot be paired"):
        compare(metric("top1"), np.ones(3), np.ones(4))
