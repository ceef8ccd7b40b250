"""Minutes of inference back to back, as a series of windows: the throughput that remains when the device is hot.

Throttling is flagged when the last quarter of the windows does more than 5 % fewer items per second than the first
three and chance explains that in 5 % of the cases at most (a permutation test), or when the kernel or the firmware
says that it throttled. Clock and temperature are reported as evidence. Series are stored unaveraged.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.model import Measured
from edgecompress.core.protocols import Subject
from edgecompress.plugins.profilers import _machine, _times

REQUIRES = ("numpy",)

EARLY = 3  # windows of the burst
FEWEST = 2 * EARLY  # with fewer windows nothing is called: by chance alone one in twenty orders looks like throttling
SLOWER = 0.05  # a smaller loss is not called throttling
CHANCE = 0.05
COMPARED = 60  # late windows that the permutation test looks at: of more, every k-th
WARM_S = 10.0  # of the warm-up, roughly

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Options:
    """How long, by windows of which length, after how much rest."""

    seconds: float = 600.0
    every_s: float = 10.0
    rest_s: float = 30.0  # idle before: the burst is that of a device that has cooled down

    def __post_init__(self) -> None:
        if not 0 < self.every_s <= self.seconds or self.rest_s < 0:
            raise ValueError("every_s must be above 0 and at most seconds, rest_s at least 0")


@dataclass(frozen=True)
class _Held:
    """What says that the processor was held back: throttle events of the kernel, limits of the firmware."""

    events: int | None
    limits: tuple[str, ...]


def estimate_s(options: Options) -> float:
    """The rest, the warm-up and the windows."""
    return options.rest_s + WARM_S + options.seconds


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """The series of windows, what is left of the burst, and whether the device throttled."""
    session, inputs = subject.open(), subject.inputs()
    time.sleep(options.rest_s)
    warm = subject.warm_up(session.run, inputs)
    events, limits = _machine.throttle_events(subject.root), set[str]()
    rows, energy = [], Measured("energy", None, "J", "unavailable", reason="no window was run")
    with _times.reading(subject) as energy_of:
        begin = time.monotonic()
        while (now := time.monotonic()) - begin < options.seconds:
            times = subject.timed(session.run, inputs, options.every_s, 1)
            end = time.monotonic()
            measured = energy_of(now, end)
            energy = measured if energy.value is None else energy  # the first that has a value says what they all are
            power_w = None if measured.value is None else measured.value / (end - now)
            rows.append({"t_s": now - begin, **_row(times, end - now, subject), "power_w": power_w})
            limits |= set(_machine.firmware_limits(subject.root))
    session.close()
    after = _machine.throttle_events(subject.root)
    held = _Held(None if events is None or after is None else after - events, tuple(sorted(limits)))
    return {
        "seconds": options.seconds,
        "every_s": options.every_s,
        "warm": warm["warm"],
        "warmup_s": warm["warmup_s"],
        "series": rows,
        **verified(rows, held),
        **_reasons(rows),
        "power": {key: getattr(energy, key) for key in ("status", "source", "scope", "reason")},
    }


def _row(times: Sequence[int], seconds: float, subject: Subject) -> dict[str, Json]:
    return {
        "seconds": seconds,
        "runs": len(times),
        "median_ms": _times.tail_ms(times, 50),
        "p95_ms": _times.tail_ms(times, 95),
        "items_per_s": subject.batch * len(times) / seconds,
        "cpu_mhz": _machine.clock_mhz(subject.root),
        "temperature_c": _machine.temperature_c(subject.root),
    }


def _reasons(rows: Sequence[Row]) -> dict[str, str]:
    """Why a column of the series is empty."""
    columns = {
        "clock_reason": ("cpu_mhz", "no clock of a processor in /sys (cpufreq): virtual machines rarely have one"),
        "temperature_reason": ("temperature_c", "no temperature of the processor in /sys (thermal, hwmon)"),
    }
    return {key: "" if any(r[column] is not None for r in rows) else why for key, (column, why) in columns.items()}


# --------------------------------------------------------------------------- burst, sustained, throttling


def verified(rows: Sequence[Row], held: _Held) -> dict[str, Json]:
    """The first windows against the last quarter."""
    if len(rows) < FEWEST:
        reason = f"{len(rows)} windows; {FEWEST} are needed to detect throttling"
        unknown = {"flagged": None, "reason": reason, "p": None, "evidence": _signs(held)}
        return {"burst": None, "sustained": None, "ratio": None, "throttling": unknown}
    early, late = rows[:EARLY], rows[-max(EARLY, len(rows) // 4) :]
    burst, sustained = _part(early), _part(late)
    ratio = sustained["items_per_s"] / burst["items_per_s"]
    p = chance([r["items_per_s"] for r in early], [r["items_per_s"] for r in late])
    flag = {**_flag(ratio, p, held), "p": p, "evidence": [*_evidence(early, late), *_signs(held)]}
    return {"burst": burst, "sustained": sustained, "ratio": ratio, "throttling": flag}


def _part(rows: Sequence[Row]) -> dict[str, Any]:
    medians = {key: statistics.median(r[key] for r in rows) for key in ("items_per_s", "median_ms")}
    return {"windows": len(rows), **medians}


def chance(early: Sequence[float], late: Sequence[float]) -> float:
    """How often windows in random order would put such fast ones first: the exact one-sided permutation test."""
    kept = late[:: -(-len(late) // COMPARED)]
    threshold = sum(early) * (1 - 1e-12)
    sums = [sum(picked) for picked in itertools.combinations([*early, *kept], len(early))]
    return sum(s >= threshold for s in sums) / len(sums)


def _flag(ratio: float, p: float, held: _Held) -> dict[str, Json]:
    kept = f"the last quarter does {ratio:.1%} of the first windows' items per second"
    if ratio < 1 - SLOWER and p <= CHANCE:
        return {"flagged": True, "reason": f"{kept} (chance {p:.1%})"}
    if signs := _signs(held):
        return {"flagged": True, "reason": f"{kept}, and {'; '.join(signs)}"}
    if ratio < 1 - SLOWER:
        return {"flagged": False, "reason": f"{kept}, but the windows differ as much by chance ({p:.0%})"}
    return {"flagged": False, "reason": kept}


def _signs(held: _Held) -> list[str]:
    events = [f"the kernel counted {held.events} throttle events"] if held.events else []
    return events + ([f"the firmware reported: {', '.join(held.limits)}"] if held.limits else [])


def _evidence(early: Sequence[Row], late: Sequence[Row]) -> list[str]:
    """How clock and temperature went, where they are told."""
    columns: dict[str, Callable[[float, float], str]] = {
        "cpu_mhz": lambda a, b: f"clock {a:.0f} to {b:.0f} MHz",
        "temperature_c": lambda a, b: f"temperature {a:.0f} to {b:.0f} °C",
    }
    changes = []
    for key, words in columns.items():
        before, after = ([r[key] for r in part if r[key] is not None] for part in (early, late))
        changes += [words(statistics.median(before), statistics.median(after))] if before and after else []
    return changes


def lines(answer: Mapping[str, Any]) -> list[str]:
    """Burst against sustained, and throttling."""
    flag, burst, sustained = answer["throttling"], answer["burst"], answer["sustained"]
    if not burst:
        return [f"sustained: {flag['reason']}"]
    words = "THROTTLED" if flag["flagged"] else "no throttling"
    power = [r["power_w"] for r in answer["series"] if r["power_w"] is not None]
    behind = f"{answer['power']['status']}, {answer['power']['scope']}"
    watts = f"; {power[0]:.3g} W at first, {power[-1]:.3g} W at last ({behind})" if power else ""
    return [
        f"burst {burst['items_per_s']:.4g} items/s ({burst['median_ms']:.4g} ms), sustained over "
        f"{answer['seconds']:g} s {sustained['items_per_s']:.4g} items/s ({sustained['median_ms']:.4g} ms){watts}",
        f"{words}: {'; '.join([flag['reason'], *flag['evidence']])}",
    ]
