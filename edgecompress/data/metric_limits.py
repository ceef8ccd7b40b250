"""The limits on a task metric, each decided by the interval of what the artifact lost on the same items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgecompress.core import limit_decision
from edgecompress.core.limit_decision import CONFIDENCE, Decision, Interval
from edgecompress.core.model import Check
from edgecompress.core.plain_text import plural
from edgecompress.core.settings import Limits
from edgecompress.data import paired_proportions, task_metrics
from edgecompress.data.metrics import MetricComparison

NAMES = ("items_lost", "metric_ratio", "metric_drop")  # settings.Limits: each metric has a number for some of them
RELATIVE = "metric_loss"  # settings.Limits: of a metric for which none of those is given


@dataclass(frozen=True)
class Loss:
    """What a limit is held against: the number, its interval, and the items that it is of."""

    name: str
    value: float
    interval: Interval
    n: int
    counts: tuple[int, int] | None = None  # items lost and gained, where the number counts them

    def decided(self, limit: float) -> Decision:
        """Whether the loss is within a limit."""
        return limit_decision.decide(self.value, self.interval, limit)

    def needed(self, limit: float) -> int | None:
        """How many items would decide, if they are like these."""
        if self.counts:
            return paired_proportions.items_needed(*self.counts, self.n, limit / self.n)
        return limit_decision.needed(self.n, self.value, self.interval, limit)


def losses(m: MetricComparison) -> dict[str, Loss]:
    """By the limit's name what it is held against; a limit that this metric has no number for is not there."""
    low, high, n = m.get("low"), m.get("high"), m["n"]
    found = []
    if (net := m.get("net_lost")) is not None:
        lost, gained = m["items_lost"] or 0, m["items_gained"] or 0
        found.append(Loss("items_lost", net, limit_decision.negated((low, high), n), n, (lost, gained)))
    if (ratio := m.get("ratio")) is not None:
        found.append(Loss("metric_ratio", ratio, (low, high), n))
    if m["before"] is not None and m["after"] is not None:
        of_drop = limit_decision.negated((low, high)) if ratio is None else (None, None)  # that is the ratio's
        found.append(Loss("metric_drop", m["before"] - m["after"], of_drop, n))
    return {loss.name: loss for loss in found}


def items(limit: float, n: int) -> float:
    """A limit of items_lost as a number of items of n: below 1 it is a share of them."""
    return round(limit * n, 6) if limit < 1 else limit


def surely_kept(limit: int, gained: int, n: int) -> int:
    """The most items, net, that may be lost of n beside so many gained while that is decided inside; or -1."""
    for lost in range(limit + 1):
        net = limit_decision.negated(paired_proportions.interval(gained, min(lost + gained, n - gained), n), n)
        if Loss("", lost, net, n).decided(limit).word != "inside":
            return lost - 1
    return limit


def checks(m: MetricComparison, limits: Limits) -> Iterator[Check]:
    """Each limit that holds for this metric."""
    return (_check(m, loss, limit, limits.strict) for loss, limit in limited(m, limits))


def limited(m: MetricComparison, limits: Limits, n: int = 0) -> list[tuple[Loss, float]]:
    """What the metric lost, with the limit on it; where no limit fits, that on what it loses of its own value.

    n: how many items a share is of, where that are others than the metric's.
    """
    given = [(loss, limit) for name, loss in losses(m).items() if (limit := getattr(limits, name)) is not None]
    given = [(loss, items(limit, n or loss.n) if loss.counts else limit) for loss, limit in given]
    if not given and limits.metric_loss is not None and (own := relative(m)):
        return [(own, limits.metric_loss)]
    return given


def relative(m: MetricComparison) -> Loss | None:
    """What a metric loses relative to the source's own value; None where that is zero, or there is no comparison.

    Of one in decibels it is the growth of the squared error: 1 % where 0.043 dB are lost.
    """
    before, after, ratio, n = m["before"], m["after"], m.get("ratio"), m["n"]
    low, high = m.get("low"), m.get("high")
    if ratio is not None:
        ends = (None, None) if low is None or high is None else (low - 1, high - 1)
        return Loss(RELATIVE, ratio - 1, ends, n)
    if m.get("reason") is not None or not before or after is None:  # an error of zero has no ratio
        return None
    if m["unit"] == task_metrics.DECIBELS:
        ends = (None, None) if low is None or high is None else (_growth(-high), _growth(-low))
        return Loss(RELATIVE, _growth(before - after), ends, n)
    return Loss(RELATIVE, (before - after) / abs(before), limit_decision.negated((low, high), 1 / abs(before)), n)


def _growth(lost: float) -> float:
    """By which part a squared error grows where so many decibels are lost."""
    return float(10 ** (lost / 10)) - 1


def _check(m: MetricComparison, loss: Loss, limit: float, strict: bool) -> Check:
    decided = loss.decided(limit)
    needed = loss.needed(limit) if decided.word == "undecided" else None
    says = f"{_says(m, loss)}: {_bounds(loss, limit, decided, needed)}"
    refused = "; strict limits refuse that" if strict and decided.word == "undecided" else ""
    low, high = loss.interval
    passes = decided.passes(strict)
    return Check(loss.name, passes, loss.value, limit, says + refused, decided.word, low, high, needed)


def _says(m: MetricComparison, loss: Loss) -> str:
    if loss.counts:
        both = f"{loss.counts[0]} became wrong, {loss.counts[1]} became right"
        return f"net {abs(loss.value):g} of {loss.n} items {'gained' if loss.value < 0 else 'lost'} ({both})"
    change = f"{m['name']} {m['before']:.4g} before, {m['after']:.4g} after"
    relative = "growth of the squared error" if m["unit"] == task_metrics.DECIBELS else "loss relative to the source"
    word = {"metric_ratio": "ratio", "metric_drop": "drop", RELATIVE: relative}[loss.name]
    return f"{change}, {word} {loss.value:.4g}"


def _bounds(loss: Loss, limit: float, decided: Decision, needed: int | None) -> str:
    """`at most 3.8 with 95 % confidence, within the limit of 5`, `..., limit 5: undecided, about 2,100 items ...`."""
    low, high = loss.interval
    if low is None or high is None:
        return f"limit {limit:g}, undecided: {plural(loss.n, 'item')} give no interval"
    if decided.word == "inside" and low == high == (1 if loss.name == "metric_ratio" else 0):
        return f"the same answers, within the limit of {limit:g}"
    if decided.word == "inside":
        ends = f"at least {-high:.3g} gained" if high < 0 else f"at most {high:.3g}"
        return f"{ends} with {CONFIDENCE} confidence, within the limit of {limit:g}"
    if decided.word == "outside":
        return f"at least {low:.3g} with {CONFIDENCE} confidence, beyond the limit of {limit:g}"
    bounds = f"{low:.3g} to {high:.3g} with {CONFIDENCE} confidence, limit {limit:g}"
    return f"{bounds}: undecided, {limit_decision.enough(needed, loss.n)}"
