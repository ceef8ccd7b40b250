"""Ranks the variants by instructions per inference, where the device is simulated and its seconds mean nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgecompress.model import Choice, Outcomes, Stage
from edgecompress.race import Entrant, agreement, in_words
from edgecompress.settings import Profile

SESSION_S = 25.0  # of a variant's counting: three processes in an emulator
SAME = 1.02  # within 2 % the target's own order decides


@dataclass(frozen=True)
class Count:
    """A search: one stage counts every variant that kept its promises -> the one with the fewest instructions."""

    entrants: tuple[Entrant, ...]
    profile: Profile
    simulated: str  # what stands in for the device
    samples: str = "excerpt"  # the stage that has the inputs to run on
    left_out: Mapping[str, str] = field(default_factory=dict)  # variants that the source does not reach, and why
    plugins: tuple[str, ...] = ()  # of the device: with other code of its transport or sensors it is counted again
    name: str = "count"
    unmeasured = ""

    @property
    def judged(self) -> bool:
        """Whether somebody may ship: artifacts without a verdict are only counted."""
        return any(e.verdict for e in self.entrants)

    def bound(self) -> str:
        """The most it can cost, in words."""
        return (
            f"{len(self.entrants)} variants by {self.simulated}: instructions are counted, nothing is timed, "
            f"about {self.estimate_s() / 60:.1f} min"
        )

    def estimate_s(self) -> float:
        """Seconds of counting when every variant survives."""
        return SESSION_S * len(self.entrants)

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The stage that counts, then the choice."""
        passed = [e for e in self.entrants if e.passed(outcomes) and not e.simulated]
        if passed and "count" not in outcomes:
            return [self._stage(passed)]
        counts = self._counts(outcomes)
        if not counts:
            return Choice(
                "", "no variant was counted" if passed else "no variant is left to ship", self._table(outcomes, "")
            )
        fewest = min(counts.values())
        chosen = next(e.name for e in self.entrants if counts.get(e.name, SAME * fewest + 1) <= SAME * fewest)
        return Choice(chosen, self._why(counts, chosen), self._table(outcomes, chosen))

    def _stage(self, passed: Sequence[Entrant]) -> Stage:
        return Stage(
            "count",
            "stages.count:run",
            {**{e.name: e.artifact for e in passed}, "samples": self.samples},
            {
                "order": [e.name for e in passed],
                "runtimes": {e.name: e.runtime for e in passed},
                "profile": dataclasses.asdict(self.profile),
            },
            variants=tuple(e.name for e in passed),
            plugins=tuple(sorted({*self.plugins, *(f"runtimes.{e.runtime}" for e in passed)})),
            context=("seed", "batch", "threads", "device"),
            estimate_s=SESSION_S * len(passed),
            timeout_s=600 + 60 * SESSION_S * len(passed),
        )

    def _counts(self, outcomes: Outcomes) -> dict[str, int]:
        """Instructions per inference of each variant that was counted."""
        counted = outcomes.get("count")
        rows = counted.facts.get("variants", {}) if counted else {}
        return {name: row["instructions"] for name, row in rows.items() if "crashed" not in row}

    def _why(self, counts: Mapping[str, int], chosen: str) -> str:
        others = {name: n / counts[chosen] for name, n in counts.items() if name != chosen}
        said = f"the fewest instructions per inference by {self.simulated}"
        if not others:
            return f"{said}: the only variant counted"
        near = min(others, key=lambda name: others[name])
        if others[near] < SAME:
            return f"as few instructions as {near} by {self.simulated}, and before it in the target's order"
        return f"{said}; next is {near} with {others[near]:.2f}x as many"

    # ------------------------------------------------------------------ what the report shows

    def _table(self, outcomes: Outcomes, chosen: str) -> dict[str, Any]:
        left_out = {n: {"verdict": "lost", "reason": why, "medians_ms": []} for n, why in self.left_out.items()}
        return {e.name: self._row(outcomes, e, chosen) for e in self.entrants} | left_out

    def _row(self, outcomes: Outcomes, entrant: Entrant, chosen: str) -> dict[str, Any]:
        counts, counted = self._counts(outcomes), outcomes.get("count")
        row = dict(counted.facts.get("variants", {}).get(entrant.name, {})) if counted else {}
        verdict, reason = self._verdict(outcomes, entrant, chosen)
        tried = {r: agreement(outcomes.get(s)) for r, s in entrant.also.items() if entrant.artifact in outcomes}
        ratio = counts[entrant.name] / counts[chosen] if chosen and entrant.name in counts else None
        return {
            "verdict": verdict,
            "reason": reason,
            "runtime": entrant.runtime,
            "reference": entrant.reference,
            "also": {**tried, **entrant.untried},
            "medians_ms": [],
            "median_ms": None,
            **{key: row.get(key) for key in ("instructions", "classes", "processes", "identical")},
            "count_ratio": ratio,
        }

    def _verdict(self, outcomes: Outcomes, entrant: Entrant, chosen: str) -> tuple[str, str]:
        judged, counts = entrant.judged(outcomes), self._counts(outcomes)
        if judged is None or judged.status != "ok":
            return (judged.status, in_words(judged.reason)) if judged else ("failed", "was not built")
        if entrant.simulated:
            return "passed", f"not counted: {entrant.simulated} stands in for its runtime here"
        if entrant.name not in counts:
            counted = outcomes.get("count")
            rows = counted.facts.get("variants", {}) if counted else {}
            return "failed", in_words(rows.get(entrant.name, {}).get("crashed", "was not counted"))
        if entrant.name == chosen:
            return ("shipped", self._why(counts, chosen)) if entrant.verdict else ("measured", "")
        factor = counts[entrant.name] / counts[chosen]
        return "slower", f"{factor:.2f}x the instructions of {chosen} (simulated)"
