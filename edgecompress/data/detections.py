"""Where a detector finds something, and which of its detections are the same ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgecompress.core import config
from edgecompress.core.model import DETECT, Artifact
from edgecompress.core.settings import Detect
from edgecompress.data import detection_layout, source_probabilities
from edgecompress.data.detection_layout import PLACED, Layout
from edgecompress.data.found_boxes import Agreement
from edgecompress.data.output_statistics import Outline, parts

if TYPE_CHECKING:
    import numpy as np

Arrays = Mapping[str, "np.ndarray"]
RANKED = 0.01  # the score from which on an average precision by labels counts a detection
BEHIND = 0.1  # of the score from which on something is found: what an artifact scores less does not even rank


def layout_of(outputs: Arrays, detect: Detect | None) -> Layout | None:
    """How outputs are read that are a detector's, as declared or surely; None for others."""
    layout = detection_layout.find(with_places(outputs), detect)
    return layout if layout and layout.certain else None


def declared(options: Mapping[str, Any], artifact: Artifact) -> Detect | None:
    """What the options of a stage declare of a detector's outputs, else what the source tells of them itself."""
    table = options.get(DETECT) or artifact.facts.get(DETECT)
    return config.build(Detect, table, DETECT) if table else None


def told_by(options: Mapping[str, Any], artifact: Artifact) -> str:
    """Who says how a detector's outputs are read, in words."""
    if options.get(DETECT):
        return "declared by the source"
    return "by the graph of the source" if artifact.facts.get(DETECT) else "by their values"


def as_list(outputs: Arrays, layout: Layout) -> Arrays:
    """What is found as "boxes" [n, most, 4] (x1, y1, x2, y2), "scores" and "classes" [n, most], filled up with 0.

    Where it has key points, also as "points" [n, most, 2 m].
    """
    import numpy as np

    count = len(layout.boxes.of(outputs))
    found = list(layout.found(outputs, slice(0, count), RANKED))
    most = max((len(each.scores) for each in found), default=0) or 1
    boxes, scores, classes = np.zeros((count, most, 4)), np.zeros((count, most)), np.zeros((count, most))
    points = np.zeros((count, most, *(found[0].points.shape[1:2] if found else (0,)), 2))
    turned = layout.format == "yxyx"
    order = [1, 0, 3, 2] if turned else [0, 1, 2, 3]
    for i, each in enumerate(found):
        k = len(each.scores)
        boxes[i, :k], scores[i, :k], classes[i, :k] = each.corners[:, order], each.scores, each.classes
        points[i, :k] = each.points[..., 1::-1] if turned else each.points[..., :2]
    listed = {"boxes": boxes, "scores": scores, "classes": classes}
    return listed | ({"points": points.reshape(count, most, -1)} if layout.points else {})


def with_places(outputs: Arrays) -> Arrays:
    """Outputs [items, places] beside others [items, places, channels] as [items, places, 1]."""
    three = [array.shape for array in outputs.values() if array.ndim == 3]
    places = {shape[1] for shape in three} | {shape[2] for shape in three if shape[1] == detection_layout.SIDES}
    return {
        name: array[..., None] if array.ndim == 2 and array.shape[1] in places else array
        for name, array in outputs.items()
    }


def layouts(outputs: Arrays) -> dict[str, str]:
    """Of those with one number for each of the places of another output: it is no list of that many channels."""
    several = {array.shape[1] for array in outputs.values() if array.ndim == 3 and array.shape[2] > 1}
    one = (name for name, array in outputs.items() if array.ndim == 3 and array.shape[2] == 1)
    return {name: PLACED for name in one if outputs[name].shape[1] in several}


