"""What became of the accuracy from one report to another, with its interval: item by item where both tell the items."""

from __future__ import annotations

from edgecompress.core.limit_decision import Interval
from edgecompress.data import paired_proportions
from edgecompress.reporting.model import Metric, Number, Variant, Verification

NONE: Interval = (None, None)


def interval(old: Variant, new: Variant) -> Interval:
    """The 95 % interval of the new accuracy less the old one, of two variants judged on the same test data.

    The same bytes answer the same. Without the items it is as wide as two intervals allow, whatever correlates them:
    those of what each lost of one source, or those of each share alone.
    """
    if _sha256(old) and _sha256(old) == _sha256(new):
        return 0.0, 0.0
    ours, theirs = _metric(old), _metric(new)
    if not ours or not theirs or ours.name != theirs.name:
        return NONE
    if (counts := _counts(old.verify, new.verify)) is not None:
        return paired_proportions.interval(*counts)
    if ours.before == theirs.before and (ends := _of_one_source(ours, theirs)):
        return ends
    if theirs.net_lost is None or ours.net_lost is None:
        return NONE
    (a, b), (c, d) = alone(ours), alone(theirs)
    return c - b, d - a


def _sha256(variant: Variant) -> str:
    return str((variant.artifact.sha256 if variant.artifact else None) or "")


def _metric(variant: Variant) -> Metric | None:
    return variant.verify.metric if variant.verify else None


def _counts(old: Verification | None, new: Verification | None) -> tuple[int, int, int] | None:
    """Items gained, items lost, all items; None where one of the two does not tell them."""
    if not old or not new or not old.metric or not new.metric or not old.right or not new.right:
        return None
    ours, theirs, n = old.right, new.right, new.metric.n
    if len(ours) != len(theirs) or n != old.metric.n:
        return None
    before, after = int(ours, 16), int(theirs, 16)
    return (after & ~before).bit_count(), (before & ~after).bit_count(), n


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
