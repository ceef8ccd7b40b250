"""Metrics of tasks: detection, segmentation, pictures, ranking, transcripts; all items at once, a score for each.

What is no mean over items (average precision, overlap, area under a curve, error rates) is scored by how much each item
moves it: value + (n - 1) (mean of the values without one item - the value without this item), the jackknife's
pseudo-values (R. G. Miller: The jackknife - a review, Biometrika 61 (1974), 1-15), moved so that their mean is the
value itself. Their paired differences then give its interval as for any mean. Scores are float64 [n].
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from edgecompress.core import package_files
from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.data import channel_axis, found_boxes

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"

BLANK = 0  # of CTC: torch's own
IGNORED = 255  # a label of segmentation that no class has, as in PASCAL VOC; so are negative ones
NOTHING = -1  # the class of a label of detection that pads; a token that pads
DECIBELS = "dB"
SPREAD = 0.05  # of a key point about its place, in sides of its thing; COCO's are 0.025 (eyes) to 0.107 (hips)
SIZES = ("small", "medium", "large")  # of things, as COCO has them
IDENTICAL_DB = 100.0  # the PSNR of pictures that are the same


@dataclass(frozen=True)
class TaskMetric:
    """`score` takes the output that it is of, or with `every` all of them by name, and labels; better: more or less."""

    better: Literal["higher", "lower"]
    score: Callable[[Any, np.ndarray], np.ndarray]
    every: bool = False
    unit: str = ""


def _influence(value: float, without: np.ndarray) -> np.ndarray:
    """Scores whose mean is the value, from the values without each item."""
    scores: np.ndarray = value + (len(without) - 1) * (without.mean() - without)
    return scores


def _needed(package: str) -> MissingDependency:
    return MissingDependency(f"it needs {package}, not installed; run: {package_files.install('metrics')}")


def _same_shape(output: np.ndarray, labels: np.ndarray) -> None:
    if output.shape != labels.shape:
        raise InputError(
            f"it needs labels of the output's shape {list(output.shape)}, but they have shape {list(labels.shape)}"
        )


# --------------------------------------------------------------------------- numbers and pictures


def mean_absolute(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean absolute difference of each item; output and labels of one shape."""
    import numpy as np

    _same_shape(output, labels)
    return np.array([np.abs(o.astype(np.float64) - y).mean() for o, y in zip(output, labels, strict=True)])


def _span(labels: np.ndarray) -> float:
    """The range of a picture's values: 255 of bytes, else from the least to the largest of the labels."""
    return 255.0 if labels.dtype == "uint8" else float(labels.max()) - float(labels.min())


