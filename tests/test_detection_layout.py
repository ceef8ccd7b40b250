"""Detectors without a metric: however boxes and scores are written, what is found is judged, and told in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from edgecompress.core.errors import InputError
from edgecompress.core.settings import Detect, Limits
from edgecompress.data import detection_layout, detections, found_boxes, metrics, output_channels, output_checks
from edgecompress.stages import box_doubts

N, GRID, CLASSES = 80, 8, 3
PLACES = GRID * GRID
RANDOM = np.random.default_rng(3)


def truth() -> tuple[np.ndarray, np.ndarray]:
    """Corners [n, places, 4] in 640 pixels, probabilities [n, places, classes]; two places of an item hold a thing."""
    y, x = np.mgrid[:GRID, :GRID].reshape(2, -1) * 80.0 + 40
    middle = np.stack([x, y], -1) + RANDOM.uniform(-8, 8, (N, PLACES, 2))
    half = RANDOM.uniform(12, 34, (N, PLACES, 2))
    p = RANDOM.uniform(0, 0.03, (N, PLACES, CLASSES))
    for item in range(N):
        for place in RANDOM.choice(PLACES, 2, replace=False):
            p[item, place, RANDOM.integers(CLASSES)] = RANDOM.uniform(0.7, 0.95)
    return np.concatenate([middle - half, middle + half], -1), p


BOXES, P = truth()
SIZES = BOXES[..., 2:] - BOXES[..., :2]


def written(boxes: np.ndarray, form: str) -> np.ndarray:
    low, size = boxes[..., :2], boxes[..., 2:] - boxes[..., :2]
    forms = {"xyxy": boxes, "yxyx": boxes[..., [1, 0, 3, 2]], "xywh": np.concatenate([low, size], -1)}
    return forms.get(form, np.concatenate([low + size / 2, size], -1))


def logit(p: np.ndarray) -> np.ndarray:
    return np.log(p / (1 - p))


def with_background(p: np.ndarray) -> np.ndarray:
    every = np.concatenate([1 - p.max(-1, keepdims=True), p], -1)
    return every / every.sum(-1, keepdims=True)


def ranked(boxes: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The four best of each item, as after non-maximum suppression; what scores below one half is padding."""
    best = np.argsort(-p.max(-1), axis=1, kind="stable")[:, :4]
    scores = np.take_along_axis(p.max(-1), best, 1)
    there = scores >= 0.5
    kinds = np.take_along_axis(p.argmax(-1), best, 1)
    return np.take_along_axis(boxes, best[..., None], 1) * there[..., None], scores * there, kinds * there


def listed(boxes: np.ndarray, p: np.ndarray) -> dict[str, np.ndarray]:
    corners, scores, kinds = ranked(boxes, p)
    return {"dets": np.concatenate([corners, scores[..., None], kinds[..., None]], -1)}


def three_lists(boxes: np.ndarray, p: np.ndarray) -> dict[str, np.ndarray]:
    corners, scores, kinds = ranked(boxes, p)
    return {"boxes": corners[..., [1, 0, 3, 2]] / 640, "classes": kinds.astype(np.float32), "scores": scores}


def anything(p: np.ndarray) -> np.ndarray:
    """A probability that there is anything, then those of the classes, which say little where there is nothing."""
    there = p.max(-1, keepdims=True)
    return np.concatenate([there, np.where(there > 0.5, p / there, 0.4)], -1)


LAYOUTS: dict[str, Any] = {
    "corners beside probabilities": lambda b, p: {"boxes": b / 640, "scores": p},
    "corners beside one probability": lambda b, p: {"boxes": b, "scores": p.max(-1)},
    "corners beside a background": lambda b, p: {"scores": with_background(p), "boxes": b / 640},
    "corners beside logits of a background": lambda b, p: {"a": np.log(with_background(p)) + 4, "b": b},
    "middles beside logits": lambda b, p: {"logits": logit(p), "boxes": written(b, "cxcywh")},
    "sizes beside one logit": lambda b, p: {"boxes": written(b, "xywh"), "scores": logit(p.max(-1))[..., None]},
    "numbers first": lambda b, p: {"boxes": b.transpose(0, 2, 1), "scores": p.transpose(0, 2, 1)},
    "joined, numbers first": lambda b, p: {"y": np.concatenate([written(b, "cxcywh"), p], -1).transpose(0, 2, 1)},
    "joined, with a mask's numbers": lambda b, p: {"y": np.concatenate([b, p, 9 - b], -1)},
    "joined, with a probability of anything": lambda b, p: {
        "y": np.concatenate([written(b, "cxcywh"), anything(p)], -1)
    },
    "a list": listed,
    "three lists": three_lists,
}


