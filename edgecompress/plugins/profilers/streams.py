"""Items per second by the number of sessions that run at once, each in a process, like a server's workers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """A row for each number of streams that ran."""
    left_out: dict[str, str] = {}
    numbers = sorted(set(options.streams))
    rows = _times.swept("stream", numbers, lambda streams: _row(subject, streams, options.seconds), left_out)
    return {"rows": rows, "left_out": left_out}


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
        "mean_ms": 1e3 * statistics.mean(each["window_s"] / each["n"] for each in windows),  # waits included
        "energy_per_item": _times.per(energy, "energy_gross", "mJ", 1e3 / items),
    }


def lines(answer: Mapping[str, Any]) -> list[str]:
    """A line for each number of streams; beside one alone where that was measured."""
    alone = {row["streams"]: row["items_per_s"] for row in answer["rows"]}.get(1)
    texts = [
        f"{row['streams']} at once: {_times.rate(row['items_per_s'])}"
        + (f" ({row['items_per_s'] / alone:.3g}x one alone)" if alone and row["streams"] > 1 else "")
        + f", {row['mean_ms']:.4g} ms a run on average"
        + _times.an_item(row["energy_per_item"])
        for row in answer["rows"]
    ]
    return [*texts, *(f"{streams} at once left out: {why}" for streams, why in answer["left_out"].items())]
