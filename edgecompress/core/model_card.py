"""The classes of model_card.json: a card is plain data of these types, which check it and describe it (JSON Schema).

They are msgspec's: other modules import this one for a type checker alone, and to check a card.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypedDict

from msgspec import Meta

from edgecompress.core.model import Status

Table: TypeAlias = dict[str, Any]  # a technique's own: it has no schema
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Above0: TypeAlias = Annotated[float, Meta(gt=0)]
Counts: TypeAlias = Annotated[dict[str, Count], Meta(max_length=100)]
Numbers: TypeAlias = Annotated[list[float], Meta(max_length=10_000)]
Size: TypeAlias = Annotated[int, Meta(ge=0, le=1 << 32)]
Shape: TypeAlias = Annotated[list[Size], Meta(max_length=32)]
Dtype: TypeAlias = Annotated[str, Meta(pattern="^(bool|u?int(8|16|32|64)|float(16|32|64))$(?!\n)")]
Label: TypeAlias = Annotated[str, Meta(max_length=100)]
Short: TypeAlias = Annotated[str, Meta(max_length=200)]
Named: TypeAlias = Annotated[str, Meta(max_length=400)]
Text: TypeAlias = Annotated[str, Meta(max_length=4000)]
Line: TypeAlias = Annotated[str, Meta(pattern="^[^\\u0000-\\u001f\\u007f]*$(?!\n)", max_length=200)]
Name: TypeAlias = Annotated[str, Meta(pattern="^[^\\u0000-\\u001f\\u007f]+$(?!\n)", max_length=200)]
Plugin: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z_][A-Za-z0-9_-]*$(?!\n)", max_length=64)]
Version: TypeAlias = Annotated[str, Meta(pattern="^[0-9A-Za-z.+_-]*$(?!\n)", max_length=64)]
Option: TypeAlias = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$(?!\n)", max_length=64)]
SettingName: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z][A-Za-z0-9_.]*$(?!\n)", max_length=64)]
Sha256: TypeAlias = Annotated[str, Meta(pattern="^[0-9a-f]{64}$(?!\n)")]
ModelPath: TypeAlias = Annotated[str, Meta(pattern="^model(/(?!\\.\\.?(/|$))[A-Za-z0-9_.+-]+)+$(?!\n)", max_length=400)]
GoldenPath: TypeAlias = Annotated[str, Meta(pattern="^golden/[a-z]+(-[0-9]{1,4})?\\.bin$(?!\n)")]


class Packaged(TypedDict):
    """What the code around the model is written from, beside the model: a version of edgecompress, and options."""

    by: Version
    options: Annotated[dict[Option, Text | bool | float], Meta(max_length=64)]
    platforms: Annotated[list[Short], Meta(max_length=64)]


class Compiled(TypedDict):
    """By which compiler, for which accelerator of which chip, the only one it runs on; how many operators it left."""

    by: Label
    accelerator: Label
    chip: Label
    cpu_operators: Annotated[int, Meta(ge=0)]


class Runtime(TypedDict):
    """The model was verified and measured with it, and with `settings` of a session, by the engine's own names.

    `threads`: those of an inference; left out: one. `compiled`: for an accelerator, to which that binds it.
    `also`: other runtimes that were tried: "ok", or what is wrong.
    """

    name: Plugin
    version: Version
    settings: NotRequired[Annotated[dict[SettingName, Label | bool | float], Meta(max_length=64)]]
    threads: NotRequired[Annotated[int, Meta(ge=1, le=1024)]]
    compiled: NotRequired[Compiled]
    also: NotRequired[Annotated[dict[Plugin, Text], Meta(max_length=16)]]


class Precision(TypedDict):
    """Bytes of weights by precision, multiplying operators by what they compute in."""

    weights: Counts
    computes: Counts


class File(TypedDict):
    """A file of the model."""

    path: ModelPath
    bytes: Count
    sha256: Sha256


class TokenizerFile(TypedDict):
    """A file of the tokenizer that made the inputs."""

    path: Annotated[str, Meta(pattern="^tokenizer/[A-Za-z0-9_.-]+$(?!\\n)", max_length=64)]
    bytes: Count
    sha256: Sha256


class Model(TypedDict):
    """The model; `precision` is null where it is not told. `main`: the file or folder that a runtime opens."""

    format: Annotated[str, Meta(pattern="^[a-z0-9_-]+$(?!\n)", max_length=64)]
    main: ModelPath
    precision: NotRequired[Precision | None]
    files: Annotated[list[File], Meta(min_length=1, max_length=10_000)]


class Quantization(TypedDict):
    """real = scale * (integer - zero_point), per tensor or along `axis`."""

    scale: Annotated[list[Above0], Meta(min_length=1)]
    zero_point: Annotated[list[int], Meta(min_length=1)]
    axis: Count | None


class Spec(TypedDict):
    """An input or an output; `feeds`: the input that it becomes at the next call."""

    name: Name
    shape: Shape
    dtype: Dtype
    layout: Annotated[str, Meta(pattern="^[A-Z]{0,8}$(?!\n)")]
    quantization: Quantization | None
    feeds: Line


Specs: TypeAlias = Annotated[list[Spec], Meta(min_length=1, max_length=1000)]


class Spectrogram(TypedDict):
    """Audio as ln(max(magnitude, floor)) of its short-time Fourier transform."""

    rate: Positive
    length: Positive
    frame: Positive
    hop: Positive
    fft: Annotated[int, Meta(ge=2)]
    window: Literal["hann"]
    bins: Positive | None
    floor: Above0


class Preprocess(TypedDict):
    """From raw data to an input of the model, as a source's [preprocess]."""

    input: Name
    resize: Positive | None
    fit: NotRequired[Literal["shorter", "stretch", "letterbox"]]
    bars: NotRequired[Annotated[int, Meta(ge=0, le=255)]]
    crop: Positive | None
    colour: Literal["RGB", "BGR", "GRAY"]
    scale: float
    mean: Numbers
    std: Numbers
    layout: Literal["NCHW", "NHWC", ""]
    spectrogram: Spectrogram | None


