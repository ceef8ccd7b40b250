"""Items per second by the number of sessions that run at once, each in a process, like a server's workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgecompress.core.errors import StageFailed
from edgecompress.core.json import Json
from edgecompress.core.protocols import Subject
from edgecompress.plugins.profilers import _times

REQUIRES = ("numpy",)
WARM_S = 3.0  # of a session's start and warm-up, roughly: one begins after the other
RUNS = 3  # of a stream, at least
MOST = 256  # streams


@dataclass(frozen=True)
class Options:
    """How many streams, each for how long."""

    streams: tuple[int, ...] = (1, 2, 4, 8)
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.streams or not all(1 <= n <= MOST for n in self.streams) or self.seconds <= 0:
            raise ValueError(f"streams must be 1 to {MOST}, seconds above 0")


def estimate_s(options: Options) -> float:
    """The warm-ups and a window for each number of streams."""
    return sum(WARM_S * streams + options.seconds for streams in options.streams)


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """A row for each number of streams that ran, and the one with the most items per second."""
    rows, left_out = list[dict[str, Any]](), dict[str, str]()
    for streams in sorted(set(options.streams)):
        try:
            rows.append(_row(subject, streams, options.seconds))
        except Exception as error:  # the boundary: a runtime without memory for so many is no end of the sweep
            left_out[str(streams)] = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if not rows:
        raise StageFailed(f"no stream ran: {'; '.join(f'{n}: {why}' for n, why in left_out.items())}")
    best = max(rows, key=lambda row: float(row["items_per_s"]))
    return {"rows": rows, "best": {k: best[k] for k in ("streams", "items_per_s")}, "left_out": left_out}


def _row(subject: Subject, streams: int, seconds: float) -> dict[str, Any]:
    with subject.at_once(streams, seconds, RUNS) as window, _times.reading(subject) as energy_of:
        begin = time.monotonic()
        windows = window()
        energy = energy_of(begin, time.monotonic())
    items = subject.batch * sum(each["n"] for each in windows)
    return {
        "streams": streams,
        "batch": subject.batch,
        "items_per_s": subject.batch * sum(each["n"] / each["window_s"] for each in windows),
        "median_ms": statistics.median(each["median_ms"] for each in windows),
        "slowest_ms": max(each["median_ms"] for each in windows),
        "energy_per_item": _times.per(energy, "energy_gross", "mJ", 1e3 / items),
    }


def lines(answer: Mapping[str, Any]) -> list[str]:
    """A line for each number of streams."""
    first = answer["rows"][0]["items_per_s"]
    texts = [
        f"{row['streams']} at once: {row['items_per_s']:.4g} items/s ({row['items_per_s'] / first:.3g}x), "
        f"{row['median_ms']:.4g} ms a run" + _energy(row)
        for row in answer["rows"]
    ]
    return [*texts, *(f"{streams} at once left out: {why}" for streams, why in answer["left_out"].items())]


def _energy(row: Mapping[str, Any]) -> str:
    figure = row["energy_per_item"]
    return "" if figure["value"] is None else f", {_times.in_words(figure)} an item"