def losses(golden: dict[str, np.ndarray], outputs: dict[str, np.ndarray], detect: Detect | None = None) -> list[Any]:
    """What is found of the boxes' output."""
    facts = output_channels.compare(golden, outputs, {}, detect=detect).values()
    return [each for each in facts if each["found"] is not None]


@pytest.mark.parametrize("name", LAYOUTS)
def test_what_is_found_does_not_depend_on_the_layout(name: str) -> None:
    write = LAYOUTS[name]
    golden, layout = write(BOXES, P), detection_layout.find(detections.with_places(write(BOXES, P)), None)
    assert layout and layout.certain
    assert all("are neither read as boxes" in line for line in box_doubts.of_boxes(golden, None))
    assert layout.unit == ("pixels" if max(array.max() for array in golden.values()) > 100 else "shares")
    shift = 0.08 * SIZES[..., :1]  # of each box's own width: an overlap of 0.92 / 1.08
    (moved,) = losses(golden, write(BOXES + shift * [1, 0, 1, 0], P))
    assert moved["found"] == {"things": 2 * N, "missed": 0, "besides": 0, "overlap": pytest.approx(0.92 / 1.08)}
    assert moved["found_loss"] == pytest.approx(0.2)  # right at 0.5 to 0.85, wrong at 0.9 and 0.95
    (same,) = losses(golden, golden)
    assert same["found_loss"] == 0


@pytest.mark.parametrize("form", ["xyxy", "yxyx", "xywh", "cxcywh"])
def test_declared_boxes_are_read_as_declared(form: Any) -> None:
    crowd = np.where(P.max(-1, keepdims=True) > 0.5, P, RANDOM.uniform(0.2, 0.3, P.shape))  # not rare: nobody knows
    golden = {"loc": written(BOXES, form), "conf": crowd}
    outputs = {"loc": written(BOXES + 0.08 * SIZES[..., :1] * [1, 0, 1, 0], form), "conf": crowd}
    declared = Detect("loc", "conf", form)
    (said,) = box_doubts.of_boxes(golden, None)
    assert 'declare detect = { boxes = "loc", scores = "conf", format = "' in said
    assert box_doubts.of_boxes(golden, declared) == []
    (suspected,), (known,) = losses(golden, outputs), losses(golden, outputs, declared)
    assert suspected["found_loss"] == known["found_loss"] == pytest.approx(0.2)
    assert suspected["counted"] is None and known["counted"] == ["found_error", "found_loss"]


def test_offsets_from_anchors_are_suspected_and_judged_in_their_own_units() -> None:
    golden = {"loc": RANDOM.normal(size=BOXES.shape), "conf": P}
    assert detection_layout.find(golden, None) is None
    (said,) = box_doubts.of_boxes(golden, None)
    assert said.startswith("'loc' and 'conf' may be a detector's") and said.endswith("else give a metric")
    off = output_channels.compare(golden, {**golden, "loc": golden["loc"] + 0.1}, {})["loc"]
    assert off["found_error"] == pytest.approx(0.1, rel=0.2) and off["counted"] is None


