"""What the rounds of a race tell: who is ahead, who cannot win any more, who is shown to be equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, cast

from edgecompress.core import sequential_comparison, stats

if TYPE_CHECKING:
    from edgecompress.device.agent.measuring_round import Crashed
    from edgecompress.device.session_numbers import SessionNumbers

ROUGH = 2.0  # how far a time may be off that was too noisy to compare: whose is more times as long cannot win
GIVE_UP = 3  # rounds without two sessions that compare: then the machine is too noisy


@dataclass(frozen=True)
class Standings:
    """The rounds so far, of a race of at most `looks` rounds in which each of `comparisons` pairs may decide."""

    rounds: Sequence[Mapping[str, SessionNumbers | Crashed]]
    looks: int
    comparisons: int

    def crashed(self, name: str) -> str:
        """Why a session of it gave no numbers, or ""."""
        return next((str(r[name].get("crashed")) for r in self.rounds if name in r and "crashed" in r[name]), "")

    def of(self, name: str) -> list[SessionNumbers]:
        """The sessions of a variant that gave numbers."""
        return [cast("SessionNumbers", r[name]) for r in self.rounds if name in r and "crashed" not in r[name]]

    def times(self, name: str) -> list[float]:
        """Its session medians in ms, those that were not too noisy."""
        return [time for r in self.of(name) if (time := r["median_ms"]) is not None]

    def rough(self, name: str) -> float:
        """Milliseconds that it seems to take, whatever disturbed it; infinite where nothing was measured."""
        each = [t for r in self.of(name) for t in r["rough_ms"]]
        return median(each) if each else math.inf

    def noisy(self, name: str) -> str:
        """What made all of its sessions too noisy, or ""."""
        return "" if self.times(name) else next((r["noisy"] for r in self.of(name) if r["noisy"]), "")

    def ratios(self, name: str, other: str) -> list[float]:
        """Its time to the other's, one for each round in which the two compare."""
        both = [r for r in self.rounds if name in r and other in r and not {"crashed"} & {*r[name], *r[other]}]
        sides = [[cast("SessionNumbers", r[each])["windows_ms"] for each in (name, other)] for r in both]
        ratios = (sequential_comparison.paired(own, theirs) for own, theirs in sides)
        return [ratio for ratio in ratios if ratio is not None]

    def ratio(self, name: str, other: str) -> stats.Ratio | None:
        """The same with the interval that is reported; None where no round compares them."""
        each = self.ratios(name, other)
        return stats.of_ratios(each) if each else None

    def bound(self, name: str, other: str) -> sequential_comparison.Bound | None:
        """How far its time may be from the other's, by what one look at one pair may err; None without a ratio."""
        each = self.ratios(name, other)
        return (
            sequential_comparison.bound(each, sequential_comparison.spent(self.looks, self.comparisons))
            if each
            else None
        )

    def slower(self, name: str, other: str) -> bool:
        """Whether it is shown to be slower than the other; of what is too noisy to compare, whether it must be."""
        bound = self.bound(name, other)
        return bound.slower if bound else self.rough(name) > ROUGH * self.rough(other)

    def equal(self, name: str, other: str, looks: int) -> bool:
        """Whether the two are shown to be equal, where so many looks may show it."""
        each = self.ratios(name, other)
        return bool(each) and sequential_comparison.bound(each, sequential_comparison.spent(looks)).equal

    def ranked(self, names: Iterable[str]) -> list[str]:
        """The fastest first, each by its ratio to one that has most sessions."""
        known = [name for name in names if self.rough(name) < math.inf]
        anchor = max(known, key=lambda name: len(self.times(name)), default="")

        def score(name: str) -> float:
            each = [math.log(ratio) for ratio in self.ratios(name, anchor)]
            return fmean(each) if each else math.log(self.rough(name) / self.rough(anchor))

        return sorted(known, key=score)

    def hopeless(self, names: Sequence[str]) -> bool:
        """Whether the machine is so noisy that after GIVE_UP rounds nothing compares, or the only one has no time."""
        if len(self.rounds) < GIVE_UP:
            return False
        first = self.ranked(names)[:1]
        others = [name for name in names if name not in first]
        compared = any(self.ratios(name, first[0]) for name in others) if first else False
        return not (compared if others else any(map(self.times, names)))
