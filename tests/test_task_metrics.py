"""Metrics of tasks against the libraries of the field, by hand, and against leaving items out."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.core.settings import Limits
from edgecompress.data import metric_limits, metrics, task_metrics
from edgecompress.data.metrics import compare, scores, summary

RANDOM = np.random.default_rng(0)


def value(name: str, outputs: Any, labels: Any) -> float:
    metric = metrics.find(name)
    assert metric is not None
    named = outputs if isinstance(outputs, dict) else {"y": np.asarray(outputs)}
    found = summary(metric, scores(metric, named, np.asarray(labels)))
    assert found is not None
    return found


def without(name: str, outputs: Any, labels: Any) -> list[float]:
    """The value without each item, by computing it again."""
    rest = [np.delete(np.arange(len(labels)), i) for i in range(len(labels))]
    return [value(name, {k: v[r] for k, v in outputs.items()}, labels[r]) for r in rest]


def influence(name: str, outputs: Any, labels: Any) -> np.ndarray:
    """What the scores must be by their definition."""
    each = np.array(without(name, outputs, labels))
    return value(name, outputs, labels) + (len(labels) - 1) * (each.mean() - each)


def scored(name: str, outputs: Any, labels: Any) -> np.ndarray:
    metric = metrics.find(name)
    assert metric is not None
    return scores(metric, outputs, labels)


def test_top_k_takes_any_k() -> None:
    logits = np.arange(8, dtype=np.float32)[None].repeat(8, axis=0)
    assert [value(f"top{k}", logits, np.arange(8)) for k in (1, 3, 8)] == [1 / 8, 3 / 8, 1]
    with pytest.raises(InputError, match="no metric 'top0'"):
        metrics.find("top0")


def test_mae_and_psnr_are_their_formulas() -> None:
    y = np.array([[0.0, 4.0], [8.0, 8.0]])
    assert value("mae", y + np.array([[1, 1], [0, 4]]), y) == 1.5
    assert value("psnr", y + 2, y) == pytest.approx(20 * np.log10(8 / 2))
    assert value("psnr", y, y) == pytest.approx(100)
    assert value("psnr", np.full((1, 4), 10, np.uint8), np.full((1, 4), 20, np.uint8)) == pytest.approx(
        20 * np.log10(25.5)
    )


def test_auc_is_scikit_learns() -> None:
    from sklearn.metrics import roc_auc_score

    truth, marks = RANDOM.integers(0, 2, 60), RANDOM.integers(0, 9, 60) / 8  # with ties
    assert value("auc", marks, truth) == pytest.approx(roc_auc_score(truth, marks))
    assert value("auc", np.stack([1 - marks, marks], 1), truth) == pytest.approx(roc_auc_score(truth, marks))
    classes, odds = RANDOM.integers(0, 3, 60), RANDOM.dirichlet([1, 1, 1], 60)
    assert value("auc", odds, classes) == pytest.approx(roc_auc_score(classes, odds, multi_class="ovr"))
    with pytest.raises(InputError, match="items of two classes"):
        value("auc", marks, np.ones(60, int))


def test_overlap_counts_pixels_of_all_items_and_leaves_out_what_is_ignored() -> None:
    labels = np.array([[[0, 0, 1, 255]], [[1, 1, 2, -1]]])
    chosen = np.array([[[0, 1, 1, 0]], [[1, 0, 2, 2]]])
    each = [1 / 3, 2 / 4, 1]
    assert value("miou", chosen, labels) == pytest.approx(np.mean(each))
    assert value("iou", chosen, labels) == pytest.approx(np.mean(each[1:]))
    logits = np.eye(3)[chosen].transpose(0, 3, 1, 2) * 5
    assert value("miou", logits, labels) == pytest.approx(np.mean(each))
    mask = np.array([[[[0.9, 0.2]]], [[[0.6, 0.1]]]])
    assert value("iou", mask, np.array([[[1, 0]], [[0, 0]]])) == 0.5


@pytest.mark.parametrize("name", ["miou", "iou"])
def test_a_score_is_what_leaving_the_item_out_changes(name: str) -> None:
    labels = RANDOM.integers(0, 3, (7, 1, 30))
    outputs = {"y": np.where(RANDOM.random(labels.shape) < 0.7, labels, 0)}
    assert scored(name, outputs, labels) == pytest.approx(influence(name, outputs, labels))


def transcripts() -> tuple[dict[str, np.ndarray], np.ndarray]:
    labels = RANDOM.integers(1, 5, (9, 6))
    labels[2, 3:] = labels[5, 1:] = -1
    return {"y": np.where(RANDOM.random(labels.shape) < 0.8, labels, 4)}, labels


@pytest.mark.slow
def test_wer_is_jiwers_over_all_items() -> None:
    import jiwer

    outputs, labels = transcripts()
    texts = [[" ".join(str(w) for w in row if w != -1) for row in side] for side in (labels, outputs["y"])]
    assert value("wer", outputs, labels) == pytest.approx(jiwer.wer(*texts))
    assert scored("wer", outputs, labels) == pytest.approx(influence("wer", outputs, labels))


@pytest.mark.slow
def test_wer_of_ctc_merges_repeats_and_leaves_blanks_out() -> None:
    path = np.array([[0, 3, 3, 0, 3, 2, 2, 0]])
    assert value("wer", np.eye(5)[path], np.array([[3, 3, 2]])) == 0
    assert value("wer", np.eye(5)[path], np.array([[3, 2, -1]])) == 0.5


@pytest.mark.slow
def test_ssim_is_scikit_images() -> None:
    from skimage.metrics import structural_similarity

    labels = RANDOM.random((3, 3, 16, 16))
    output = labels + 0.1 * RANDOM.normal(size=labels.shape)
    span = labels.max() - labels.min()
    each = [structural_similarity(o, y, data_range=span, channel_axis=0) for o, y in zip(output, labels, strict=True)]
    assert value("ssim", output, labels) == pytest.approx(np.mean(each))
    assert value("ssim", labels, labels) == 1


def scenes(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Detections [n, 4, 6] near the truth [n, 3, 5], some of which pads."""
    labels = np.full((n, 3, 5), -1.0)
    found = np.zeros((n, 4, 6))
    for i in range(n):
        for k in range(RANDOM.integers(0, 4)):
            corner, size = RANDOM.uniform(0, 50, 2), RANDOM.uniform(8, 30, 2)
            labels[i, k] = RANDOM.integers(0, 2), *corner, *(corner + size)
            found[i, k] = *(labels[i, k, 1:] + RANDOM.normal(0, 1.5, 4)), RANDOM.uniform(0.2, 1), labels[i, k, 0]
        found[i, 3] = 0, 0, 20, 20, RANDOM.uniform(0, 0.9), RANDOM.integers(0, 2)
    return found, labels


