"""The shapes of the TOML files: source, target, device, profile. Data only; plan and the stages read them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, Literal, get_args

SPLITS = ("calibrate", "select", "test")
TRAIN = "train"  # one more, read only where something trains
LONGEST_S = 86400.0  # that a profile may measure at once
MOST_RUNS = 1_000_000  # that a profile may ask for
MOST = {"sessions": 1000, "more_sessions": 1000, "windows": 1000, "energy_windows": 1000, "max_age_s": math.inf}
MOST_VARIANTS, LONGEST_NAME = 100, 100  # of a target; characters of a variant's name
MOST_THREADS = 1024  # of an inference
MOST_PIXELS = 1 << 15  # of a side of an image
MOST_NUMBERS = 1 << 28  # of a spectrogram


@dataclass(frozen=True)
class Spectrogram:
    """Audio as ln(max(magnitude, floor)) of its short-time Fourier transform: [samples] -> [frames, bins].

    Frames, window and bands are those of `tf.signal.stft` and `tf.signal.linear_to_mel_weight_matrix`: no padding at
    the ends, so 1 + (length - frame) / hop frames. Samples are int16 (as fractions of 32768) or real numbers in -1..1.
    """

    rate: int  # samples per second that clips are recorded at
    length: int  # samples of a clip: the end is cut off, or zeros are added
    frame: int  # samples under a window
    hop: int  # samples from one frame to the next
    fft: int  # samples of the transform, a power of two: zeros are added to a frame
    window: Literal["hann"] = "hann"  # the periodic one
    bins: int | None = None  # mel bands from 0 to rate / 2; left out: every frequency, fft / 2 + 1
    floor: float = 1e-6  # what smaller magnitudes count as

    def __post_init__(self) -> None:
        if min(self.rate, self.frame, self.hop, self.bins or 1) < 1 or self.bins == 0:
            raise ValueError("rate, frame, hop and bins must be at least 1")
        if self.fft < max(self.frame, 2) or self.fft & (self.fft - 1):
            raise ValueError(f"fft must be a power of two, and at least the frame of {self.frame} samples")
        if self.length < self.frame:
            raise ValueError(f"length must be at least one frame, {self.frame} samples")
        if not 0 < self.floor < float("inf"):
            raise ValueError("floor must be above 0")
        if (self.length // self.hop + 1) * max(self.fft, self.bins or 1) > MOST_NUMBERS:
            raise ValueError(
                f"length, hop, fft and bins make more than {MOST_NUMBERS:,} numbers of a clip; make them smaller"
            )


@dataclass(frozen=True)
class Preprocess:
    """From raw data to model input, declared once: data, verify and the app package read it.

    In this order: resize (bilinear), centre crop, colour order, x * scale, (x - mean) / std, layout.
    Raw images are HWC RGB, uint8; `mean` and `std` are per channel, in the units after `scale`. Of audio:
    spectrogram, x * scale, (x - mean) / std (per bin), layout (as a picture of one channel).
    """

    input: str = ""  # the input it applies to; empty: the only one
    resize: int | None = None
    # what becomes that long: the shorter side; or both, of the picture alone, or of it with bars of the value `bars`
    fit: Literal["shorter", "stretch", "letterbox"] = "shorter"
    bars: int = 114
    crop: int | None = None
    colour: Literal["RGB", "BGR", "GRAY"] = "RGB"
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: Literal["NCHW", "NHWC", ""] = ""  # empty: as it comes
    spectrogram: Spectrogram | None = None  # for audio

    def __post_init__(self) -> None:
        if self.spectrogram and (self.resize or self.crop or self.colour != "RGB"):
            raise ValueError("resize, crop and colour are for images, spectrogram is for audio; remove one of the two")
        if self.spectrogram and self.layout and max(len(self.mean), len(self.std)) > 1:
            raise ValueError("a spectrogram with a layout has one channel, so one mean and one std; leave layout out")
        if self.fit != "shorter" and (not self.resize or self.crop):
            raise ValueError(f'fit = "{self.fit}" makes a square of `resize` pixels: give resize, leave crop out')
        if not 0 <= self.bars <= 255:
            raise ValueError("bars is a colour, 0 to 255")
        if any(s == 0 for s in self.std):
            raise ValueError("std must not be zero")
        for name in ("resize", "crop"):
            if not 1 <= (getattr(self, name) or 1) <= MOST_PIXELS:
                raise ValueError(f"{name} must be 1 to {MOST_PIXELS} pixels")


@dataclass(frozen=True)
class Pad:
    """Makes the items of an input equally long: each is cut, or filled up, at the end of its first axis."""

    length: int
    value: float = 0.0  # what fills up
    mask: str = ""  # an input that is made of it: 1 where an item has numbers of its own, 0 where it is filled up

    def __post_init__(self) -> None:
        if not 1 <= self.length <= MOST_NUMBERS:
            raise ValueError(f"length must be 1 to {MOST_NUMBERS}")


MOST_BINS = 1 << 10  # of a distribution
BoxFormat = Literal["xyxy", "yxyx", "xywh", "cxcywh"]


@dataclass(frozen=True)
class Detect:
    """The outputs of a detector: what it finds is judged then where no metric is.

    Boxes [n, k, 4] beside scores [n, k] or [n, k, classes], probabilities or logits; or one output [n, k, 4 and more]
    as both, with probabilities. Where boxes overlap, the best one of a class counts.
    """

    boxes: str  # the output that holds the boxes
    scores: str  # the output that holds the scores; the same one, where both are in it
    format: BoxFormat  # two corners (xyxy, yxyx), a corner and the size (xywh), or the middle and the size (cxcywh)
    score: float = 0.5  # from which on something is found
    overlap: float = 0.5  # IoU beyond which two boxes of a class are of one thing
    unit: Literal["pixels", "shares", ""] = ""  # of the model's input: its pixels, or 0 to 1; empty: by the values
    background: int | None = None  # the class among the scores that is none; left out: by the values
    points: str = ""  # the output that holds the key points of each box; that of both, where they are behind the scores
    keypoints: int = 0  # how many each box has
    point: Literal["xy", "xyc"] = "xy"  # a place, or with how certain it is

    def __post_init__(self) -> None:
        if bool(self.points) != (self.keypoints > 0):
            raise ValueError("points (an output) and keypoints (how many each box has, 1 and more) go together")
        if self.background is not None and self.background < 0:
            raise ValueError("background is the number of a class, from 0 on")
        for name in ("score", "overlap"):
            if not 0 < getattr(self, name) < 1:
                raise ValueError(f"{name} must be between 0 and 1")


Head = Literal["ssd", "yolov5", "yolox", "dfl", "fcos", "centernet"]


@dataclass(frozen=True)
class Decode:
    """A raw head: outputs that say of each cell how its box lies to it. The deployed graph makes boxes of them.

    Outputs are one of each grid [n, numbers, h, w], the finest first, or one of all [n, k, numbers]. Then the source
    has the outputs "boxes" (corners in pixels of the input), "scores" and "points" in their place.
    """

    head: Head
    boxes: tuple[str, ...]
    scores: tuple[str, ...] = ()  # empty: they stand behind the boxes' numbers
    points: tuple[str, ...] = ()  # key points
    keypoints: int = 0  # how many each box has
    offsets: tuple[str, ...] = ()  # centernet: where in its cell the middle is
    strides: tuple[int, ...] = ()  # of the grids, in pixels; empty: by the outputs' sizes
    anchors: tuple[tuple[tuple[float, float], ...], ...] = ()  # ssd, yolov5: by grid the widths and heights in pixels
    variances: tuple[float, float] = (0.1, 0.2)  # ssd: what the middle and the size are multiplied with
    bins: int = 16  # dfl: of the distribution of a distance
    activation: Literal["sigmoid", "softmax", "none", ""] = ""  # of scores; empty: by their values, and the head
    background: int | None = None  # the class among the scores that is none; left out: 0 of a softmax

    def __post_init__(self) -> None:
        if not self.boxes or any(stride < 1 for stride in self.strides) or not 1 <= self.bins <= MOST_BINS:
            raise ValueError(f"boxes must name outputs, strides be 1 and more, bins 1 to {MOST_BINS}")
        if (self.head in ("ssd", "yolov5")) != bool(self.anchors) or not all(self.anchors):
            raise ValueError("anchors are those of ssd and yolov5, which need them: [[[width, height], ...], ...]")
        if bool(self.points) != (self.keypoints > 0):
            raise ValueError("points (outputs) and keypoints (how many each box has, 1 and more) go together")
        if self.points and self.head not in ("ssd", "dfl", "centernet"):
            raise ValueError(f"points of the head {self.head} are not known; ssd, dfl and centernet have some")
        if self.head == "centernet" and not self.scores:
            raise ValueError("centernet needs scores: the output of its heat map")
        if self.offsets and self.head != "centernet":
            raise ValueError("offsets are those of centernet")

    @property
    def joined(self) -> bool:
        """Whether one output of each grid holds boxes and scores."""
        return self.scores in ((), self.boxes)

    @property
    def numbers(self) -> int:
        """Of a box, before its scores where they are joined."""
        return {"dfl": 4 * self.bins, "centernet": 2}.get(self.head, 4)


def is_factory(reference: str) -> bool:
    """Whether a text names user code, `pkg.mod:fn`, and no file or word."""
    module, colon, function = reference.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


@dataclass(frozen=True)
class Source:
    """A model as its author has it, and its data. A `.toml` given as MODEL is this table; flags override it."""

    model: str  # pkg.mod:fn, or a .pt2, .onnx, ... file (relative to the TOML's folder)
    data: str = ""  # pkg.mod:fn, an .npz, a folder of .npy, an image folder, or "random"
    name: str = ""  # what reports call it; empty: the model's own name
    metric: str = "top1"  # topK, perplexity, mse, mae, map, oks, miou, iou, auc, wer, psnr, ssim, none, pkg.mod:fn
    description: str = ""
    samples: int | None = None  # at most this many per split
    preprocess: Preprocess | None = None
    pad: Mapping[str, Pad] = field(default_factory=dict)  # input, or "labels" -> how items of unlike lengths are fed
    augment: tuple[Literal["flip", "crop"], ...] = ()  # what training may do to an image: mirror it, shift it
    dynamic: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # input -> axis -> "name:min..max"
    constants: Mapping[str, Any] = field(default_factory=dict)  # input -> its value: the model is taken with it inside
    state: Mapping[str, str] = field(default_factory=dict)  # input -> the output that it is at the next call; then zero
    sequence: int | None = None  # items of a sequence, before which state is zero; left out: each split is one
    labels: tuple[str, ...] = ()  # class names
    task: str = ""  # of a Hugging Face folder, where it is not that of its architecture: "embedding", ...
    length: int | tuple[int, ...] | None = None  # tokens of a text, or several; left out: 128, or the net's positions
    detect: Detect | None = None  # which outputs are boxes and scores
    decode: Decode | None = None  # which ones are a raw head, of which boxes and scores are made
    licence: str = ""

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError("samples must be at least 1")
        if self.length is not None and not all(1 <= length <= MOST_NUMBERS for length in self.lengths or (0,)):
            raise ValueError(f"length must be 1 to {MOST_NUMBERS}")
        if self.sequence is not None and (self.sequence < 1 or not self.state):
            raise ValueError("sequence must be at least 1, and is for a source with state")
        if both := sorted(self.constants.keys() & self.state.keys()):
            raise ValueError(f"'{both[0]}' is in constants and in state; it is one of them")

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths that texts are filled up to, the shortest first; none where nobody says."""
        given = self.length if isinstance(self.length, tuple) else (self.length,)
        return tuple(sorted({length for length in given if length is not None}))

    def calls(self, part: Literal["model", "data", "metric"]) -> bool:
        """Whether a part is a function of the user's own."""
        return is_factory(getattr(self, part))

    @property
    def random(self) -> bool:
        """Whether its data is made up."""
        return self.data == "random"

    @property
    def title(self) -> str:
        """Its name, or that of its file or factory."""
        return self.name or (self.model if self.calls("model") else PurePath(self.model).name)


