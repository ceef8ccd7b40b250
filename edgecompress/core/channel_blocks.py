"""The channel block of a device: how many channels its kernels compute at once, found in latencies by width."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

BLOCKS = (8, 16, 32)
FINEST, WIDEST = 4, 64  # of the widths: below the one no block shows, at the other all of them are one
LEFT = 0.6  # of the slope, at most, may be left within blocks; of a block too large by one step 0.81 is
FLAT = 0.1  # of the time of the widest: where all widths differ by less, none of them saves anything

# The rule. Kernels that compute b channels at a time give a staircase: within a block the time stands still, at its end
# it jumps. What is left of the slope within blocks of b channels, as a part of the slope over all widths, tells how
# much is no staircase of b: 0 for one of b or of a multiple of it, 1 for a straight line, 0.81 for stairs half as wide.
# A net has something of both: as outputs its channels come in blocks, as inputs they are summed one by one. So the
# block is the largest b that leaves at most LEFT. The times are first made monotonic: who asks for a width may compute
# a wider one. The slope within blocks is that of the analysis of covariance (Fisher, Statistical Methods for Research
# Workers, 1932): least squares, each block with a height of its own, so that one step may be higher than another.


def block(times: Mapping[int, float]) -> int:
    """The channel block, from the time of each width in any unit.

    FINEST if there is no block, WIDEST if all widths take the same time.
    """
    widest = times[max(times)]
    if widest - min(times.values()) < FLAT * widest:
        return WIDEST
    return max([FINEST, *(b for b, left in slopes_left(times).items() if left <= LEFT)])


def slopes_left(times: Mapping[int, float]) -> dict[int, float]:
    """By block size: the slope of time against width within blocks, as a part of the slope over all widths."""
    # the least time of each width or a wider one
    best = {width: min(time for wider, time in times.items() if wider >= width) for width in sorted(times)}
    whole = _slope(best, max(best))
    return {b: _slope(best, b) / whole if whole else 0.0 for b in BLOCKS}


def _slope(times: Mapping[int, float], size: int) -> float:
    """The common slope of the blocks (0, size], (size, 2 size], ...: pooled within-group least squares."""
    groups: dict[int, list[int]] = {}
    for width in times:
        groups.setdefault(-(-width // size), []).append(width)
    slope, spread = 0.0, 0.0
    for group in groups.values():
        mean_width, mean_time = sum(group) / len(group), sum(times[width] for width in group) / len(group)
        slope += sum((width - mean_width) * (times[width] - mean_time) for width in group)
        spread += sum((width - mean_width) ** 2 for width in group)
    return slope / spread if spread else 0.0


# --------------------------------------------------------------------------- the stage that measures


def key(runtime: str, precision: str) -> str:
    """The key of a block in a device file: RUNTIME-PRECISION."""
    return f"{runtime}-{precision}"


def staircase(facts: Mapping[str, Any]) -> dict[int, float]:
    """The measured table: width -> milliseconds (the median of its rounds), or instructions."""
    if "instructions" in facts:
        return {int(width): float(count) for width, count in facts["instructions"].items()}
    return {int(width): statistics.median(rounds) for width, rounds in facts["times_ms"].items()}