@pytest.mark.slow
def test_map_is_cocos(capsys: pytest.CaptureFixture[str]) -> None:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    found, labels = scenes(20)
    truth = COCO()
    boxes = [(i, b) for i, item in enumerate(labels) for b in item if b[0] >= 0]
    truth.dataset = {
        "images": [{"id": i} for i in range(20)],
        "categories": [{"id": 0}, {"id": 1}],
        "annotations": [
            {"id": k + 1, "image_id": i, "category_id": int(c), "iscrowd": 0, "bbox": [x, y, u - x, v - y], "area": 400}
            for k, (i, (c, x, y, u, v)) in enumerate(boxes)
        ],
    }
    truth.createIndex()
    rows = [[i, x, y, u - x, v - y, s, c] for i, item in enumerate(found) for x, y, u, v, s, c in item if s > 0]
    judge = COCOeval(truth, truth.loadRes(np.array(rows)), "bbox")
    judge.evaluate()
    judge.accumulate()
    judge.summarize()
    assert value("map", found, labels) == pytest.approx(judge.stats[0])
    assert scored("map", {"y": found}, labels) == pytest.approx(influence("map", {"y": found}, labels))
    apart = {"boxes": found[..., :4], "scores": found[..., 4], "classes": found[..., 5]}
    assert value("map", apart, labels) == value("map", found, labels)
    near = {**apart, "classes": apart["classes"] - 0.02}  # as an int8 artifact computes them
    assert value("map", near, labels) == value("map", found, labels)


@pytest.mark.slow
def test_map_of_nothing_found_is_zero() -> None:
    found, labels = scenes(5)
    assert value("map", np.zeros_like(found), labels) == 0


