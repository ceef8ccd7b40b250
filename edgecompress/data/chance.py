"""Whether a metric's value is above that of answers without the input: what is not proves nothing of an artifact."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.core import stats
from edgecompress.data import metrics, paired_proportions
from edgecompress.data.task_metrics import IGNORED

if TYPE_CHECKING:
    import numpy as np

FIXED = {"auc": 0.5, "map": 0.0, "wer": 1.0}
ERRORS = {"mse": "mean", "mae": "median"}  # metric -> the one answer of the labels that has the least of it
REGIONS = {"miou": 0, "iou": 1}  # metric -> its first class


def level(metric: metrics.Metric, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> float | None:
    """The value of the best answer that is the same for all items, or of guesses; None where nobody can tell it."""
    import numpy as np

    if metric.name in FIXED:
        return FIXED[metric.name]
    if metric.name == "mse":
        return float(np.square(labels - labels.mean(axis=0, dtype=np.float64)).mean())
    if metric.name == "mae":
        return float(np.abs(labels - np.median(labels, axis=0)).mean())
    if metric.name in REGIONS:
        counts = np.bincount(labels[(labels >= 0) & (labels != IGNORED)].astype(np.int64).ravel())
        kept = counts[REGIONS[metric.name] :]
        return float(kept.max() / counts.sum() / np.count_nonzero(kept)) if kept.any() else None
    best, count = metrics.TOP.fullmatch(metric.name), metrics.scored(outputs, labels).shape[-1]
    if best:
        return int(best[1]) / count if count > int(best[1]) else None
    return float(count) if metric.kind == "perplexity" else None


def above(metric: metrics.Metric, scores: np.ndarray, least: float) -> bool:
    """Whether a metric is better than a level: of shares and other means all of the interval of 95 % is."""
    n, value = len(scores), metrics.summary(metric, scores)
    if value is None:
        return False
    if metric.kind == "share":
        return 1 - paired_proportions.clopper_pearson(n - round(value * n), n) > least
    if metric.kind != "mean":
        return value < least
    spread = stats.student_t(n - 1) * float(scores.std(ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    return value - spread > least


def off_by_one(metric: metrics.Metric, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> tuple[int, float]:
    """What added to the labels, 1 or -1, makes a share of right answers one above chance, and that share; or 0, 0."""
    if metric.kind != "share" or labels.dtype.kind not in "iu" or (least := level(metric, outputs, labels)) is None:
        return 0, 0.0
    found, count = [(0.0, 0)], metrics.scored(outputs, labels).shape[-1]
    for by in (1, -1):
        moved = labels.astype("int64") + by
        inside = ((moved >= 0) & (moved < count)).reshape(len(moved), -1).all(axis=1)
        if inside.any():
            scores = metrics.scores(metric, {name: each[inside] for name, each in outputs.items()}, moved[inside])
            found += [(float(scores.mean()), by)] if above(metric, scores, least) else []
    share, by = max(found)
    return by, share