class Columns(TypedDict):
    """Channels `first` to `end` of an output of [1, places, channels], or of [1, channels, places] with `axis` 1."""

    name: Name
    axis: Literal[1, 2]
    first: Count
    end: Count


class Detector(TypedDict):
    """How boxes are read out of the outputs: docs/detectors.md has the specification.

    `point`: numbers of a key point. `size`: height and width of the model's picture; null where it takes none.
    """

    boxes: Columns
    scores: Columns
    classes: Columns | None
    points: NotRequired[Columns | None]
    point: NotRequired[Literal[2, 3]]
    kind: Literal["shares", "probabilities", "log-probabilities", "logits", "logit"]
    background: Count | None
    anything: bool
    listed: bool
    format: Literal["xyxy", "yxyx", "xywh", "cxcywh"]
    unit: Literal["pixels", "shares"]
    least: Annotated[float, Meta(gt=0, lt=1)]
    overlap: Annotated[float, Meta(gt=0, lt=1)]
    size: Annotated[list[Positive], Meta(min_length=2, max_length=2)] | None


class Segments(TypedDict):
    """How the class of each pixel is read, as data.segments has it. `size`: height and width of the model's picture."""

    axis: Literal[1, 3] | None
    single: Literal["probability", "logit", ""]
    size: Annotated[list[Positive], Meta(min_length=2, max_length=2)]


class Postprocess(TypedDict):
    """What an app does with the answer; `output` holds the scores of classes. `top_k`: at most so many are told."""

    task: Literal["classify", "detect", "segment", "raw"]
    output: Line
    probabilities: bool
    top_k: Positive
    detect: NotRequired[Detector]
    segment: NotRequired[Segments]


class Labels(TypedDict):
    """The file of the classes' names."""

    file: Literal["labels.json"]
    count: Count
    sha256: Sha256


class Item(TypedDict):
    """A tensor of the golden item, as raw little-endian numbers."""

    name: Name
    file: GoldenPath
    shape: Shape
    dtype: Dtype
    sha256: Sha256


Items: TypeAlias = Annotated[list[Item], Meta(min_length=1, max_length=1000)]
ProcessedApart: TypeAlias = Annotated[float, Meta(gt=0, le=1e-6)]


class Processing(TypedDict):
    """How far the input may be that another processing gives: of its largest number, and in steps."""

    float: ProcessedApart
    int8: Annotated[int, Meta(ge=0, le=1)]


class Golden(TypedDict):
    """One test item: as it came, as the model takes it, as the model answered; `tolerance` is relative RMS."""

    raw: Item | None
    inputs: Items
    outputs: Items
    tolerance: Annotated[float, Meta(gt=0, le=0.05)]
    processing: Processing


class Compression(TypedDict):
    """A step of the recipe."""

    technique: Annotated[str, Meta(min_length=1, max_length=100)]
    options: Table
    facts: Table


class Quality(TypedDict):
    """The same items scored for the source and for the model.

    `decision` is of the accuracy limit, by the 95 % interval; it is empty without a limit. `needed`: items that would
    decide what is undecided, if they are like these.
    """

    metric: Named
    unit: Label
    before: float | None
    after: float | None
    n: Count | None
    low: float | None
    high: float | None
    items_lost: Count | None
    items_gained: Count | None
    split: Literal["test"]
    decision: NotRequired[Annotated[str, Meta(pattern="^(inside|outside|undecided)?$(?!\n)")]]
    needed: NotRequired[Positive | None]
    says: NotRequired[Text]


class Profile(TypedDict):
    """A number that never travels alone; one that is "unavailable" is null, and has its reason."""

    metric: Named
    value: float | None
    unit: Label
    status: Status
    n: Count
    low: float | None
    high: float | None
    source: Text
    device: Short
    reason: Text


class Source(TypedDict):
    """What the author calls it."""

    name: Short
    model: Short


class Card(TypedDict):
    """model_card.json: what a package says of its model."""

    schema: Literal["edgecompress/model_card/1"]
    name: Annotated[str, Meta(min_length=1, max_length=200)]
    description: Text
    version: Annotated[str, Meta(pattern="^[0-9]+(\\.[0-9]+){0,2}([-+][0-9A-Za-z.-]+)?$(?!\n)", max_length=64)]
    slug: Annotated[str, Meta(pattern="^[a-z][a-z0-9]*(-[a-z0-9]+)*$(?!\n)", max_length=46)]
    packager: Plugin
    packaged: Packaged
    runtime: Runtime
    model: Model
    inputs: Specs
    outputs: Specs
    preprocess: Preprocess | None
    postprocess: Postprocess
    labels: Labels
    golden: Golden
    tokenizer: NotRequired[Annotated[list[TokenizerFile], Meta(max_length=16)]]
    compression: list[Compression]
    versions: dict[str, Label]
    quality: Quality | None
    profile: list[Profile]
    licence: Text
    source: Source
    created: Annotated[str, Meta(pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$(?!\n)")]
