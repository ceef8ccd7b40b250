"""The source's output in outline: its axes, what its numbers can be, and the spread of each channel. Streamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgecompress.data import channel_axis, source_probabilities

if TYPE_CHECKING:
    import numpy as np

AT_ONCE = 1 << 22  # numbers
OUTLIERS = 0.01  # of the items, the largest: no part of a spread; and the tail that is limited
MANY = 16  # channels at most that each mean something; more are the components of one thing, judged together
STEPS = 1.5  # of a source that rounds: what varies by less is constant
FOLLOWED = 0.25  # of an input's variance, at least, explains what is that input again
STILL = 1e-6  # of a channel's size, and of the whole output's spread: what varies by less is constant


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
    kind: source_probabilities.Kind
    mean: np.ndarray
    spread: np.ndarray
    ends: Ends
    background: int | None
    constant: np.ndarray
    scored: slice = field(default_factory=lambda: slice(None))  # the channels that may be probabilities

    def rows(self, array: np.ndarray) -> np.ndarray:
        """Some items as float64 [items, places, channels]."""
        return channel_axis.channels_last(array, self.axis)

    @property
    def alone(self) -> np.ndarray:
        """The channels that are probabilities each for itself: of some places above one half, of others not."""
        import numpy as np

        low, high, half = self.ends.low, self.ends.high, source_probabilities.DECIDED
        own = np.zeros(len(low), bool)
        if self.kind == "logit":
            own[self.scored] = True
        elif self.kind in ("shares", "values"):
            own[self.scored] = ((low >= 0) & (high <= 1) & (low < half) & (high >= half))[self.scored]
        return own

    def sought(self, rows: np.ndarray) -> np.ndarray | None:
        """How probable something is at each place, where that is what the output tells: [items, places]."""
        if self.places < 2 or self.plane:
            return None
        p = source_probabilities.probabilities(rows, self.kind)
        if self.background is not None:
            sought: np.ndarray = 1 - p[..., self.background]
            return sought
        return p[..., self.alone].max(initial=0.0, axis=-1) if self.alone.any() else None


def outline(array: np.ndarray, layout: str = "", step: float = 0.0, again: bool = False) -> Outline:
    """The first pass over the source's output [items, ...].

    `step`: of its numbers, where the source rounds them; `again`: it is an input again, so it scores nothing unless its
    numbers are a distribution.
    """
    import numpy as np

    axis = channel_axis.channel_axis(array, layout)
    shape = channel_axis.channels_last(array[:1], axis).shape
    ends, tally = Ends.of(shape[2]), source_probabilities.Tally()
    first = channel_axis.channels_last(array[:1], axis).mean((0, 1))  # to take squares of small numbers
    items, chosen = list[np.ndarray](), np.zeros(shape[2])
    for part in parts(array):
        rows = channel_axis.channels_last(array[part], axis)
        ends.add(rows)
        tally.add(rows)
        items.append(np.stack([(rows - first).mean(1), np.square(rows - first).mean(1)]))
        chosen += np.bincount(rows.argmax(-1).ravel(), minlength=shape[2])
    sums, squares = np.concatenate(items, axis=1)
    order = np.abs(sums - np.median(sums, axis=0)).argsort(axis=0, kind="stable")
    mean = np.asarray(np.take_along_axis(sums, order[: _kept(len(sums))], axis=0).mean(0))  # less the outlying items
    share = chosen / chosen.sum()
    kind = tally.kind(shape[2])
    if again and kind not in ("probabilities", "log-probabilities"):
        kind = "values"
    rare = kind in source_probabilities.CLASSES and shape[1] > 1 and share.max() > 1 - source_probabilities.RARE
    spread, constant = _spreads(np.maximum(squares - 2 * sums * mean + mean * mean, 0.0), ends, step)
    background = int(share.argmax()) if rare else None
    return Outline(axis, shape[1], array.ndim > 3, kind, mean + first, spread, ends, background, constant)


def again(outputs: Mapping[str, np.ndarray], inputs: Mapping[str, np.ndarray]) -> frozenset[str]:
    """The outputs [items, ...] that are an input again, as those of an autoencoder or a denoiser are: of its shape, and
    nearer to it than its mean is.
    """
    pairs = ((name, ours, given) for name, ours in outputs.items() for given in inputs.values())
    return frozenset(name for name, ours, given in pairs if ours.shape == given.shape and _explains(ours, given))


def _explains(ours: np.ndarray, given: np.ndarray) -> bool:
    import numpy as np

    mean = float(np.mean(given, dtype=np.float64))
    squares = np.zeros(2)
    for part in parts(given):
        target = given[part].astype(np.float64)
        squares += np.square(target - ours[part]).sum(), np.square(target - mean).sum()
    return bool(squares[0] < (1 - FOLLOWED) * squares[1])


def _kept(items: int) -> int:
    """How many items are left without the outlying ones."""
    return items - int(items * OUTLIERS)


def _spreads(power: np.ndarray, ends: Ends, step: float) -> tuple[np.ndarray, np.ndarray]:
    """The spread of each channel without its outlying items, those of small channels raised; which are constant.

    One that moves by a step at most is constant: a kernel that rounds the other way moves it as much.
    """
    import numpy as np

    spread = np.sqrt(np.sort(power, axis=0)[: _kept(len(power))].mean(0))
    size = np.maximum(np.abs(ends.low), np.abs(ends.high))
    constant = (spread <= STILL * size) | (ends.high - ends.low <= STEPS * step)
    spread = np.where(constant, 0.0, spread)  # what rounding moves it by says nothing
    whole = float(np.sqrt(np.square(spread).mean()))
    least = float(np.median(spread)) if len(spread) > MANY else STILL * whole
    raised = np.maximum(np.where(constant, whole, spread), least)
    return np.where(raised > 0, raised, np.where(size > 0, size, 1.0)), constant


def parts(array: np.ndarray) -> Iterator[slice]:
    """The items of an output, so many at once as a memory easily holds."""
    step = max(1, AT_ONCE // max(1, array[:1].size))
    return (slice(begin, begin + step) for begin in range(0, len(array), step))
