"""The remaining time of a run: the expected time of each step, corrected by the times of the steps before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

PRIOR_S = 30.0  # the weight of the expectation against what was observed: a first stage of a second decides little
LEAST = 0.1  # the share of a running stage's seconds that is left at least
GROWTH = 1.2  # the factor by which the seconds left may grow from one event to the next,
SHORT_S = 5.0  # or up to so many


@dataclass(frozen=True)
class TimeLeft:
    """The seconds left as of one moment; they count down until the next event."""

    stage_s: float = 0.0  # of the running stage
    least_s: float = 0.0  # of the running stage, however long it has been running
    rest_s: float = 0.0  # of all that comes after it
    since: float = field(default_factory=lambda: time.monotonic())

    def seconds(self) -> float:
        """Seconds left now."""
        return max(self.stage_s - (time.monotonic() - self.since), self.least_s) + self.rest_s


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

        max(expected - elapsed, 10 % of the expected) + the rest. `fraction` is how much of the stage is done, by its
        own account; the more is done, the more `elapsed_s / fraction` counts as its expected seconds.
        """
        whole = (1 - fraction) * self.scale * stage_s + (elapsed_s if fraction else 0.0)
        least_s = LEAST * whole
        stage_s = max((1 - fraction) * whole if fraction else whole - elapsed_s, least_s)
        now = TimeLeft(stage_s, least_s, self.scale * rest_s)
        before_s = self.last.seconds() if self.last else 0.0
        most_s = max(SHORT_S, GROWTH * before_s)
        if before_s and most_s < now.seconds():
            part = most_s / now.seconds()
            now = TimeLeft(part * stage_s, part * least_s, part * now.rest_s)
        self.last = now
        return now
