"""What is measured of a variant: each quantity's unit, label and direction. (data/metrics.py has those of accuracy.)"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Better = Literal["lower", "higher"]
Words = tuple[str, str]  # of a change: when better, when worse
FASTER: Words = ("faster", "slower")
LESS: Words = ("less", "more")
FEWER: Words = ("fewer", "more")
SMALLER: Words = ("smaller", "larger")
COUNTED = "instructions"  # a simulator's, and yet exact: written in full, never with ≈
CYCLES = "cycles"  # that a compiler estimates
LOWER_IS_BETTER = ("perplexity", "mse", "mae", "wer")  # of the metrics that the quantity "accuracy" may be


@dataclass(frozen=True)
class Quantity:
    """One row of the table below; `name` is its key in a variant's numbers."""

    name: str
    unit: str
    label: str
    words: Words
    better: Better = "lower"
    session: str = ""  # key in a session, where each session has one
    gate: str = ""  # what --fail-if calls it; empty: `compare` leaves it out
    per_run: bool = False  # of a whole run: it grows with the batch
    of_device: bool = True  # another device gives another
    exact: bool = False  # the same when measured again: the value is its own interval


_ALL = (
    Quantity("latency", "ms", "Latency, median", FASTER, session="median_ms", gate="latency_ms", per_run=True),
    Quantity("p90", "ms", "Latency, p90", FASTER, session="p90_ms", per_run=True),
    Quantity("p95", "ms", "Latency, p95", FASTER, session="p95_ms", gate="p95_ms", per_run=True),
    Quantity("p99", "ms", "Latency, p99", FASTER, session="p99_ms", per_run=True),
    Quantity("load", "ms", "Load", FASTER, session="load_ms", gate="load_ms"),
    Quantity("first", "ms", "First inference", FASTER, session="first_ms", gate="first_ms", per_run=True),
    Quantity("call", "ms", "Call overhead", FASTER, session="call_ms"),
    Quantity(COUNTED, COUNTED, "Instructions, simulated", FEWER, gate="instructions", per_run=True, exact=True),
    Quantity(CYCLES, CYCLES, "Cycles, estimated", FEWER, gate="cycles", per_run=True, of_device=False),
    Quantity("npu_time", "ms", "Inference, estimated", FASTER, per_run=True, of_device=False),
    Quantity("sram", "bytes", "SRAM, estimated", LESS, gate="sram_bytes", per_run=True, of_device=False),
    Quantity("flash", "bytes", "Flash, estimated", LESS, gate="flash_bytes", of_device=False),
    Quantity("throughput", "/s", "Throughput", ("more", "less"), "higher"),
    Quantity("accuracy", "", "Accuracy", ("better", "worse"), "higher", gate="accuracy", of_device=False),
    Quantity("size", "bytes", "Size", SMALLER, gate="size_bytes", of_device=False, exact=True),
    Quantity(
        "peak_rss", "bytes", "Peak memory", LESS, session="memory.peak_rss_bytes", gate="peak_rss_bytes", per_run=True
    ),
    Quantity("file_backed", "bytes", "– file-backed", LESS, session="memory.file_backed_bytes", per_run=True),
    Quantity("arena", "bytes", "Planned arena", SMALLER, per_run=True, exact=True),
    Quantity("energy_gross", "mJ", "Energy per inference", LESS, gate="energy_gross_mj"),
    Quantity("energy_net", "mJ", "Energy, net of idle", LESS, gate="energy_net_mj"),
    Quantity(
        "inferences_per_joule",
        "1/J",
        "Inferences/sec per watt",
        ("more", "fewer"),
        "higher",
        gate="inferences_per_joule",
    ),
    Quantity("power", "W", "Power", LESS),
    Quantity("fallback", "operators", "Off the accelerator", FEWER),
)
QUANTITIES = {q.name: q for q in _ALL}
GATES = {q.gate: q for q in _ALL if q.gate}
ENERGY = tuple(QUANTITIES[name] for name in ("energy_gross", "energy_net", "inferences_per_joule", "power"))


def of(names: Sequence[str]) -> tuple[Quantity, ...]:
    """The quantities of these names, in their order."""
    return tuple(QUANTITIES[name] for name in names)


def unit(name: str) -> str:
    """The unit of a quantity; empty for a metric of accuracy, which has its own."""
    return QUANTITIES[name].unit if name in QUANTITIES else ""


def direction(metric: str) -> Better:
    """Which direction of the accuracy metric is better."""
    return "lower" if metric in LOWER_IS_BETTER else "higher"