@pytest.mark.parametrize(
    "outputs",
    [
        {"y": RANDOM.dirichlet([0.05] * 30, (N, 20))},  # of words at steps
        {"y": RANDOM.dirichlet([9.0] + [0.02] * 9, (N, 40))},  # with a blank
        {"y": RANDOM.uniform(0, 1, (N, 20, 12)) ** 30},  # tags, each for itself
        {"y": RANDOM.normal(size=(N, 16, 64))},
        {"q": RANDOM.normal(size=(N, 20, 4)), "y": RANDOM.normal(size=(N, 20, 9))},
    ],
)
def test_other_outputs_are_no_detectors(outputs: dict[str, np.ndarray]) -> None:
    assert detection_layout.find(outputs, None) is None and box_doubts.of_boxes(outputs, None) == []


BAD = [
    (Detect("box", "scores", "xyxy"), "detect.boxes: the source has no output 'box', did you mean 'boxes'?"),
    (Detect("scores", "boxes", "xyxy"), r"not 'scores' \[80, 64, 3\] and 'boxes' \[80, 64, 4\]"),
    (Detect("boxes", "classes", "xyxy"), "detect.scores: 'classes' holds neither probabilities nor their logits"),
]


@pytest.mark.parametrize(("detect", "says"), BAD)
def test_a_declaration_that_does_not_fit_is_told(detect: Detect, says: str) -> None:
    outputs = {"boxes": BOXES, "scores": P, "classes": P.argmax(-1)}
    with pytest.raises(InputError, match=says):
        box_doubts.of_boxes(outputs, detect)


# --------------------------------------------------------------------------- what is said


def said(golden: dict[str, Any], outputs: dict[str, Any]) -> list[str]:
    facts = output_channels.compare(golden, outputs, {})
    return [c.says for name, f in facts.items() for c in output_checks.checks(name, f, Limits()) if c.ok is False]


def test_small_boxes_that_move_by_little_of_the_picture_are_refused() -> None:
    middle = (BOXES[..., :2] + BOXES[..., 2:]) / 2
    small = np.concatenate([middle - 10, middle + 10], -1) / 640  # faces of a thirtieth of the picture
    golden, outputs = {"boxes": small, "scores": P}, {"boxes": small + 2 / 640, "scores": P}
    facts = output_channels.compare(golden, outputs, {})["boxes"]
    assert facts["channel_error"] and facts["channel_error"] < 0.02 and facts["found_error"] < 0.02  # of their spread
    says = (
        "output 'boxes': of 160 things that the source finds it misses 0, overlaps the others by 68.1 %, and finds 0 "
        "besides: it loses 60 % of the average precision (IoU 0.5 to 0.95), limit 7 %"
    )
    assert said(golden, outputs) == [says]


def test_what_is_missed_and_found_besides_is_counted() -> None:
    golden, other = {"boxes": BOXES, "scores": P}, P.copy()
    other[:8] = P[8:16]
    (found,) = losses(golden, {"boxes": BOXES, "scores": other})
    assert (found["found"]["missed"], found["found"]["besides"]) == (16, 16)
    swapped = P[..., [1, 0, 2]]
    (classes,) = losses(golden, {"boxes": BOXES, "scores": swapped})
    assert classes["found"]["missed"] == classes["found"]["besides"] == int((P[..., :2] > 0.5).sum())


def test_places_where_nothing_is_and_classes_that_nothing_is_do_not_count() -> None:
    golden = {"boxes": BOXES, "scores": np.concatenate([P, P[..., :1] * 1e-4 * (P[..., :1] < 0.5)], -1)}
    there = P.max(-1, keepdims=True) > 0.5
    outputs = {"boxes": np.where(there, BOXES, 0), "scores": np.concatenate([P, 0 * P[..., :1]], -1)}
    assert said(golden, outputs) == []


def test_a_source_that_finds_nothing_is_judged_by_its_numbers() -> None:
    golden = {"boxes": BOXES, "scores": 0.4 * P}
    facts = output_channels.compare(golden, golden, {})["boxes"]
    checks = {c.name: c for c in output_checks.checks("boxes", facts, Limits())}
    assert checks["found_loss"].ok is None and "the source finds nothing on these items" in checks["found_loss"].says
    assert checks["channel_error"].ok is True


# --------------------------------------------------------------------------- boxes


def detections_of(corners: np.ndarray, scores: np.ndarray, classes: np.ndarray) -> found_boxes.Detections:
    return found_boxes.Detections(corners, scores, classes, np.zeros((len(scores), 0, 2)))


