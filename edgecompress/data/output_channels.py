"""Each channel of an output against the source's: how far it is off, relative to its own spread, and in which items.

Streamed item by item, so that outputs may be larger than memory.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.settings import Detect
from edgecompress.data import detection_layout, detections, source_probabilities
from edgecompress.data.found_boxes import FoundFacts
from edgecompress.data.output_statistics import MANY, OUTLIERS, Ends, Outline, outline, parts

if TYPE_CHECKING:
    import numpy as np

LOST = 1.0  # of its spread: a channel so far off has nothing to do with the source's any more
SMALL = 1e-3  # of a channel's spread: where something is found it counts as no less
CUT = 0.01  # of a channel's values at its end, more than the source's: it is clipped
WORST = 3  # items that are named


class WorstItem(TypedDict):
    """An item, and how far it is off: RMS over the channels, in their spreads."""

    item: int
    error: float


class ChannelFacts(TypedDict):
    """The errors of an output's channels; None where there is no such number.

    Of at most MANY channels they are those of the worst channel, named in `channels`; of more, RMS over the channels.
    """

    channel_error: float | None
    tail_error: float | None
    found_error: float | None
    found_loss: float | None  # of boxes: the average precision that is lacking, of the source's own detections as truth
    choice_loss: float | None
    divergence: float | None  # of a choice at each of many steps
    channels: Mapping[str, int]
    worst: list[WorstItem]
    changed: float | None  # of the choices, the share that is another; of labels, too
    constant: int  # channels that say nothing: they are constant in the source
    dead: list[int]  # those that are constant in the artifact only; of many, those that are off by LOST too
    cut: list[int]  # those that are clipped in the artifact only
    size: int  # channels
    found: FoundFacts | None  # of boxes
    counted: Sequence[str] | None  # the limits that judge a detector's output; None: all
    classifier: bool  # many classes, of which one is chosen with more confidence than all others together, on average


def is_labels(array: np.ndarray) -> bool:
    """Whether an output of the source is labels or places: whole numbers, not of a picture's 8 bits."""
    return array.dtype.kind == "b" or (array.dtype.kind in "iu" and array.dtype.itemsize > 2)


def of_labels(facts: ChannelFacts) -> bool:
    """Whether they are those of labels: choices without scores."""
    return facts["changed"] is not None and facts["choice_loss"] is None


@dataclass
class Found:
    """The error at the places where something is, by how probable that is."""

    weight: float = 0.0
    sums: np.ndarray | float = 0.0
    squares: np.ndarray | float = 0.0
    errors: np.ndarray | float = 0.0

    def add(self, moved: np.ndarray, error: np.ndarray, weight: np.ndarray) -> None:
        """The source's values less their mean, and the error, [items, places, channels]; weight [items, places]."""
        w = weight[..., None]
        self.weight += float(weight.sum())
        self.sums = self.sums + (w * moved).sum((0, 1))
        self.squares = self.squares + (w * moved * moved).sum((0, 1))
        self.errors = self.errors + (w * error * error).sum((0, 1))

    def relative(self, spread: np.ndarray) -> np.ndarray:
        """RMS error of each channel over its spread there; where it does not vary there, over that of all places."""
        import numpy as np

        weight = max(self.weight, 1e-12)
        variance = np.asarray(self.squares / weight - np.square(self.sums / weight))
        own = np.sqrt(np.maximum(variance, 0.0))
        relative: np.ndarray = np.sqrt(np.asarray(self.errors) / weight) / np.maximum(own, SMALL * spread)
        return relative


