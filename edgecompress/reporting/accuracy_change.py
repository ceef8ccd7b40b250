"""What became of the accuracy from one report to another, with its interval: item by item where both tell the items."""

from __future__ import annotations

from edgecompress.core.limit_decision import Interval
from edgecompress.core.quantities import direction
from edgecompress.data import metric_limits, metrics, paired_proportions
from edgecompress.reporting.model_numbers import Number
from edgecompress.reporting.model_variant import Metric, Variant, Verification

NONE: Interval = (None, None)
SAME: Interval = (0.0, 0.0)


def interval(old: Variant, new: Variant) -> Interval:
    """The 95 % interval of the new accuracy less the old one, of two variants judged on the same test data.

    The same bytes answer the same. Without the items it is as wide as two intervals allow, whatever correlates them:
    those of what each lost of one source, or those of each share alone.
    """
    if _sha256(old) and _sha256(old) == _sha256(new):
        return SAME
    ours, theirs = _metric(old), _metric(new)
    if not ours or not theirs or ours.name != theirs.name:
        return NONE
    if (counts := _counts(old.verify, new.verify)) is not None:
        return SAME if _both_exact(ours, theirs) and counts[:2] == (0, 0) else paired_proportions.interval(*counts)
    if (ends := _of_scores(old.verify, new.verify)) is not None:
        return ends
    if ours.before == theirs.before and (ends := _of_one_source(ours, theirs)):
        return ends
    if theirs.net_lost is None or ours.net_lost is None:
        return NONE
    (a, b), (c, d) = alone(ours), alone(theirs)
    return c - b, d - a


def loss(old: Variant, new: Variant) -> metric_limits.Loss | None:
    """What the new accuracy lost relative to the old one, as the limit `metric_loss` has it; None without a ratio."""
    ours, theirs = _metric(old), _metric(new)
    if not ours or not theirs or not ours.after or theirs.after is None:
        return None
    low, high = interval(old, new)
    found: metrics.MetricComparison = {
        "name": ours.name,
        "unit": ours.unit,
        "before": ours.after,
        "after": theirs.after,
        "n": min(ours.n, theirs.n),
        "low": low,
        "high": high,
    }
    if direction(ours.name) == "lower":
        ends = [None if end is None else 1 + end / ours.after for end in (low, high)]
        found |= {"ratio": theirs.after / ours.after, "low": ends[0], "high": ends[1]}
    return metric_limits.relative(found)


def _sha256(variant: Variant) -> str:
    return str((variant.artifact.sha256 if variant.artifact else None) or "")


def _metric(variant: Variant) -> Metric | None:
    return variant.verify.metric if variant.verify else None


def _both_exact(ours: Metric, theirs: Metric) -> bool:
    """Whether both artifacts answer as a source does that is as accurate."""
    return ours.before == theirs.before and all(m.low is not None and m.low == m.high for m in (ours, theirs))


def _counts(old: Verification | None, new: Verification | None) -> tuple[int, int, int] | None:
    """Items gained, items lost, all items; None where one of the two does not tell them."""
    if not old or not new or not old.metric or not new.metric or not old.right or not new.right:
        return None
    ours, theirs, n = old.right, new.right, new.metric.n
    if len(ours) != len(theirs) or n != old.metric.n:
        return None
    before, after = int(ours, 16), int(theirs, 16)
    return (after & ~before).bit_count(), (before & ~after).bit_count(), n


def _of_scores(old: Verification | None, new: Verification | None) -> Interval | None:
    """From the scores of the same items; None where one of the two does not tell them."""
    if not old or not new or not old.metric or not old.scores or not new.scores:
        return None
    metric = metrics.find(old.metric.name)
    before, after = metrics.of_items(old.scores), metrics.of_items(new.scores)
    if metric is None or len(before) != len(after):
        return None
    found = metrics.compare(metric, before, after)
    low, high, value = found.get("low"), found.get("high"), found["before"]
    if low is None or high is None or value is None:
        return NONE
    return (low, high) if found.get("ratio") is None else (value * (low - 1), value * (high - 1))


def _of_one_source(old: Metric, new: Metric) -> Interval | None:
    """From what each lost of the source: differences subtracted, ratios divided; None without intervals."""
    a, b, c, d = old.low, old.high, new.low, new.high
    if a is None or b is None or c is None or d is None or old.after is None:
        return None
    if new.ratio is None:
        return c - b, d - a
    return (old.after * (c / b - 1), old.after * (d / a - 1)) if a > 0 else None


def alone(metric: Metric) -> tuple[float, float]:
    """The exact interval of a share of right items."""
    n = metric.n
    right = round((metric.after or 0.0) * n)
    return 1 - paired_proportions.clopper_pearson(n - right, n), paired_proportions.clopper_pearson(right, n)


def of_number(number: Number, variant: Variant) -> Interval:
    """The interval of one accuracy alone: of right items their share's, of other metrics none."""
    metric = _metric(variant)
    return alone(metric) if metric and metric.net_lost is not None and metric.after == number.value else NONE
