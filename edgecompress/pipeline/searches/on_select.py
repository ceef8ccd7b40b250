"""How an artifact does on the split that chooses: the stage that compares it there, and what it loses of a budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core.model import Outcomes, Stage
from edgecompress.core.settings import Limits, Variant
from edgecompress.data import flip_risk, metric_limits, metrics, output_checks, paired_proportions
from edgecompress.pipeline import verification
from edgecompress.pipeline.job import Job

SPLIT = "select"
GOLDEN = f"golden-{SPLIT}"  # the stage that has the source's answers to it

Table = Mapping[str, Any]


def stage(job: Job, name: str, runtime: str, artifact: str, variant: Variant) -> Stage:
    """The stage that compares the artifact of a stage with the source, whatever it loses there."""
    plain = verification.verify(job, name, runtime, artifact, variant)
    limits = {**plain.options["limits"], **dict.fromkeys(verification.QUALITIES)}
    options = {**plain.options, "limits": limits, "split": SPLIT}
    return dataclasses.replace(plain, options=options, inputs={**plain.inputs, "golden": GOLDEN})


def budget(job: Job, variant: Variant, outcomes: Outcomes) -> Budget:
    """What a variant may lose, told for the items of the split that judges."""
    items = int(outcomes["data"].facts["splits"]["test"])
    return Budget(verification.limits(job, variant), items, job.target.value.guard.sure)


@dataclass(frozen=True)
class Budget:
    """What may be lost. `items`: those that judge, which a number in limits.items_lost is told for."""

    limits: Limits
    items: int
    sure: float  # the chance to keep a budget of items that is asked for

    def excess(self, facts: Table) -> float:
        """What a verdict on other items loses beyond the budget: at most 0 inside.

        Of right answers it is what the chance to keep the budget on `items` items lacks of `sure`; of a number with an
        interval a standard error is added, for other items give another one. Where limits are strict, a budget is kept
        by what is decided inside. Without a metric: what the outputs lack.
        """
        m: metrics.MetricComparison | None = facts.get("metric")
        limited = metric_limits.limited(m, self.limits, self.items) if m else []
        beyond = [self._beyond(m, loss, most) for loss, most in limited if m]
        return max(beyond or [0.0, *_lacking(facts["outputs"], self.limits)])

    def decided(self, facts: Table) -> float:
        """The excess of what is surely too much on other items, too: the whole interval is beyond the limit."""
        m: metrics.MetricComparison | None = facts.get("metric")
        limited = metric_limits.limited(m, self.limits, self.items) if m else []
        scaled = [(loss, most * loss.n / self.items if loss.counts else most) for loss, most in limited]
        unsettled = [None not in loss.interval and loss.decided(most).word == "undecided" for loss, most in scaled]
        beyond = [0.0 if yet else loss.value - most for (loss, most), yet in zip(scaled, unsettled, strict=True)]
        return max(beyond or [0.0, *_lacking(facts["outputs"], self.limits)])

    def _beyond(self, metric: metrics.MetricComparison, loss: metric_limits.Loss, most: float) -> float:
        if loss.counts:
            return self.sure - self._chance(metric, int(most))
        end, strict = loss.interval[1], self.limits.strict
        if end is None:
            return math.inf if strict else loss.value - most
        # what a number may be off, from an end of its interval: a standard error, or all of it
        margin = abs(end - loss.value) / (1 if strict else paired_proportions.Z)
        return loss.value + margin - most

    def _chance(self, metric: metrics.MetricComparison, most: int) -> float:
        """That at most so many items are lost, net: as many as margins and noise foretell, or as were seen, if more."""
        seen = {"lost": metric["items_lost"] or 0, "gained": metric["items_gained"] or 0}
        counted = {word: count / metric["n"] for word, count in seen.items()}
        expected = metric.get("expected") or counted
        lost, gained = self.items * max(expected["lost"], counted["lost"]), self.items * expected["gained"]
        most = metric_limits.surely_kept(most, round(gained), self.items) if self.limits.strict else most
        return flip_risk.chance(lost, gained, most)


def foretold(facts: Table) -> float:
    """What a verdict loses, gains not counted: of right answers as margins and counting foretell, else as seen."""
    metric: metrics.MetricComparison | None = facts.get("metric")
    if metric and (expected := metric.get("expected")):
        return flip_risk.settled(expected["lost"], metric["items_lost"] or 0, metric["n"])
    return float(metrics.lost(metric, gross=True) or 0.0)


def _lacking(outputs: Sequence[Table], limits: Limits) -> Iterator[float]:
    """How far each output is below the limits on outputs."""
    for output in outputs:
        yield output_checks.excess(output, limits)  # type: ignore[arg-type]
        for name in ("sqnr_db", "cosine"):
            limit = getattr(limits, name)
            if limit is not None and output["reason"] != "identical":
                yield limit - output[name] if output[name] is not None else math.inf
