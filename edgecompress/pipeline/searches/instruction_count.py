"""Ranks the variants by instructions per inference if the device is simulated and its times mean nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from edgecompress.core.model import Choice, Outcomes, Stage
from edgecompress.core.settings import Profile
from edgecompress.pipeline.candidate_variant import Candidate, ChoiceRow, Verdict, table, without_log

SESSION_S = 25.0  # of a variant's counting: three processes in an emulator
SAME = 1.02  # within 2 % the target's own order decides


class InstructionCount(TypedDict, total=False):
    """What the stage tells of a variant: its instructions per inference, or why it crashed."""

    crashed: str
    instructions: int
    classes: dict[str, int]
    processes: list[int]
    identical: bool


@dataclass(frozen=True)
class Count:
    """A search: one stage counts every variant within its limits -> the one with the fewest instructions."""

    entrants: tuple[Candidate, ...]
    profile: Profile
    simulated: str  # what stands in for the device
    samples: str = "excerpt"  # the stage that has the inputs to run on
    left_out: Mapping[str, str] = field(default_factory=dict)  # variants that the source does not reach, and why
    plugins: tuple[str, ...] = ()  # of the device: with other code of its transport or sensors it is counted again
    name: str = "count"
    unmeasured = ""

    @property
    def judged(self) -> bool:
        """Whether a variant may ship: artifacts without a verdict are only counted."""
        return any(e.verdict for e in self.entrants)

    def bound(self) -> str:
        """Its maximum cost in words."""
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
            return [self.counting(passed)]
        counts = self._counts(outcomes)
        if not counts:
            return Choice(
                "", "no variant was counted" if passed else "no variant is left to ship", self._table(outcomes, "")
            )
        fewest = min(counts.values())
        chosen = next(e.name for e in self.entrants if counts.get(e.name, SAME * fewest + 1) <= SAME * fewest)
        return Choice(chosen, self._why(counts, chosen), self._table(outcomes, chosen))

    def counting(self, passed: Sequence[Candidate]) -> Stage:
        """The stage that counts the instructions of each."""
        return Stage(
            "count",
            "stages.instructions:run",
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
        rows = self._counted(outcomes)
        return {name: row["instructions"] for name, row in rows.items() if "crashed" not in row}

    def _counted(self, outcomes: Outcomes) -> Mapping[str, InstructionCount]:
        """What the stage tells of each variant that it ran."""
        counted = outcomes.get("count")
        rows: Mapping[str, InstructionCount] = counted.facts.get("variants", {}) if counted else {}
        return rows

    def _why(self, counts: Mapping[str, int], chosen: str) -> str:
        others = {name: n / counts[chosen] for name, n in counts.items() if name != chosen}
        reason = f"the fewest instructions per inference by {self.simulated}"
        if not others:
            return f"{reason}: the only variant counted"
        near = min(others, key=lambda name: others[name])
        if others[near] < SAME:
            return f"as few instructions as {near} by {self.simulated}, and before it in the target's order"
        return f"{reason}; {near} takes {others[near]:.2f}x as many"

    # ------------------------------------------------------------------ what the report shows

    def _table(self, outcomes: Outcomes, chosen: str) -> dict[str, ChoiceRow]:
        return table(self.entrants, self.left_out, lambda candidate: self._row(outcomes, candidate, chosen))

    def _row(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> ChoiceRow:
        name, counts = candidate.name, self._counts(outcomes)
        counted = self._counted(outcomes).get(name, {})
        row = candidate.row(outcomes, candidate.not_passed(outcomes) or self._verdict(outcomes, candidate, chosen))
        row["instructions"], row["classes"] = counted.get("instructions"), counted.get("classes")
        row["processes"], row["identical"] = counted.get("processes"), counted.get("identical")
        row["count_ratio"] = counts[name] / counts[chosen] if chosen and name in counts else None
        return row

    def _verdict(self, outcomes: Outcomes, candidate: Candidate, chosen: str) -> Verdict:
        """The verdict on a candidate that was built and kept its limits."""
        name, counts = candidate.name, self._counts(outcomes)
        if candidate.simulated:
            return "passed", f"not counted: {candidate.simulated} stands in for its runtime here"
        if name not in counts:
            return "failed", without_log(self._counted(outcomes).get(name, {}).get("crashed", "was not counted"))
        if name == chosen:
            return candidate.winner(self._why(counts, chosen))
        factor = counts[name] / counts[chosen]
        if factor < SAME:
            return "equal", f"as few instructions as {chosen}, after it in the order (simulated)"
        return "slower", f"{factor:.2f}x the instructions of {chosen} (simulated)"
