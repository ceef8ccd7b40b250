"""Each channel of an output against the source's: how far it is off, relative to its own spread, and in which items.

Streamed item by item in two passes, so that outputs may be larger than memory: the first outlines the source's output
(its axes, spreads, what its numbers can be), the second compares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from edgecompress.data import beliefs, channel_axis

if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 1 << 22  # numbers
OUTLIERS = 0.01  # of the items, the largest: no part of a spread; and the tail that is limited
MANY = 16  # channels at most that each mean something; more are the components of one thing, judged together
LOST = 1.0  # of its spread: a channel so far off has nothing to do with the source's any more
SMALL = 1e-3  # of a channel's spread: where something is found it counts as no less
STILL = 1e-6  # of a channel's size, and of the whole output's spread: what varies by less is constant
PRESENT = 0.5  # of an object, expected in an item that a detector's errors are counted of
CUT = 0.01  # of a channel's values at its end, more than the source's: it is cut off
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
    choice_loss: float | None
    divergence: float | None  # of a choice at each of many steps
    channels: Mapping[str, int]
    worst: list[WorstItem]
    changed: float | None  # of the choices, the share that is another
    constant: int  # channels that say nothing: they are constant in the source
    dead: list[int]  # those that are constant in the artifact only; of many, those that are off by LOST too
    cut: list[int]  # those that are cut off at an end in the artifact only
    size: int  # channels
    classifier: bool  # many classes, of which one is chosen with more confidence than all others together, on average


@dataclass
class Ends:
    """The least and largest value of each channel, and how many are exactly that."""

    low: np.ndarray
    high: np.ndarray
    at_low: np.ndarray
    at_high: np.ndarray
    count: int = 0

    @staticmethod
    def of(channels: int) -> Ends:
        import numpy as np

        infinite, none = np.full(channels, np.inf), np.zeros(channels)
        return Ends(infinite, -infinite, none, none)

    def add(self, rows: np.ndarray) -> None:
        """[items, places, channels]"""
        import numpy as np

        low = np.minimum(self.low, rows.min((0, 1), initial=np.inf))
        high = np.maximum(self.high, rows.max((0, 1), initial=-np.inf))
        self.at_low = self.at_low * (low == self.low) + (rows == low).sum((0, 1))
        self.at_high = self.at_high * (high == self.high) + (rows == high).sum((0, 1))
        self.low, self.high, self.count = low, high, self.count + rows.shape[0] * rows.shape[1]

    def shares(self) -> np.ndarray:
        """Of the values, those at the end that more are at."""
        import numpy as np

        most: np.ndarray = np.maximum(self.at_low, self.at_high) / max(self.count, 1)
        return most


@dataclass
class Outline:
    """The source's output: [items, places, channels] by `axis`; what its numbers can be; the spread of each channel."""

    axis: int
    places: int
    plane: bool
    kind: beliefs.Kind
    mean: np.ndarray
    spread: np.ndarray
    ends: Ends
    background: int | None
    constant: np.ndarray

    def rows(self, array: np.ndarray) -> np.ndarray:
        """Some items as float64 [items, places, channels]."""
        return channel_axis.channels_last(array, self.axis)

    @property
    def alone(self) -> np.ndarray:
        """The channels that are probabilities each for itself: of some places above one half, of others not."""
        import numpy as np

        low, high = self.ends.low, self.ends.high
        if self.kind == "logit":
            return np.ones(len(low), bool)
        if self.kind not in ("shares", "values"):
            return np.zeros(len(low), bool)
        return (low >= 0) & (high <= 1) & (low < beliefs.DECIDED) & (high >= beliefs.DECIDED)

    def sought(self, rows: np.ndarray) -> np.ndarray | None:
        """How probable something is at each place, where that is what the output tells: [items, places]."""
        if self.places < 2 or self.plane:
            return None
        p = beliefs.probabilities(rows, self.kind)
        if self.background is not None:
            sought: np.ndarray = 1 - p[..., self.background]
            return sought
        return p[..., self.alone].max(initial=0.0, axis=-1) if self.alone.any() else None