@dataclass(frozen=True)
class Limits:
    """What an artifact must keep, or it does not ship. A limit that is None is not checked.

    channel_error to divergence judge the outputs that no metric judges; none of them needs labels.
    """

    items_lost: int | float | None = None  # right before, wrong after, less the reverse; below 1: a share (top1, ...)
    metric_ratio: float | None = None  # after / before at most (where lower is better: perplexity, mse, mae, wer)
    metric_drop: float | None = None  # before - after at most (where higher is better)
    metric_loss: float | None = 0.01  # of a metric that no limit above judges: what it may lose of the source's value
    channel_error: float | None = 0.1  # RMS error of a channel of an output over its own spread, at most
    tail_error: float | None = 0.3  # the same at the 99th percentile of the items
    found_error: float | None = 0.06  # the same at the places where a detector finds something
    found_loss: float | None = 0.07  # of a detector: the average precision it lacks against what the source finds
    choice_loss: float | None = 0.005  # of right choices by the source's own probabilities, the part lost
    divergence: float | None = 0.01  # nats between its probabilities and the source's, per choice
    sqnr_db: float | None = None  # per output, at least
    cosine: float | None = None  # per output, at least
    size_bytes: int | None = None  # at most
    latency_ms: float | None = None  # median at most
    peak_rss_bytes: int | None = None  # over baseline, at most
    fallback_ops: int | None = None  # operators that left the runtime's accelerator, at most
    fallback_share: float | None = None  # of the operators' time, spent off the accelerator, at most
    as_shipped: float | None = 0.005  # how far an output may have moved since it shipped, relative RMS (`verify`)
    strict: bool = False  # refuse what the interval of a sampled number leaves undecided, too
    on_device: float | None = 0.05  # how far an output on the device may be from the same artifact's here, relative RMS

    def __post_init__(self) -> None:
        if self.items_lost is not None and self.items_lost >= 1 and self.items_lost % 1:
            raise ValueError("items_lost must be a whole number of items, or a share of them below 1")


