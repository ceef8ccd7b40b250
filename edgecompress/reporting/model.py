"""The report as typed classes: report.json is written, read, refused and described (JSON Schema) by them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, field

from edgecompress.core import registry
from edgecompress.core.model import Check, Measured, Status
from edgecompress.core.quantities import QUANTITIES, unit
from edgecompress.data.found_boxes import FoundFacts
from edgecompress.data.output_channels import WorstItem
from edgecompress.formats.precision.facts import Precision
from edgecompress.reporting.external_results import MeasuredDevice, MeasuredModel, MeasuredRuntime

SCHEMA: Literal["edgecompress/stages/report/1"] = "edgecompress/stages/report/1"
KEPT = 2000  # latencies of one session that report.json keeps, every k-th in run order
ROUNDED = 1e-3  # that a number may differ by for being rounded
SIGNED = ("accuracy", "peak_rss", "file_backed", "energy_net")  # numbers that may be below 0
ESTIMATED = {"cycles", "npu_time", "sram", "flash"}  # numbers that only a variant with a compiler's estimate has
UNTOLD = "this report does not tell it"
NULL_WITH_REASON = {  # JSON Schema of a number: null where it is unavailable, and nowhere else
    "if": {"properties": {"status": {"const": "unavailable"}}},
    "then": {"properties": {"value": {"type": "null"}, "reason": {"minLength": 1}}},
    "else": {"properties": {"value": {"type": "number"}}},
}

Table: TypeAlias = dict[str, Any]  # a user's own, a device's or a plug-in's: it has no schema
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Amount: TypeAlias = Annotated[float, Meta(ge=0)]
Above0: TypeAlias = Annotated[float, Meta(gt=0)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Pair: TypeAlias = Annotated[list[int | float], Meta(min_length=2, max_length=2)]
Ended: TypeAlias = Literal["shipped", "undecided", "measured", "nothing", "failed"]
Called: TypeAlias = Literal["better", "worse", "same", "none"]
Buckets: TypeAlias = Annotated[list[float], Meta(max_length=1000)]
Sha256: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Verdict: TypeAlias = Literal[
    "shipped", "lost", "failed", "slower", "equal", "undecided", "noisy", "reference", "measured", "passed", "unreached"
]

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


class File(Part):
    """A file of an artifact."""

    name: str
    bytes: Count
    sha256: Sha256


class BuiltArtifact(Part):
    """What was built. `settings`: how its runtime opens it, by the engine's own names.

    `rewrites`: what was changed of the graph around the kernels, in words, and the operators concerned.
    """

    kind: str
    sha256: Sha256
    size_bytes: Count
    settings: Table = {}
    precision: Precision | None = None
    files: list[File] = []
    rewrites: dict[str, list[str]] = {}


class SourceArtifact(Part):
    """The source as it was loaded, with the tensors that go in and out."""

    kind: str
    sha256: Sha256
    size_bytes: Count
    precision: Precision | None = None
    inputs: list[Table] = []
    outputs: list[Table] = []


class Output(Part):
    """An output against the source's, as a whole and by channel; `reason` is why a number is None."""

    name: str
    max_abs_error: float | None = None
    sqnr_db: float | None = None
    cosine: float | None = None
    agreement: float | None = None
    reason: str = ""
    channel_error: float | None = None
    tail_error: float | None = None
    found_error: float | None = None
    found_loss: float | None = None
    choice_loss: float | None = None
    divergence: float | None = None
    changed: float | None = None
    channels: dict[str, int] = {}
    worst: list[WorstItem] = []
    constant: int = 0
    dead: list[int] = []
    cut: list[int] = []
    size: int = 0
    found: FoundFacts | None = None
    counted: list[str] | None = None
    classifier: bool = False


class DefaultOutput(Part):
    """The error of an output against the source's, by the engine's own defaults and as it ships."""

    name: str
    sqnr_db: float | None
    shipped_sqnr_db: float | None
    same: bool


class Defaults(Part):
    """The first items once more, by a session with the engine's own defaults; `settings`: what was then in effect."""

    items: Count
    settings: Table = {}
    reason: str = ""
    outputs: list[DefaultOutput] = []


class LeftOperator(Part):
    """An operator that left the accelerator, with its share of the time of all operators."""

    name: str
    type: str
    ms: float | None
    share: float | None


