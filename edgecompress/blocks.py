"""The channel block of a device's kernels: from times of growing widths to the multiple that wastes nothing."""

from __future__ import annotations

import re
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress import envs, registry, routes
from edgecompress.errors import InputError, NoPath
from edgecompress.model import Stage
from edgecompress.settings import Device, Target, Variant

STAGE = "block"  # its name, and that of the kind it makes
NONE = "fp32"  # the precision of a net that nothing has compressed
BLOCKS = (8, 16, 32)
FINEST, WIDEST = 4, 64  # of the widths: below the one no block shows, at the other all of them are one
LEFT = 0.6  # of the slope, at most, may be left within blocks; of a block too large by one step 0.81 is
FLAT = 0.1  # of the time of the widest: where all widths differ by less, none of them saves anything
MAX_AGE_S = 90 * 86400.0  # a processor's kernels change with the runtime's version, which is part of the key
ESTIMATE_S = 60.0
TABLE = "blocks"  # in a device's file

# The rule. Kernels that compute b channels at a time give a staircase: within a block the time stands still, at its end
# it jumps. What is left of the slope within blocks of b channels, as a part of the slope over all widths, tells how
# much is no staircase of b: 0 for one of b or of a multiple of it, 1 for a straight line, 0.81 for stairs half as wide.
# A net has something of both: as outputs its channels come in blocks, as inputs they are summed one by one. So the
# block is the largest b that leaves at most LEFT. The times are first made monotonic: who asks for a width may compute
# a wider one. The slope within blocks is that of the analysis of covariance (Fisher, Statistical Methods for Research
# Workers, 1932): least squares, each block with a height of its own, so that one step may be higher than another.


def block(times: Mapping[int, float]) -> int:
    """The channel block, from the time of each width in any unit.

    FINEST where no block shows, WIDEST where all widths cost alike.
    """
    widest = times[max(times)]
    if widest - min(times.values()) < FLAT * widest:
        return WIDEST
    return max([FINEST, *(b for b, left in slopes_left(times).items() if left <= LEFT)])


def slopes_left(times: Mapping[int, float]) -> dict[int, float]:
    """By block size: the slope of time against width within blocks, as a part of the slope over all widths."""
    best = _monotonic(times)
    whole = _slope(best, max(best))
    return {b: _slope(best, b) / whole if whole else 0.0 for b in BLOCKS}


def _monotonic(times: Mapping[int, float]) -> dict[int, float]:
    """The least time of each width or a wider one."""
    return {width: min(time for wider, time in times.items() if wider >= width) for width in sorted(times)}


def _slope(times: Mapping[int, float], size: int) -> float:
    """The common slope of the blocks (0, size], (size, 2 size], ...: pooled within-group least squares."""
    groups: dict[int, list[int]] = {}
    for width in times:
        groups.setdefault(-(-width // size), []).append(width)
    moments = [_moments(group, [times[width] for width in group]) for group in groups.values()]
    spread = sum(xx for _, xx in moments)
    return sum(xy for xy, _ in moments) / spread if spread else 0.0


def _moments(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)), sum((a - mean_x) ** 2 for a in x)


# --------------------------------------------------------------------------- the stage that measures


def key(runtime: str, precision: str) -> str:
    """What a device's file calls the block of a runtime at a precision."""
    return f"{runtime}-{precision}"


def road(runtime: str, precision: str) -> list[routes.Call]:
    """The calls from a torch program to the runtime's format; raises NoPath, ConfigError, MissingDependency."""
    target, where = _target(runtime, precision), f"the channel block of {key(runtime, precision)}"
    calls = routes.steps(target, target.variant[0], "program", where)
    for who, module in routes.modules(target, target.variant[0], calls).items():
        envs.require(module, who)
    return calls


def _target(runtime: str, precision: str) -> Target:
    variant = Variant(precision, compress=({"use": precision},) if precision != NONE else ())
    return Target("a channel block", runtime, (variant,))


def stage(runtime: str, precision: str, device: Device) -> Stage:
    """The stage that finds the block on a device; raises what `road` raises, and NoPath where nothing runs there."""
    made = [call.split(":")[0] for call, _ in road(runtime, precision)]
    module, transport = registry.load("runtimes", runtime), registry.load("transports", device.transport)
    carried, where = getattr(transport, "RUNTIMES", None), f"the channel block of {key(runtime, precision)}"
    if stands_in := getattr(module, "SIMULATED", ""):
        raise NoPath(
            where, f"{stands_in} stands in for runtime {runtime} here: its speed says nothing; give `align` instead"
        )
    if carried is not None and runtime not in carried:
        raise NoPath(where, f"{transport.SIMULATED} does not carry runtime {runtime}; give `align` instead")
    there = (f"transports.{device.transport}", *(f"sensors.{name}" for name in device.sensors))
    return Stage(
        STAGE,
        "stages.block:run",
        options={"runtime": runtime, "precision": precision},
        context=("device",),
        plugins=tuple(dict.fromkeys((*made, f"runtimes.{runtime}", *there))),
        max_age_s=MAX_AGE_S,
        estimate_s=ESTIMATE_S,
    )


def told(facts: Mapping[str, Any]) -> dict[int, float]:
    """The staircase that the stage measured: width -> milliseconds (the median of its rounds), or instructions."""
    if "instructions" in facts:
        return {int(width): float(count) for width, count in facts["instructions"].items()}
    return {int(width): statistics.median(rounds) for width, rounds in facts["times_ms"].items()}


# --------------------------------------------------------------------------- a device's file


def written(text: str, name: str, size: int, comment: str) -> str:
    """The text of a device's TOML with `name` = `size` in its table of blocks, and everything else as it was.

    Raises InputError where the table is written in a way that this does not edit.
    """
    line = f'"{name}" = {size} # {comment}'
    lines = text.rstrip("\n").split("\n")
    place = next((i for i, each in enumerate(lines) if re.fullmatch(rf"\s*\[\s*{TABLE}\s*\]\s*(#.*)?", each)), None)
    if place is None:
        lines += ["", f"[{TABLE}]", line]
    elif (old := _entry(lines, place, name)) is not None:
        lines[old] = line
    else:
        lines.insert(place + 1, line)
    changed = "\n".join(lines) + "\n"
    _check_change(text, changed, name, size)
    return changed


def _entry(lines: Sequence[str], place: int, name: str) -> int | None:
    """The line of an entry in the table that begins at `place`."""
    for i, line in enumerate(lines[place + 1 :], place + 1):
        if line.lstrip().startswith("["):
            return None
        if re.match(rf"""\s*["']?{re.escape(name)}["']?\s*=""", line):
            return i
    return None


def _check_change(before: str, after: str, name: str, size: int) -> None:
    wanted = tomllib.loads(before)
    wanted[TABLE] = {**wanted.get(TABLE, {}), name: size}
    try:
        same = tomllib.loads(after) == wanted
    except tomllib.TOMLDecodeError:
        same = False
    if not same:
        raise InputError(f'[{TABLE}] of the device\'s file is written in a way of its own; add "{name}" = {size} to it')