@dataclass(frozen=True)
class Variant:
    """One way to reach a target. `compress` lists tables: `use` is a technique or a precision, the rest its options."""

    name: str
    runtime: str = ""  # empty: the target's
    compress: tuple[Mapping[str, Any], ...] = ()
    reference: bool = False  # the one to beat: never dropped from the race
    export: Mapping[str, Any] = field(default_factory=dict)  # options of the runtime's export
    limits: Mapping[str, Any] = field(default_factory=dict)  # laid over the target's
    threads: int | None = None  # of its runtime; left out: as many as --threads says

    def __post_init__(self) -> None:
        if self.threads is not None and not 1 <= self.threads <= MOST_THREADS:
            raise ValueError(f"threads must be 1 to {MOST_THREADS}")


@dataclass(frozen=True)
class Guard:
    """Whether a variant that loses too much is mended, and how: rung after rung until its limits are kept."""

    on: bool = False
    rungs: tuple[str, ...] = ()  # "calibrate", "keep", and techniques that have a RUNG; empty: all that apply
    layers: int = 8  # the worst ones, tried in higher precision one by one
    slower: float | None = None  # than without them, at most, with layers in higher precision: 0.1 is 10 % of the time
    sure: float = 0.5  # of right answers: the chance to keep the budget on as many items as judge, at least

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise ValueError("layers must be at least 1")
        if self.slower is not None and self.slower <= 0:
            raise ValueError("slower must be above 0; 0.1 is 10 % of the latency")
        if not 0 < self.sure < 1:
            raise ValueError("sure is a probability: it must be between 0 and 1")