def psnr(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """10 log10(range^2 / mean squared difference) of each picture, in dB; labels are the pictures that it should be."""
    import numpy as np

    _same_shape(output, labels)
    squares = np.array([np.square(o.astype(np.float64) - y).mean() for o, y in zip(output, labels, strict=True)])
    least = _span(labels) ** 2 * 10 ** (-IDENTICAL_DB / 10)
    return np.asarray(10 * np.log10(_span(labels) ** 2 / np.maximum(squares, least or 1.0)))


def ssim(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The structural similarity of each picture by scikit-image, with its defaults (Wang et al., 2004)."""
    import numpy as np

    try:
        from skimage.metrics import structural_similarity
    except ImportError as error:
        raise _needed("scikit-image") from error
    _same_shape(output, labels)
    axis, span = channel_axis.channel_axis(labels) - 1, _span(labels)
    channel = axis if output.ndim > 3 else None
    settings = {"data_range": span, "channel_axis": channel}
    pairs = ((o.astype(float), y.astype(float)) for o, y in zip(output, labels, strict=True))
    return np.fromiter((structural_similarity(o, y, **settings) for o, y in pairs), float, len(output))


# --------------------------------------------------------------------------- ranking


def auc(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The area under the ROC curve: of two classes, else the mean of each against the rest.

    output [n], [n, 1] or [n, classes]; labels [n] (classes) or 0 and 1 as [n, classes]. The scores are the placements
    of DeLong et al., Biometrics 44 (1988), 837-845.
    """
    import numpy as np

    rows = output.reshape(len(output), -1).astype(np.float64)
    if labels.ndim > 1 and labels.shape != rows.shape:
        raise InputError(f"labels {list(labels.shape)} do not fit an output {list(output.shape)}; give one per item")
    if labels.ndim == 1 and rows.shape[1] <= 2:
        rows, truth = rows[:, -1:] - (rows[:, :1] if rows.shape[1] == 2 else 0.0), labels[:, None] > 0
    else:
        truth = labels > 0 if labels.ndim > 1 else labels[:, None] == np.arange(rows.shape[1])
    both = [c for c in range(truth.shape[1]) if 0 < truth[:, c].sum() < len(truth)]
    if not both:
        raise InputError("it needs items of two classes at least; the labels have one")
    return np.asarray(np.mean([_placements(rows[:, c], truth[:, c]) for c in both], axis=0))


def _placements(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    import numpy as np

    placed = np.empty(len(scores))
    for own, other, sign in ((truth, ~truth, 1.0), (~truth, truth, -1.0)):
        order, mine = np.sort(sign * scores[other]), sign * scores[own]
        below, upto = np.searchsorted(order, mine, "left"), np.searchsorted(order, mine, "right")
        placed[own] = (below + upto) / (2 * len(order))
    area = float(placed[truth].mean())
    share = np.where(truth, truth.mean(), 1 - truth.mean())
    return np.asarray(area + (placed - area) / share)


# --------------------------------------------------------------------------- segmentation


def mean_overlap(first: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The mean over the classes from `first` on of intersection over union, over all pixels of the split.

    output [n, classes, h, w] or [n, h, w, classes], of one channel a probability (above 0.5) or a logit (above 0), or
    whole numbers as the labels: [n, h, w], those of 255 and below 0 left out. A class that no label has does not count.
    """

    def score(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
        import numpy as np

        both, union = _regions(output, labels)
        kept = np.flatnonzero(union.sum(0) > 0)
        kept = kept[kept >= first]
        if not len(kept):
            raise InputError("no label has a class that counts")

        def value(inside: np.ndarray, whole: np.ndarray) -> np.ndarray:
            overlap: np.ndarray = (inside[..., kept] / np.maximum(whole[..., kept], 1)).mean(-1)
            return overlap

        sums = both.sum(0), union.sum(0)
        return _influence(float(value(*sums)), value(sums[0] - both, sums[1] - union))

    return score


def _regions(output: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of the intersection and of the union of each item and class, [n, classes]; 0 for classes without label."""
    import numpy as np

    if labels.dtype.kind not in "iub":
        raise InputError(f"labels are {labels.dtype}, but class labels must be integers")
    axis = channel_axis.class_axis(output.shape, labels.shape) if output.ndim > labels.ndim else None
    channels = 1 if axis is None else output.shape[axis]
    valid = labels[(labels >= 0) & (labels != IGNORED)]
    count = max(2, channels, int(valid.max(initial=0)) + 1)
    both, union = np.zeros((len(labels), count)), np.zeros((len(labels), count))
    half = 0.5 if output.min() >= 0 else 0.0
    for i, (o, y) in enumerate(zip(output, labels, strict=True)):
        chosen = o if axis is None else o.argmax(axis - 1) if channels > 1 else o.take(0, axis - 1) > half
        if chosen.shape != y.shape:
            raise InputError(f"labels {list(y.shape)} do not fit an output {list(o.shape)}; give one per pixel")
        kept = (y >= 0) & (y != IGNORED)
        table = np.bincount(y[kept].astype(np.int64) * count + chosen[kept].astype(np.int64), minlength=count * count)
        table = table[: count * count].reshape(count, count)
        both[i], union[i] = np.diag(table), table.sum(0) + table.sum(1) - np.diag(table)
    there = np.bincount(valid.astype(np.int64).ravel(), minlength=count) > 0
    return both * there, union * there


# --------------------------------------------------------------------------- transcripts


def word_errors(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Insertions, deletions and substitutions per word of the labels, by jiwer.

    labels [n, longest]: whole numbers, a word each, padded with -1. output [n, steps] likewise, or the scores of CTC
    [n, steps, words], of which the best path is taken (repeats merged, the blank 0 left out).
    """
    import numpy as np

    try:
        import jiwer
    except ImportError as error:
        raise _needed("jiwer") from error
    if output.ndim not in (2, 3) or labels.ndim != 2 or labels.dtype.kind not in "iu":
        raise InputError(
            f"it needs an output [items, steps] or [items, steps, words] and whole-number labels [items, longest], not "
            f"{list(output.shape)} and {list(labels.shape)} of {labels.dtype}"
        )
    wrong, words = np.zeros(len(labels)), np.zeros(len(labels))
    for i, (o, y) in enumerate(zip(output, labels, strict=True)):
        if output.ndim == 3:  # the best word of each step; once what is repeated, and no blanks
            best = o.argmax(-1)
            o = best[(best != BLANK) & (best != np.concatenate([[BLANK], best[:-1]]))]
        said, truth = (" ".join(str(int(word)) for word in row if word != NOTHING) for row in (o, y))
        words[i] = truth.count(" ") + bool(truth)
        found = jiwer.process_words(truth, said) if truth else None
        wrong[i] = found.substitutions + found.deletions + found.insertions if found else len(said.split())
    if not words.sum():
        raise InputError("the labels have no words")
    without = (wrong.sum() - wrong) / np.maximum(words.sum() - words, 1)
    return _influence(float(wrong.sum() / words.sum()), without)


# --------------------------------------------------------------------------- detection


def mean_precision(outputs: Arrays, labels: np.ndarray) -> np.ndarray:
    """COCO's mean average precision: over IoU from 0.5 to 0.95, over classes; boxes are matched by pycocotools.

    labels [n, most, 5]: class, x1, y1, x2, y2, padded with the class -1. outputs: one [n, k, 6] of x1, y1, x2, y2,
    score, class; or "boxes" [n, k, 4], "scores" [n, k] or, of several classes, [n, k, classes], and "classes" [n, k] if
    there are any. Boxes are in the labels' units, and overlapping ones already removed.
    """

    if labels.ndim != 3 or labels.shape[-1] != 5:
        raise InputError(f"it needs labels [items, most, 5] of class, x1, y1, x2, y2, not {list(labels.shape)}")
    return _precision_of(_judge(_found(outputs), labels), labels)


def point_precision(outputs: Arrays, labels: np.ndarray) -> np.ndarray:
    """The same by COCO's similarity of key points (OKS) in place of the IoU: of 17 with COCO's spreads, else 0.05 each.

    labels [n, most, 5 + 3 m]: class, x1, y1, x2, y2, then x, y and 0 (not there), 1 or 2 of each point. outputs: also
    "points" [n, k, 2 m].
    """
    import numpy as np

    if "points" not in outputs:
        raise InputError("it needs key points; declare points and keypoints in detect")
    count = outputs["points"].shape[-1] // 2
    if labels.ndim != 3 or labels.shape[-1] != 5 + 3 * count:
        raise InputError(
            f"it needs labels [items, most, {5 + 3 * count}] of class, x1, y1, x2, y2, and x, y, visible of {count} "
            f"points, not {list(labels.shape)}"
        )
    return _precision_of(_judge(np.concatenate([_found(outputs), outputs["points"]], -1), labels), labels)


def coco(outputs: Arrays, labels: np.ndarray) -> dict[str, float | None]:
    """COCO's other average precisions of boxes: at one IoU, of things of one size in the labels' units; None: no label.

    Small are things up to 32 x 32, medium ones up to 96 x 96. Of labels [n, most, 5 and more] the box counts.
    """
    judge = _judge(_found(outputs), labels[..., :5], sizes=True)
    with contextlib.redirect_stdout(io.StringIO()):
        judge.accumulate()
    precision = judge.eval["precision"][..., 0]  # [thresholds, recalls, classes, sizes]; -1: no label
    parts = {"IoU 0.5": precision[:1, ..., 0], "IoU 0.75": precision[5:6, ..., 0]}
    parts |= {name: precision[..., i + 1] for i, name in enumerate(SIZES)}
    known = {name: part[part > -1] for name, part in parts.items()}
    return {name: float(part.mean()) if part.size else None for name, part in known.items()}


def _precision_of(judge: Any, labels: np.ndarray) -> np.ndarray:
    import numpy as np

    n = len(labels)
    each = [_precisions(judge.evalImgs[i * n : (i + 1) * n], n) for i in range(len(judge.params.catIds))]
    return _influence(float(np.mean([value for value, _ in each])), np.mean([without for _, without in each], axis=0))


def _found(outputs: Arrays) -> np.ndarray:
    """[n, k, 6]: x1, y1, x2, y2, score, class."""
    import numpy as np

    if len(outputs) == 1:
        rows = next(iter(outputs.values()))
        if rows.ndim == 3 and rows.shape[-1] == 6:
            return np.concatenate([rows[..., :5], np.rint(rows[..., 5:])], -1, dtype=np.float64)
    if not {"boxes", "scores"} <= set(outputs):
        shapes = ", ".join(f"{name} {list(a.shape)}" for name, a in outputs.items())
        raise InputError(f"it needs boxes [n, k, 4] and scores, or one output [n, k, 6], not {shapes}; give your own")
    boxes, scores = np.asarray(outputs["boxes"], np.float64), np.asarray(outputs["scores"], np.float64)
    if boxes.ndim != 3 or boxes.shape[2] != 4 or scores.shape[:2] != boxes.shape[:2]:
        raise InputError(
            f"it needs boxes [n, k, 4] and scores [n, k] or [n, k, classes], not {list(boxes.shape)} and "
            f"{list(scores.shape)}; declare detect in the source, which reads them otherwise, too"
        )
    if scores.ndim == 3:
        classes, scores = scores.argmax(-1), scores.max(-1)
    else:
        classes = np.rint(outputs.get("classes", np.zeros(scores.shape)))
    return np.concatenate([boxes, scores[..., None], classes[..., None]], -1)


def _judge(rows: np.ndarray, labels: np.ndarray, sizes: bool = False) -> Any:
    """COCOeval with its matches by class and image: of boxes, or of key points where rows have 2 m more numbers."""
    try:
        from pycocotools.coco import COCO
        from pycocotools.cocoeval import COCOeval
    except ImportError as error:
        raise _needed("pycocotools") from error
    import numpy as np

    classes = sorted({int(c) for c in np.unique(labels[..., 0]) if c != NOTHING})
    if not classes:
        raise InputError("the labels have no box")
    truth, points = COCO(), (rows.shape[-1] - 6) // 2
    known = ((i, box) for i, item in enumerate(labels.tolist()) for box in item if box[0] != NOTHING)
    boxes = [(i, c, [x, y, u - x, v - y], (u - x) * (v - y), p) for i, (c, x, y, u, v, *p) in known]
    truth.dataset = {
        "images": [{"id": i + 1} for i in range(len(labels))],
        "categories": [{"id": c + 1} for c in classes],
        "annotations": [
            {"id": k + 1, "image_id": i + 1, "category_id": int(c) + 1, "iscrowd": 0, "bbox": corners, "area": area}
            | {"keypoints": p, "num_keypoints": sum(seen > 0 for seen in p[2::3])}
            for k, (i, c, corners, area, p) in enumerate(boxes)
        ],
    }
    nothing = [0.0] * 5 + [float(classes[0])] + [0.0] * 2 * points
    found = [(i, row) for i, item in enumerate(rows.tolist()) for row in item if np.isfinite(row[4]) and row[4] > 0]
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        told = truth.loadRes([_told(i, row) for i, row in found or [(0, nothing)]])
        judge = COCOeval(truth, told, "keypoints" if points else "bbox")
        if points and points != len(judge.params.kpt_oks_sigmas):
            judge.params.kpt_oks_sigmas = np.full(points, SPREAD)
        if not sizes:
            judge.params.areaRng, judge.params.areaRngLbl = judge.params.areaRng[:1], judge.params.areaRngLbl[:1]
        judge.params.maxDets = [found_boxes.MOST_FOUND]
        judge.evaluate()
    return judge


def _told(image: int, row: list[float]) -> dict[str, Any]:
    """A detection as COCO has it: x1, y1, x2, y2, score, class, and x, y of its key points, which count then alone."""
    x, y, u, v, score, kind, *places = row
    pairs = zip(places[::2], places[1::2], strict=True)
    form = {"keypoints": [n for x, y in pairs for n in (x, y, 1.0)]} if places else {"bbox": [x, y, u - x, v - y]}
    return {"image_id": image + 1, "score": score, "category_id": int(kind) + 1, **form}


def _precisions(images: list[Any], count: int) -> tuple[float, np.ndarray]:
    """A class's average precision, and that without each image."""
    import numpy as np

    at = [i for i, image in enumerate(images) if image is not None]
    positives = np.zeros(count)
    positives[at] = [len(images[i]["gtIds"]) for i in at]
    scores = np.concatenate([np.asarray(images[i]["dtScores"], float) for i in at])
    right = np.concatenate([np.asarray(images[i]["dtMatches"]) > 0 for i in at], axis=1)  # [thresholds, boxes]
    owner = np.concatenate([np.full(len(images[i]["dtScores"]), i) for i in at])
    order = np.argsort(-scores, kind="mergesort")
    right, owner = right[:, order], owner[order]
    value = found_boxes.average_precision(right, positives.sum())
    without = np.full(count, value)
    for i in at:
        without[i] = found_boxes.average_precision(right[:, owner != i], positives.sum() - positives[i])
    return value, without


METRICS: Mapping[str, TaskMetric] = {
    "mae": TaskMetric("lower", mean_absolute),
    "wer": TaskMetric("lower", word_errors),
    "psnr": TaskMetric("higher", psnr, unit=DECIBELS),
    "ssim": TaskMetric("higher", ssim),
    "auc": TaskMetric("higher", auc),
    "miou": TaskMetric("higher", mean_overlap(0)),
    "iou": TaskMetric("higher", mean_overlap(1)),
    "map": TaskMetric("higher", mean_precision, every=True),
    "oks": TaskMetric("higher", point_precision, every=True),
}
