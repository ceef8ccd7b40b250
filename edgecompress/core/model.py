"""The data types: specs, artifacts, stages, outcomes, numbers. Standard library only, as the agent includes it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypedDict, Union

from edgecompress.core import plain_file
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.json import Json, read_json

Status = Literal["measured", "estimated", "simulated", "replayed", "unavailable"]

# --------------------------------------------------------------------------- tensors and artifacts


OPEN = 2**31 - 1  # the largest size of a dimension that states none


@dataclass(frozen=True)
class Dim:
    """A named dynamic dimension and the sizes it may take, both ends included."""

    name: str
    min: int = 1
    max: int = 1


Shape = tuple[Union[int, Dim], ...]


@dataclass(frozen=True)
class Quantization:
    """real = scale * (integer - zero_point), per tensor or along `axis`."""

    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    axis: int | None = None


MOST_AXES = 64  # of an array of NumPy


@dataclass(frozen=True)
class TensorSpec:
    """One named input or output. `dtype` is numpy's name; `layout` names the axes ("NCHW"), or is empty.

    An output of a stateful net has `feeds`: the input that it becomes at the next call. The layout of a state whose
    items do not lie on axis 0 says where they do ("SNS"), or that it is of one item as a whole ("SS").
    Nested structures (dictionaries, tuples) are flattened to dotted names.
    """

    name: str
    shape: Shape
    dtype: str = "float32"
    layout: str = ""
    quantization: Quantization | None = None
    feeds: str = ""

    def __post_init__(self) -> None:
        if len(self.shape) > MOST_AXES:
            raise InputError(f"'{self.name[:200]}' has {len(self.shape)} axes; an array has at most {MOST_AXES}")

    @property
    def batch_axis(self) -> int | None:
        """The axis of the items: the layout's N, else the first; None where it has none."""
        if "N" in self.layout:
            return self.layout.index("N")
        return 0 if self.shape and not self.layout else None

    def concrete(self, batch: int = 1) -> tuple[int, ...]:
        """The shape with each dynamic dimension set: `batch` for the one of that name, else its largest size.

        Of a dimension that states no range it is the smallest.
        """
        sizes = (d if isinstance(d, int) else d.max if d.max < OPEN else d.min for d in self.shape)
        return tuple(
            batch if isinstance(d, Dim) and d.name == "batch" else n for d, n in zip(self.shape, sizes, strict=True)
        )

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> TensorSpec:
        """The inverse of `dataclasses.asdict`. Raises KeyError, TypeError, ValueError for what is none."""
        shape = tuple(d if isinstance(d, int) else Dim(**d) for d in data["shape"])
        q = data.get("quantization")
        quantization = Quantization(tuple(q["scale"]), tuple(q["zero_point"]), q["axis"]) if q else None
        texts = (data["name"], data["dtype"], data.get("layout", ""), data.get("feeds", ""))
        sizes = [size for d in shape for size in ((d,) if isinstance(d, int) else (d.min, d.max))]
        if not all(isinstance(text, str) for text in texts) or any(type(size) is not int for size in sizes):
            raise TypeError("a specification's texts or sizes are of another type")
        name, dtype, layout, feeds = texts
        return TensorSpec(name, shape, dtype, layout, quantization, feeds)


CARD = "artifact.json"
AFTER_EPOCH = "after epoch"  # in what training says of its progress: an epoch is over, not under way
WARNINGS = "warnings"  # what is doubtful about the source and its data, in an artifact's facts
DETECT = "detect"  # of settings.Detect, in the facts of a source that tells it itself, and of golden
AT_CHANCE = "at_chance"  # why an accuracy proves nothing, in the facts of golden and of a verdict
REWRITES = "rewrites"  # what -> the operators, of a graph that was changed around its kernels, in an artifact's facts
SETTINGS = "settings"  # of a session that runs an artifact, in its facts
TRAINING = "training"  # the role of the items that a stage trains on
METRIC = "metric"  # by which the source is judged, in the facts of what trains
AUGMENT = "augment"  # what training may do to the items of a split, in its facts
DAMAGED = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # what reading a card raises


