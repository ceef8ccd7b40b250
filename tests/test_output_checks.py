"""Outputs judged without a metric: each kind of task passes and fails for the right reason, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edgecompress.core.settings import Limits
from edgecompress.data import output_channels, output_checks, output_statistics, source_probabilities
from edgecompress.data.channel_axis import channel_axis

N = 200
RANDOM = np.random.default_rng(0)


def broken(golden: Mapping[str, Any], outputs: Mapping[str, Any], **limits: float) -> list[str]:
    """What the default limits say against it, "" where they keep quiet."""
    found = output_channels.compare(golden, outputs, {})
    every = (c for name, facts in found.items() for c in output_checks.checks(name, facts, Limits(**limits)))  # type: ignore[arg-type]
    return [check.says for check in every if check.ok is False]


def facts(golden: Any, output: Any) -> output_channels.ChannelFacts:
    return output_channels.compare({"y": golden}, {"y": output}, {})["y"]


def noisy(array: np.ndarray, share: float) -> np.ndarray:
    return array + share * array.std() * RANDOM.normal(size=array.shape)


# --------------------------------------------------------------------------- tasks

LOGITS = 4 * np.eye(5)[RANDOM.integers(0, 5, N)] + RANDOM.normal(size=(N, 5))


def test_a_classifier_passes_with_noise_and_fails_with_other_choices() -> None:
    assert broken({"y": LOGITS}, {"y": noisy(LOGITS, 0.03)}) == []
    swapped = LOGITS.copy()
    swapped[:8] = swapped[:8, ::-1]
    says = broken({"y": LOGITS}, {"y": swapped})
    assert any("by the source's own probabilities it loses" in line and "limit 0.5 %" in line for line in says)


@pytest.mark.parametrize("dtype", ["int64", "int32", "bool"])
@pytest.mark.parametrize("shape", [(N,), (N, 1), (N, 6, 5)])
def test_labels_are_the_same_or_others_however_far_apart(dtype: str, shape: tuple[int, ...]) -> None:
    labels = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 1000, shape).astype(dtype)
    other = labels.copy().reshape(N, -1)
    other[:10] = ~other[:10] if dtype == "bool" else other[:10] + 900
    few, many = other.reshape(shape), (~labels if dtype == "bool" else labels + 1)
    assert facts(labels, labels)["changed"] == 0.0 and facts(labels, few)["changed"] == 0.05
    assert broken({"y": labels}, {"y": labels.astype("float32")}) == broken({"y": labels}, {"y": few}) == []
    (said,) = broken({"y": labels}, {"y": many})
    assert said == "output 'y': 100 % of its labels are others, limit 10 %; worst items 0, 1, 2"


def test_a_label_that_is_the_same_for_all_items_is_judged_too() -> None:
    label = np.full(N, 3)
    assert broken({"y": label}, {"y": label}) == []
    assert broken({"y": label}, {"y": label + 1})


def test_a_picture_of_whole_numbers_is_no_labels() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (N, 8, 8, 3)).astype("uint8")
    assert broken({"y": picture}, {"y": picture ^ 1}) == []


def test_choices_that_change_where_the_source_is_undecided_cost_next_to_nothing() -> None:
    undecided = LOGITS.copy()
    undecided[:20, :2] = 6.0, 5.99
    other = undecided.copy()
    other[:20, :2] = 5.99, 6.0
    found = facts(undecided, other)
    assert found["changed"] == pytest.approx(0.1) and broken({"y": undecided}, {"y": other}) == []


def test_the_loss_is_that_of_labels_drawn_from_the_sources_probabilities() -> None:
    p = RANDOM.dirichlet([0.5] * 4, 40_000)
    q = 0.5 * p + 0.5 * RANDOM.dirichlet([0.5] * 4, 40_000)
    labels = (p.cumsum(1) < RANDOM.random((40_000, 1))).sum(1)
    steps = [side.reshape(4000, 10, 4) for side in (p, q)]
    right = [float((side.argmax(1) == labels).mean()) for side in (p, q)]
    found = facts(p, q)
    assert found["choice_loss"] == pytest.approx(1 - right[1] / right[0], abs=0.01)
    nats = [-np.log(np.maximum(side[np.arange(40_000), labels], source_probabilities.LEAST)).mean() for side in (p, q)]
    assert facts(*steps)["divergence"] == pytest.approx(nats[1] - nats[0], abs=0.02)


def test_a_language_model_fails_by_its_probabilities_alone() -> None:
    words = np.log(RANDOM.dirichlet([0.3] * 12, (N, 8)) + 1e-4)
    says = broken({"y": words}, {"y": 1.5 * words}, channel_error=math.inf, tail_error=math.inf)
    assert len(says) == 1 and "nats from the source's (perplexity × 1." in says[0]


def scene() -> tuple[np.ndarray, np.ndarray]:
    """Boxes and scores at 60 places, of which two hold something."""
    scores = RANDOM.uniform(0, 0.02, (N, 60, 1))
    scores[:, :2] = RANDOM.uniform(0.8, 1, (N, 2, 1))
    return RANDOM.uniform(0, 1, (N, 60, 4)), scores[:, RANDOM.permutation(60)]


def test_a_detector_is_judged_where_it_finds_something() -> None:
    boxes, scores = scene()
    there = scores > 0.5
    golden = {"boxes": boxes, "scores": scores}
    elsewhere = np.where(there, boxes, boxes + 0.02)
    assert broken(golden, {"boxes": elsewhere, "scores": scores}) == []
    moved = np.where(there & (np.arange(4) == 2), boxes + 0.05, boxes)  # every box a twentieth of the image too wide
    says = broken(golden, {"boxes": moved, "scores": scores}, found_loss=math.inf)
    assert len(says) == 1
    assert (
        says[0].startswith("output 'boxes', channel 2: off by 1") and "where something is found, limit 6 %" in says[0]
    )


def test_a_detector_that_misses_one_in_twenty_is_refused_however_like_its_scores_are() -> None:
    boxes, scores = scene()
    missed = np.where((scores > 0.5) & (RANDOM.random(scores.shape) < 0.05), 0.4, scores)
    same = np.corrcoef(scores.ravel(), missed.ravel())[0, 1]
    says = broken({"boxes": boxes, "scores": scores}, {"boxes": boxes, "scores": missed}, tail_error=math.inf)
    assert same > 0.98 and any("output 'scores': by the source's own probabilities it loses" in line for line in says)


def test_a_joined_output_of_boxes_and_scores_is_judged_by_its_channels() -> None:
    boxes, scores = scene()
    joined = np.concatenate([640 * boxes, scores], -1).transpose(0, 2, 1)  # [n, 5, 60]
    lost = joined.copy()
    lost[:, 4] = np.round(joined[:, 4] / 640 * 255) / 255 * 640  # one scale of 8 bits for pixels and probabilities
    says = broken({"y": joined}, {"y": lost})
    assert any(f"of {2 * N} things that the source finds it misses {2 * N}" in line for line in says)
    assert broken({"y": joined}, {"y": noisy(joined, 0.0)}) == []


def listed() -> dict[str, np.ndarray]:
    """Up to three detections of an item, the best first, and padding: as non-maximum suppression leaves them."""
    scores = -np.sort(-RANDOM.uniform(0.3, 1, (N, 6))) * (np.arange(6) < RANDOM.integers(1, 4, (N, 1)))
    return {"boxes": RANDOM.uniform(0, 300, (N, 6, 4)) * (scores > 0)[..., None], "scores": scores}


def test_detections_in_another_order_are_the_same_ones() -> None:
    golden = listed()
    other = {name: array.copy() for name, array in golden.items()}
    other["scores"][:, 1:3] += 0.015 * RANDOM.normal(size=(N, 2)) * (other["scores"][:, 1:3] > 0)
    order = np.argsort(-other["scores"], axis=1)
    swapped = {
        "boxes": np.take_along_axis(other["boxes"], order[..., None], 1),
        "scores": np.take_along_axis(other["scores"], order, 1),
    }
    assert (order[:, :3] != np.arange(3)).any(1).sum() > 2
    assert broken({"boxes": golden["boxes"]}, {"boxes": swapped["boxes"]}) != []
    assert broken(golden, swapped, found_error=0.1) == []


def test_a_detection_that_is_missing_or_moved_in_a_list_is_found() -> None:
    golden = listed()
    missed = {"boxes": golden["boxes"][:, 1:], "scores": golden["scores"][:, 1:]}
    gone = {k: np.concatenate([v, np.zeros_like(v[:, :1])], 1) for k, v in missed.items()}
    some = RANDOM.random(N) < 0.05
    says = broken(golden, {k: np.where(some.reshape(-1, *[1] * (v.ndim - 1)), gone[k], v) for k, v in golden.items()})
    assert any("output 'scores'" in line for line in says)
    moved = {**golden, "boxes": golden["boxes"] + 20 * (golden["boxes"] > 0)}
    assert any("output 'boxes'" in line and "where something is found" in line for line in broken(golden, moved))


def test_a_segmenter_that_loses_a_rare_class_is_refused_though_its_pixels_agree() -> None:
    truth = np.zeros((40, 16, 16), int)
    truth[:, :8] = 1
    truth[:, 0, :2] = 2  # less than one percent
    logits = 8 * np.eye(3)[truth].transpose(0, 3, 1, 2)
    without = logits.copy()
    without[:, 2] -= 9
    loss = facts(logits, without)["choice_loss"]
    assert loss == pytest.approx(1 / 3, abs=0.02)
    assert broken({"y": logits}, {"y": noisy(logits, 0.01)}) == []


def test_a_regressor_is_told_its_channel_and_items() -> None:
    values = RANDOM.normal(size=(N, 3)) * [1, 1000, 0.01] + [5, 0, 0]
    off = values.copy()
    off[[17, 103, 140], 2] += [0.06, 0.05, 0.04]
    says = broken({"pose": values}, {"pose": off})
    assert len(says) == 2 and all("output 'pose', channel 2: off by" in line for line in says)
    assert "at the 99th percentile of the items" in says[1] and "worst items 17 (" in says[1] and "103 (" in says[1]
    assert broken({"pose": values}, {"pose": values + 0.05 * values.std(0)}) == []


def test_an_embedder_with_a_dead_channel_is_told_which() -> None:
    unit = RANDOM.normal(size=(N, 24))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    dead = unit.copy()
    dead[:, 7] = 0.1
    said = "output 'y': channel 7 holds nothing of the source's any more: constant, or off by its whole spread"
    assert broken({"y": unit}, {"y": dead})[0] == said
    assert broken({"y": unit}, {"y": noisy(unit, 0.04)}) == []


def test_of_many_classes_one_noisy_one_is_no_fault_and_two_swapped_are() -> None:
    logits = RANDOM.normal(size=(N, 1000)) + 8 * np.eye(1000)[RANDOM.integers(0, 1000, N)]
    loud = logits.copy()
    loud[:, 3] += 0.2 * RANDOM.normal(size=N)
    assert broken({"y": logits}, {"y": loud}) == []
    swapped = logits.copy()
    swapped[:, [3, 8]] = logits[:, [8, 3]]
    assert broken({"y": logits}, {"y": swapped})[0].startswith("output 'y': channels 3, 8 hold nothing of the source's")
    assert broken({"y": logits}, {"y": noisy(logits, 0.12)}) == []
    says = broken({"y": logits}, {"y": noisy(logits, 0.35)})
    assert says[0].startswith("output 'y', all channels: off by 3") and "limit 30 %" in says[0]


def test_the_components_of_an_embedding_are_judged_together() -> None:
    parts = RANDOM.normal(size=(N, 64)) * np.linspace(0.1, 1, 64)
    loud = parts.copy()
    loud[:, 3] += 0.2 * parts[:, 3].std() * RANDOM.normal(size=N)
    assert broken({"y": parts}, {"y": loud}) == []
    says = broken({"y": parts}, {"y": parts + 0.12 * parts.std(0) * RANDOM.normal(size=parts.shape)})
    assert says[0].startswith("output 'y', all channels: off by 1") and "limit 10 %" in says[0]


def test_probabilities_alone_do_not_fail_a_classifier() -> None:
    assert facts(LOGITS, 1.5 * LOGITS)["divergence"] is None and facts(LOGITS, 1.5 * LOGITS)["choice_loss"] == 0


# --------------------------------------------------------------------------- what must hold of any output


def test_a_constant_output_is_no_agreement() -> None:
    still = np.ones((N, 3))
    found = output_channels.compare({"y": still}, {"y": still}, {})["y"]
    check = next(iter(output_checks.checks("y", found, Limits())))
    assert (check.ok, check.says) == (None, "output 'y' is not judged: in the source it is constant on these items")


def test_a_mostly_constant_output_hides_nothing() -> None:
    mostly = np.full((N, 4), 100.0)
    mostly[:, 3] = RANDOM.normal(size=N)
    wrong = mostly.copy()
    wrong[:, 3] *= -1
    cosine = (mostly * wrong).sum() / np.linalg.norm(mostly) / np.linalg.norm(wrong)
    assert cosine > 0.999 and any("channel 3" in line for line in broken({"y": mostly}, {"y": wrong}))


def test_a_channel_that_is_clipped_is_told() -> None:
    values = RANDOM.normal(size=(N, 2)) * 200
    says = broken({"y": values}, {"y": np.minimum(values, 100.0)})
    assert says and all(
        line.endswith("its values are clipped, as by a calibration range that is too narrow") for line in says
    )


def test_an_outlying_item_does_not_widen_the_spread() -> None:
    values = RANDOM.normal(size=(N, 1))
    values[3] = 1e6
    off = values + 0.5
    off[3] = values[3]
    assert facts(values, off)["channel_error"] == pytest.approx(0.5, rel=0.1)


ARRAYS = npst.arrays(
    np.float32, npst.array_shapes(min_dims=1, max_dims=4, max_side=6), elements=st.floats(-9, 9, width=32)
)


@given(ARRAYS)
def test_the_source_itself_keeps_every_limit(array: np.ndarray) -> None:
    assert broken({"y": array}, {"y": array}) == []


@given(npst.arrays(np.float64, (9, 3), elements=st.floats(-9, 9)), st.sampled_from([1e-3, 0.25, 512.0]))
def test_the_unit_of_a_channel_does_not_matter(array: np.ndarray, unit: float) -> None:
    array = array + np.arange(27).reshape(9, 3) % 7
    off = array + 0.3 * np.cos(np.arange(27)).reshape(9, 3)
    ours, theirs = facts(array, off), facts(array * unit, off * unit)
    assert theirs["channel_error"] == pytest.approx(ours["channel_error"])
    assert theirs["tail_error"] == pytest.approx(ours["tail_error"])


@pytest.mark.parametrize("at_once", [1, 40, 1 << 22])
def test_the_items_at_once_do_not_matter(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes, scores = scene()
    golden, outputs = {"boxes": boxes, "scores": scores}, {"boxes": noisy(boxes, 0.1), "scores": noisy(scores, 0.1)}
    whole = output_channels.compare(golden, outputs, {})
    monkeypatch.setattr(output_statistics, "AT_ONCE", at_once * 60)
    streamed = output_channels.compare(golden, outputs, {})
    for name in golden:
        for key in output_checks.LIMITS:
            assert streamed[name][key] == pytest.approx(whole[name][key])  # type: ignore[literal-required]
        assert streamed[name]["worst"] == [
            {"item": w["item"], "error": pytest.approx(w["error"])} for w in whole[name]["worst"]
        ]


def test_items_that_are_not_finite_are_left_to_the_check_of_those() -> None:
    bad = LOGITS.copy()
    bad[3, 1] = np.nan
    bad[5] = np.inf
    assert broken({"y": LOGITS}, {"y": bad}) == []
    assert broken({"y": LOGITS}, {"y": np.full_like(LOGITS, np.nan)}) == []


@pytest.mark.parametrize(
    ("shape", "layout", "axis"),
    [
        ((9,), "", 0),
        ((9, 10), "", 1),
        ((9, 896, 16), "", 2),
        ((9, 1, 500), "", 1),
        ((9, 500, 1), "", 2),
        ((9, 21, 33, 33), "", 1),
        ((9, 33, 33, 21), "", 3),
        ((9, 512, 7, 7), "", 1),
        ((9, 1, 27, 29), "", 1),
        ((9, 1, 3), "", 2),
        ((9, 1, 1, 3), "", 3),
        ((9, 1, 3, 1), "", 2),
        ((9, 1, 6), "", 2),
        ((9, 1, 100, 6), "", 3),
        ((9, 1, 1, 1), "", 1),
        ((9, 3, 20, 30), "", 1),
        ((9, 20, 30, 3), "", 3),
        ((9, 3, 20, 20, 85), "", 4),
        ((9, 8, 12, 12, 12), "", 1),
        ((9, 5, 6, 7), "NHWC", 3),
    ],
)
def test_the_channels_are_found_by_the_shape(shape: tuple[int, ...], layout: str, axis: int) -> None:
    assert channel_axis(np.zeros(shape), layout) == axis


def test_each_number_is_judged_by_itself_however_many_axes_of_size_1_are_beside_it() -> None:
    golden = RANDOM.normal(size=(N, 3)) * np.array([0.01, 0.01, 10.0])
    ruined = golden * np.array([0.0, 0.0, 1.0])
    for shape in ((3,), (1, 3), (3, 1), (1, 1, 3), (1, 3, 1)):
        says = broken({"y": golden.reshape(N, *shape)}, {"y": ruined.reshape(N, *shape)})
        assert says and "0, 1" in says[0], shape


def test_a_constant_output_keeps_its_value() -> None:
    golden = {"y": np.full((N, 1), 70.0)}
    assert broken(golden, {"y": np.full((N, 1), 70.2)}) == []
    (says,) = broken(golden, {"y": np.full((N, 1), 7.0)})
    assert "constant in the source: off by 90 % of its value" in says
    rounded = np.float32(1) + np.float32(1e-7) * RANDOM.integers(-1, 2, size=(N, 4))
    assert broken({"y": rounded.astype(np.float32)}, {"y": np.ones((N, 4), np.float32)}) == []


def test_the_longer_axis_holds_the_channels_where_its_places_differ_more() -> None:
    words = RANDOM.normal(size=(50, 4, 30)) + np.linspace(-5, 5, 30)
    anchors = RANDOM.normal(size=(50, 6, 40)) + np.linspace(-5, 5, 6)[:, None]
    assert (channel_axis(words), channel_axis(anchors)) == (2, 1)


KINDS: dict[source_probabilities.Kind, np.ndarray] = {
    "probabilities": RANDOM.dirichlet([1, 1, 1], (9, 1)),
    "log-probabilities": np.log(np.array([0.3, 0.7, 1e-99]) * np.ones((9, 1, 1))),
    "shares": RANDOM.random((9, 1, 3)),
    "logits": RANDOM.normal(size=(9, 1, 3)),
    "logit": RANDOM.normal(size=(9, 1, 1)),
    "values": 200 * RANDOM.normal(size=(9, 1, 3)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_numbers_can_be_is_told_by_their_values(kind: source_probabilities.Kind) -> None:
    tally = source_probabilities.Tally()
    tally.add(KINDS[kind])
    assert tally.kind(KINDS[kind].shape[-1]) == kind
    unit = KINDS["logits"] / np.linalg.norm(KINDS["logits"], axis=-1, keepdims=True)
    tally = source_probabilities.Tally()
    tally.add(unit)
    assert tally.kind(3) == "values"


def test_how_far_beyond_its_limits_an_output_is() -> None:
    found = facts(LOGITS, noisy(LOGITS, 0.03))
    assert output_checks.excess(found, Limits()) < 0
    assert output_checks.excess(found, Limits(channel_error=found["channel_error"])) == 0
    assert output_checks.excess({**found, "dead": [1]}, Limits()) == math.inf


# --------------------------------------------------------------------------- an input again

ALIKE = np.random.default_rng(1)


def test_an_output_that_is_an_input_again_scores_no_classes() -> None:
    spectrum = 10 * ALIKE.normal(size=(N, 40))
    restored = 0.6 * spectrum + ALIKE.normal(size=spectrum.shape)
    close = restored + 0.04 * restored.std() * ALIKE.normal(size=restored.shape)
    again = output_statistics.again({"y": restored}, {"x": spectrum})
    assert again == {"y"}
    assert output_channels.compare({"y": restored}, {"y": close}, {})["y"]["choice_loss"]
    assert output_channels.compare({"y": restored}, {"y": close}, {}, again=again)["y"]["choice_loss"] is None


@pytest.mark.parametrize("scores", [LOGITS, 0.1 * ALIKE.normal(size=(N, 5)), ALIKE.normal(size=(N, 6))])
def test_scores_are_no_input_again(scores: np.ndarray) -> None:
    assert not output_statistics.again({"y": scores}, {"x": 5 * ALIKE.normal(size=(N, 5))})


def test_a_distribution_stays_one_though_it_is_an_input_again() -> None:
    shares = np.abs(LOGITS) / np.abs(LOGITS).sum(-1, keepdims=True)
    assert output_statistics.outline(shares, again=True).kind == "probabilities"
