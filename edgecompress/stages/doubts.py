"""What is doubtful about a source and its data, a sentence each: a deploy prints them as soon as they are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.core.settings import Detect, Preprocess
from edgecompress.data import detection_layout, detections, metrics, paired_proportions, tensors

if TYPE_CHECKING:
    import numpy as np

FEW = 50  # items
NARROWEST, WIDEST = 0.2, 100.0  # spans of values that are divided by a standard deviation of theirs
NO_LABELS = "the data has no labels"
MIXED = (
    "an item's answer depends on the other items of its batch: a BatchNorm is in training mode, or the net mixes its "
    "items; call eval() before the export"
)


def of_range(values: np.ndarray, declared: Preprocess) -> list[str]:
    """Values whose range [preprocess] contradicts: (x * scale - mean) / std of data that has this mean and this std."""
    low, high = float(values.min()), float(values.max())
    span, divided = high - low, any(std != 1 for std in declared.std)
    if not (any(declared.mean) and (low > 0 or high < 0)) and not (divided and not NARROWEST < span < WIDEST):
        return []
    return [
        f"[preprocess] mean and std do not fit the data: they turn it into {low:.3g} to {high:.3g}; check scale (of "
        "bytes 1 / 255 = 0.00392156862745098, where mean and std are of 0 to 1), then mean and std"
    ]


def of_answers(metric: metrics.Metric, value: float | None, n: int, specs: Sequence[TensorSpec]) -> list[str]:
    """A source that is no better than chance, or that so few items judge that it cannot be told."""
    classes, shown = metrics.scored_spec(specs, 2).shape[-1], metric.name.replace("top", "top-")
    best = metrics.TOP.fullmatch(metric.name)
    if best and value is not None and isinstance(classes, int) and classes > int(best[1]):
        chance, wrong = int(best[1]) / classes, n - round(value * n)
        if 1 - paired_proportions.clopper_pearson(wrong, n) <= chance:
            return [
                f"the source's {shown} of {_percent(value)} is not above chance ({_percent(chance)}), as far as {n} "
                "items tell: check the labels, the order of the classes, and [preprocess]"
            ]
    if n < FEW:
        return [f"{n} test items are few: one of them is {_percent(1 / n)} of all; give a few hundred"]
    return []


def of_boxes(outputs: Mapping[str, np.ndarray], detect: Detect | None) -> list[str]:
    """Outputs that may be a detector's, if none are declared. Raises InputError for a declaration that does not fit."""
    placed = detections.with_places(outputs)
    if detect:
        detection_layout.find(placed, detect)
        return []
    return [said] if (said := detection_layout.doubt(placed)) else []


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def of_labels(samples: Artifact, metric: str, model: Artifact) -> list[str]:
    """Data without the labels that its metric needs."""
    if metric == "none" or samples.facts.get("random") or tensors.labels(samples, "test") is not None:
        return []
    taken = set(tensors.check_inputs(model, samples).values())
    left = [spec.name for spec in samples.inputs if spec.name not in taken]
    give = f"if its '{left[0]}' are the labels, call that labels; else give labels" if left else "give labels"
    return [
        f"{NO_LABELS}, so {metric} is not measured: artifacts are compared with the source's answers alone; {give}, or "
        "--metric none"
    ]


def of_errors(metric: str, value: float | None, labels: np.ndarray) -> list[str]:
    """A regression that is no better than one answer for all items: the mean of the labels, of mae their median."""
    import numpy as np

    if metric not in ("mse", "mae") or value is None:
        return []
    if metric == "mse":
        constant, word = float(np.square(labels - labels.mean(axis=0, dtype=np.float64)).mean()), "mean"
    else:
        constant, word = float(np.abs(labels - np.median(labels, axis=0)).mean()), "median"
    if value < constant:
        return []
    return [
        f"the source's {metric} of {value:.4g} is no better than that of the labels' {word} ({constant:.4g}): check "
        "the labels, their scale, and [preprocess]"
    ]
