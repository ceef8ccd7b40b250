"""What became of the accuracy from one report to another, with its interval: item by item where both tell the items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgecompress.core.limit_decision import Interval
from edgecompress.data import paired_proportions
from edgecompress.reporting.formatting import Number

NONE: Interval = (None, None)


def interval(old: Mapping[str, Any], new: Mapping[str, Any]) -> Interval:
    """The 95 % interval of the new accuracy less the old one, of two variants judged on the same test data.

    The same bytes answer the same. Without the items it is as wide as two intervals allow, whatever correlates them:
    those of what each lost of one source, or those of each share alone.
    """
    if _sha256(old) and _sha256(old) == _sha256(new):
        return 0.0, 0.0
    ours, theirs = _metric(old), _metric(new)
    if not ours or not theirs or ours.get("name") != theirs.get("name"):
        return NONE
    if (counts := _counts(old["verify"], new["verify"])) is not None:
        return paired_proportions.interval(*counts)
    if ours["before"] == theirs["before"] and (ends := _of_one_source(ours, theirs)):
        return ends
    if theirs.get("net_lost") is None or ours.get("net_lost") is None:
        return NONE
    (a, b), (c, d) = alone(ours), alone(theirs)
    return c - b, d - a


def _sha256(variant: Mapping[str, Any]) -> str:
    return str((variant["artifact"] or {}).get("sha256") or "")


def _metric(variant: Mapping[str, Any]) -> Mapping[str, Any]:
    return (variant["verify"] or {}).get("metric") or {}


def _counts(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[int, int, int] | None:
    """Items gained, items lost, all items; None where one of the two does not tell them."""
    ours, theirs, n = old.get("right"), new.get("right"), new["metric"]["n"]
    if not ours or not theirs or len(ours) != len(theirs) or n != old["metric"]["n"]:
        return None
    before, after = int(ours, 16), int(theirs, 16)
    return (after & ~before).bit_count(), (before & ~after).bit_count(), n


def _of_one_source(old: Mapping[str, Any], new: Mapping[str, Any]) -> Interval | None:
    """From what each lost of the source: differences subtracted, ratios divided; None without intervals."""
    a, b, c, d = (metric.get(end) for metric in (old, new) for end in ("low", "high"))
    if a is None or b is None or c is None or d is None:
        return None
    if new.get("ratio") is None:
        return c - b, d - a
    return (old["after"] * (c / b - 1), old["after"] * (d / a - 1)) if a > 0 else None


def alone(metric: Mapping[str, Any]) -> tuple[float, float]:
    """The exact interval of a share of right items."""
    n = metric["n"]
    right = round(metric["after"] * n)
    return 1 - paired_proportions.clopper_pearson(n - right, n), paired_proportions.clopper_pearson(right, n)


def of_number(number: Number, variant: Mapping[str, Any]) -> Interval:
    """The interval of one accuracy alone: of right items their share's, of other metrics none."""
    metric = _metric(variant)
    return alone(metric) if metric.get("net_lost") is not None and metric.get("after") == number["value"] else NONE