@dataclass(frozen=True)
class Artifact:
    """A folder with one kind inside, its input and output specs, and its sha256: see `digest`.

    `facts` is what a stage reports of its result as JSON (a median, a fallback, a reason). `facts["lost"]`, if there,
    is the reason why its variant was dropped; `facts["settings"]` is how its runtime opens it.
    """

    path: Path
    kind: str
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""

    @property
    def batch(self) -> int | Dim:
        """How many items it takes at once, as its first input with an axis of them says; 1 where none has one."""
        return next((s.shape[axis] for s in self.inputs if (axis := s.batch_axis) is not None), 1)

    def files(self) -> list[Path]:
        """The files inside, the card left out, in a fixed order."""
        return sorted(p for p in self.path.rglob("*") if p.is_file() and p != self.path / CARD)

    def file(self, suffix: str) -> Path:
        """The one file that ends in `suffix`; raises StageFailed when there is not exactly one."""
        matches = [p for p in self.files() if p.name.endswith(suffix)]
        if len(matches) != 1:
            raise StageFailed(f"{self.path}: expected one *{suffix} of kind {self.kind}, found {len(matches)}")
        return matches[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of the files inside, without the card and the files in `facts["here"]`, which no device needs."""
        here = {self.path / name for name in self.facts.get("here", ())}
        return sum(p.stat().st_size for p in self.files() if p not in here)

    def digest(self) -> str:
        """sha256 over kind, specs, each file's name and bytes, and those facts that the stages after it go by.

        They are how its sessions are set, what training may do to its items and what judges it; all facts where it has
        no files.
        """
        files = self.files()
        facts = [self.facts[name] for name in (SETTINGS, AUGMENT, METRIC) if name in self.facts]
        told = [self.kind, _specs(self.inputs), _specs(self.outputs), *(facts if files else [dict(self.facts)])]
        digest = hashlib.sha256(json.dumps(told).encode())
        for file in files:
            digest.update(file.relative_to(self.path).as_posix().encode() + b"\0")
            digest.update(bytes.fromhex(sha256_of(file)))
        return digest.hexdigest()

    def write(self) -> Artifact:
        """Writes the card into the folder; returns the artifact with its sha256."""
        sealed = dataclasses.replace(self, sha256=self.digest())
        card = {
            "kind": sealed.kind,
            "inputs": _specs(sealed.inputs),
            "outputs": _specs(sealed.outputs),
            "facts": dict(sealed.facts),
            "sha256": sealed.sha256,
        }
        (self.path / CARD).write_text(json.dumps(card, indent=1, allow_nan=False), encoding="utf-8")
        return sealed

    @staticmethod
    def read(path: Path) -> Artifact:
        """The artifact in a folder; raises InputError when it has no valid card, StageFailed when the disk fails."""
        try:
            card = read_json(path / CARD)
            inputs = tuple(TensorSpec.from_json(s) for s in card["inputs"])
            outputs = tuple(TensorSpec.from_json(s) for s in card["outputs"])
            kind, facts, sha256 = card["kind"], card["facts"], card["sha256"]
            if not (isinstance(kind, str) and isinstance(facts, dict) and isinstance(sha256, str)):
                raise TypeError("kind, facts or sha256 is of another type")
            return Artifact(path, kind, inputs, outputs, facts, sha256)
        except FileNotFoundError as error:
            raise InputError(f"{path}: not an artifact (no {CARD}); give the folder that a deploy wrote") from error
        except NotADirectoryError as error:
            raise InputError(f"{path}: is a file; give the folder that a deploy wrote") from error
        except (PermissionError, *DAMAGED) as error:
            raise InputError(f"{path / CARD}: damaged: {error}; deploy again") from error
        except OSError as error:
            raise StageFailed(f"{path / CARD}: cannot be read: {error.strerror}; check that disk") from error


def _specs(specs: Sequence[TensorSpec]) -> list[dict[str, Json]]:
    return [dataclasses.asdict(s) for s in specs]


def sha256_of(file: Path) -> str:
    """The sha256 of a file's bytes, in hexadecimal. Raises OSError, and InputError for what is no regular file."""
    digest = hashlib.sha256()
    with plain_file.opened(file) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


# --------------------------------------------------------------------------- what a stage is asked, and how it ends


@dataclass(frozen=True)
class Context:
    """The settings of a run that stages may use; none is a path on disk."""

    seed: int = 0
    threads: int = 1
    batch: int = 1
    device: Mapping[str, Any] = field(default_factory=dict)  # the device's TOML, as plain data
    here: Mapping[str, Any] = field(default_factory=dict)  # the fingerprint of the machine that this runs on


@dataclass(frozen=True)
class Request:
    """One call of a stage function: inputs by name ("model", "samples", "teacher"), an empty folder, options."""

    inputs: Mapping[str, Artifact]
    out: Path
    options: Any = None
    context: Context = Context()
    progress: Callable[[float, str], None] = lambda fraction, what: None
    keep: Path | None = None  # a folder that outlives `kill -9`: checkpoints; only its "log" stays when the stage ends

    @property
    def model(self) -> Artifact:
        """The input called "model"."""
        return self.inputs["model"]

    @property
    def align(self) -> int:
        """Channels that the device's kernels compute at once: the option `align`, else the measured block, else 1."""
        block = self.inputs.get("block")
        return int(self.options.align or (block.facts["block"] if block else 1))


@dataclass(frozen=True)
class Stage:
    """One step of a plan: a function, the stages its inputs come from, its options. Plain data.

    `call` is "KIND.NAME:FUNCTION" for a plug-in ("techniques.ptq_int8:apply"), "NAME:FUNCTION" for the core.
    """

    name: str
    call: str
    inputs: Mapping[str, str] = field(default_factory=dict)  # role -> name of the stage that makes it
    options: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[str, ...] = ()  # those that fall with this stage; empty: all depend on it
    context: tuple[str, ...] = ("seed", "batch")  # what it may know of the run: part of the key, the rest is hidden
    plugins: tuple[str, ...] = ()  # other plug-ins that it calls ("runtimes.onnx"): their code is part of the key
    user_code: bool = False  # runs the user's own Python: it finds their modules, and where belongs to the key
    user_files: tuple[str, ...] = ()  # files and folders of the user's that it reads
    max_age_s: float | None = None  # a measurement ages
    estimate_s: float = 5.0
    timeout_s: float = 3600.0
    silence_s: float = 14 * 86400.0  # between two reports of its progress: a longer one ends it

    @property
    def observes(self) -> bool:
        """Whether the files that it opens are part of its key."""
        return self.user_code or bool(self.user_files)

    @property
    def alone(self) -> bool:
        """Whether nothing works beside it: it measures, or it trains on all cores, where each step waits for all."""
        return self.max_age_s is not None or TRAINING in self.inputs

    @property
    def reads(self) -> tuple[str, ...]:
        """The files of strangers that it reads and makes nothing more of, running no code of theirs."""
        makes = self.user_code or self.call.startswith("techniques.")
        return () if makes else self.user_files


@dataclass(frozen=True)
class Outcome:
    """How a stage ended: "ok", "lost" (a check failed: a stored result with its reason) or "failed" (it broke)."""

    stage: str
    status: Literal["ok", "lost", "failed"]
    artifact: Artifact | None = None
    reason: str = ""  # why it is lost or failed
    why_run: str = ""  # "hit", or why the stage ran
    wall_s: float = 0.0  # of the run that made the result, also for a hit
    made: float = 0.0  # when, in seconds since 1970
    log: str = ""
    error: EdgeError | None = None  # what broke, when it failed

    @property
    def facts(self) -> Mapping[str, Any]:
        """The artifact's facts, or nothing."""
        return self.artifact.facts if self.artifact else {}


Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True)
class Goal:
    """The goal of a technique: at most a share of the dense net's latency, a time, or bits of a weight on average."""

    quantity: Literal["ratio", "latency_ms", "bits"]
    value: float


