"""The report as typed classes: report.json is written, read, refused and described (JSON Schema) by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, field

from edgecompress.core import registry
from edgecompress.core.model import Status
from edgecompress.core.plugins import SectionPlugin
from edgecompress.reporting.external_results import MeasuredDevice, MeasuredModel, MeasuredRuntime
from edgecompress.reporting.model_numbers import (
    Above0,
    Amount,
    Change,
    Count,
    Delta,
    ExternalSession,
    Number,
    Positive,
    QuantityName,
    Share,
    Table,
)
from edgecompress.reporting.model_numbers import Part as Part  # plug-ins take it from here
from edgecompress.reporting.model_variant import UNTOLD, NetGraph, SourceArtifact, Variant

SCHEMA: Literal["edgecompress/stages/report/1"] = "edgecompress/stages/report/1"
NULL_WITH_REASON = {  # JSON Schema of a number: null where it is unavailable, and nowhere else
    "if": {"properties": {"status": {"const": "unavailable"}}},
    "then": {"properties": {"value": {"type": "null"}, "reason": {"minLength": 1}}},
    "else": {"properties": {"value": {"type": "number"}}},
}
Ended: TypeAlias = Literal["shipped", "undecided", "measured", "nothing", "failed"]


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
    graph: NetGraph | None = None
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


def sections() -> list[SectionPlugin]:
    """Every section that can be told, in order: those of others only with a KEY of their own."""
    taken = {field.encode_name for field in msgspec.structs.fields(Report)}
    found = []
    for section in sorted(registry.sections(), key=lambda each: not is_ours(each)):
        if section.key and section.key in taken:
            who = f"section '{section.name}' of module {section.module.__name__}"
            registry.left_out(f"{who}: its KEY, {section.key}, is taken; give it another")
            continue
        taken.add(section.key)
        found.append(section)
    return sorted(found, key=lambda section: section.order)


def is_ours(section: SectionPlugin) -> bool:
    """Whether a section is this package's: what it raises is a fault of ours."""
    return section.module.__name__.startswith("edgecompress.")


T = TypeVar("T")


def safely(section: SectionPlugin, call: Callable[[], T], nothing: T, broken: list[str] | None = None) -> T:
    """What a section says; `nothing` where one of another distribution raises: then a line says so, in `broken` too."""
    try:
        return call()
    except Exception as error:
        if is_ours(section):
            raise
        who = f"section '{section.name}' of module {section.module.__name__}"
        line = f"{who} raised {type(error).__name__}: {error}; report it to its author"
        registry.left_out(line)
        if broken is not None:
            broken.append(f"left out: {line}")
        return nothing


def of(document: object) -> Report:
    """The report that the JSON of one is. Raises ValueError: what is wrong with it, and where."""
    report = msgspec.convert(document, Report)
    assert isinstance(document, Mapping)  # or it had raised
    keys = {field.encode_name for field in msgspec.structs.fields(Report)}
    report.rest = {str(key): value for key, value in document.items() if key not in keys}
    for section in sections():
        if section.key in report.rest:
            raw = report.rest[section.key]
            report.rest[section.key] = safely(section, partial(msgspec.convert, raw, section.data | None), raw)
    return report


def to_json(report: Report) -> dict[str, Any]:
    """The JSON of a report: the keys of sections stand beside its own."""
    document: dict[str, Any] = msgspec.to_builtins(report)
    rest = document.pop("rest")
    return {**document, **rest}


def json_schema() -> dict[str, Any]:
    """The JSON Schema of what this version writes: every key that it knows is there, and no other."""
    own = [section for section in sections() if section.key and is_ours(section)]
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
