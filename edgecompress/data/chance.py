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

FIXED = {"auc": 0.5, "map": 0.02, "oks": 0.02, "wer": 1.0}
ERRORS = {"mse": "mean", "mae": "median"}  # metric -> the one answer of the labels that has the least of it
FAR = 10  # times the odds: 1 % becomes 10 %, 10 % becomes 53 %, 50 % becomes 91 %
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
    """What added to all labels, 1 or -1, surely makes answers right, and the share of them that is right then; or 0, 0.

    It is sure where each label stays one of the classes, and the lower end of that share's interval has FAR times the
    odds of the upper end before, of chance, and of the most frequent labels, which a net gets that always answers the
    same.
    """
    import numpy as np

    best, least = metrics.TOP.fullmatch(metric.name), level(metric, outputs, labels)
    if best is None or least is None or labels.dtype.kind not in "iu":
        return 0, 0.0
    n, classes, moved = len(labels), metrics.scored(outputs, labels).shape[-1], labels.astype(np.int64)
    frequent = np.sort(np.bincount(moved))[-int(best[1]) :].sum() / n
    before = paired_proportions.clopper_pearson(int(metrics.scores(metric, outputs, labels).sum()), n)
    known = max(least, frequent, before)
    for by in (1, -1):
        if moved.min() >= -by and moved.max() + by < classes:
            right = int(metrics.scores(metric, outputs, moved + by).sum())
            sure = 1 - paired_proportions.clopper_pearson(n - right, n)
            if sure * (1 - known) > FAR * known * (1 - sure):
                return by, right / n
    return 0, 0.0
