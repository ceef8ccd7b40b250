"""The remaining time of a run: the expected time of each step, corrected by the times of the steps before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PRIOR_S = 30.0  # the weight of the expectation against what was observed: a first stage of a second decides little
LEAST = 0.1  # the share of a running stage's seconds, expected or elapsed, that is left at least
GROWTH = 1.2  # the factor by which the seconds left may grow from what was shown to the next event,
SHORT_S = 5.0  # or up to so many
SHOWN_S = 1.0  # they are shown once in so many seconds


@dataclass(frozen=True)
class TimeLeft:
    """The seconds left as of one moment; they count down until the next event."""

    stage_s: float = 0.0  # of the running stage
    whole_s: float = 0.0  # that the running stage is expected to take, from its beginning; 0: none is running
    elapsed_s: float = 0.0  # that it has been running
    rest_s: float = 0.0  # of all that comes after it
    since: float = field(default_factory=lambda: time.monotonic())

    def seconds(self, ago_s: float = 0.0) -> float:
        """Seconds left now, or so long ago."""
        since_s = max(0.0, time.monotonic() - self.since - ago_s)
        least_s = LEAST * max(self.whole_s, self.elapsed_s + since_s) if self.whole_s else 0.0
        return max(self.stage_s - since_s, least_s) + self.rest_s

    def at_most(self, most_s: float) -> TimeLeft:
        """The same, all of it in proportion, where more than so many seconds are left."""
        if (left_s := self.seconds()) <= most_s:
            return self
        part = most_s / left_s
        return TimeLeft(part * self.stage_s, part * self.whole_s, part * self.elapsed_s, part * self.rest_s)


@dataclass
class Forecast:
    """The time left of one run; it learns from each stage that ran."""

    expected_s: float = 0.0  # of the stages that have run
    took_s: float = 0.0
    last: TimeLeft | None = None

    @property
    def scale(self) -> float:
        """Seconds that a stage takes here per second that it was expected to take."""
        return (self.took_s + PRIOR_S) / (self.expected_s + PRIOR_S)

    def ran(self, expected_s: float, took_s: float) -> None:
        """Learns the time that a stage took."""
        self.expected_s += expected_s
        self.took_s += took_s

    def left(self, rest_s: float, stage_s: float = 0.0, elapsed_s: float = 0.0, fraction: float = 0.0) -> TimeLeft:
        """The time left, where a stage that was expected to take `stage_s` has run for `elapsed_s`.

        max(expected - elapsed, 10 % of the larger of the two) + the rest. `fraction` is how much of the stage is done,
        by its own account; the more is done, the more `elapsed_s / fraction` counts as its expected seconds.
        """
        whole = (1 - fraction) * self.scale * stage_s + (elapsed_s if fraction else 0.0)
        stage_s = (1 - fraction) * whole if fraction else whole - elapsed_s
        before_s = min(self.last.seconds(), self.last.seconds(SHOWN_S)) if self.last else 0.0
        now = TimeLeft(stage_s, whole, elapsed_s, self.scale * rest_s)
        self.last = now.at_most(max(SHORT_S, GROWTH * before_s)) if before_s else now
        return self.last
