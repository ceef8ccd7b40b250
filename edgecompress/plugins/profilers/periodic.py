"""One inference per period, as for a camera or a microphone: latency from the intended start, energy including idle.

An inference that is late makes those behind it wait, and their waiting counts: a clock that starts when the inference
does would hide it ("coordinated omission", G. Tene). Periods that were due and could not begin count with the time that
they waited so far, which is a floor, and says so.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgecompress.core.json import Json
from edgecompress.core.protocols import Subject
from edgecompress.plugins.profilers import _times

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("numpy",)
KEPT = 20_000  # responses in the answer; of more, every k-th
WARM_S = 10.0  # of the warm-up, roughly


@dataclass(frozen=True)
class Options:
    """How often, and for how long."""

    rate_hz: float = 10.0
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if self.rate_hz <= 0 or self.seconds * self.rate_hz < 1:
            raise ValueError("rate_hz must be above 0, and seconds must cover at least one period")

    @property
    def due(self) -> int:
        """Periods."""
        return int(self.seconds * self.rate_hz + 1e-9)


def estimate_s(options: Options) -> float:
    """The warm-up and the periods."""
    return WARM_S + options.seconds


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """Responses, misses, and what a period costs with the idle time in it."""
    session, inputs = subject.open(), subject.inputs()
    subject.warm_up(session.run, inputs)
    gc.collect()
    gc.disable()
    with _times.reading(subject) as energy_of:
        begin = time.monotonic()
        clock = paced(session.run, inputs, options)
        end = time.monotonic()
        energy = energy_of(begin, end)
    gc.enable()
    session.close()
    return {
        "rate_hz": options.rate_hz,
        "period_ms": 1e3 / options.rate_hz,
        "seconds": end - begin,
        **summary(clock, options),
        "energy_per_period": _times.per(energy, "energy_per_period", "mJ", 1e3 / options.due),
        "power": _times.per(energy, "power", "W", 1 / (end - begin)),
    }


@dataclass(frozen=True)
class Clock:
    """Nanoseconds since the first period's start: when each inference that was run began and ended; and the end."""

    begins: Sequence[int]
    ends: Sequence[int]
    end: int


def paced(
    run: Callable[[Mapping[str, np.ndarray]], object], inputs: Sequence[Mapping[str, np.ndarray]], options: Options
) -> Clock:
    """Begins an inference at each period's start, or as soon after it as the one before is over."""
    now, turn, total = time.perf_counter_ns, itertools.cycle(inputs), _intended(options.due, options)
    begins, ends = list[int](), list[int]()
    start = now()
    for k in range(options.due):
        if (early := _intended(k, options) - (now() - start)) > 0:
            time.sleep(early / 1e9)
        begin = now() - start
        if begin >= total:  # what is left could not begin in time
            break
        run(next(turn))
        begins.append(begin)
        ends.append(now() - start)
    time.sleep(max(0, total - (now() - start)) / 1e9)
    return Clock(begins, ends, now() - start)


def _intended(period: int, options: Options) -> int:
    return int(period * 1e9 / options.rate_hz)


def summary(clock: Clock, options: Options) -> dict[str, Any]:
    """What the times of begin and end tell."""
    import numpy as np

    intended = np.array([_intended(k, options) for k in range(options.due)], dtype=np.int64)
    begins, ends = np.array(clock.begins, dtype=np.int64), np.array(clock.ends, dtype=np.int64)
    n = len(begins)
    waited = np.concatenate([ends - intended[:n], clock.end - intended[n:]])
    free = np.maximum(intended[:n], np.concatenate([[0], ends[:-1]]))  # when it could have begun
    missed = int((waited[:n] > 1e9 / options.rate_hz).sum()) + options.due - n
    every = -(-len(waited) // KEPT)
    return {
        "due": options.due,
        "n": n,
        "response_ms": _times.spread_ms(waited),
        "service_ms": _times.spread_ms(ends - begins),
        "wake_ms": _times.spread_ms(begins - free),
        "floor": n < options.due,
        "saturated": bool(np.median(ends - begins) > 1e9 / options.rate_hz),
        "missed": missed,
        "missed_share": missed / options.due,
        "duty": float((ends - begins).sum()) / clock.end,
        "responses_ms": [w / 1e6 for w in waited[::every].tolist()],
        "every": every,
    }


def lines(answer: Mapping[str, Any]) -> list[str]:
    """Response, misses, energy."""
    response = answer["response_ms"]
    floor = " at least" if answer["floor"] else ""
    tails = ", ".join(f"{name} {value:.4g} ms" for name, value in response.items() if value is not None)
    saturated = "; SATURATED: an inference takes longer than a period" if answer["saturated"] else ""
    return [
        f"at {answer['rate_hz']:g} Hz from the intended start:{floor} {tails}",
        f"missed {answer['missed']} of {answer['due']} periods, busy {answer['duty']:.0%} of the time{saturated}",
        f"per period, idle included: {_times.in_words(answer['energy_per_period'])}",
    ]
