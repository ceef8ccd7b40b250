"""What a number of the report is: with its interval and status, as it changed, and in the sessions that measured it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from edgecompress.core.model import Measured
from edgecompress.core.quantities import QUANTITIES

KEPT = 2000  # latencies of one session that report.json keeps, every k-th in run order
Table: TypeAlias = dict[str, Any]  # a user's own, a device's or a plug-in's: it has no schema
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Above0: TypeAlias = Annotated[float, Meta(gt=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Pair: TypeAlias = Annotated[list[int | float], Meta(min_length=2, max_length=2)]
Called: TypeAlias = Literal["better", "worse", "same", "none"]
Buckets: TypeAlias = Annotated[list[float], Meta(max_length=1000)]
Sha256: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
QuantityName: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": sorted(QUANTITIES)})]


class Part(msgspec.Struct):
    """A part of report.json. A key that it does not know is ignored: a later version may have written it."""


@dataclass(frozen=True)
class Number(Measured):
    """A number that never travels alone; one that is missing is never 0, and has its reason.

    `low` and `high` are its interval (measured) or its band (estimated).
    """

    @property
    def known(self) -> float:
        """The value of a number that has one."""
        assert self.value is not None, self.reason
        return self.value

    def __post_init__(self) -> None:
        if (self.value is None) != (self.status == "unavailable") or (self.value is None and not self.reason):
            raise ValueError(f"{self.metric} is {self.value}, its status {self.status}, its reason '{self.reason}'")
        if self.n < 0 or (self.low is not None and self.high is not None and self.low > self.high):
            raise ValueError(f"{self.metric} is from {self.low} to {self.high}, of {self.n}")


class Change(Part):
    """How many times better (above 1) or worse.

    `called` is "none" where no change may be called: one session, or an estimate. `exact`: guessed, and yet counted, as
    a simulator's instructions.
    """

    factor: Above0
    low: float | None
    high: float | None
    n: Count
    called: Called
    guessed: bool = False
    exact: bool = False


class Delta(Part):
    """One quantity before (of the variant `before_of`, or of the source) and after.

    `change` is None where the two are not compared; `says` tells why.
    """

    metric: QuantityName
    label: str
    better: Literal["lower", "higher"]
    before: Number | None
    after: Number
    before_of: str
    change: Change | None
    says: str
    short: str


class SessionMemory(Part):
    """What a session reports of memory, in bytes."""

    artifact_bytes: int | None = None
    arena_bytes: int | None = None
    arena_reason: str = ""
    arena_peak: str = ""
    peak_rss_bytes: int | None = None
    file_backed_bytes: int | None = None
    baseline_rss_bytes: int | None = None
    rss_reason: str = ""


class Session(Part):
    """One fresh process. `latencies_ms` holds every `every`-th run in run order; the statistics are over all runs.

    `noisy` is why it has no statistics. `call_ms` is the median call of an empty model; None where its runtime has
    none, with the reason in `call_reason`. `windows_ms` are of each turn, None where something disturbed it.
    """

    round: str
    crashed: str | None = None
    noisy: str = ""
    median_ms: Amount | None = None
    p90_ms: Amount | None = None
    p95_ms: Amount | None = None
    p99_ms: Amount | None = None
    min_ms: Amount | None = None
    max_ms: Amount | None = None
    mean_ms: Amount | None = None
    load_ms: Amount | None = None
    first_ms: Amount | None = None
    call_ms: Amount | None = None
    call_reason: str = ""
    warmup_s: Amount | None = None
    n: Count | None = None
    outliers: Count | None = None
    warm: bool | None = None
    flags: list[str] | None = None
    memory: SessionMemory | None = None
    windows_ms: list[Amount | None] = []
    every: Positive = 1
    latencies_ms: Annotated[list[Amount], Meta(max_length=KEPT)] = []


class Histogram(Part):
    """The body of the latencies; `over` counts the runs beyond it."""

    edges_ms: Annotated[list[float], Meta(min_length=2)]
    counts: list[Count]
    over: Count


class Distribution(Part):
    """All kept runs of all sessions: their 0, 1, ... 100 % quantiles, and a histogram without their longest tail."""

    runs: Positive
    quantiles_ms: Annotated[list[float], Meta(min_length=101, max_length=101)]
    histogram: Histogram


class Counted(Part):
    """Simulated instructions of one inference without `overhead`, what the marks around it take.

    `processes` are the fresh processes that counted.
    """

    instructions: Count
    overhead: Count
    processes: list[Count]
    identical: bool
    runs: Positive
    classes: dict[str, Count]
    sensor: str


class Phase(Part):
    """Idle time, or a window of inference."""

    phase: Literal["idle", "window"]
    begin_s: float
    seconds: float
    n: Count
    joules: float | None
    power: Number


class PowerTrace(Part):
    """Idle, windows, idle as an agent ran them, in seconds since the first began.

    `samples` of power in buckets: the lowest, the mean and the highest of each.
    """

    status: Literal["measured", "estimated", "simulated", "replayed"]
    source: str
    scope: str
    phases: Annotated[list[Phase], Meta(min_length=1)]
    samples: Count
    longest_gap_s: float | None
    t_s: Buckets = []
    low_w: Buckets = []
    mean_w: Buckets = []
    high_w: Buckets = []


def values(sessions: Iterable[Session | ExternalSession], key: str) -> dict[str, float]:
    """round -> the number `key` ("median_ms", "memory.peak_rss_bytes") of each session that has it."""
    numbers = {}
    for session in sessions:
        part: object = session
        for name in key.split("."):
            part = getattr(part, name, None)
        if isinstance(part, (int, float)):
            numbers[session.round] = float(part)
    return numbers


class ExternalSession(Part):
    """One file of the folder's `measured`, by whose sha256 it is called, and the statistics of its latencies."""

    round: Annotated[str, Meta(pattern="^[0-9a-f]{12}$")]
    started: str
    warmup: Count
    n: Annotated[int, Meta(ge=20)]
    step_ns: Positive
    median_ms: Above0
    mean_ms: Above0
    min_ms: Above0
    max_ms: Above0
    p90_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    outliers: Count
    drift: float | None = None