Objective = Literal["latency", "accuracy", "size", "memory", "energy", "instructions"]


@dataclass(frozen=True)
class Knob:
    """What a search may turn of a technique: numbers from `low` to `high`, or one of `choices`."""

    low: int | float | None = None
    high: int | float | None = None
    step: int | float | None = None  # between two numbers; left out: 1 of whole numbers, any of others
    log: bool = False  # small numbers are tried as finely as large ones
    choices: tuple[int | float | str | bool, ...] = ()
    measured: str = ""  # the option that has these values in its place, where latency is an objective and measured

    def __post_init__(self) -> None:
        if bool(self.choices) == (self.low is not None and self.high is not None):
            raise ValueError("give low and high, or choices")
        if self.low is None or self.high is None:
            return
        if self.low > self.high or (self.log and self.low <= 0) or (self.step is not None and self.step <= 0):
            raise ValueError("low must be at most high, above 0 where log is set; step must be above 0")
        if self.log and self.step is not None:
            raise ValueError("log and step exclude each other")

    def at(self, part: float) -> int | float | str | bool:
        """The value at a part of the way from low to high, of a step if it has some; the first of choices."""
        if self.low is None or self.high is None:
            return self.choices[0]
        low, high = (math.log(self.low), math.log(self.high)) if self.log else (self.low, self.high)
        value = low + part * (high - low)
        value = math.exp(value) if self.log else value
        whole = isinstance(self.low, int) and isinstance(self.high, int) and not isinstance(self.step, float)
        step = self.step or (1 if whole else None)
        value = self.low + step * int((value - self.low) / step + 1e-9) if step else value
        return int(value) if whole else round(value, 6)

    @property
    def ends(self) -> tuple[int | float | str | bool, ...]:
        """The values that show whether a technique takes all of them."""
        return self.choices if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class SearchSpace:
    """What `search` tries, what it is after, and when it ends. All but accuracy is a share of the baseline's.

    The baseline is the target's first reference; accuracy is what is lost on the split that chooses.
    """

    objectives: tuple[Objective, ...] = ("latency", "accuracy")  # as little as possible of each; the first chooses
    limits: Mapping[Objective, float] = field(default_factory=dict)  # at most; those of the target hold as well
    runtimes: tuple[str, ...] = ()  # empty: those of the target's variants
    techniques: tuple[str, ...] = ()  # and precisions; empty: all that the source reaches
    knobs: Mapping[str, Mapping[str, Knob]] = field(default_factory=dict)  # technique -> option -> its values
    train: bool = False  # techniques that train are tried, too: minutes to hours for each
    minutes: float = 15.0  # then the trial that runs is stopped, and goes on when the search does
    trials: int = 200  # at most
    patience: int = 40  # trials without a gain, at most
    sampler: Literal["tpe", "nsga2", "random"] = "tpe"

    def __post_init__(self) -> None:
        if not self.objectives or len({*self.objectives}) < len(self.objectives):
            raise ValueError("objectives must be at least one, each once")
        for name, most in self.limits.items():
            if name not in get_args(Objective):
                raise ValueError(f"limits: '{name}' is none of {', '.join(get_args(Objective))}")
            if not (name == "accuracy" and most == 0) and not 0 < most < math.inf:
                raise ValueError(f"limits: {name} = {most:g} must be above 0")
        if min(self.trials, self.patience) < 1 or not 0 < self.minutes < math.inf:
            raise ValueError("minutes must be above 0; trials and patience at least 1")


