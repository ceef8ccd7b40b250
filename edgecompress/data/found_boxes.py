"""Boxes: how much two overlap, which of many are one thing's, and the average precision of some against others.

Boxes are corners, x1, y1, x2, y2. The average precision is COCO's, over IoU from 0.5 to 0.95, the mean over classes.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    import numpy as np

THRESHOLDS = tuple(0.5 + 0.05 * i for i in range(10))  # of IoU
ONE_THING = 0.5  # IoU beyond which two boxes of a class are of one thing
MOST_FOUND = 100  # boxes of an image that count, as in COCO
MOST_TRIED = 1000  # the most probable ones, of which overlapping ones are removed


class FoundFacts(TypedDict):
    """What the source finds, and what of it the artifact misses or finds besides, at an IoU of 0.5."""

    things: int
    missed: int
    besides: int
    overlap: float | None  # the mean IoU of what is not missed


@dataclass(frozen=True)
class Detections:
    """What is found in an image, the most probable first: corners [k, 4], scores [k], classes [k].

    points [k, m, 2]: the key points of each, or [k, m, 3] with how certain they are; m is 0 where there are none.
    """

    corners: np.ndarray
    scores: np.ndarray
    classes: np.ndarray
    points: np.ndarray

    def ranked(self, near: float | None) -> Detections:
        """In falling order of the scores; without those whose IoU with a better one of their class is beyond `near`."""
        import numpy as np

        order = np.argsort(-self.scores, kind="stable")[:MOST_TRIED]
        if near is not None:
            corners = self.corners[order]
            order = order[_distinct(overlaps(corners, corners) > near, self.classes[order])]
        return self.where(order[:MOST_FOUND])

    def where(self, chosen: np.ndarray) -> Detections:
        """Some of them, by a mask [k] or by their numbers."""
        return Detections(self.corners[chosen], self.scores[chosen], self.classes[chosen], self.points[chosen])


def _distinct(near: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Non-maximum suppression: which boxes are kept, in order; near [k, k]: which of them overlap."""
    import numpy as np

    rivals = near & (classes[:, None] == classes)
    alive = np.ones(len(near), bool)
    for rank in range(len(near)):
        if alive[rank]:
            alive[rank + 1 :] &= ~rivals[rank, rank + 1 :]
    return np.flatnonzero(alive)


def overlaps(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Intersection over union of each box with each: [k, 4] and [m, 4] -> [k, m]."""
    import numpy as np

    low = np.maximum(ours[:, None, :2], theirs[None, :, :2])
    high = np.minimum(ours[:, None, 2:], theirs[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(-1)
    areas = [np.clip(side[:, 2:] - side[:, :2], 0, None).prod(-1) for side in (ours, theirs)]
    whole = areas[0][:, None] + areas[1] - both
    return np.asarray(both / np.where(whole > 0, whole, 1.0))


def matches(near: np.ndarray) -> np.ndarray:
    """Which boxes, the most probable first, find a thing that no better one found: [things, k] -> [thresholds, k].

    As COCO: each takes the thing that it overlaps most of those that are left.
    """
    import numpy as np

    things, k = near.shape
    right, free = np.zeros((len(THRESHOLDS), k), bool), np.ones((len(THRESHOLDS), things), bool)
    for rank in range(k if things else 0):
        left = np.where(free, near[:, rank], -1.0)
        best = left.argmax(1)
        right[:, rank] = left.max(1) >= THRESHOLDS
        free[right[:, rank], best[right[:, rank]]] = False
    return right


def average_precision(right: np.ndarray, positives: float) -> float:
    """COCO's: the precision at 101 recalls, the best at that recall or beyond, the mean over the thresholds."""
    import numpy as np

    if not positives:
        return 0.0
    hits = right.cumsum(1)
    precision = hits / np.arange(1, right.shape[1] + 1)
    best = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
    recalls = np.linspace(0, 1, 101)
    areas = []
    for reached, at_best in zip(hits / positives, best, strict=True):
        index = np.searchsorted(reached, recalls, side="left")
        areas.append(np.append(at_best, 0.0)[index].mean())
    return float(np.mean(areas))


@dataclass
class Agreement:
    """An artifact's detections against the source's, image by image; those of the source count as the truth."""

    things: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # by class
    ranked: dict[int, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=lambda: defaultdict(list))
    missed: int = 0
    besides: int = 0
    shared: float = 0.0  # the sum of the IoU of what is not missed

    def add(self, ours: Detections, theirs: Detections, least: float) -> None:
        """An image: what the source finds, and the artifact's, of which those that score `least` count as found."""
        import numpy as np

        near = overlaps(ours.corners, theirs.corners) * (ours.classes[:, None] == theirs.classes)
        for kind in np.unique(np.concatenate([ours.classes, theirs.classes])):
            mine, own = ours.classes == kind, theirs.classes == kind
            self.things[int(kind)] += int(mine.sum())
            self.ranked[int(kind)].append((theirs.scores[own], matches(near[mine][:, own])))
        sure = near[:, theirs.scores >= least]
        best = sure.max(1, initial=0.0)
        self.missed += int((best < ONE_THING).sum())
        self.besides += int((sure.max(0, initial=0.0) < ONE_THING).sum())
        self.shared += float(best[best >= ONE_THING].sum())

    def precision(self) -> float | None:
        """The mean over the classes that the source finds; None where it finds nothing."""
        import numpy as np

        each = []
        for kind, count in self.things.items():
            if count:
                scores, right = (np.concatenate(side, -1) for side in zip(*self.ranked[kind], strict=True))
                each.append(average_precision(right[:, np.argsort(-scores, kind="stable")], count))
        return float(np.mean(each)) if each else None

    def facts(self) -> FoundFacts:
        """In numbers of things."""
        things = sum(self.things.values())
        kept = things - self.missed
        overlap = self.shared / kept if kept else None
        return {"things": things, "missed": self.missed, "besides": self.besides, "overlap": overlap}