@dataclass
class Comparison:
    """An artifact's output against the source's, item by item."""

    outline: Outline
    ends: Ends = field(init=False)
    errors: list[np.ndarray] = field(default_factory=list)  # mean square over the places, [items, channels] each
    found: Found = field(default_factory=Found)
    choices: source_probabilities.Choices = field(init=False)
    findings: source_probabilities.Findings = field(default_factory=source_probabilities.Findings)
    placed: slice = field(default_factory=lambda: slice(None))  # the channels that are wrong only where something is

    def __post_init__(self) -> None:
        self.ends = Ends.of(len(self.outline.spread))
        self.choices = source_probabilities.Choices(self.outline.plane)

    def add(self, golden: np.ndarray, output: np.ndarray, weight: np.ndarray | None, step: int) -> None:
        """Some items of both, [items, places, channels]; items that are not finite are left out."""
        import numpy as np

        fine = np.isfinite(output).all((1, 2))
        error = np.where(fine[:, None, None], output - golden, 0.0)
        self.errors.append(np.square(error).mean(1))
        self.ends.add(output[fine])
        if weight is not None:
            self.found.add(golden - self.outline.mean, error, weight)
        kind, alone = self.outline.kind, self.outline.alone
        p, q = (source_probabilities.probabilities(side[fine], kind) for side in (golden, output))
        if kind in source_probabilities.CLASSES:
            self.choices.add(p, q)
        elif alone.any():
            self.findings.add(p[..., alone], q[..., alone], step)

    def facts(self) -> ChannelFacts:
        """What the limits are compared with."""
        import numpy as np

        spread = self.outline.spread
        squares = np.concatenate(self.errors) / np.square(spread)
        whole, items = np.sqrt(squares.mean(0)), np.sqrt(squares.mean(1))
        many = len(spread) > MANY
        judged = items[:, None] if many else np.sqrt(squares)
        errors = {
            "channel_error": np.sqrt(np.square(judged).mean(0)),
            "tail_error": np.quantile(judged, 1 - OUTLIERS, axis=0),
            "found_error": self.found.relative(spread)[self.placed] if self.found.weight else None,
        }
        worst = [int(i) for i in np.argsort(-items, kind="stable")[:WORST] if items[i] > 0]
        dead = (self.ends.low == self.ends.high) & ~self.outline.constant | (whole >= LOST) & many
        cut = (self.ends.shares() > self.outline.ends.shares() + CUT) & ~dead & (whole > 0)
        return {
            **{name: None if each is None else float(each.max()) for name, each in errors.items()},  # type: ignore[typeddict-item]
            **self._believed(),
            "channels": {k: int(each.argmax()) for k, each in errors.items() if each is not None and len(each) > 1},
            "worst": [{"item": i, "error": float(items[i])} for i in worst],
            "constant": int(self.outline.constant.sum()),
            "dead": [int(c) for c in np.flatnonzero(dead)],
            "cut": [int(c) for c in np.flatnonzero(cut)],
            "size": len(spread),
            "found_loss": None,
            "found": None,
            "counted": None,
            "classifier": many and self.choices.rows > 0 and self.choices.confidence() > source_probabilities.DECIDED,
        }

    def _believed(self) -> dict[str, float | None]:
        """What the artifact's choices lose by the source's probabilities."""
        choices, findings = self.choices, self.findings
        if choices.rows:
            o, rows = self.outline, choices.rows
            steps = o.places > 1 and not o.plane and o.background is None
            divergence = max(choices.divergence / rows, 0.0) if steps else None
            return {
                "choice_loss": choices.loss(o.background),
                "divergence": divergence,
                "changed": choices.changed / rows,
            }
        if findings.rows:
            loss = float(max(findings.loss().max(), findings.order_loss().max()))
            return {"choice_loss": max(loss, 0.0), "divergence": None, "changed": None}
        return {"choice_loss": None, "divergence": None, "changed": None}


