"""What the report stage is asked for: made by commands/report_request.py, plain JSON on its way, typed again here."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Required, TypedDict

if TYPE_CHECKING:
    from edgecompress.core.json import Json
    from edgecompress.data.metrics import MetricComparison


class RecipeStep(TypedDict, total=False):
    """A technique in a variant's recipe; its own options lie beside `use`."""

    use: str


class DeclaredVariant(TypedDict, total=False):
    """A variant as the target declares it."""

    name: Required[str]
    runtime: str
    compress: Sequence[RecipeStep]
    reference: bool
    export: Mapping[str, Json]


class DeclaredTarget(TypedDict, total=False):
    """The target, with the variants of this run."""

    name: str
    runtime: str
    variant: Sequence[DeclaredVariant]


class DeclaredDevice(TypedDict, total=False):
    """The device as its TOML file describes it."""

    name: str
    description: str
    transport: str


class DeclaredProfile(TypedDict, total=False):
    """How it was measured."""

    name: str
    sessions: int


class DeclaredSource(TypedDict, total=False):
    """The model as its author has it."""

    name: str
    model: str


class SettingRow(TypedDict):
    """One value of the effective configuration."""

    key: str
    value: Json
    origin: str


class StageRow(TypedDict, total=False):
    """How a stage ended; reports keep the name of its log."""

    stage: Required[str]
    status: Required[str]
    reason: Required[str]
    wall_s: Required[float]
    log: Required[str]
    variant: str


class VariantResult(TypedDict, total=False):
    """How a variant ended in the race."""

    verdict: str
    reason: str
    runtime: str
    reference: bool
    also: Mapping[str, str]
    undecided: Sequence[str]


class ChoiceFacts(TypedDict, total=False):
    """What the race chose and why."""

    variant: str
    reason: str
    unmeasured: str
    table: Mapping[str, VariantResult]


class ChannelGroup(TypedDict, total=False):
    """Channels that a pruning technique takes together: how many there were, how many it kept."""

    name: Required[str]
    channels: Required[int]
    kept: Required[int]
    layers: Sequence[str]


class LayerFacts(TypedDict, total=False):
    """A layer that became several of low rank."""

    name: str
    method: str | None
    shape: Sequence[int] | None
    ranks: Sequence[int] | None
    macs: Sequence[int] | None
    parameters: Sequence[int] | None
    error: float | None


class NetTotal(TypedDict, total=False):
    """MACs or parameters of the whole net, before a technique and after it."""

    source: int
    before: int
    after: Required[int]


class SparseRow(TypedDict):
    """A weight in which zeros were made, or why none were."""

    name: str
    elements: int
    zeros: int
    pruned: bool
    why: str


class SparseTotal(TypedDict):
    """All weights together."""

    elements: int
    zeros: int


class SparsityFacts(TypedDict):
    """The zeros of a net."""

    kind: str
    rows: Sequence[SparseRow]
    total: SparseTotal


class EpochFacts(TypedDict):
    """One epoch of a training."""

    epoch: int
    lr: float | None
    loss: float | None
    select: float | None


class StoredTotal(TypedDict):
    """Bytes of all weights in each form, and each at its best."""

    bytes: Mapping[str, int]
    best_bytes: int


class TechniqueFacts(TypedDict, total=False):
    """What the techniques report that the report shows; they may report more, and other kinds of rows."""

    groups: Sequence[ChannelGroup]
    layers: Sequence[LayerFacts]
    sparsity: SparsityFacts | None
    macs: NetTotal
    parameters: NetTotal
    align: int | None
    criterion: str | None
    scope: str | None
    refused: Mapping[str, str] | None
    kept: Mapping[str, str] | None
    total: StoredTotal
    files: Mapping[str, int]
    epochs: Sequence[EpochFacts]
    samples: int | None
    split: str | None
    batch_size: int | None
    device: str | None
    amp: str | None
    distill: float | None
    metric: str | None
    log: str | None
    teachers: Sequence[str] | None


class MadeStep(TypedDict):
    """What a technique says of what it did for a variant."""

    technique: str
    status: str
    reason: str
    facts: TechniqueFacts


class TrialFacts(TypedDict):
    """A trial of the search for a strength."""

    stage: str
    keep: float
    ratio: float | None
    kept: Mapping[str, int]
    reason: str