@dataclass(frozen=True)
class Target:
    """What ships. The order of the variants decides between those that measure the same."""

    description: str
    runtime: str
    variant: tuple[Variant, ...]
    limits: Limits = Limits()
    guard: Guard = Guard()
    search: SearchSpace = SearchSpace()
    device: str = "host"  # where it is measured when no device is named
    package: str = "tar"
    platforms: tuple[str, ...] = ()  # of the devices it is for, as shell patterns ("linux-x86_64"); empty: any
    also: tuple[str, ...] = ()  # other runtimes that devices carry: what they run must answer right there too
    also_told: tuple[str, ...] = ()  # those of `also` in which a wrong answer is told, and drops no variant
    min_runtime: str = ""  # one that must run it
    hint: str = ""  # a sentence at the end of its reports: what else these devices have

    def __post_init__(self) -> None:
        names = [v.name for v in self.variant]
        if not names:
            raise ValueError("a target needs at least one [[variant]]")
        if twice := {n for n in names if names.count(n) > 1}:
            raise ValueError(f"two variants are named '{min(twice)}'")
        if stray := [name for name in self.also_told if name not in self.also]:
            raise ValueError(f"also_told: '{stray[0]}' is not in also")
        if "artifact" in names:
            raise ValueError("variant name 'artifact' is reserved; choose another")
        if len(names) > MOST_VARIANTS:
            raise ValueError(f"{len(names)} variants are more than {MOST_VARIANTS}")
        if bad := [n for n in names if not n or not all(c.isalnum() or c in "-_." for c in n)]:
            raise ValueError(f"variant name {bad[0][:LONGEST_NAME]!r}: use letters, digits, '-', '_' and '.'")
        if bad := [n for n in names if n[0] == "." or len(n) > LONGEST_NAME]:
            raise ValueError(
                f"variant name {bad[0][:LONGEST_NAME]!r}: begin with another character than '.', and use at most "
                f"{LONGEST_NAME} characters"
            )


