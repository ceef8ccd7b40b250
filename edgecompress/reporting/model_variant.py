"""What the report tells of a variant: its files, what it computes, how fast, and what was done to the net."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta

from edgecompress.core.model import Check
from edgecompress.core.quantities import QUANTITIES, unit
from edgecompress.data.found_boxes import FoundFacts
from edgecompress.data.output_channels import WorstItem
from edgecompress.formats.precision.facts import Precision
from edgecompress.reporting.model_compressed import Compressed, Training
from edgecompress.reporting.model_numbers import (
    Above0,
    Amount,
    Count,
    Counted,
    Distribution,
    Number,
    Part,
    PowerTrace,
    Session,
    Sha256,
    Table,
    values,
)

ROUNDED = 1e-3  # that a number may differ by for being rounded
SIGNED = ("accuracy", "peak_rss", "file_backed", "energy_net")  # numbers that may be below 0
ESTIMATED = {"cycles", "npu_time", "sram", "flash"}  # numbers that only a variant with a compiler's estimate has
UNTOLD = "not in this report"
Verdict: TypeAlias = Literal[
    "shipped", "lost", "failed", "slower", "equal", "undecided", "noisy", "reference", "measured", "passed", "unreached"
]


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


class GraphOperator(Part):
    """An operator of a graph. `reads`: places of operators, and from their number on of the graph's inputs."""

    name: str
    type: str
    reads: list[Count] = []
    dtype: str = ""
    shape: list[int] = []
    macs: Count | None = None


class NetGraph(Part):
    """The operators of the file of a variant in the order of the file, or `why` they are not told."""

    variant: str
    why: str = ""
    ops: list[GraphOperator] = []
    inputs: list[str] = []


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
    accelerator, or the compiler estimates none (`reason`), and never count the operators in `fallback`: these stay on
    the CPU.
    """

    status: Literal["estimated"]
    source: str
    accelerator: str
    system: str
    npu_operators: Count
    cpu_operators: Count
    memory: str = ""
    optimise: str = ""
    clock_mhz: Above0 | None = None
    cycles: Cycles | None = None
    inference_ms: Amount | None = None
    macs: Count | None = None
    sram_bytes: Count | None = None
    flash_bytes: Count | None = None
    fallback: list[LeftOnCpu] = []
    reason: str = ""


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
