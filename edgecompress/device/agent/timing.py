"""Timed runs and the warm-up before them."""

from __future__ import annotations

import array
import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from edgecompress.core.protocols import WarmUp, Windows

if TYPE_CHECKING:
    import numpy as np

BLOCKS = 4  # the shortest warm-up is so many blocks long
BLOCK_RUNS = 3

Inputs: TypeAlias = "Mapping[str, np.ndarray]"
Run: TypeAlias = "Callable[[Inputs], object]"
Result = TypeVar("Result")


def since_ms(begin_ns: int) -> float:
    """Milliseconds since a moment of time.perf_counter_ns()."""
    return (time.perf_counter_ns() - begin_ns) / 1e6


def clocked(act: Callable[[], Result]) -> tuple[Result, float]:
    """What `act` returns, and the milliseconds that it took."""
    begin = time.perf_counter_ns()
    return act(), since_ms(begin)


def timed(run: Run, inputs: Sequence[Inputs], seconds: float, runs: int) -> array.array[int]:
    """Nanoseconds of each run, for at least `seconds` and `runs`. Nothing but the clock stands around a run."""
    times = array.array("q")
    append, clock, turn = times.append, time.perf_counter_ns, itertools.cycle(inputs)
    end = clock() + int(seconds * 1e9)
    for batch in turn:
        begin = clock()
        run(batch)
        after = clock()
        append(after - begin)
        if after >= end and len(times) >= runs:
            break
    return times


def warm_up(run: Run, inputs: Sequence[Inputs], profile: Windows) -> WarmUp:
    """At least warmup_s and warmup_runs, then until the medians of the last two blocks agree, or the cap."""
    begin, runs, medians = time.perf_counter(), 0, list[float]()
    while True:
        block = timed(run, inputs, profile["warmup_s"] / BLOCKS, BLOCK_RUNS)
        runs += len(block)
        medians.append(statistics.median(block) / 1e6)
        spent = time.perf_counter() - begin
        enough = spent >= profile["warmup_s"] and runs >= profile["warmup_runs"] and len(medians) > 1
        warm = enough and abs(medians[-1] - medians[-2]) < profile["warmup_tolerance"] * medians[-2]
        if warm or spent >= max(profile["warmup_cap_s"], profile["warmup_s"]):
            return {"warm": warm, "warmup_s": spent, "warmup_runs": runs, "warmup_blocks_ms": medians}
