"""How fast a training goes, and how long the rest takes."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

REPORT_S = 1.0  # at least, between two reports of progress


@dataclass
class Pace:
    """How fast it goes: steps of all, those done before this process, when it began and last reported."""

    total: int
    resumed: int = 0
    began_s: float = field(default_factory=time.monotonic)
    reported_s: float = 0.0

    def due(self) -> bool:
        """Whether it is time to report again; then it counts as reported."""
        now = time.monotonic()
        if now - self.reported_s < REPORT_S:
            return False
        self.reported_s = now
        return True

    def left(self, done: int) -> str:
        """How long the rest takes at the pace so far, in words; nothing where there is no pace yet, or no rest."""
        if not self.resumed < done < self.total:
            return ""
        return in_words((time.monotonic() - self.began_s) / (done - self.resumed) * (self.total - done))


def in_words(seconds: float) -> str:
    """`, 40 s left`; `, 4 min left`; `, 1 h 5 min left`."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f", {round(seconds)} s left"
    return f", {minutes} min left" if minutes < 60 else f", {minutes // 60} h {minutes % 60} min left"