class Metric(Part):
    """The same items scored for the source and for its artifact, with the interval of 95 % of what changed."""

    name: str
    unit: str
    before: float | None
    after: float | None
    n: Count
    items_lost: int | None = None
    items_gained: int | None = None
    net_lost: int | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    expected: dict[str, float] | None = None


class Verification(Part):
    """What verify found of the outputs. `defaults` is None where the runtime has no settings.

    `right`: which items the artifact has right, a bit each, the first one the highest; `scores`: of another metric the
    score of each, float32 in base64. So two reports are compared item by item.
    """

    n: Count = 0
    outputs: list[Output] = []
    metric: Metric | None = None
    checks: list[Check] = []
    reasons: dict[str, str] = {}
    fallback: list[LeftOperator] | None = None
    right: Annotated[str, Meta(pattern="^[0-9a-f]*$")] | None = None
    scores: Annotated[str, Meta(pattern="^[A-Za-z0-9+/]*={0,2}$")] | None = None
    lost: str | None = None
    defaults: Defaults | None = None


class Operator(Part):
    """An operator as it was timed, and where it runs."""

    name: str
    type: str
    ms: float
    where: str = ""


class Operators(Part):
    """The operators of an artifact, why there are no times (""), and the names of those that left the accelerator."""

    ops: list[Operator] = []
    total_ms: float | None = None
    why: str = ""
    fallback: list[str] | None = None


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


class MovedOutput(Part):
    """How far an output on the device is from the same artifact's here (relative RMS), and where it first moved."""

    name: str
    moved: float | None
    reason: str = ""
    operator: str = ""


class Agreement(Part):
    """Whether the shipped excerpt on the device answers as it does here."""

    outputs: list[MovedOutput]
    checks: list[Check] = []
    limit: float | None = None
    environment: Table = {}
    lost: str = ""


class RoofOperator(Part):
    """An operator under the roofs: its own time, and the MACs and bytes that its shapes tell.

    `bound`: memory left of the corner; right of it only float32 has a measured roof. Unknown above a roof.
    """

    name: str
    type: str
    ms: float
    macs: Count
    bytes: Count
    dtype: str
    gflops: float
    gb_per_s: float
    flops_per_byte: float | None = None
    of_roof: float | None = None
    bound: Literal["memory", "compute", "unknown"] = "unknown"


class Roofline(Part):
    """The two roofs as measured, and the operators below; `unmatched` could not be placed."""

    gflops: float | None
    gb_per_s: float | None
    doubt: str
    ops: list[RoofOperator]
    unmatched: list[str]
    why: str


class Bottleneck(Part):
    """What holds a variant back: `cause` takes most of its latency by `shares`, what each takes at least.

    `unknown`: why a cause has no share, or only one that it takes at least. "kernels": most is explained by none. A
    peak is that of the `instruction` at the highest clock, in float32 the measured roof; None where neither is known,
    or where the variant computes more than that.
    """

    cause: Literal["calls", "conversions", "unfused", "memory", "arithmetic", "kernels", "unknown"]
    says: str
    shares: dict[str, Amount]
    unknown: dict[str, str]
    macs: Count | None = None
    macs_per_cycle: Amount | None = None
    peak_macs_per_cycle: Amount | None = None
    instruction: str = ""
    weights_bytes: Count | None = None
    activations_bytes: Count | None = None


class Cycles(Part):
    """By what takes them."""

    npu: Count
    sram: Count
    dram: Count
    on_chip_flash: Count
    off_chip_flash: Count
    total: Count


class LeftOnCpu(Part):
    """An operator that the accelerator does not take, with the compiler's reason."""

    name: str
    type: str
    why: str


class Estimate(Part):
    """What the compiler `source` estimates of one inference under its settings.

    It is comparable with what was estimated under equal ones only. The numbers are None where no operator runs on the
    accelerator (`reason`), and never count the operators in `fallback`: these stay on the CPU.
    """

    status: Literal["estimated"]
    source: str
    accelerator: str
    system: str
    memory: str
    optimise: str
    clock_mhz: Above0
    cycles: Cycles | None
    inference_ms: Amount | None
    macs: Count | None
    sram_bytes: Count | None
    flash_bytes: Count | None
    npu_operators: Count
    cpu_operators: Count
    fallback: list[LeftOnCpu] = []
    reason: str = ""


