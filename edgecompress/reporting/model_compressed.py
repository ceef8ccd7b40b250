"""What the report tells of a net that was compressed: what techniques took out of it, and how it was trained."""

from __future__ import annotations

from msgspec import field

from edgecompress.reporting.model_numbers import Count, Pair, Part, Positive


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
