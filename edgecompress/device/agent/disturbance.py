"""What disturbed a window: the counters of the kernel around it, and whether its median can be trusted."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from edgecompress.core.protocols import TimedWindow

HARMLESS = 0.01  # of the window spent waiting for a processor: its mean is right within 1 %, and so is its median
HIT = 0.2  # of the runs interrupted at most: then the median of all is at most the 63rd percentile of the others
STOLEN = 0.05  # of the window that the hypervisor may take
GRAIN_S = 0.02  # the kernel counts processor time in hundredths of a second
STILL = 0.05  # of the window in which the process neither computed nor waited for a processor
STILL_S = 0.005
LONG = 1.5  # times the typical run: what exceeds it is looked at as a standstill


class Neighbours(TypedDict):
    """Processor seconds that others took during a window; None where the kernel does not tell."""

    stolen_s: float | None  # other guests of the hypervisor
    others_s: float | None  # other processes here


class Window(Neighbours, TimedWindow):
    """A timed window: its runs, the processor time of all threads, and what the kernel counted meanwhile."""

    cpu_s: float
    waited_s: float | None  # ready to run, and without a processor; None where the kernel does not tell
    preempted: int | None  # times a thread lost its processor against its will; None where nothing counts them
    gave_up: int | None  # times a thread gave its processor up, to wait for something: it has to get one again
    long_s: float  # what runs that took LONG times the typical one took beyond it


@dataclass(frozen=True)
class Counters:
    """What the kernel has counted until now, of this process and of the whole machine."""

    wall_s: float
    cpu_s: float
    waited_s: float | None
    switches: tuple[int, int] | None  # against its will, and not
    ticks: tuple[int, ...]

    @classmethod
    def now(cls) -> Counters:
        """Reads them; the clock is read last."""
        ticks, switches, waited_s, cpu_s = _ticks(), _switches(), _waited_s(), time.process_time()
        return cls(time.perf_counter(), cpu_s, waited_s, switches, ticks)


def window(before: Counters, after: Counters, times_ns: Sequence[int], typical_ms: float) -> Window:
    """The window between two readings, in which the runs took `times_ns`; a run of the session takes `typical_ms`."""
    cpu_s, usual_ns = after.cpu_s - before.cpu_s, 1e6 * typical_ms
    switches = zip(after.switches or (None, None), before.switches or (None, None), strict=True)
    preempted, gave_up = (None if a is None or b is None else a - b for a, b in switches)
    known = before.waited_s is not None and after.waited_s is not None
    return {
        "n": len(times_ns),
        "window_s": after.wall_s - before.wall_s,
        "median_ms": statistics.median(times_ns) / 1e6,
        "cpu_s": cpu_s,
        "waited_s": max(0.0, (after.waited_s or 0.0) - (before.waited_s or 0.0)) if known else None,
        "preempted": preempted,
        "gave_up": gave_up,
        "long_s": sum(t - usual_ns for t in times_ns if t > LONG * usual_ns) / 1e9,
        **_neighbours(before.ticks, after.ticks, cpu_s),
    }


def cause(window: Window, threads: int) -> str:
    """What makes the median of a window doubtful, in words; "" where nothing does.

    Waiting for a processor matters where it takes more than HARMLESS of the window and hits more than HIT of the runs:
    those that were preempted, or had to get a processor again after they had waited for something. Where the kernel
    does not count it, the time without a processor stands for it, if as many were preempted. The hypervisor may take
    STOLEN. A standstill is what long runs took while the process neither computed nor waited: it was stopped.
    """
    wall_s, waited_s, stolen_s = window["window_s"], window["waited_s"], window["stolen_s"] or 0.0
    working_s = window["window_s"] - window["long_s"]
    # processors at work while it worked: at least 1, so that a process which sleeps counts as idle
    busy = max(1.0, min(window["cpu_s"] / working_s, threads)) if working_s > 0 else 1.0
    idle_s = max(0.0, wall_s - window["cpu_s"] / busy)
    lost_s = min(wall_s, idle_s if waited_s is None else waited_s)
    if lost_s > HARMLESS * wall_s and _hit(window) > HIT * window["n"]:
        return f"other work held its processors for {lost_s / wall_s:.0%} of the time"
    if stolen_s > GRAIN_S + STOLEN * wall_s:
        return f"the hypervisor took {stolen_s / wall_s:.0%} of a processor"
    still_s = min(window["long_s"], idle_s) - (waited_s or 0.0) - stolen_s
    if still_s > STILL_S + STILL * wall_s:
        return f"it stood still for {still_s / wall_s:.0%} of the time"
    return ""


def _hit(window: Window) -> float:
    """Runs that may have waited for a processor, at most."""
    if window["waited_s"] is None:
        return window["preempted"] or 0
    if window["preempted"] is None or window["gave_up"] is None:
        return window["n"]
    return window["preempted"] + window["gave_up"]


def _ticks() -> tuple[int, ...]:
    """Of all processors since boot: user, nice, system, idle, iowait, irq, softirq, steal; empty where none tells."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()[1:9]
        return tuple(int(n) for n in words)
    except (OSError, ValueError, IndexError):
        return ()


def _neighbours(before: Sequence[int], after: Sequence[int], cpu_s: float) -> Neighbours:
    """Processor seconds that other guests of the hypervisor took, and that other processes here did."""
    if len(before) < 8 or len(after) < 8:
        return {"stolen_s": None, "others_s": None}
    spent = [(b - a) / os.sysconf("SC_CLK_TCK") for a, b in zip(before, after, strict=False)]
    busy_s = sum(spent[:3]) + sum(spent[5:7])
    return {"stolen_s": max(0.0, spent[7]), "others_s": max(0.0, busy_s - cpu_s)}


def _waited_s() -> float | None:
    """Seconds that the threads of this process stood in the run queues; None where the kernel does not tell."""
    try:
        waited_ns = sum(_waited_ns(Path("/proc/self/task", name)) for name in os.listdir("/proc/self/task"))
    except (OSError, ValueError, IndexError):
        return None
    return waited_ns / 1e9 if waited_ns else None  # nobody waits for nothing from the start: it does not count


def _waited_ns(thread: Path) -> int:
    try:
        return int((thread / "schedstat").read_text(encoding="ascii").split()[1])
    except OSError:
        if thread.exists():  # this kernel counts nothing
            raise
        return 0  # it has just ended


def _switches() -> tuple[int, int] | None:
    """Times that this process (its threads too) lost its processor against its will, and gave it up to wait.

    None where nothing counts them.
    """
    try:
        import resource
    except ImportError:  # Windows
        return None
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nivcsw, used.ru_nvcsw