class StrengthGoal(TypedDict, total=False):
    """What the search for a strength was to meet."""

    quantity: str
    value: float


class StrengthFacts(TypedDict, total=False):
    """How the search for a strength ended."""

    chosen: str
    reason: str
    goal: StrengthGoal
    ratio: float | None
    least: float | None
    status: str | None
    simulated: str | None
    runtime: str | None
    dense_ms: float | None
    saved: Mapping[str, float]
    crashed: Mapping[str, str]
    trials: Sequence[TrialFacts]


class SearchTrial(TypedDict):
    """A trial of `search`. `values`: what is known of each objective; `change`: of the accuracy, in words."""

    number: int
    words: str
    runtime: str
    values: Mapping[str, float]
    inside: bool
    change: str
    reason: str
    took_s: float


class SearchFacts(TypedDict):
    """How `search` found the variants. `front`: numbers of trials; `importances`: shares by the knobs' names."""

    id: str
    objectives: Sequence[str]
    baseline: str
    why: str
    trials: Sequence[SearchTrial]
    front: Sequence[int]
    importances: Mapping[str, float]


class RecipeFacts(TypedDict):
    """The recipe of a repair step."""

    before: Sequence[str]
    options: Mapping[str, Json]


class VerdictFacts(TypedDict, total=False):
    """What a repair step's verification found."""

    metric: MetricComparison | None
    size_bytes: int | None


class RungFacts(TypedDict):
    """One repair step of the accuracy guard."""

    rung: str
    label: str
    inside: bool
    chosen: bool
    sqnr_db: float | None
    reason: str
    facts: VerdictFacts
    recipe: RecipeFacts


class TriedLayer(TypedDict):
    """A layer that was tried alone in higher precision."""

    name: str
    sqnr_db: float | None
    cost: float | None
    gain: float
    reason: str


class GuardFacts(TypedDict):
    """How the accuracy guard ended."""

    variant: str
    runtime: str
    split: str
    reason: str
    budget: Mapping[str, float]
    plain_test: MetricComparison | None
    costs: Mapping[str, float]
    ladder: Sequence[RungFacts]
    cells: Sequence[TriedLayer]


@dataclass(frozen=True)
class ReportRequest:
    """All that the report says of the run itself; what was measured comes with the stage's inputs."""

    title: str = ""
    command: str = ""
    date: str = ""
    exit_code: int = 0
    not_measured: str = ""  # why energy is not measured, where that was required
    versions: Mapping[str, str] = field(default_factory=dict)
    source: DeclaredSource = field(default_factory=DeclaredSource)
    target: DeclaredTarget = field(default_factory=DeclaredTarget)
    device: DeclaredDevice = field(default_factory=DeclaredDevice)
    profile: DeclaredProfile = field(default_factory=DeclaredProfile)
    config: Sequence[SettingRow] = ()
    choice: ChoiceFacts = field(default_factory=ChoiceFacts)
    fits: Mapping[str, StrengthFacts] = field(default_factory=dict)
    guards: Mapping[str, GuardFacts] = field(default_factory=dict)
    made: Mapping[str, Sequence[MadeStep]] = field(default_factory=dict)
    search: SearchFacts | None = None
    elsewhere: Sequence[Mapping[str, Json]] = ()
    outcomes: Sequence[StageRow] = ()

    @classmethod
    def from_json(cls, options: Mapping[str, Json]) -> ReportRequest:
        """The request that a stage's options are; what is missing or null has its default."""
        names = [f.name for f in dataclasses.fields(cls)]
        return cls(**{name: options[name] for name in names if options.get(name)})  # type: ignore[arg-type]

    def declared(self, variant: str) -> DeclaredVariant:
        """What the target says of a variant; only its name where it says nothing."""
        matches = (v for v in self.target.get("variant", ()) if v["name"] == variant)
        return next(matches, DeclaredVariant(name=variant))

    def result(self, variant: str) -> VariantResult:
        """How a variant ended; empty where it was not in the race."""
        return self.choice.get("table", {}).get(variant, VariantResult())

    def steps(self, variant: str) -> Sequence[MadeStep]:
        """What each technique did for a variant, in order."""
        return self.made.get(variant, ())