class Whole(Part):
    """A number of the whole net: of the source, and what the last technique left."""

    before: Count
    after: Count


class Group(Part):
    """Channels that go together; `kept` is 0 where their block went whole."""

    name: str
    channels: Count
    kept: Count
    layers: list[str] = []
    kind: str = field(default="", name="class")


class Layer(Part):
    """A layer that became several of low rank; `error` is of the weight, relative."""

    name: str
    method: str | None = None
    shape: list[Count] | None = None
    ranks: list[Count] | None = None
    macs: Pair | None = None
    parameters: Pair | None = None
    error: float | None = None


class SparseRow(Part):
    """A weight in which zeros were made, or why none were."""

    name: str
    elements: Count
    zeros: Count
    pruned: bool
    why: str


class SparseTotal(Part):
    """All weights together."""

    elements: Count
    zeros: Count


class Sparsity(Part):
    """The zeros of a net."""

    kind: str
    rows: list[SparseRow]
    total: SparseTotal


class Storage(Part):
    """Bytes of all weights in each form and each in its best, of the artifact's files, and of them through zstd."""

    dense: Count
    bitmask: Count
    csr: Count
    zstd: Count
    best: Count
    file: Count
    sent: Count
    bitmask_zstd: Count = field(default=0, name="bitmask+zstd")
    codebook: Count = 0
    packed: Count = 0


class Compressed(Part):
    """What techniques took out of the net; `left`: what would not be touched, and why."""

    techniques: list[str]
    macs: Whole | None = None
    parameters: Whole | None = None
    align: Positive | None = None
    criterion: str | None = None
    scope: str | None = None
    groups: list[Group] = []
    layers: list[Layer] = []
    sparsity: Sparsity | None = None
    storage: Storage | None = None
    left: dict[str, str] = {}


class Epoch(Part):
    """`select` is the score on the split "select"."""

    epoch: Count
    lr: float | None = None
    loss: float | None = None
    select: float | None = None


class Training(Part):
    """One training after compression; `metric` is that of `select`.

    `went_back`: the epoch whose weights are kept as the last one was worse than the beginning; 0: the net as it was.
    """

    technique: str
    samples: Count | None = None
    split: str | None = None
    batch_size: Positive | None = None
    device: str | None = None
    amp: str | None = None
    distill: float | None = None
    metric: str | None = None
    went_back: Count | None = None
    log: str | None = None
    teachers: list[str] = []
    epochs: list[Epoch] = []


class Variant(Part):
    """A variant with all its numbers: what it became, what it computes, how fast it is, and why it lost.

    `undecided` are limits that the interval of a sampled number does not decide; `evidence` is why it is slower than
    the fastest reference.
    """

    name: str
    runtime: str = ""
    also: dict[str, str] = {}
    reference: bool = False
    compress: list[str] = []
    verdict: Verdict = "measured"
    reason: str = ""
    undecided: list[str] = []
    artifact: BuiltArtifact | None = None
    verify: Verification | None = None
    numbers: dict[str, Number] = {}
    sessions: list[Session] = []
    distribution: Distribution | None = None
    ops: Operators | None = None
    count: Counted | None = None
    power_trace: PowerTrace | None = None
    agree: Agreement | None = None
    estimate: Estimate | None = None
    compressed: Compressed | None = None
    training: list[Training] = []
    roofline: Roofline | None = None
    bottleneck: Bottleneck | None = None
    evidence: str = ""

    def __post_init__(self) -> None:
        for name, number in self.numbers.items():
            if wrong := _impossible(name, number) or _unlike_sessions(name, number, self.sessions):
                raise ValueError(f"{name} is {wrong}")
        for name in QUANTITIES.keys() - self.numbers.keys() - ESTIMATED:
            self.numbers[name] = Number(name, None, unit(name), "unavailable", reason=UNTOLD)


def _impossible(name: str, number: Number) -> str:
    """What a number of a variant cannot be, or ""."""
    share = name == "accuracy" and number.unit == "fraction"
    if name != "accuracy" and name in QUANTITIES and number.unit != unit(name):
        return f"in {number.unit or 'no unit'}, not in {unit(name)}"
    low, high = (0.0, 1.0) if share else (-math.inf if name in SIGNED else 0.0, math.inf)
    return "" if number.value is None or low <= number.value <= high else f"{number.value:g}, not {low:g} to {high:g}"