@dataclass(frozen=True)
class PowerModel:
    """Watts of a device from what its threads do: idle_w * (cores - threads) + active_w * threads."""

    idle_w: float  # per core
    active_w: float  # per core that computes
    error: float  # relative half width of the band, 0..1
    source: str  # the citation
    scope: str = "package"  # what those watts are of: wall, battery, package, board, rail


@dataclass(frozen=True)
class Roof:
    """What a device can do at most. An operator of fewer FLOP per byte than gflops / gb_per_s waits for memory."""

    gflops: float  # float32, all of the device
    gb_per_s: float  # between memory and processor
    source: str  # the citation

    def __post_init__(self) -> None:
        if self.gflops <= 0 or self.gb_per_s <= 0:
            raise ValueError("gflops and gb_per_s must be above 0")


@dataclass(frozen=True)
class Device:
    """Where it runs. Sensors are tried in order; the first that can read is used."""

    description: str
    transport: str = "host"
    platform: str = ""  # "android-arm64", "cuda": what targets ask for; empty: asked of the device
    sensors: tuple[str, ...] = ()
    power: PowerModel | None = None
    roof: Roof | None = None
    cores: int | None = None  # None: asked of the device
    vector_bits: int | None = None  # of the widest vector unit that inference uses
    memory_mib: int | None = None
    source: str = ""  # where these figures are from
    unreachable: str = ""  # why nothing can be run there from here, and what to do instead
    blocks: Mapping[str, int] = field(
        default_factory=dict
    )  # "runtime-precision" -> channels that its kernels do at once
    export: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # runtime -> options of its export for it
    options: Mapping[str, Any] = field(default_factory=dict)  # of the transport and the sensors

    def __post_init__(self) -> None:
        for name in ("cores", "vector_bits", "memory_mib"):
            if (getattr(self, name) or 1) < 1:
                raise ValueError(f"{name} must be at least 1")
        if bad := [name for name, channels in self.blocks.items() if channels < 1]:
            raise ValueError(f"blocks: '{bad[0]}' must be a number of channels, at least 1")


@dataclass(frozen=True)
class Profile:
    """How we measure: the protocol's numbers."""

    description: str
    sessions: int  # fresh processes of each variant that may win, and of what it is compared with
    warmup_s: float  # at least, then until the last two blocks differ by less than warmup_tolerance
    warmup_runs: int
    window_s: float  # timed, of a session, at least
    window_runs: int  # timed, of a session, at least
    energy_windows: int
    energy_window_s: float
    idle_s: float = 5.0  # before and after an energy window
    windows: int = 10  # that a session's time is cut into: the variants take turns, window by window
    more_sessions: int = 0  # at most, while the fastest of the leaders is not decided, or a session was too noisy
    warmup_tolerance: float = 0.02
    warmup_cap_s: float = 30.0  # then it goes on, and is flagged
    ops_runs: int = 50  # inferences of the per-operator pass
    max_age_s: float = 7 * 86400.0  # older measurements are made again
    count_runs: int = 5  # inferences counted in each of three processes, where instructions are counted
    profilers: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # more ways to look at the last two variants

    def __post_init__(self) -> None:
        if min(self.sessions, self.windows, self.window_runs) < 1 or self.window_s < 0:
            raise ValueError("sessions, windows and window_runs must be at least 1, window_s at least 0")
        for name, value in vars(self).items():
            most = MOST.get(name, LONGEST_S if name.endswith("_s") else MOST_RUNS)
            if isinstance(value, (int, float)) and not 0 <= value <= most:
                raise ValueError(f"{name} is {value:g}, not 0 to {most:g}")

    def protocol(self) -> dict[str, Any]:
        """The numbers: with another description, or other profilers, nothing is measured again."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("description", "profilers")}