def test_boxes_of_one_thing_are_one() -> None:
    boxes = np.array([[0, 0, 10, 10], [1, 0, 11, 10], [5, 0, 15, 10], [0, 0, 10, 9]], float)
    assert found_boxes.overlaps(boxes[:1], boxes)[0] == pytest.approx([1, 9 / 11, 1 / 3, 0.9])
    found = detections_of(boxes, np.array([0.8, 0.9, 0.7, 0.6]), np.array([0, 0, 0, 1])).ranked(near=0.5)
    assert (found.scores.tolist(), found.classes.tolist()) == ([0.9, 0.7, 0.6], [0, 0, 1])


def test_the_average_precision_is_that_of_the_formula() -> None:
    ours = detections_of(np.array([[0, 0, 10, 10], [50, 0, 60, 10]], float), np.ones(2), np.zeros(2, int))
    near = np.array([[0, 0, 10, 10], [50, 0, 60, 7.2]])
    theirs = detections_of(near, np.array([0.9, 0.8]), np.zeros(2, int))
    agreement = found_boxes.Agreement()
    agreement.add(ours, theirs, 0.5)
    assert agreement.precision() == pytest.approx((5 * 1 + 5 * 51 / 101) / 10)  # one half is recalled beyond 0.7
    assert agreement.facts() == {"things": 2, "missed": 0, "besides": 0, "overlap": pytest.approx(0.86)}


@pytest.mark.parametrize("seed", range(3))
def test_the_average_precision_is_that_of_pycocotools(seed: int) -> None:
    task_metrics = pytest.importorskip("edgecompress.data.task_metrics")
    pytest.importorskip("pycocotools")
    random, labels, rows = np.random.default_rng(seed), np.full((30, 6, 5), -1.0), np.zeros((30, 9, 6))
    agreement = found_boxes.Agreement()
    for item in range(30):
        low, size = random.uniform(0, 80, (6, 2)), random.uniform(8, 30, (6, 2))
        boxes, kinds = np.concatenate([low, low + size], -1), random.integers(0, 2, 6)
        count = int(random.integers(1, 7))
        labels[item, :count] = np.concatenate([kinds[:count, None], boxes[:count]], -1)
        at = random.integers(0, 6, 9)
        corners, scores = boxes[at] + random.normal(0, 2, (9, 4)), random.uniform(0.1, 1, 9)
        rows[item] = np.concatenate([corners, scores[:, None], kinds[at][:, None]], -1)
        ours = detections_of(boxes[:count], np.ones(count), kinds[:count])
        agreement.add(ours, detections_of(corners, scores, kinds[at]).ranked(near=None), 0.5)
    coco = float(task_metrics.mean_precision({"y": rows}, labels).mean())
    assert agreement.precision() == pytest.approx(coco) and not math.isclose(coco, 0)


@pytest.mark.parametrize("form", ["cxcywh", "xywh"])
def test_corners_that_are_none_are_refused_with_the_format_that_makes_boxes(form: str) -> None:
    detect = Detect("boxes", "scores", "xyxy")
    assert box_doubts.of_boxes({"boxes": written(BOXES, "xyxy"), "scores": P}, detect) == []
    with pytest.raises(InputError, match=r'detect.format "xyxy" makes no boxes of .*h" does: check it'):
        box_doubts.of_boxes({"boxes": written(BOXES, form), "scores": P}, detect)


def test_offsets_that_are_declared_as_boxes_are_refused() -> None:
    offsets = {"boxes": RANDOM.normal(0, 1, BOXES.shape), "scores": P}
    with pytest.raises(InputError, match="declare decode in place of detect"):
        box_doubts.of_boxes(offsets, Detect("boxes", "scores", "cxcywh"))
    with pytest.raises(InputError, match=r"% end before they begin: check head \(fcos\), boxes, strides"):
        box_doubts.of_boxes(offsets, Detect("boxes", "scores", "cxcywh"), box_doubts.Asked(head="fcos"))