@dataclass(frozen=True)
class Detector:
    """Outputs of as many places as that of `name`, which tells for each how probable something is there.

    `listed`: the places are no places but ranks, as after non-maximum suppression. `layout` tells its boxes, if known.
    """

    golden: Arrays
    outlines: Mapping[str, Outline]
    name: str
    listed: bool
    layout: Layout | None = None

    def helps(self, o: Outline) -> bool:
        """Whether an output is of this detector."""
        return o.places == self.outlines[self.name].places and not o.plane

    def sought(self, part: slice) -> np.ndarray:
        """How probable something is, by the source: [items, places]; where boxes are known, nothing below POSSIBLE."""
        import numpy as np

        p = self._probable(self.golden, part)
        return np.where(p < source_probabilities.POSSIBLE, 0.0, p) if self.layout else p

    def _probable(self, arrays: Arrays, part: slice) -> np.ndarray:
        import numpy as np

        if self.layout:
            return np.asarray(self.layout.probable(arrays, part).max(-1))
        o = self.outlines[self.name]
        sought = o.sought(np.nan_to_num(o.rows(arrays[self.name][part])))
        assert sought is not None
        return sought

    def matched(self, outputs: Arrays, part: slice, rows: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The artifact's rows of one output, each at the rank where the source has the nearest one.

        The source's best detection chooses first. What neither side finds is put as the source has it: it is padding.
        """
        import numpy as np

        ours, theirs = (self._standard(arrays, part) for arrays in (self.golden, outputs))
        p, q = self.sought(part), self._probable(outputs, part)
        order = np.stack([_order(*each) for each in zip(ours, theirs, p, strict=True)])
        padding = (p < source_probabilities.POSSIBLE) & (
            np.take_along_axis(q, order, 1) < source_probabilities.POSSIBLE
        )
        return np.where(padding[..., None], rows[0], np.take_along_axis(rows[1], order[..., None], 1))

    def _standard(self, arrays: Arrays, part: slice) -> np.ndarray:
        """All that is told of each detection, in spreads: [items, places, channels of all outputs]."""
        import numpy as np

        own = [(name, o) for name, o in self.outlines.items() if self.helps(o)]
        return np.concatenate([np.nan_to_num(o.rows(arrays[name][part])) / o.spread for name, o in own], -1)


def _order(ours: np.ndarray, theirs: np.ndarray, p: np.ndarray) -> np.ndarray:
    """For each of the source's detections the artifact's [places]; the rest as they come."""
    import numpy as np

    free, order = np.ones(len(theirs), bool), np.full(len(ours), -1)
    for rank in np.flatnonzero(p >= source_probabilities.POSSIBLE):
        far = np.square(theirs - ours[rank]).sum(-1)
        order[rank] = int(np.argmin(np.where(free, far, np.inf)))
        free[order[rank]] = False
    order[order < 0] = np.flatnonzero(free)
    return order


def agreement(layout: Layout, golden: Arrays, outputs: Arrays) -> Agreement:
    """The artifact's detections against the source's."""
    found = Agreement()
    for part in parts(layout.boxes.of(golden)):
        sides = layout.found(golden, part, layout.least), layout.found(outputs, part, BEHIND * layout.least)
        for ours, theirs in zip(*sides, strict=True):
            found.add(ours, theirs, layout.least)
    return found


def counts(layout: Layout, name: str, *sides: Arrays) -> bool:
    """Whether an output tells how many of each list's rows score as much as some number, the same one on all sides."""
    import numpy as np

    last, next_one = np.inf, -np.inf  # the least score that is counted, and the greatest that is not
    for arrays in sides:
        number = arrays[name].reshape(len(arrays[name]), -1).astype(np.float64)
        if not layout.listed or number.shape[1] != 1 or (np.rint(number) != number).any():
            return False
        for part in parts(layout.scores.of(arrays)):
            scores = -np.sort(-layout.probable(arrays, part).max(-1), axis=1)
            if (number[part] < 0).any() or (number[part] > scores.shape[1]).any():
                return False
            counted = np.arange(scores.shape[1]) < number[part]
            last = min(last, float(scores[counted].min(initial=np.inf)))
            next_one = max(next_one, float(scores[~counted].max(initial=-np.inf)))
    return last >= next_one


def find(golden: Arrays, outlines: Mapping[str, Outline], layout: Layout | None) -> Detector | None:
    """The detector among the outputs, if there is one: something is rarely there, or the places are ranks."""
    import numpy as np

    if layout:
        return Detector(golden, outlines, layout.scores.name, layout.listed, layout)
    for name, array in golden.items():
        o = outlines[name]
        if (first := o.sought(o.rows(array[next(parts(array))]))) is None:
            continue
        sought = (o.sought(o.rows(array[part])) for part in parts(array))
        listed = o.background is None and all(p is not None and (np.diff(p, axis=1) <= 0).all() for p in sought)
        if listed or 0 < float(first.mean()) < source_probabilities.RARE:
            return Detector(golden, outlines, name, listed)
    return None