def outline(array: np.ndarray, layout: str = "") -> Outline:
    """The first pass over the source's output [items, ...]."""
    import numpy as np

    axis = channel_axis.channel_axis(array, layout)
    shape = channel_axis.channels_last(array[:1], axis).shape
    ends, tally = Ends.of(shape[2]), beliefs.Tally()
    first = channel_axis.channels_last(array[:1], axis).mean((0, 1))  # to take squares of small numbers
    items, chosen = list[np.ndarray](), np.zeros(shape[2])
    for part in parts(array):
        rows = channel_axis.channels_last(array[part], axis)
        ends.add(rows)
        tally.add(rows)
        items.append(np.stack([(rows - first).mean(1), np.square(rows - first).mean(1)]))
        chosen += np.bincount(rows.argmax(-1).ravel(), minlength=shape[2])
    sums, squares = np.concatenate(items, axis=1)
    mean, share = _middle(sums), chosen / chosen.sum()
    kind = tally.kind(shape[2])
    rare = kind in beliefs.CLASSES and shape[1] > 1 and share.max() > 1 - beliefs.RARE
    spread, constant = _spreads(np.maximum(squares - 2 * sums * mean + mean * mean, 0.0), ends)
    background = int(share.argmax()) if rare else None
    return Outline(axis, shape[1], array.ndim > 3, kind, mean + first, spread, ends, background, constant)


def _kept(items: int) -> int:
    """How many items are left without the outlying ones."""
    return items - int(items * OUTLIERS)


def _middle(sums: np.ndarray) -> np.ndarray:
    """The mean of each channel without its outlying items, from the items' own means [items, channels]."""
    import numpy as np

    order = np.abs(sums - np.median(sums, axis=0)).argsort(axis=0, kind="stable")
    return np.asarray(np.take_along_axis(sums, order[: _kept(len(sums))], axis=0).mean(0))


def _spreads(power: np.ndarray, ends: Ends) -> tuple[np.ndarray, np.ndarray]:
    """The spread of each channel without its outlying items, those of small channels raised; which are constant."""
    import numpy as np

    spread = np.sqrt(np.sort(power, axis=0)[: _kept(len(power))].mean(0))
    size = np.maximum(np.abs(ends.low), np.abs(ends.high))
    constant = spread <= STILL * size
    whole = float(np.sqrt(np.square(spread).mean()))
    least = float(np.median(spread)) if len(spread) > MANY else STILL * whole
    raised = np.maximum(np.where(constant, whole, spread), least)
    return np.where(raised > 0, raised, np.where(size > 0, size, 1.0)), constant


def parts(array: np.ndarray) -> Iterator[slice]:
    """The items of an output, so many at once as a memory easily holds."""
    step = max(1, AT_ONCE // max(1, array[:1].size))
    return (slice(begin, begin + step) for begin in range(0, len(array), step))


# --------------------------------------------------------------------------- the second pass


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
    choices: beliefs.Choices = field(init=False)
    findings: beliefs.Findings = field(default_factory=beliefs.Findings)

    def __post_init__(self) -> None:
        self.ends = Ends.of(len(self.outline.spread))
        self.choices = beliefs.Choices(self.outline.plane)

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
        p, q = (beliefs.probabilities(side[fine], kind) for side in (golden, output))
        if kind in beliefs.CLASSES:
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
            "found_error": self.found.relative(spread) if self.found.weight else None,
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
            "classifier": many and self.choices.rows > 0 and self.choices.confidence() > beliefs.DECIDED,
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
    golden: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], layouts: Mapping[str, str]
) -> dict[str, ChannelFacts]:
    """The channels of each output of the same items; `layouts`: of those whose layout is known.

    Boxes and the like are judged by what a detector finds: where another output, or other channels, tell for each of
    the same places how probable something is there, errors count by that.
    """
    outlines = {name: outline(array, layouts.get(name, "")) for name, array in golden.items()}
    finder = next((name for name in golden if _finds(golden[name], outlines[name])), None)
    facts = {}
    for name, ours in golden.items():
        o, comparison = outlines[name], Comparison(outlines[name])
        helped = finder is not None and outlines[finder].places == o.places and not o.plane
        step = max(1, ours.size // beliefs.MOST_RANKED)
        for part in parts(ours):
            sought = outlines[finder].sought(outlines[finder].rows(golden[finder][part])) if helped and finder else None
            comparison.add(o.rows(ours[part]), o.rows(outputs[name][part]), sought, step)
        facts[name] = comparison.facts()
    return facts


def _finds(array: np.ndarray, o: Outline) -> bool:
    """Whether an output tells of each place whether something is there, which it rarely is."""
    sought = o.sought(o.rows(array[next(parts(array))]))
    return sought is not None and 0 < float(sought.mean()) < beliefs.RARE