def test_boxes_over_the_edges_are_no_doubt() -> None:
    assert box_doubts.of_boxes({"boxes": BOXES - 200, "scores": P}, Detect("boxes", "scores", "xyxy")) == []


@pytest.mark.parametrize(("unit", "scale"), [("shares", 1.0), ("pixels", 1 / 640)])
def test_a_unit_that_does_not_fit_is_told(unit: Any, scale: float) -> None:
    detect = Detect("boxes", "scores", "xyxy", unit=unit)
    (said,) = box_doubts.of_boxes({"boxes": BOXES * scale, "scores": P}, detect)
    assert said.startswith(f'detect.unit "{unit}" does not fit')


def test_numbers_between_scores_and_points_are_refused() -> None:
    joined = {"y": np.concatenate([written(BOXES, "cxcywh"), P[..., :1], BOXES, BOXES], -1)}
    with pytest.raises(InputError, match="has 2 numbers between its scores and 3 key points"):
        detection_layout.find(joined, Detect("y", "y", "cxcywh", points="y", keypoints=3))


@pytest.mark.parametrize(
    ("scores", "says"),
    [
        (1 / (1 + np.exp(-P)), "as probabilities that were made probable a second time do"),
        (0.5 + P / 2, "something is found at 100.0 % of all places of 'scores'"),
    ],
    ids=["twice", "everywhere"],
)
def test_scores_that_cannot_be_meant_are_told(scores: np.ndarray, says: str) -> None:
    (said,) = box_doubts.of_boxes({"boxes": BOXES, "scores": scores}, Detect("boxes", "scores", "xyxy"))
    assert says in said


def test_another_number_of_classes_than_are_named_is_told() -> None:
    detect = Detect("boxes", "scores", "xyxy")
    assert box_doubts.of_boxes({"boxes": BOXES, "scores": P}, detect, box_doubts.Asked(CLASSES)) == []
    (said,) = box_doubts.of_boxes({"boxes": BOXES, "scores": P}, detect, box_doubts.Asked(7))
    assert said == "7 labels are named, but 'scores' scores 3 classes: check labels"
    (said,) = box_doubts.of_boxes({"boxes": BOXES, "scores": P}, detect, box_doubts.Asked(7, "dfl"))
    assert "check boxes, bins in decode, and labels" in said


def test_numbers_that_nobody_reads_are_told() -> None:
    joined = np.concatenate([written(BOXES, "cxcywh"), P[..., :1], BOXES, BOXES], -1)
    (said,) = box_doubts.of_boxes({"y": joined}, None)
    assert said.startswith("the last 8 of 13 numbers of 'y' are neither read as boxes nor as scores: if they are key")
    told = Detect("y", "y", "cxcywh", points="y", keypoints=4)
    assert box_doubts.of_boxes({"y": joined}, told) == []


@pytest.mark.parametrize(
    ("read", "says"),
    [
        (lambda boxes: boxes, ""),
        (lambda boxes: boxes[..., [1, 0, 3, 2]], 'format = "yxyx" in detect'),
        (lambda boxes: boxes / 640, "divide the labels by its sides"),
        (lambda boxes: boxes * 640, "multiply the labels with its sides"),
        (lambda boxes: boxes + 500, "check that these are in pixels of the input"),
    ],
    ids=["right", "y first", "boxes in shares", "labels in shares", "elsewhere"],
)
def test_boxes_that_hardly_meet_the_labels_are_told_with_what_does(read: Any, says: str) -> None:
    pytest.importorskip("pycocotools")
    metric = metrics.find("map")
    assert metric
    low = RANDOM.uniform(0, 500, (40, 1, 2)) * [1, 0.3]
    boxes = np.concatenate([low, low + np.array([60, 30])], -1)
    labels = np.concatenate([np.zeros((40, 1, 1)), boxes], -1)
    found = {"boxes": read(boxes), "scores": np.ones((40, 1)), "classes": np.zeros((40, 1))}
    told = box_doubts.of_things(metric, found, labels, (640, 640))
    assert len(told) == bool(says) and all(says in line for line in told)