def compare(
    golden: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    layouts: Mapping[str, str],
    steps: Mapping[str, float] | None = None,
    detect: Detect | None = None,
    again: Collection[str] = (),
) -> dict[str, ChannelFacts]:
    """The channels of each output of the same items; `layouts`: of those whose layout is known; `steps`: of
    those that the source rounds; `again`: those that are an input again.

    Boxes and the like are judged by what a detector finds: where another output, or other channels, tell for each of
    the same places how probable something is there, errors count by that; a list of detections is matched first. Where
    the boxes can be read, as `detect` declares or by their values, their overlap is judged. Whole numbers that are no
    detector's are labels: their `channel_error` is the share of them that is another.
    """
    golden, outlines, layout = _read(golden, layouts, steps or {}, detect, again)
    outputs = {name: outputs[name].reshape(array.shape) for name, array in golden.items()}
    finder = detections.find(golden, outlines, layout)
    facts = {}
    for name, ours in golden.items():
        if is_labels(ours) and not layout and not (finder and finder.listed):
            facts[name] = _of_labels(ours, outputs[name])
            continue
        o, comparison = outlines[name], Comparison(outlines[name])
        if layout and name == layout.boxes.name:
            comparison.placed = slice(layout.boxes.end)
        helped = finder if finder and finder.helps(o) else None
        step = max(1, ours.size // source_probabilities.MOST_RANKED)
        for part in parts(ours):
            rows = o.rows(ours[part]), o.rows(outputs[name][part])
            if helped and helped.listed:
                rows = rows[0], helped.matched(outputs, part, rows)
            comparison.add(*rows, helped.sought(part) if helped else None, step)
        facts[name] = comparison.facts()
    return facts | _of_detector(layout, golden, outputs, facts) if layout else facts


def _of_labels(golden: np.ndarray, output: np.ndarray) -> ChannelFacts:
    """Labels are the same or others; how far apart two are says nothing."""
    import numpy as np

    items = (golden != output).reshape(len(golden), -1).mean(1)
    share = float(items.mean())
    worst = [int(i) for i in np.argsort(-items, kind="stable")[:WORST] if items[i] > 0]
    return {
        "channel_error": share, "tail_error": None, "found_error": None, "found_loss": None, "choice_loss": None,
        "divergence": None, "channels": {}, "worst": [{"item": i, "error": float(items[i])} for i in worst],
        "changed": share, "constant": 0, "dead": [], "cut": [], "size": 1, "found": None, "counted": None,
        "classifier": False,
    }  # fmt: skip


def _read(
    golden: Mapping[str, np.ndarray],
    layouts: Mapping[str, str],
    steps: Mapping[str, float],
    detect: Detect | None,
    again: Collection[str],
) -> tuple[Mapping[str, np.ndarray], dict[str, Outline], detection_layout.Layout | None]:
    """The source's outputs by places, the outline of each, and how a detector's are read, if they are."""
    placed = detections.with_places(golden)
    layout = detection_layout.find(placed, detect)
    known = {**detections.layouts(placed), **(layout.axes() if layout else {})}
    outlines = {
        name: outline(array, layouts.get(name) or known.get(name, ""), steps.get(name, 0.0), name in again)
        for name, array in placed.items()
    }
    if layout:
        outlines[layout.scores.name] = layout.outline(outlines[layout.scores.name])
    return placed, outlines, layout


def in_order(
    golden: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], detect: Detect | None = None
) -> dict[str, np.ndarray]:
    """The artifact's outputs, each row of a list of detections at the rank where the source has the nearest one.

    What scores alike is chosen in any order: such lists are sets. Other outputs are left as they are.
    """
    import numpy as np

    found = dict(outputs)
    listed = any(map(_may_be_listed, detections.with_places(golden).values()))
    if not listed or not all(np.isfinite(array[part]).all() for array in outputs.values() for part in parts(array)):
        return found
    placed, outlines, layout = _read(golden, {}, {}, detect, ())
    finder = detections.find(placed, outlines, layout)
    if finder is None or not finder.listed:
        return found
    theirs = {name: outputs[name].reshape(array.shape) for name, array in placed.items()}
    for name, ours in placed.items():
        o = outlines[name]
        if finder.helps(o):
            rows = ((part, (o.rows(ours[part]), o.rows(theirs[name][part]))) for part in parts(ours))
            moved = np.concatenate([finder.matched(theirs, part, sides) for part, sides in rows])
            found[name] = np.moveaxis(moved, -1, o.axis).reshape(golden[name].shape)
    return found


def _may_be_listed(array: np.ndarray) -> bool:
    """Whether a number of each place falls, in the first items, from place to place."""
    import numpy as np

    first = array[next(parts(array))]
    return array.ndim == 3 and any(
        bool((np.diff(side, axis=1) <= 0).all((0, 1)).any()) for side in (first, np.moveaxis(first, 1, 2))
    )


def _of_detector(
    layout: detection_layout.Layout,
    golden: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
    facts: Mapping[str, ChannelFacts],
) -> dict[str, ChannelFacts]:
    """The facts of a detector's outputs with what is found; where that is nothing, all limits count."""
    agreement = detections.agreement(layout, golden, outputs)
    precision, boxes = agreement.precision(), layout.boxes.name
    loss = None if precision is None else 1 - precision
    counted = layout.counted() if layout.certain and precision is not None else {}
    if counted:  # what tells how many there are is as right as the scores
        others = (name for name in golden if name not in counted)
        counted |= {name: () for name in others if detections.counts(layout, name, golden, outputs)}
    told: dict[str, ChannelFacts] = {name: facts[name].copy() for name in (*counted, boxes)}
    for name, limits in counted.items():
        told[name]["counted"] = list(limits)
    told[boxes]["found_loss"], told[boxes]["found"] = loss, agreement.facts()
    return told