@pytest.mark.parametrize(
    ("name", "module", "outputs", "labels"),
    [
        ("ssim", "skimage.metrics", np.ones((2, 8, 8)), np.ones((2, 8, 8))),
        ("wer", "jiwer", np.ones((2, 3), int), np.ones((2, 3), int)),
        ("map", "pycocotools.coco", np.ones((2, 3, 6)), np.ones((2, 3, 5))),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_extra(
    name: str, module: str, outputs: Any, labels: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependency, match=rf"metric {name}: it needs .*; run: pip install .*\[metrics\]"):
        value(name, outputs, labels)


BAD: list[tuple[str, Callable[[], Any], Any, str]] = [
    ("mae", lambda: np.ones((2, 3)), np.ones(2), "labels of the output's shape"),
    ("miou", lambda: np.ones((2, 3, 4, 4)), np.ones((2, 4, 5), int), "give one per pixel"),
    ("miou", lambda: np.ones((2, 3, 4, 4)), np.full((2, 4, 4), 255), "no label has a class"),
    ("map", lambda: np.ones((2, 3, 4)), np.ones((2, 3, 5)), r"boxes \[n, k, 4\] and scores"),
    ("map", lambda: np.ones((2, 3, 6)), np.ones((2, 3)), "class, x1, y1, x2, y2"),
    ("auc", lambda: np.ones((4, 3)), np.ones((4, 2), int), "give one per item"),
]


@pytest.mark.parametrize(("name", "output", "labels", "says"), BAD)
def test_labels_that_do_not_fit_are_told(name: str, output: Callable[[], Any], labels: Any, says: str) -> None:
    with pytest.raises(InputError, match=f"metric {name}: .*{says}"):
        value(name, output(), labels)


def relative(comparison: metrics.MetricComparison) -> float:
    loss = metric_limits.relative(comparison)
    assert loss is not None
    return loss.value


def test_a_better_auc_is_a_gain_and_a_lower_error_too() -> None:
    truth = RANDOM.integers(0, 2, 200)
    noisy, clear = (truth + s * RANDOM.normal(size=200) for s in (1.5, 0.5))
    auc, mae = metrics.find("auc"), metrics.find("mae")
    assert auc and mae
    gain = compare(auc, scores(auc, {"y": noisy}, truth), scores(auc, {"y": clear}, truth))
    assert gain["low"] and gain["low"] > 0 and -1 < relative(gain) < 0
    error = compare(mae, scores(mae, {"y": noisy}, truth), scores(mae, {"y": clear}, truth))
    assert error["ratio"] and error["ratio"] < 1 and relative(error) == error["ratio"] - 1


def test_what_is_lost_of_decibels_is_the_growth_of_the_squared_error() -> None:
    psnr, truth = metrics.find("psnr"), np.zeros((60, 8, 8))
    truth[:, 0] = 1.0
    wrong = 0.01 * RANDOM.normal(size=truth.shape)  # 40 dB
    assert psnr and psnr.unit == "dB"
    before = scores(psnr, {"y": truth + wrong}, truth)
    for growth, kept in ((1.008, True), (1.02, False), (1.1, False)):  # the last: 0.41 dB, 1 % of 40 dB
        lost = compare(psnr, before, scores(psnr, {"y": truth + wrong * np.sqrt(growth)}, truth))
        assert relative(lost) == pytest.approx(growth - 1, rel=1e-6)
        (check,) = metric_limits.checks(lost, Limits())
        assert check.ok is kept and "growth of the squared error" in check.says
    assert check.low == pytest.approx(0.1, rel=1e-3) == check.high


def test_the_outputs_that_a_metric_reads_are_known() -> None:
    outputs, labels = {"a": np.ones((3, 2)), "b": np.ones((3, 2))}, np.zeros(3, int)
    top1, second = metrics.find("top1"), metrics.find("top1", "b")
    assert top1 and second
    assert (metrics.reads(top1, outputs, labels), metrics.reads(second, outputs, labels)) == ({"a"}, {"b"})
    every = metrics.Metric("own", "mean", lambda o, y: sum(v[:, 0] for v in o.values()))
    assert metrics.reads(every, outputs, labels) == {"a", "b"}


def test_points_are_judged_by_their_distance() -> None:
    """OKS is exp(-d^2 / (2 area (2 spread)^2)): here 0.72, so five of ten thresholds are reached."""
    side = 20.0
    away = math.sqrt(-2 * side**2 * (2 * 0.05) ** 2 * math.log(0.72))
    points = np.array([[5.0, 5.0], [15.0, 5.0], [10.0, 15.0]])
    visible = np.concatenate([points, np.full((3, 1), 2.0)], -1).reshape(-1)
    labels = np.full((2, 2, 14), -1.0)
    labels[:, 0] = [0, 0, 0, side, side, *visible]
    found = {"boxes": np.tile([0.0, 0, 1, 1], (2, 1, 1)), "scores": np.ones((2, 1)), "classes": np.zeros((2, 1))}
    exact = task_metrics.point_precision({**found, "points": np.tile(points.reshape(-1), (2, 1, 1))}, labels)
    assert exact.mean() == pytest.approx(1.0)
    moved = task_metrics.point_precision(
        {**found, "points": np.tile((points + np.array([away, 0])).reshape(-1), (2, 1, 1))}, labels
    )
    assert moved.mean() == pytest.approx(0.5)
    with pytest.raises(InputError, match="declare points and keypoints"):
        task_metrics.point_precision(found, labels)
    with pytest.raises(InputError, match=r"labels \[items, most, 11\]"):
        task_metrics.point_precision({**found, "points": np.zeros((2, 1, 4))}, labels)


def test_the_precision_of_small_and_large_things_is_told_apart() -> None:
    boxes = np.array([[0.0, 0, 10, 10], [0, 20, 60, 80]])
    labels = np.concatenate([np.zeros((2, 1)), boxes], 1)[None]
    found = {"boxes": boxes[None, 1:], "scores": np.ones((1, 1)), "classes": np.zeros((1, 1))}
    told = {"IoU 0.5": pytest.approx(51 / 101), "IoU 0.75": pytest.approx(51 / 101)}
    told |= {"small": 0.0, "medium": pytest.approx(1.0), "large": None}
    assert task_metrics.coco(found, labels) == told
