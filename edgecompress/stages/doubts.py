"""What is doubtful about a source and its data, a sentence each: a deploy prints them as soon as they are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact
from edgecompress.core.settings import Detect, Preprocess
from edgecompress.data import chance, detection_layout, detections, metrics, tensors

if TYPE_CHECKING:
    import numpy as np

FEW = 50  # items
FINDS = ("map", "oks")  # metrics of things that are found
CHECK = dict.fromkeys(
    FINDS,
    "check the labels (class, x1, y1, x2, y2 in pixels of the input), and how boxes are made and written (decode: "
    "head, anchors, strides; detect: format, unit)",
)
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


def of_answers(
    metric: metrics.Metric, scores: np.ndarray, outputs: Mapping[str, np.ndarray], labels: np.ndarray, whose: str
) -> tuple[list[str], str]:
    """Answers that are no better than chance, or that so few items judge that it cannot be told; why they are no proof.

    Of few items the second is empty, unless labels that are off by one explain it.
    """
    value, least = metrics.summary(metric, scores), chance.level(metric, outputs, labels)
    n, shown = len(scores), metric.name.replace("top", "top-")
    if value is None or least is None or chance.above(metric, scores, least):
        few = f"{n} test items are few: one of them is {_percent(1 / n)} of all; give a few hundred"
        return [few] if n < FEW else [], ""
    if metric.name in chance.ERRORS:
        than = f"is no better than that of the labels' {chance.ERRORS[metric.name]} ({least:.4g})"
        told = f"{whose} {shown} of {value:.4g} {than}: check the labels, their scale, and [preprocess]"
        return [told], told if n >= FEW else ""
    one, other = (_percent(v) if metric.unit == "fraction" else f"{v:.3g}" for v in (value, least))
    check = CHECK.get(metric.name, "check the labels, the order of the classes, and [preprocess]")
    told = f"{whose} {shown} of {one} is not above chance ({other}), as far as {n} items tell: "
    by, share = chance.off_by_one(metric, outputs, labels)
    if by:
        moved = "1 added to" if by > 0 else "1 taken from"
        told += f"the labels are off by one, as with {moved} each it is {_percent(share)}"
    else:
        told += check
    return [told], told if by or n >= FEW else ""


def listed(
    metric: metrics.Metric, outputs: Mapping[str, np.ndarray], detect: Detect | None, source: Mapping[str, np.ndarray]
) -> Mapping[str, np.ndarray]:
    """What a metric scores: of average precision what is found, where `detect` says how the source's boxes are read."""
    layout = detection_layout.find(detections.with_places(source), detect) if detect and metric.name in FINDS else None
    return detections.as_list(outputs, layout) if layout else outputs


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
