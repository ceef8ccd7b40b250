"""Load and first inference in fresh processes, with the artifact in the page cache and, where it can be had, without.

"warm": its pages are in memory, as after an earlier start. "dropped": the kernel was asked to forget its files
(posix_fadvise, which needs no privilege), and the first page of each was seen to be gone. Libraries stay cached.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.core.protocols import StartTimes, Subject

REQUIRES = ("numpy",)
START_S = 3.0  # of one fresh process, roughly
CACHES = ("warm", "dropped")
TIMES = ("import_ms", "load_ms", "first_ms", "second_ms", "ready_ms", "total_ms")


@dataclass(frozen=True)
class Options:
    """How many fresh processes of each kind."""

    starts: int = 5

    def __post_init__(self) -> None:
        if self.starts < 1:
            raise ValueError("starts must be at least 1")


class Start(StartTimes):
    """The times of a fresh process."""

    ready_ms: float
    total_ms: float


class CachedStart(Start):
    """A start, and whether the artifact was in the page cache: one of CACHES."""

    cache: str


def estimate_s(options: Options) -> float:
    """The starts of both kinds, and one that is not counted."""
    return (2 * options.starts + 1) * START_S


def measure(subject: Subject, options: Options) -> dict[str, object]:
    """Each start in turns, warm then dropped, and their medians."""
    files = subject.model.files()
    why_not = dropped(files)
    subject.start()  # brings libraries and artifact into the page cache
    starts = list[CachedStart]()
    for _ in range(options.starts):
        starts.append({"cache": "warm", **_start(subject)})
        if not why_not:
            why_not = dropped(files)
        if not why_not:
            starts.append({"cache": "dropped", **_start(subject)})
    what = "" if why_not else "the artifact's files (posix_fadvise); the libraries stay cached"
    return {"starts": starts, "summary": summary(starts), "dropped": what, "dropped_reason": why_not}


def _start(subject: Subject) -> Start:
    times = subject.start()
    ready = times["load_ms"] + times["first_ms"]
    return {**times, "ready_ms": ready, "total_ms": times["import_ms"] + ready}


def dropped(files: Sequence[Path]) -> str:
    """Takes the files out of the page cache; why that did not go, or ""."""
    if not hasattr(os, "posix_fadvise") or not hasattr(os, "RWF_NOWAIT"):
        return "this system cannot drop a file from its page cache (posix_fadvise, preadv2)"
    try:
        return next((why for file in files if file.stat().st_size and (why := _dropped(file))), "")
    except OSError as error:
        return f"the page cache could not be dropped: {error}"


def _dropped(file: Path) -> str:
    stream = os.open(file, os.O_RDONLY)
    try:
        os.fsync(stream)  # a page that is still to be written stays
        os.posix_fadvise(stream, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(stream, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:  # it would have to be read from the disk
        return ""
    finally:
        os.close(stream)
    return f"{file.name} stayed in the page cache (a file system in memory, or another process has it mapped)"


def summary(starts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Median, minimum and maximum of each time, by the state of the page cache."""
    spreads: dict[str, Any] = dict.fromkeys(CACHES)
    for cache in CACHES:
        if kept := [s for s in starts if s["cache"] == cache]:
            each = {key: [s[key] for s in kept] for key in TIMES}
            spreads[cache] = {
                k: {"median": statistics.median(v), "min": min(v), "max": max(v)} for k, v in each.items()
            }
    return spreads


def lines(answer: Mapping[str, Any]) -> list[str]:
    """What an app waits for, by the state of the page cache."""
    texts = [_line(cache, times) for cache in CACHES if (times := answer["summary"][cache])]
    return texts + ([f"cold page cache unavailable: {answer['dropped_reason']}"] if answer["dropped_reason"] else [])


def _line(cache: str, times: Mapping[str, Mapping[str, float]]) -> str:
    parts = ", ".join(f"{key.removesuffix('_ms')} {times[key]['median']:.4g} ms" for key in TIMES[:4])
    ready = times["ready_ms"]
    return (
        f"page cache {cache}: ready after {ready['median']:.4g} ms ({ready['min']:.4g} to {ready['max']:.4g}): {parts}"
    )
