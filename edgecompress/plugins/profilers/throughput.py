"""Items per second by batch size, each in a separate session, and the batch size beyond which little is gained."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.protocols import Subject
from edgecompress.plugins.profilers import _times

REQUIRES = ("numpy",)
NEAR = 0.95  # of the most items per second: the smallest batch that reaches it is the knee
WARM_S = 5.0  # of one batch's load and warm-up, roughly
RUNS = 3  # of a batch, at least


@dataclass(frozen=True)
class Options:
    """Which batches, each for how long."""

    batches: tuple[int, ...] = (1, 2, 4, 8, 16)
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.batches or min(self.batches) < 1 or self.seconds <= 0:
            raise ValueError("batches must be at least 1, seconds above 0")


def estimate_s(options: Options) -> float:
    """A warm-up and a window for each batch."""
    return len(options.batches) * (WARM_S + options.seconds)


def measure(subject: Subject, options: Options) -> dict[str, Json]:
    """A row for each batch that the artifact takes, and the knee."""
    axis = subject.model.batch
    fixed = f"the artifact is made for batch {axis}" if isinstance(axis, int) else ""
    most = None if isinstance(axis, int) else axis.max
    batches = [axis] if isinstance(axis, int) else sorted(set(options.batches))
    fits = [batch for batch in batches if most is None or batch <= most]
    left_out = {str(batch): f"the artifact takes batches up to {most}" for batch in batches if batch not in fits}
    rows = _times.swept("batch", fits, lambda batch: _row(subject, batch, options.seconds), left_out)
    return {"rows": rows, **knee(rows), "left_out": left_out, "fixed": fixed}


def _row(subject: Subject, batch: int, seconds: float) -> dict[str, Any]:
    session, inputs = subject.open(), subject.inputs(batch)
    subject.warm_up(session.run, inputs)
    with _times.reading(subject) as energy_of:
        begin = time.monotonic()
        times = subject.timed(session.run, inputs, seconds, RUNS)
        end = time.monotonic()
        energy = energy_of(begin, end)
    session.close()
    items = batch * len(times)
    return {
        "batch": batch,
        "runs": len(times),
        "items_per_s": items / (end - begin),
        "median_ms": _times.tail_ms(times, 50),
        "p95_ms": _times.tail_ms(times, 95),
        "ms_per_item": 1e3 * (end - begin) / items,
        "energy_per_item": _times.per(energy, "energy_gross", "mJ", 1e3 / items),
    }


def knee(rows: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """The most items per second, and the smallest batch that comes near."""
    best = max(rows, key=lambda row: row["items_per_s"])
    near = next(row for row in rows if row["items_per_s"] >= NEAR * best["items_per_s"])
    reason = f"the smallest batch with {NEAR:.0%} of the most items per second (batch {best['batch']})"
    named = {
        name: {key: row[key] for key in ("batch", "items_per_s")} for name, row in (("best", best), ("knee", near))
    }
    return {"best": named["best"], "knee": {**named["knee"], "reason": reason}}


def lines(answer: Mapping[str, Any]) -> list[str]:
    """A line for each batch, and the knee."""
    texts = [
        f"batch {row['batch']}: {_times.rate(row['items_per_s'])}, {row['median_ms']:.4g} ms a run"
        + _times.an_item(row["energy_per_item"])
        for row in answer["rows"]
    ]
    knee_at = f"knee at batch {answer['knee']['batch']}: {answer['knee']['reason']}"
    end = f"no other batch: {answer['fixed']}" if answer["fixed"] else knee_at
    return [*texts, end, *(f"batch {batch} left out: {why}" for batch, why in answer["left_out"].items())]
