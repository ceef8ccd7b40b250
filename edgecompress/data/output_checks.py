"""The limits on an output that need neither a metric nor labels, and what each says in words when it is broken."""

from __future__ import annotations

import math
from collections.abc import Iterator

from edgecompress.core.model import Check
from edgecompress.core.settings import Limits
from edgecompress.data.output_channels import ChannelFacts, of_labels

LIMITS = ("channel_error", "tail_error", "found_error", "found_loss", "choice_loss", "divergence")  # of settings.Limits
WHERE = {
    "channel_error": "",
    "tail_error": " at the 99th percentile of the items",
    "found_error": " where something is found",
}
SCORES = 3.0  # times as far off may the scores of a classifier be: what it chooses is judged
MOST_NAMED = 5  # channels
CLIPPED = "its values are clipped, as by a calibration range that is too narrow"


def checks(name: str, facts: ChannelFacts, limits: Limits) -> Iterator[Check]:
    """What an output keeps and breaks; of one that is constant in the source only the value is looked at."""
    if facts["constant"] == facts["size"]:
        value, most = facts["channel_error"], limits.channel_error
        if value is not None and most is not None and value > most:
            off = f"off by {percent(value)} of its value, limit {percent(most)}"
            yield Check("channel_error", False, value, most, f"output '{name}' is constant in the source: {off}")
            return
        says = f"output '{name}' is not judged: in the source it is constant on these items"
        yield Check("channel_error", None, None, limits.channel_error, says)
        return
    if _dead(facts):
        says = (
            f"output '{name}'{_channels(facts)} nothing of the source's any more: constant, or off by its whole spread"
        )
        yield Check("dead", False, len(facts["dead"]), 0, says)
    for limit in LIMITS:
        value, most = facts[limit], _limit(limit, facts, limits)  # type: ignore[literal-required]
        if value is not None and most is not None:
            yield Check(limit, value <= most, value, most, f"output '{name}'{_says(limit, facts, value, most)}")
    if facts["found"] and not facts["found"]["things"] and limits.found_loss is not None:
        says = f"output '{name}': found_loss is not judged: the source finds nothing on these items"
        yield Check("found_loss", None, None, limits.found_loss, says)


def excess(facts: ChannelFacts, limits: Limits) -> float:
    """How far an output is beyond the limit that it breaks most, as a share of it; below 0 where it keeps all."""
    if _dead(facts):
        return math.inf
    pairs = ((facts[name], _limit(name, facts, limits)) for name in LIMITS)  # type: ignore[literal-required]
    return max((value / most - 1 for value, most in pairs if value is not None and most), default=-1.0)


def _dead(facts: ChannelFacts) -> bool:
    """Whether channels that count say nothing any more; what a detector scores says little at most places."""
    return bool(facts["dead"]) and facts["counted"] is None


def _limit(name: str, facts: ChannelFacts, limits: Limits) -> float | None:
    if facts["counted"] is not None and name not in facts["counted"]:
        return None
    most: float | None = getattr(limits, name)
    scores = facts["classifier"] and name in ("channel_error", "tail_error")
    return most * SCORES if scores and most is not None else most


def _channels(facts: ChannelFacts) -> str:
    if facts["size"] == 1:
        return " holds"
    dead = facts["dead"]
    named = ", ".join(map(str, dead[:MOST_NAMED])) + (", ..." if len(dead) > MOST_NAMED else "")
    return f": channel {named} holds" if len(dead) == 1 else f": channels {named} hold"


def _says(limit: str, facts: ChannelFacts, value: float, most: float) -> str:
    if limit == "choice_loss":
        changed = f" ({percent(facts['changed'])} of its choices changed)" if facts["changed"] is not None else ""
        loses = f"it loses {percent(value)} of what it gets right{changed}"
        return f": by the source's own probabilities {loses}, limit {percent(most)}"
    if limit == "found_loss" and (found := facts["found"]):
        others = f", overlaps the others by {percent(found['overlap'])}" if found["overlap"] else ""
        what = f"of {found['things']:,} things that the source finds it misses {found['missed']:,}{others}"
        lacks = f"it loses {percent(value)} of the average precision (IoU 0.5 to 0.95), limit {percent(most)}"
        return f": {what}, and finds {found['besides']:,} besides: {lacks}"
    if of_labels(facts):
        worst = ", ".join(str(w["item"]) for w in facts["worst"])
        return f": {percent(value)} of its labels are others, limit {percent(most)}; worst items {worst or 'none'}"
    if limit == "divergence":
        nats = f"{value:.3g} nats from the source's (perplexity × {math.exp(min(value, 99.0)):.4g})"
        return f": its probabilities are {nats}, limit {most:g}"
    return _off(limit, facts, f"{percent(value)} of its own spread{WHERE[limit]}, limit {percent(most)}")


def _off(limit: str, facts: ChannelFacts, by: str) -> str:
    """The channel and the items that are farthest off."""
    at = facts["channels"].get(limit)
    channel = f", channel {at}" if at is not None else ", all channels" if facts["size"] > 1 else ""
    worst = ", ".join(f"{w['item']} ({percent(w['error'])})" for w in facts["worst"])
    items = f"; worst items {worst}" if worst and limit != "found_error" else ""
    cut = f"; {CLIPPED}" if (0 if facts["size"] == 1 else at) in facts["cut"] else ""
    return f"{channel}: off by {by}{items}{cut}"


def percent(share: float | None) -> str:
    """A share as text, of three digits."""
    return f"{100 * (share or 0.0):.3g} %"
