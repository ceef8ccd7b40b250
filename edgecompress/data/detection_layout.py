"""Which outputs hold a detector's boxes and what they score, and how these are read: as declared, else by the values.

Boxes [n, k, 4] lie beside scores [n, k] or [n, k, classes] (or each [n, numbers, k]), or both are one output:
[n, k, 4 + classes], [n, k, 5 + classes] with a probability first that there is anything, or [n, k, 6] with the class
as a number at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.settings import BoxFormat, Detect, Preprocess
from edgecompress.data import channel_axis, preprocess, source_probabilities
from edgecompress.data.found_boxes import ONE_THING, Detections
from edgecompress.data.output_statistics import Outline, outline, parts

if TYPE_CHECKING:
    import numpy as np

Arrays = Mapping[str, "np.ndarray"]
SIDES = 4  # numbers of a box
PLACED = "NPC"  # items, places, channels
PARTS = ("boxes", "scores", "classes", "points")  # of a layout, each some channels of an output
READINGS: tuple[BoxFormat, ...] = ("xyxy", "cxcywh", "xywh")  # yxyx is as good as xyxy: boxes overlap as much
FEWEST = 20  # places where something is found that tell how boxes are written; of fewer also the best of each item
MOST = 0.99  # of the boxes have a width and a height
TURNED = 0.01  # of the boxes, those that end before they begin: of fewer the format is not doubtful
OUTSIDE, SOME = 0.05, 0.1  # of the picture a box may begin outside of it; of the boxes, those that begin farther out
MIDDLE = 0.15  # of the picture at each side, where the median box is not
NEAR = 1e-3  # below the least score a place is looked at, still: rounding decides later
LONGEST_SHARE = 2.0  # a box that ends beyond is in pixels, not in shares of the picture


@dataclass(frozen=True)
class Columns:
    """Some channels of an output, which are on an axis."""

    name: str
    axis: int
    first: int
    end: int

    def of(self, arrays: Arrays) -> np.ndarray:
        """[items, places, channels], as they are; of an output [items, places] too."""
        import numpy as np

        array = arrays[self.name]
        return np.moveaxis(array if array.ndim == 3 else array[..., None], self.axis, -1)[..., self.first : self.end]

    def rows(self, arrays: Arrays, part: slice, places: np.ndarray | None = None) -> np.ndarray:
        """Some items as float64, at all places or some; what is not finite is 0."""
        import numpy as np

        chosen = self.of(arrays)[part] if places is None else self.of(arrays)[part][:, places]
        return np.nan_to_num(chosen.astype(np.float64), posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Layout:
    """How a detector's outputs are read.

    `anything`: the first score is that of there being anything, the others those of each class then. `listed`: the
    places are ranks, as after non-maximum suppression. `certain`: the outputs are declared, or can hardly be others.
    """

    boxes: Columns
    scores: Columns
    classes: Columns | None
    kind: source_probabilities.Kind
    background: int | None
    anything: bool
    listed: bool = False
    certain: bool = False
    format: BoxFormat = "xyxy"
    least: float = source_probabilities.DECIDED  # the score from which on something is found
    overlap: float = ONE_THING  # IoU beyond which two boxes of a class are of one thing
    unit: Literal["pixels", "shares"] = "pixels"  # of the model's input
    points: Columns | None = None  # the key points of each box
    point: int = 2  # numbers of one: x, y, and how certain it is

    @property
    def outputs(self) -> frozenset[str]:
        """The names of those that it is read from."""
        return frozenset(each.name for each in (self.boxes, self.scores, self.classes, self.points) if each)

    @staticmethod
    def read(told: Mapping[str, Any]) -> Layout:
        """Out of plain data, as `told` gives it."""
        columns = {key: Columns(**told[key]) if told.get(key) else None for key in PARTS}
        return Layout(**{**told, **columns})

    def told(self, names: Mapping[str, str]) -> dict[str, Any]:
        """As plain data; `names`: what an artifact calls the source's outputs."""
        plain = asdict(self)
        for key in PARTS:
            if plain[key]:
                plain[key]["name"] = names[plain[key]["name"]]
        return plain

    def axes(self) -> dict[str, str]:
        """The layout of each output of it that the limits are about."""
        return {c.name: PLACED if c.axis == 2 else "NCP" for c in (self.boxes, self.scores)}

    def counted(self) -> dict[str, tuple[str, ...]]:
        """The limits that judge its outputs: boxes by where they are, scores by what is found."""
        both = {self.boxes.name: ("found_error", "found_loss"), self.scores.name: ("choice_loss",)}
        if self.boxes.name == self.scores.name:
            both = {self.boxes.name: ("found_error", "found_loss", "choice_loss")}
        return {self.classes.name: (), **both} if self.classes else both

    def outline(self, o: Outline) -> Outline:
        """The outline of the output of the scores, read as they are."""
        joined = self.boxes.name == self.scores.name
        kind = "shares" if joined and self.kind in source_probabilities.CLASSES else self.kind
        scored = slice(self.scores.first, self.scores.first + 1 if self.anything else self.scores.end)
        return replace(o, kind=kind, background=self.background, scored=scored if joined else slice(None))

    def probable(self, arrays: Arrays, part: slice) -> np.ndarray:
        """How probable each class is at each place, [items, places, classes]."""
        return self._probable(self.scores.rows(arrays, part))

    def _probable(self, rows: np.ndarray) -> np.ndarray:
        import numpy as np

        p = source_probabilities.probabilities(rows, self.kind)
        if self.anything:
            return np.asarray(p[..., :1] * p[..., 1:])
        return p if self.background is None else np.delete(p, self.background, -1)

    def found(self, arrays: Arrays, part: slice, least: float) -> Iterator[Detections]:
        """What scores at least so much in each item; of boxes of a class that overlap the best.

        Probabilities are rounded to single precision: what differs by an exponential's last digit is a tie anywhere.
        """
        import numpy as np

        below = {"shares": least - NEAR, "logit": np.log(least / (1 - least)) - NEAR}.get(self.kind, -np.inf)
        for item in range(len(arrays[self.scores.name]))[part]:
            one = slice(item, item + 1)
            some = np.flatnonzero(~(self.scores.of(arrays)[item].max(-1) < below))  # most places need no more
            p = self._probable(self.scores.rows(arrays, one, some)[0]).astype(np.float32).astype(np.float64)
            kept = np.flatnonzero(p.max(-1, initial=0.0) >= least)
            p, at = p[kept], some[kept]
            told = self.classes.rows(arrays, one, at)[0, :, 0] if self.classes else p.argmax(-1)
            corners = as_corners(self.boxes.rows(arrays, one, at)[0], self.format)
            points = self.points.rows(arrays, one, at)[0] if self.points else np.zeros((len(at), 0))
            own = points.reshape(len(at), points.shape[-1] // self.point, self.point)
            scores, classes = p.max(-1, initial=0.0), np.rint(told).astype(int)
            yield Detections(corners, scores, classes, own).ranked(None if self.listed else self.overlap)


def in_picture(
    found: Detections,
    layout: Layout,
    size: Sequence[int] | None,
    picture: tuple[int, int] | None,
    how: Preprocess | None,
) -> Detections:
    """With corners x1, y1, x2, y2 in pixels of the user's picture, cut off at its sides; key points are not cut off.

    `size`: height and width of the model's input; `picture`: those of the picture, None where the input itself is
    given, whose pixels the corners are in then; `how` it becomes the input.
    """
    import numpy as np

    turned = layout.format == "yxyx"
    corners = found.corners[:, [1, 0, 3, 2]] if turned else found.corners
    points = found.points[..., [1, 0, *range(2, layout.point)]] if turned and layout.points else found.points
    places = np.concatenate([corners.reshape(len(corners), 2, 2), points[..., :2]], 1)  # [k, 2 + m, 2]: x, y
    if size and layout.unit == "shares":
        places = places * np.array([size[1], size[0]], np.float64)
    if picture and how:
        at = preprocess.placement(*picture, how)
        places = (places + np.array([at.left, at.top])) / np.array([at.across, at.down])
    corners = places[:, :2].reshape(-1, SIDES)
    if whole := picture or size:
        corners = np.clip(corners, 0, [whole[1], whole[0]] * 2)
    points = np.concatenate([places[:, 2:], points[..., 2:]], -1)
    return Detections(corners, found.scores, found.classes, points)


def as_corners(rows: np.ndarray, written: BoxFormat) -> np.ndarray:
    """Boxes [k, 4] of a format as their low and high corners; which axis comes first is left as it is."""
    import numpy as np

    if written in ("xyxy", "yxyx"):
        return rows
    low = rows[:, :2] - (rows[:, 2:] / 2 if written == "cxcywh" else 0.0)
    return np.concatenate([low, low + rows[:, 2:]], -1)


# --------------------------------------------------------------------------- as declared, or by the values


def find(golden: Arrays, detect: Detect | None) -> Layout | None:
    """The layout that the source declares, else the first that its values allow.

    Raises InputError where what is declared is not there, or holds something else.
    """
    if detect:
        layout = _declared(golden, detect)
        return replace(layout, unit=detect.unit or _unit(golden, layout))
    written = ((layout, _format(golden, layout)) for layout in _readable(golden))
    found = next((replace(layout, format=each) for layout, each in written if each), None)
    return found and replace(found, unit=_unit(golden, found))


def doubt(golden: Arrays) -> str:
    """What to declare where outputs may be a detector's; "" where there are none, or they can hardly be others."""
    layout = find(golden, None)
    beside = (each for each in _readable(golden) if each.certain and each.boxes.name != each.scores.name)
    suspected = layout or next(beside, None)
    if suspected is None or (layout and layout.certain):
        return ""
    boxes, scores = suspected.boxes.name, suspected.scores.name
    both = f"'{boxes}'" if boxes == scores else f"'{boxes}' and '{scores}'"
    return (
        f"{both} may be a detector's, but the values do not make it certain: if boxes are places in "
        f'the picture, declare detect = {{ boxes = "{boxes}", scores = "{scores}", format = "{suspected.format}" }} '
        "(or yxyx, xywh, cxcywh) in the source file, so that what it finds is judged; else give a metric"
    )


def _declared(golden: Arrays, detect: Detect) -> Layout:
    for key, name in (("boxes", detect.boxes), ("scores", detect.scores)):
        if name not in golden:
            raise InputError(f"detect.{key}: the source has no output '{name}'{did_you_mean(name, list(golden))}")
    pair = next((p for p in _pairs(golden, 1) if (p[0].name, p[1].name) == (detect.boxes, detect.scores)), None)
    if pair is None:
        shapes = " and ".join(f"'{name}' {list(golden[name].shape)}" for name in {detect.boxes: 0, detect.scores: 0})
        raise InputError(
            "detect: it needs boxes [n, k, 4] and scores [n, k] or [n, k, classes], or one output [n, k, 4 and more] "
            f"as both, not {shapes}"
        )
    points = _points(golden, pair[0], detect) if detect.points else None
    if points and points.name == detect.scores:
        pair = pair[0], replace(pair[1], end=points.first)
    layout = _read(golden, *pair)
    if layout is None:
        raise InputError(f"detect.scores: '{detect.scores}' holds neither probabilities nor their logits")
    if detect.background is not None:
        if detect.background >= layout.scores.end - layout.scores.first:
            count = layout.scores.end - layout.scores.first
            raise InputError(
                f"detect.background: '{detect.scores}' has {count} classes, there is no {detect.background}"
            )
        layout = replace(layout, background=detect.background, anything=False)
    if points and points.name == detect.scores and layout.scores.end < points.first:
        raise InputError(
            f"detect.points: '{detect.points}' has {points.first - layout.scores.end} numbers between its scores and "
            f"{detect.keypoints} key points ({detect.point}); check keypoints, and point (xy, or xyc)"
        )
    said = replace(layout, format=detect.format, least=detect.score, overlap=detect.overlap, certain=True)
    return replace(said, points=points, point=len(detect.point))


def _points(golden: Arrays, boxes: Columns, detect: Detect) -> Columns:
    """Where the key points of each box are: an output of their own, or the last channels of that of boxes."""
    numbers = detect.keypoints * len(detect.point)
    if detect.points not in golden:
        raise InputError(
            f"detect.points: the source has no output '{detect.points}'{did_you_mean(detect.points, list(golden))}"
        )
    shape, joined, places = golden[detect.points].shape, detect.points == boxes.name, boxes.of(golden).shape[1]
    own = [a for a in ((boxes.axis,) if joined else (2, 1)) if len(shape) == 3 and shape[3 - a] == places]
    least = numbers + SIDES + 1 if joined else numbers  # behind a box and a score
    axis = next((a for a in own if (shape[a] >= least if joined else shape[a] == least)), None)
    if axis is None:
        raise InputError(
            f"detect.points: {detect.keypoints} key points of each box, {detect.point}, are {numbers} numbers for "
            f"each of {places} places; '{detect.points}' is {list(shape)}"
        )
    return Columns(detect.points, axis, shape[axis] - numbers, shape[axis])


def _readable(golden: Arrays) -> Iterator[Layout]:
    """What may be boxes, beside something that is a probability."""
    read = (_read(golden, boxes, scores) for boxes, scores in _pairs(golden))
    return (layout for layout in read if layout)


def _pairs(golden: Arrays, least: int = 2) -> Iterator[tuple[Columns, Columns]]:
    """What may be boxes, at least so many for an item, and what their scores."""
    three = {name: array for name, array in golden.items() if array.ndim == 3}
    for name, array in three.items():
        axis = next((a for a in (2, 1) if array.shape[a] == SIDES and array.shape[3 - a] >= least), None)
        if axis is not None:
            for other, beside in three.items():
                own = next((a for a in (2, 1) if beside.shape[3 - a] == array.shape[3 - axis]), None)
                if other != name and own is not None:
                    yield Columns(name, axis, 0, SIDES), Columns(other, own, 0, beside.shape[own])
    for name, array in three.items():
        listed = [2] if array.shape[2] == SIDES + 2 else []  # of few rows, it may be the longer axis
        for axis in dict.fromkeys((channel_axis.channel_axis(array), *listed)):
            if array.shape[axis] > SIDES and array.shape[3 - axis] >= least:
                yield Columns(name, axis, 0, SIDES), Columns(name, axis, SIDES, array.shape[axis])


def _read(golden: Arrays, boxes: Columns, scores: Columns) -> Layout | None:
    """How scores are read, by their values; None where they are no probabilities."""
    joined, classes = boxes.name == scores.name, _classes(golden, boxes, scores)
    if joined:
        scores = replace(scores, end=scores.first + (1 if classes else _shares(golden, scores)))
    if scores.first == scores.end or _whole(golden, scores):
        return None
    o = outline(scores.of(golden), PLACED)
    kind = _kind(golden, scores, o)
    if kind is None or o.constant.all():
        return None
    background = o.background if kind in source_probabilities.CLASSES else None
    layout = Layout(boxes, scores, classes, kind, background, anything=joined and _anything(golden, scores))
    sought = [layout.probable(golden, part).max(-1) for part in parts(scores.of(golden))]
    listed = background is None and all(bool((each[:, 1:] <= each[:, :-1]).all()) for each in sought)
    return replace(layout, listed=listed, certain=listed or float(sought[0].mean()) < source_probabilities.RARE)


def _classes(golden: Arrays, boxes: Columns, scores: Columns) -> Columns | None:
    """The column that tells each box's class as a number: the last one of six, or an output of its own."""
    places = boxes.of(golden).shape[1]
    if boxes.name == scores.name:
        own = [replace(scores, first=scores.end - 1)] if scores.end == SIDES + 2 else []
    else:
        others = (name for name in golden if name not in (boxes.name, scores.name))
        own = [Columns(name, 2, 0, 1) for name in others if golden[name].shape[1:] == (places, 1)]
    return next((column for column in own if _whole(golden, column)), None)


def _whole(golden: Arrays, column: Columns) -> bool:
    """Whether it holds whole numbers only."""
    import numpy as np

    values = column.of(golden)
    return all(bool((np.rint(values[part]) == values[part]).all()) for part in parts(values))


def _shares(golden: Arrays, scores: Columns) -> int:
    """How many of them, from the first on, are in 0..1: what comes behind are the numbers of masks or points."""
    import numpy as np

    values = scores.of(golden)
    outside = np.any([((values[part] < 0) | (values[part] > 1)).any((0, 1)) for part in parts(values)], axis=0)
    return int(outside.argmax()) if outside.any() else len(outside)


def _kind(golden: Arrays, scores: Columns, o: Outline) -> source_probabilities.Kind | None:
    """Logits that are below zero at most places, all of them, are each for itself: of classes the background is not."""
    import numpy as np

    if o.kind in ("shares", "probabilities", "log-probabilities"):
        return o.kind
    if o.ends.low.min() < source_probabilities.LEAST_LOGIT or o.ends.high.max() > source_probabilities.LARGEST_LOGIT:
        return None
    values = scores.of(golden)
    above = np.mean([float((values[part].max(-1) > 0).mean()) for part in parts(values)])
    if above < source_probabilities.RARE:
        return "logit"
    return o.kind if o.kind in ("logit", "logits") else None


def _anything(golden: Arrays, scores: Columns) -> bool:
    """Whether, where the first score is high, another one mostly is, too: classes exclude each other."""
    import numpy as np

    values = scores.of(golden)
    if values.shape[-1] < 2:
        return False
    best = [values[part][values[part][..., 0] >= source_probabilities.DECIDED] for part in parts(values)]
    others = np.concatenate(best)[:, 1:].max(-1, initial=0.0)
    return bool(len(others) and (others >= source_probabilities.DECIDED).mean() > source_probabilities.DECIDED)


def _format(golden: Arrays, layout: Layout) -> BoxFormat | None:
    """How boxes are written, by those of what is found; None where no reading makes them boxes of a picture."""
    rows = _sure(golden, layout)
    return next((each for each in READINGS if len(rows) and _fits(as_corners(rows, each))), None)


def doubt_of_format(golden: Arrays, layout: Layout) -> str:
    """What else boxes may be, where those of what is found are none of a picture as they are declared; else ""."""
    rows = _sure(golden, layout)
    if not len(rows) or turned_round(golden, layout) < TURNED or _fits(as_corners(rows, layout.format)):
        return ""
    other = next((each for each in READINGS if _fits(as_corners(rows, each))), "")
    if not other:
        return (
            f"'{layout.boxes.name}' holds no boxes that lie over a picture, however they are written: if they are "
            "offsets to anchors, or distances, declare decode in place of detect"
            if len(rows) >= FEWEST
            else ""
        )
    return (
        f"detect.format \"{layout.format}\" makes no boxes of '{layout.boxes.name}' that lie over a picture, and "
        f'"{other}" does: check it'
    )


def turned_round(golden: Arrays, layout: Layout) -> float:
    """The share of the boxes of what is found that end before they begin, as no detector's do."""
    rows = _sure(golden, layout)
    corners = as_corners(rows, layout.format)
    return float((corners[:, 2:] <= corners[:, :2]).any(1).mean()) if len(rows) else 0.0


def doubt_of_unit(golden: Arrays, layout: Layout) -> str:
    """A declared unit that the boxes of what is found contradict; else ""."""
    other = _unit(golden, layout)
    if other == layout.unit or not len(_sure(golden, layout)):
        return ""
    return f"detect.unit \"{layout.unit}\" does not fit the boxes of '{layout.boxes.name}', which are {other}: check it"


def found_share(golden: Arrays, layout: Layout) -> float:
    """At which share of the places something is found, of a list 0: it has nothing else."""
    if layout.listed:
        return 0.0
    import numpy as np

    each = (layout.probable(golden, part).max(-1) >= layout.least for part in parts(layout.boxes.of(golden)))
    return float(np.mean(np.concatenate([*each])))


def _unit(golden: Arrays, layout: Layout) -> Literal["pixels", "shares"]:
    """By how far the boxes of what is found reach."""
    import numpy as np

    rows = _sure(golden, layout)
    far = np.quantile(as_corners(rows, layout.format)[:, 2:].max(1), MOST) if len(rows) else np.inf
    return "shares" if far <= LONGEST_SHARE else "pixels"


def _sure(golden: Arrays, layout: Layout) -> np.ndarray:
    """The boxes [k, 4] of what is found, and where that is little the best of each item, as they are written."""
    import numpy as np

    found, best = list[np.ndarray](), list[np.ndarray]()
    for part in parts(layout.boxes.of(golden)):
        p, rows = layout.probable(golden, part).max(-1), layout.boxes.rows(golden, part)
        found.append(rows[p >= layout.least])
        some = p.max(1) >= source_probabilities.POSSIBLE
        best.append(rows[some, p[some].argmax(1)])
    count = sum(map(len, found))
    return np.concatenate([*found, *(best if count < FEWEST else [])])


def _fits(boxes: np.ndarray) -> bool:
    """Whether corners [k, 4] are boxes that lie over a picture."""
    import numpy as np

    low, high = boxes[:, :2], boxes[:, 2:]
    span = np.quantile(high, MOST, axis=0)
    begin = (low >= -OUTSIDE * span).all(1)
    middle = np.median(low + high, axis=0) / 2
    inside = (middle > MIDDLE * span) & (middle < (1 - MIDDLE) * span)
    return bool((high > low).all(1).mean() >= MOST and begin.mean() >= 1 - SOME and inside.all())
