"""Resident memory over time, by phase: before the load, load, first inference, steady. Linux: /proc of this process.

A thread reads it every few milliseconds; where a library holds the interpreter meanwhile, samples are missing and the
longest gap says so. What a phase leaves is split into anonymous and file-backed pages.
"""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.protocols import Subject

REQUIRES = ("numpy",)
BEFORE_S = 0.05
RUNS = 3  # of the steady phase, at least
STATM = Path("/proc/self/statm")
ROLLUP = Path("/proc/self/smaps_rollup")
KEPT = 5_000  # samples in the answer; of more, every k-th


@dataclass(frozen=True)
class Options:
    """How long the steady phase is, and how often memory is read."""

    seconds: float = 1.0
    every_ms: float = 5.0

    def __post_init__(self) -> None:
        if self.seconds <= 0 or self.every_ms <= 0:
            raise ValueError("seconds and every_ms must be above 0")


def estimate_s(options: Options) -> float:
    """The steady phase, and a moment for the others."""
    return 1.0 + options.seconds


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """The timeline and its phases."""
    if not STATM.exists():
        return {
            **_timeline([], [], options),
            "reason": "no /proc/self/statm: resident memory is available on Linux only",
        }
    inputs = subject.inputs()
    with Sampler(options.every_ms / 1e3) as sampler:
        with sampler.phase("before"):
            time.sleep(BEFORE_S)
        with sampler.phase("load"):
            session = subject.open()
        with sampler.phase("first inference") as phase:
            session.run(inputs[0])
            phase["runs"] = 1
        with sampler.phase("steady") as phase:
            phase["runs"] = len(subject.timed(session.run, inputs, options.seconds, RUNS))
    session.close()
    return {**_timeline(sampler.samples, sampler.phases, options), "reason": ""}


class Sampler:
    """Reads resident memory in a thread of its own, and marks phases."""

    def __init__(self, every_s: float) -> None:
        self.samples = list[tuple[float, int]]()
        self.phases = list[dict[str, Json]]()
        self._every_s, self._ended = every_s, threading.Event()
        self._began, self._page = time.monotonic(), os.sysconf("SC_PAGE_SIZE")
        self._statm = os.open(STATM, os.O_RDONLY)
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()
        os.close(self._statm)

    @contextmanager
    def phase(self, name: str) -> Iterator[dict[str, Json]]:
        """What happens inside is this phase; its memory is read at both ends too."""
        begin_s = self._read()[0]
        phase: dict[str, Json] = {"name": name, "begin_s": begin_s, "runs": 0}
        yield phase
        end_s, end_bytes = self._read()
        peak = max(rss for t, rss in list(self.samples) if begin_s <= t <= end_s)
        self.phases.append({**phase, "end_s": end_s, "end_bytes": end_bytes, "peak_bytes": peak, **_split()})

    def _read(self) -> tuple[float, int]:
        resident = int(os.pread(self._statm, 256, 0).split()[1]) * self._page
        sample = (time.monotonic() - self._began, resident)
        self.samples.append(sample)
        return sample

    def _sample(self) -> None:
        while not self._ended.wait(self._every_s):
            self._read()


def _split() -> dict[str, int | None]:
    """Anonymous and file-backed bytes of this process."""
    try:
        text = ROLLUP.read_text(encoding="ascii", errors="replace")
    except OSError:
        return {"anon_bytes": None, "file_bytes": None}
    found = (re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE) for key in ("Rss", "Anonymous"))
    rss, anon = (int(m.group(1)) * 1024 if m else None for m in found)
    return {"anon_bytes": anon, "file_bytes": None if rss is None or anon is None else rss - anon}


def _timeline(
    samples: Sequence[tuple[float, int]], phases: Sequence[Mapping[str, Any]], options: Options
) -> dict[str, Json]:
    ordered = sorted(samples)  # the two threads append as they come
    baseline = phases[0]["end_bytes"] if phases else None
    every = max(1, -(-len(ordered) // KEPT))
    gaps = [b[0] - a[0] for a, b in itertools.pairwise(ordered)]
    split = bool(phases) and all(p["anon_bytes"] is not None for p in phases)
    timeline: list[dict[str, Json]] = []
    for t, rss in ordered[::every]:
        at = next((p for p in phases if t <= p["end_s"]), phases[-1] if phases else {"name": ""})
        timeline.append({"t_s": t, "rss_bytes": rss, "phase": str(at["name"])})
    return {
        "every_ms": options.every_ms,
        "gap_ms": 1e3 * max(gaps) if gaps else None,
        "timeline": timeline,
        "phases": list(phases),
        "baseline_bytes": baseline,
        "peak_over_bytes": None if baseline is None else max(p["peak_bytes"] for p in phases) - baseline,
        "split_reason": "" if split or not phases else "no /proc/self/smaps_rollup (Linux 4.14 and later)",
    }


def lines(answer: Mapping[str, Any]) -> list[str]:
    """What each phase added, and the peak."""
    if answer["reason"]:
        return [f"memory unavailable: {answer['reason']}"]
    base = answer["baseline_bytes"]
    added = ", ".join(f"{p['name']} {_mib(p['end_bytes'] - base)}" for p in answer["phases"][1:])
    return [f"resident memory over {_mib(base)} before the load: {added}; peak {_mib(answer['peak_over_bytes'])}"]


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
