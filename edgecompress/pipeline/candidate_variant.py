"""A variant of the target as the plan reaches it, verifies it and ranks it, and its row in the table of the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Required, TypedDict

from edgecompress.core.model import Outcome, Outcomes
from edgecompress.core.settings import Limits, Variant
from edgecompress.pipeline.variant_stages import SOURCE

Verdict = tuple[str, str]  # how it ended ("shipped", "slower", "equal", "noisy", "lost", "unreached", ...), and why


class ChoiceRow(TypedDict, total=False):
    """A variant in the table of a choice, as in report.json. A variant that cannot be built has three keys only."""

    verdict: Required[str]
    reason: Required[str]
    medians_ms: Required[list[float]]
    runtime: str
    reference: bool
    also: dict[str, str]  # another runtime -> "ok", or why it does not run the artifact
    median_ms: float | None
    undecided: list[str]  # limits on what was measured that its interval does not decide, in words
    ratio: dict[str, float | bool | None]  # of its time to that of the chosen one
    instructions: int | None
    classes: dict[str, int] | None
    processes: list[int] | None
    identical: bool | None
    count_ratio: float | None  # of its instructions to those of the chosen one


@dataclass(frozen=True)
class Candidate:
    """A variant with the stages that make and verify its artifact (no `verdict`: it is measured alone)."""

    variant: Variant
    runtime: str
    artifact: str  # the stage that makes it
    verdict: str = ""  # the stage that verifies it
    limits: Limits = field(default_factory=Limits)
    also: Mapping[str, str] = field(default_factory=dict)  # another runtime -> the stage that verifies it there
    untried: Mapping[str, str] = field(default_factory=dict)  # another runtime -> why it is not tried here
    min_runtime: str = ""  # the one of them that must run it
    also_told: tuple[str, ...] = ()  # those of them in which a wrong answer is told, and drops nothing
    simulated: str = ""  # what stands in here for its runtime: then it is verified, and not measured
    estimated: str = ""  # who estimates its cycles where nothing is measured
    agrees: str = ""  # the stage that compares its outputs on the device with those here
    made: tuple[str, ...] = ()  # the stages of its techniques, in order, and of what its zeros save

    @property
    def name(self) -> str:
        """The name of the variant."""
        return self.variant.name

    @property
    def reference(self) -> bool:
        """Whether it is a baseline, which is measured in every round."""
        return self.variant.reference

    def verified(self, outcomes: Outcomes) -> Outcome | None:
        """The outcome that decides whether it may ship: the first that is not "ok"."""
        elsewhere = [s for r, s in self.also.items() if r == self.min_runtime or self._wrong(r, outcomes)]
        stages = [self.verdict or self.artifact, *elsewhere, *([self.agrees] if self.agrees else [])]
        ended = [outcomes.get(stage) for stage in stages]
        return next((o for o in ended if o is None or o.status != "ok"), ended[0])

    def _wrong(self, runtime: str, outcomes: Outcomes) -> bool:
        """Whether another runtime ran it and a check of its answers failed. (What it cannot run is "failed".)

        The user's own file, unchanged, answers there as it always did: that is told.
        """
        outcome, made = outcomes.get(self.also[runtime]), outcomes.get(self.artifact)
        own = self.artifact == SOURCE or (made is not None and made.facts.get("given"))
        return not own and runtime not in self.also_told and outcome is not None and outcome.status == "lost"

    def unsettled(self, outcomes: Outcomes) -> str:
        """Where limits are strict: the other runtimes that do not run what is to ship, each with its reason, or ""."""
        elsewhere = {r: outcomes.get(s) for r, s in self.also.items() if r not in self.also_told}
        wrong = {r: o for r, o in elsewhere.items() if o is not None and o.status != "ok"}
        return "; ".join(f"in {r}: {_other_runtime(o)}" for r, o in wrong.items()) if self.limits.strict else ""

    def passed(self, outcomes: Outcomes) -> bool:
        """Whether it was built and is within its limits so far."""
        outcome = self.verified(outcomes)
        return outcome is not None and outcome.status == "ok"

    def not_passed(self, outcomes: Outcomes) -> Verdict | None:
        """The verdict on a variant that was not built or exceeds its limits; None for one that passed."""
        outcome = self.verified(outcomes)
        if outcome is None:
            return "failed", "was not built"
        if outcome.status == "ok":
            return None
        where = next((f"in {runtime}: " for runtime, stage in self.also.items() if stage == outcome.stage), "")
        return outcome.status, f"{where}{without_log(outcome.reason)}"

    def winner(self, why: str) -> Verdict:
        """The verdict on the chosen one."""
        return ("shipped", why) if self.verdict else ("measured", "")

    def row(self, outcomes: Outcomes, verdict: Verdict, medians_ms: Sequence[float] = ()) -> ChoiceRow:
        """Its row, without the columns that only one kind of ranking has."""
        tried = {r: _other_runtime(outcomes.get(s)) for r, s in self.also.items() if self.artifact in outcomes}
        return ChoiceRow(
            verdict=verdict[0],
            reason=verdict[1],
            runtime=self.runtime,
            reference=self.reference,
            also={**tried, **self.untried},
            medians_ms=list(medians_ms),
            median_ms=median(medians_ms) if medians_ms else None,
        )


def table(
    candidates: Sequence[Candidate], left_out: Mapping[str, str], row: Callable[[Candidate], ChoiceRow]
) -> dict[str, ChoiceRow]:
    """The table of a choice: a row for each candidate, and for each variant that the source does not reach."""
    unreached = {name: ChoiceRow(verdict="unreached", reason=why, medians_ms=[]) for name, why in left_out.items()}
    return {candidate.name: row(candidate) for candidate in candidates} | unreached


def without_log(reason: str) -> str:
    """A reason without the log that it names: a report is read on other machines."""
    return re.sub(r" \(log: [^()]*\)$", "", reason)


def _other_runtime(outcome: Outcome | None) -> str:
    """ "ok", or why another runtime does not run an artifact."""
    return "not tried" if outcome is None else without_log(outcome.reason) or outcome.status
