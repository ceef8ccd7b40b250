"""What is added up of one layer over the runs: signal, noise, ranges, channels. Arrays in, plain numbers out."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import numpy as np
    import torch

Values = TypeVar("Values", "np.ndarray", "torch.Tensor")

STEPS = 255.0  # of eight bits
POINTS = 4096  # of a value, from which its usual size is computed
USUAL = 99.9  # percent of the values are at most so large


def finite(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The values of both, flat and in float64, where both are finite."""
    import numpy as np

    x, y = a.reshape(-1).astype(np.float64), b.reshape(-1).astype(np.float64)
    fine = np.isfinite(x) & np.isfinite(y)
    return (x, y) if fine.all() else (x[fine], y[fine])


@dataclass
class Power:
    """Energy of a signal and of what was added to it, where both are finite."""

    signal: float = 0.0
    noise: float = 0.0

    def add(self, source: np.ndarray, output: np.ndarray) -> None:
        """One run."""
        w, f = finite(source, output)
        error = f - w
        self.signal += float(w @ w)
        self.noise += float(error @ error)

    @property
    def ratio(self) -> float | None:
        """Noise over signal; None where there is no signal."""
        return self.noise / self.signal if self.signal else None

    @property
    def sqnr_db(self) -> float | None:
        """10 log10(signal / noise); None where either is nothing."""
        return 10 * math.log10(self.signal / self.noise) if self.signal and self.noise else None

    @property
    def reason(self) -> str:
        """Why there is no ratio in decibels."""
        return "" if self.signal and self.noise else "identical" if not self.noise else "the source is zero"


def beyond(source: Values, output: Values, extremes: tuple[float, float]) -> Values:
    """Where `output` is at one of its extremes and `source` a step of eight bits beyond; arrays, or torch's tensors."""
    low, high = extremes
    step = (high - low) / STEPS
    return ((output >= high) & (source > high + step)) | ((output <= low) & (source < low - step))


@dataclass
class CutValues:
    """What lay beyond the artifact's extremes, and was cut off there."""

    values: int = 0
    cut: int = 0
    noise: float = 0.0
    all_noise: float = 0.0

    def add(self, source: np.ndarray, output: np.ndarray, extremes: tuple[float, float]) -> None:
        """One run."""
        import numpy as np

        fine = np.isfinite(source) & np.isfinite(output)
        squares = (output[fine].astype(np.float64) - source[fine]) ** 2
        cut = beyond(source, output, extremes)[fine]
        self.values += source.size
        self.cut += int(cut.sum())
        self.noise += float(squares[cut].sum())
        self.all_noise += float(squares.sum())

    @property
    def share(self) -> float:
        """Of the values."""
        return self.cut / self.values if self.values else 0.0

    @property
    def part(self) -> float:
        """Of the noise."""
        return self.noise / self.all_noise if self.all_noise else 0.0


@dataclass
class LayerNoise:
    """Of one layer: how far the artifact is from the source in all (`whole`), and by its own fault (`own`).

    `low`, `high`: the artifact's extremes over all runs, known beforehand: what lies beyond them in the source was cut.
    """

    low: float
    high: float
    axis: int = 1  # of the channels, in a run
    whole: Power = field(default_factory=Power)
    own: Power = field(default_factory=Power)
    runs: int = 0
    bad: int = 0  # runs in which the artifact is not finite, and the source is
    cut: CutValues = field(default_factory=CutValues)  # of the source
    own_cut: CutValues = field(default_factory=CutValues)  # of what the artifact's own inputs give
    least: float = math.inf
    most: float = -math.inf
    channels: np.ndarray | None = None  # the largest magnitude in each channel of the source
    points: list[np.ndarray] = field(default_factory=list)  # values of the source at a few places

    def add(self, source: np.ndarray, output: np.ndarray) -> None:
        """One run: the source's value and the artifact's, of one shape."""
        import numpy as np

        self.runs += 1
        self.bad += int((~np.isfinite(output) & np.isfinite(source)).any())
        self.whole.add(source, output)
        self.cut.add(source, output, (self.low, self.high))
        fine = np.where(np.isfinite(source), source, 0.0)
        self.least, self.most = min(self.least, float(fine.min())), max(self.most, float(fine.max()))
        axes = tuple(a for a in range(fine.ndim) if a != self.axis % max(fine.ndim, 1))
        largest = np.abs(fine).max(axis=axes)
        self.channels = largest if self.channels is None else np.maximum(self.channels, largest)
        flat = fine.reshape(-1)
        self.points.append(flat[:: max(1, flat.size // POINTS)].copy())  # a view would keep all of it

    def add_own(self, computed: np.ndarray, output: np.ndarray) -> None:
        """One run: what the source computes from the artifact's inputs, and what the artifact did."""
        self.own.add(computed, output)
        self.own_cut.add(computed, output, (self.low, self.high))

    @property
    def rounding(self) -> float | None:
        """Noise over signal of eight bits over the whole range: step^2 / 12 for each value (Bennett 1948)."""
        step = (max(self.most, 0.0) - min(self.least, 0.0)) / STEPS
        return self.cut.values * step**2 / 12 / self.whole.signal if self.whole.signal else None

    @property
    def outlier(self) -> tuple[float | None, int | None]:
        """The largest channel's maximum over that of the median channel, and which one it is."""
        import numpy as np

        if self.channels is None or self.channels.size < 2:
            return None, None
        alive = self.channels[self.channels > 0]
        if not alive.size:
            return None, None
        return float(self.channels.max() / np.median(alive)), int(self.channels.argmax())

    @property
    def wide(self) -> float:
        """The largest magnitude over that of nearly all values: how much of the range few values take."""
        import numpy as np

        usual = float(np.percentile(np.abs(np.concatenate(self.points)), USUAL)) if self.points else 0.0
        largest = max(abs(self.least), abs(self.most))
        return largest / usual if usual else 1.0


def largest(powers: Iterable[Power]) -> float | None:
    """The largest noise over signal; None where none is known."""
    return max((power.ratio for power in powers if power.ratio is not None), default=None)


def decibels(ratio: float | None) -> float | None:
    """10 log10 of a ratio of energies; None of nothing."""
    return 10 * math.log10(ratio) if ratio else None


def extremes(runs: Iterable[np.ndarray]) -> tuple[float, float]:
    """The lowest and highest finite value of [runs, ...]; zeros where there is none."""
    import numpy as np

    low, high = math.inf, -math.inf
    for run in runs:
        fine = run[np.isfinite(run)]
        if fine.size:
            low, high = min(low, float(fine.min())), max(high, float(fine.max()))
    return (low, high) if low <= high else (0.0, 0.0)


def relative_rms(reference: Iterable[np.ndarray], outputs: Iterable[np.ndarray]) -> float | None:
    """sqrt(sum of squared differences / sum of squares) of two lists of arrays; None where the first are zero."""
    power = Power()
    for w, f in zip(reference, outputs, strict=True):
        power.add(w, f)
    return None if power.ratio is None else math.sqrt(power.ratio)