@dataclass(frozen=True)
class Promise:
    """The precision that a technique gives an artifact: words as formats.precision has them, "" promises nothing.

    At least `share` (0..1) of the weights' bytes are `weights`; at least `operators` (0..1) of the operators that
    multiply compute in `computes`. Where it is 0 a part of them is.
    """

    weights: str = ""
    computes: str = ""
    share: float = 0.5
    operators: float = 0.5


@dataclass(frozen=True)
class Choice:
    """The end of a search: the stage whose artifact was chosen (empty: none), and why."""

    stage: str
    reason: str
    table: Mapping[str, Any] = field(default_factory=dict)  # what the report shows of the search


class Search(Protocol):
    """A loop on results: a pure function from the outcomes so far to the next stages, or the choice."""

    @property
    def name(self) -> str:
        """Its name in the plan."""

    def bound(self) -> str:
        """Its maximum cost in words ("at most 6 rounds of 5 variants")."""

    def estimate_s(self) -> float:
        """Its maximum duration in seconds, roughly."""

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        """The next stages to run, or the choice; asked again after they have run."""


class Substitute(Search, Protocol):
    """A search in the place of a stage, a dataclass: its name then stands for the stage that it chose."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[object]]]

    @property
    def stage(self) -> Stage:
        """What it stands for, as the plan shows it."""

    @property
    def inputs(self) -> Mapping[str, str]:
        """Role -> the name of the stage that makes it, of all that it asks for."""

    @property
    def variants(self) -> tuple[str, ...]:
        """The variants that are lost if it fails."""


def seconds(step: Stage | Search) -> float:
    """How long a step of a plan may take, roughly."""
    return step.estimate_s if isinstance(step, Stage) else step.estimate_s()


# --------------------------------------------------------------------------- numbers and promises


@dataclass(frozen=True)
class Measured:
    """A number with its unit, status and source. `value` is None if and only if `status` is "unavailable"."""

    metric: str
    value: float | None
    unit: str
    status: Status = "measured"
    n: int = 0
    low: float | None = None  # interval
    high: float | None = None
    source: str = ""  # the sensor, clock or file that said so
    scope: str = ""  # of energy: wall, battery, package, board, rail
    reason: str = ""


class MeasuredTable(TypedDict):
    """A Measured as plain data."""

    metric: str
    value: float | None
    unit: str
    status: Status
    n: int
    low: float | None
    high: float | None
    source: str
    scope: str
    reason: str


def measured_table(measured: Measured) -> MeasuredTable:
    """A number as plain data."""
    return {
        "metric": measured.metric,
        "value": measured.value,
        "unit": measured.unit,
        "status": measured.status,
        "n": measured.n,
        "low": measured.low,
        "high": measured.high,
        "source": measured.source,
        "scope": measured.scope,
        "reason": measured.reason,
    }


@dataclass(frozen=True)
class Check:
    """A limit checked against a number: `ok` is None when it could not be checked, with the reason.

    A number that was sampled has an interval, by which it is decided (see core/limit_decision.py).
    """

    name: str
    ok: bool | None
    value: float | None
    limit: float | None
    says: str
    decision: str = ""  # "inside", "outside", "undecided"; empty: the number is exact
    low: float | None = None  # of the interval, as `value`
    high: float | None = None
    needed: int | None = None  # items that would decide, if they are like these