def _unlike_sessions(name: str, number: Number, sessions: Sequence[Session]) -> str:
    """What a number is beyond those of all its sessions, or ""."""
    key = QUANTITIES[name].session if name in QUANTITIES else ""
    each = values(sessions, key).values() if key else ()
    if number.value is None or not each or (1 - ROUNDED) * min(each) <= number.value <= (1 + ROUNDED) * max(each):
        return ""
    return f"{number.value:g}, its sessions have {min(each):g} to {max(each):g}"


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


class Setting(Part):
    """One value of the effective configuration."""

    key: str
    value: Any
    origin: str


class StageRow(Part):
    """How a stage ended; `log` is the name of its log."""

    stage: str
    status: Literal["ok", "lost", "failed"]
    reason: str
    wall_s: Amount
    log: str


class Outcome(Part):
    """What a profiler found of a variant: as it gave it (long lists are thinned) and in words; or `why` nothing."""

    why: str = ""
    lines: list[str] = []
    answer: Table | None = None


class Look(Part):
    """A further look at the variants, by a profiler."""

    profiler: str = field(name="pass")
    options: Table = {}
    variants: dict[str, Outcome] = {}


class Point(Part):
    """A variant with the three numbers; `beaten_by` is as good in all three and better in one, empty on the front."""

    variant: str
    device: str
    accuracy: Number
    latency: Number
    energy: Number
    beaten_by: str = ""


class Gain(Part):
    """A compressed variant beside its `twin`, the one of the same runtime and precision that was not compressed.

    `change` is None where the two are not compared; `reason` tells why. `gained` is False where nothing was, None
    where they are not compared or too few sessions ran to call a change.
    """

    variant: str
    twin: str
    techniques: list[str]
    fewer_macs: Above0 | None
    zeros: Share | None
    metric: QuantityName
    status: Status
    source: str
    change: Change | None
    reason: str
    gained: bool | None
    asked: str
    says: str = ""


class Goal(Part):
    """What the search for a strength was to meet."""

    quantity: Literal["ratio", "latency_ms"]
    value: float


class Trial(Part):
    """A trial: the share of the dense net's latency (or instructions) that it was asked to leave, and that it left."""

    stage: str
    keep: float
    ratio: float | None = None
    kept: dict[str, Count] = {}
    reason: str = ""
    chosen: bool = False


class Fit(Part):
    """How a strength was found by measuring.

    `ratio` is the goal, met from `least` on, `saved` what each cell saves, each as a share of the dense net's latency
    (or instructions). Without trials `reason` says why.
    """

    stage: str
    variant: str
    technique: str
    reason: str = ""
    goal: Goal | None = None
    ratio: float | None = None
    least: float | None = None
    status: str | None = None
    simulated: str | None = None
    runtime: str | None = None
    dense_ms: float | None = None
    saved: dict[str, float] = {}
    crashed: dict[str, str] = {}
    trials: list[Trial] = []


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


class ExternalRow(Part):
    """What a package's benchmark measured on a device that only its owner reaches.

    `rank` is None where the self-test failed or there is no latency.
    """

    rank: Positive | None
    device: MeasuredDevice
    runtime: MeasuredRuntime
    model: MeasuredModel
    package: str
    threads: Positive
    self_test: Literal["pass", "fail"]
    clock: str
    clock_step_ns: Positive
    numbers: dict[str, Number]
    sessions: Annotated[list[ExternalSession], Meta(min_length=1)]
    says: list[str]

    def __post_init__(self) -> None:
        if self.rank is not None and self.self_test == "fail":
            raise ValueError(f"rank is {self.rank} though its self-test failed")


class Run(Part):
    """How each artifact was run."""

    batch: Positive = 1
    threads: Positive = 1


class Choice(Part):
    """What the race chose and why; `unmeasured` is why nothing was measured on the target."""

    variant: str = ""
    reason: str = ""
    unmeasured: str = ""


class Energy(Part):
    """The sensor that was used, and why others were not."""

    sensor: str = ""
    why_not: dict[str, str] = {}


