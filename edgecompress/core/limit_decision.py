"""Whether a number keeps a limit, by its interval: inside, outside, or undecided; and what may ship.

Whatever is sampled (items of a test split, sessions of a race) is judged here, and nowhere else: the checks of a
variant, the guard's budget, the race, the gates of a comparison. A number that is exact is its own interval.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

CONFIDENCE = "95 %"  # of every interval that comes here
SESSIONS = 6  # of a median over sessions: with fewer no interval covers 95 %
Word = Literal["inside", "outside", "undecided"]
Interval = tuple[float | None, float | None]


@dataclass(frozen=True)
class Decision:
    """How a value and its interval lie to a limit. `near`: the value itself is inside."""

    word: Word
    near: bool

    def passes(self, strict: bool) -> bool:
        """Whether it may ship: what is undecided only if its value is inside, and never where the rule is strict."""
        return self.word == "inside" or (self.word == "undecided" and self.near and not strict)


def decide(value: float, interval: Interval, limit: float, least: bool = False) -> Decision:
    """A value against the most (or, with `least`, the least) that it may be. Without an interval nothing is."""
    if least:
        return decide(-value, negated(interval), -limit)
    low, high = interval
    if low is None or high is None:
        word: Word = "undecided"
    else:
        word = "inside" if high <= limit else "outside" if low > limit else "undecided"
    return Decision(word, value <= limit)


def negated(interval: Interval, scale: float = 1) -> Interval:
    """The interval of the number with the other sign, so many times as large."""
    low, high = interval
    return None if high is None else -scale * high, None if low is None else -scale * low


def needed(n: int, value: float, interval: Interval, limit: float) -> int | None:
    """How many items would bring the end of the interval to the limit, if they are like those n; None: no number.

    The width of the interval of a mean falls with the root of n (W. G. Cochran: Sampling Techniques, 1977, 4.4), so
    N = n ((end - value) / (limit - value))^2.
    """
    end = interval[1 if value <= limit else 0]
    if end is None or value == limit:
        return None
    return math.ceil(n * ((end - value) / (limit - value)) ** 2)


def enough(needed: int | None, n: int) -> str:
    """`about 2,100 items would decide (there are 500)`."""
    if needed is None:
        return f"and at this rate no number of items would decide (there are {n:,})"
    digits = 10 ** max(0, len(str(needed)) - 2)
    return f"about {-(-needed // digits) * digits:,} items would decide (there are {n:,})"
