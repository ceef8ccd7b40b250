"""What is doubtful about a detector: how its outputs are read, and whether its labels fit, a sentence each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.core.settings import Detect
from edgecompress.data import channel_axis, detection_layout, detections, metrics, raw_heads, segments, tensors

if TYPE_CHECKING:
    import numpy as np

HARDLY, MUCH = 0.05, 4  # of an average precision: labels that are met no better; how much better tells another reading
ROUNDED = 1e-3
MOSTLY = 0.5  # of the boxes of what is found end before they begin
EVERYWHERE = 0.5  # of the places of a detector that is no list: nothing is so full of things


@dataclass(frozen=True)
class Asked:
    """What a source says of its classes and of its raw head: how many it names, and which head, if any."""

    labels: int = 0
    head: str = ""


PLAIN = Asked()


def of_things(
    metric: metrics.Metric, found: Mapping[str, np.ndarray], labels: np.ndarray, picture: tuple[int, int] | None
) -> list[str]:
    """Boxes that the labels hardly meet, and meet where they are read otherwise."""
    import numpy as np

    def value(boxes: np.ndarray) -> float:
        return metrics.summary(metric, metrics.scores(metric, {**found, "boxes": boxes}, labels)) or 0.0

    if "boxes" not in found or (own := value(found["boxes"])) >= HARDLY:
        return []
    size = np.array([*(picture or (1, 1))][::-1] * 2, np.float64)
    others = {
        'as y, x they do: format = "yxyx" in detect': found["boxes"][..., [1, 0, 3, 2]],
        "in shares of the input they do: multiply the labels with its sides": found["boxes"] / size,
        "in pixels of the input they do: divide the labels by its sides": found["boxes"] * size,
    }
    better = next((says for says, boxes in others.items() if value(boxes) > MUCH * max(own, HARDLY)), "")
    return [
        f"the boxes hardly meet the labels ({metric.name} {own:.3g}): "
        + (better or "check that these are in pixels of the input, after [preprocess], and how boxes are made")
    ]


def of_boxes(
    outputs: Mapping[str, np.ndarray],
    detect: Detect | None,
    asked: Asked = PLAIN,
) -> list[str]:
    """Outputs that may be a detector's, if none are declared. Raises InputError for a declaration that does not fit."""
    placed = detections.with_places(outputs)
    if detect:
        layout = detection_layout.find(placed, detect)
        if layout is None:
            return []
        told = [said] if (said := detection_layout.doubt_of_format(placed, layout)) else []
        turned = detection_layout.turned_round(placed, layout)
        if asked.head and told:
            told = [
                f"decode makes boxes of which {100 * turned:.0f} % end before they begin: check head ({asked.head}), "
                "boxes, strides, anchors, bins"
            ]
        if told and turned > MOSTLY:  # such a detector there is not
            raise InputError(told[0])
        told += [said] if detect.unit and (said := detection_layout.doubt_of_unit(placed, layout)) else []
        return told + _of_scores(placed, layout, asked) + _unread(placed, layout)
    found = detection_layout.find(placed, None)
    told = [said] if (said := detection_layout.doubt(placed)) else []
    return told + (_unread(placed, found) if found else [])


def _of_scores(outputs: Mapping[str, np.ndarray], layout: detection_layout.Layout, asked: Asked) -> list[str]:
    """Probabilities of probabilities, things everywhere, and another number of classes than are named."""
    name, told = layout.scores.name, []
    scores = layout.scores.of(outputs)
    low, high, count = float(scores.min()), float(scores.max()), layout.scores.end - layout.scores.first
    # what a logistic function, or a softmax of so many, makes of 0 to 1
    ends = {
        "shares": (0.5, math.e / (1 + math.e)),
        "probabilities": (1 / (1 + (count - 1) * math.e), math.e / (math.e + count - 1)),
    }
    within = [a - ROUNDED <= low < high <= b + ROUNDED for kind, (a, b) in ends.items() if kind == layout.kind]
    share = detection_layout.found_share(outputs, layout)
    if any(within):
        told.append(
            f"'{name}' lies in {low:.3f} to {high:.3f}, as probabilities that were made probable a second time do: "
            "leave the second sigmoid or softmax out"
        )
    elif share > EVERYWHERE:
        told.append(
            f"something is found at {100 * share:.1f} % of all places of '{name}': check which class is the "
            "background, and from which score on something is found (background, score in detect)"
        )
    classes = count - layout.anything - (layout.background is not None)
    if asked.labels and not layout.classes and asked.labels not in (classes, count):
        where = "keypoints, point in detect, and " if layout.points else ""
        where = f"boxes{', bins' * (asked.head == 'dfl')} in decode, and " if asked.head else where
        told.append(f"{asked.labels} labels are named, but '{name}' scores {classes} classes: check {where}labels")
    return told


def _unread(outputs: Mapping[str, np.ndarray], layout: detection_layout.Layout) -> list[str]:
    """The numbers behind boxes and scores of one output that nothing reads."""
    name, channels = layout.boxes.name, outputs[layout.boxes.name].shape[layout.boxes.axis]
    rest = channels - layout.scores.end
    if layout.boxes.name != layout.scores.name or layout.points or layout.classes or not rest:
        return []
    return [
        f"the last {rest} of {channels} numbers of '{name}' are neither read as boxes nor as scores: if they are key "
        "points, declare points, keypoints and point in detect"
    ]


def of_raw_heads(outputs: Mapping[str, np.ndarray], inputs: Sequence[TensorSpec]) -> list[str]:
    """Outputs that look like a raw head, of which nothing makes boxes."""
    if (picture := channel_axis.picture(spec.concrete() for spec in inputs)) is None:
        return []
    shapes = {name: array.shape for name, array in outputs.items()}
    if detection_layout.find(detections.with_places(outputs), None):
        return []
    table = raw_heads.proposal(shapes, picture)
    if not table and len(shapes) == 1:
        name, shape = next(iter(shapes.items()))
        table = raw_heads.joined(name, shape, picture) if len(shape) == 3 else ""
    shown = table.replace("\n", "; ")
    return (
        [f"the outputs look like a detector's raw head; if they are, declare in the source: {shown}"] if table else []
    )


def of_regions(outputs: Mapping[str, np.ndarray], picture: tuple[int, int] | None, labels: int) -> list[str]:
    """Another number of classes of pixels than are named."""
    found = segments.find(outputs, picture) if picture and labels else None
    if found is None or found.axis is None:
        return []
    count = max(2, outputs[found.output].shape[found.axis])
    if count == labels:
        return []
    return [f"{labels} labels are named, but '{found.output}' scores {count} classes of each pixel: check labels"]


def of_splits(samples: Artifact) -> list[str]:
    """Splits whose labels hold no thing."""
    empty = [split for split in samples.facts["splits"] if _is_empty(samples, split)]
    if not empty:
        return []
    return [
        f"the labels of {', '.join(empty)} hold no thing: int8's ranges come from calibrate, choices from select; give "
        "data with things in each split"
    ]


def _is_empty(samples: Artifact, split: str) -> bool:
    """Whether a split has labels of boxes, and no box among them."""
    labels = tensors.labels(samples, split) if samples.facts["splits"][split] else None
    return labels is not None and labels.ndim == 3 and bool((labels[..., 0] < 0).all())