class Note(Part):
    """What must not be overlooked."""

    level: Literal["warning", "note"]
    text: str


class Summary(Part):
    """The verdict: what the variant that ships gains over the baseline by called changes, and what became worse.

    `accuracy` is what it loses of the source, with its interval; `undecided` are its limits that are not decided;
    `remarks`, the second line: costs, what else it gains, what is undecided or was not measured, what holds it back.
    """

    outcome: Ended = "nothing"
    variant: str = ""
    baseline: str = ""
    sentence: Annotated[str, Meta(min_length=1)] = UNTOLD
    bought: list[str] = []
    costs: list[str] = []
    accuracy: str = ""
    undecided: list[str] = []
    remarks: list[str] = []


class Report(Part, kw_only=True):
    """All that a deploy or a profile found out. A change that breaks readers gets a new `schema`.

    `simulated` is what stands in for the device, `not_measured` why energy is not measured where that was required.
    `elsewhere` has the fastest first.
    """

    schema: Literal["edgecompress/stages/report/1"]
    title: str = ""
    command: str = ""
    date: str = ""
    exit_code: int = 0
    versions: dict[str, str] = {}
    run: Run = field(default_factory=Run)
    choice: Choice = field(default_factory=Choice)
    source: Table = {}
    target: Table = {}
    device: Table = {}
    profile: Table = {}
    data: Table | None = None
    energy: Energy = field(default_factory=Energy)
    simulated: str = ""
    not_measured: str = ""
    environment: Table = {}
    configuration: list[Setting] = []
    stages: list[StageRow] = []
    passes: list[Look] = []
    variants: list[Variant]
    fits: list[Fit] = []
    elsewhere: list[ExternalRow] = []
    subject: str = ""
    baseline: str = ""
    deltas: list[Delta] = []
    pareto: list[Point] = []
    gains: list[Gain] = []
    notes: list[Note] = []
    summary: Summary = field(default_factory=Summary)
    rest: Table = {}  # by key: what sections found, each as its class; of a section that is not here, as it came

    def __post_init__(self) -> None:
        self.source_artifact()

    def threads(self, variant: str) -> int:
        """Those that a variant was measured with, or would be."""
        told = (self.environment.get("runtimes") or {}).get(variant) or {}
        return int(told.get("threads") or self.run.threads)

    def source_artifact(self) -> SourceArtifact | None:
        """What the source became when it was loaded."""
        return msgspec.convert(self.source.get("artifact"), SourceArtifact | None)

    def variant(self, name: str) -> Variant | None:
        """A variant by name."""
        return next((v for v in self.variants if v.name == name), None)


def of(document: object) -> Report:
    """The report that the JSON of one is. Raises ValueError: what is wrong with it, and where."""
    report = msgspec.convert(document, Report)
    assert isinstance(document, Mapping)  # or it had raised
    keys = {field.encode_name for field in msgspec.structs.fields(Report)}
    report.rest = {str(key): value for key, value in document.items() if key not in keys}
    for section in registry.sections():
        if section.key in report.rest:
            report.rest[section.key] = msgspec.convert(report.rest[section.key], section.data | None)
    return report


def to_json(report: Report) -> dict[str, Any]:
    """The JSON of a report: the keys of sections stand beside its own."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    rest = document.pop("rest")
    return {**document, **rest}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of what this version writes: every key that it knows is there, and no other."""
    own = [s for s in registry.sections() if s.key and s.module.__name__.startswith("edgecompress.")]
    shapes, parts = msgspec.json.schema_components(
        [Report, *(section.data | None for section in own)], ref_template="#/$defs/{name}"
    )
    parts["Report"]["properties"] = {
        **{key: shape for key, shape in parts["Report"]["properties"].items() if key != "rest"},
        **{section.key: shape for section, shape in zip(own, shapes[1:], strict=True)},
    }
    for part in parts.values():
        part["description"] = " ".join(part.get("description", "").split())
    for name in parts.keys() & {part.__name__ for part in Part.__subclasses__()}:
        parts[name] |= {"required": sorted(parts[name]["properties"]), "additionalProperties": False}
    parts["Number"] |= NULL_WITH_REASON
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "urn:edgecompress:report:1"}
    return {**about, **shapes[0], "$defs": parts}
