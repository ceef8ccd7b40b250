"""Commented TOML files to start from: what `init` writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core import catalog, output_place, registry
from edgecompress.core.errors import InputError
from edgecompress.pipeline import conversion

UNTOLD = "what it is, in a line"  # the end of a description that nobody has written yet

TARGET = """\
# A target: what ships. `edgecompress plan --target FILE` shows what it comes to.
description = {description}
runtime = {runtime} # of the variants that name none; `edgecompress runtimes` lists them
# device = "host" # where it is measured when no --device is given; `edgecompress devices` lists them
# package = "tar" # what `edgecompress package` makes of it
# platforms = ["linux-aarch64"] # of the devices it is for: elsewhere nothing is measured, the order below decides
# also = ["tflite"] # other runtimes that devices carry: a variant that they run and that answers wrong there is lost
# also_told = ["tflite"] # those of `also` in which a wrong answer is told, and drops no variant
# min_runtime = "tflite" # one that must run it

[limits] # an artifact beyond one of these does not ship; of those left out, the ones with a default still hold
items_lost = 0.01 # of the test split, as a share or a number of items: right before and wrong after, less the reverse
metric_ratio = 1.01 # after / before at most (perplexity, mse, mae, wer)
# metric_drop = 0.01 # before - after at most (where higher is better: map, auc, psnr, a metric of your own)
# metric_loss = 0.01 # the default of any metric that none of the three above judges: relative to the source's own value
# Of outputs that no metric judges (inf turns one off):
# channel_error = 0.1 # RMS error of a channel over its own spread, at most
# tail_error = 0.3 # the same at the 99th percentile of the items
# found_error = 0.06 # the same where a detector finds something
# found_loss = 0.07 # of the average precision, with what the source finds as the truth
# choice_loss = 0.005 # of right choices by the source's own probabilities, the part lost
# divergence = 0.01 # nats between its probabilities and the source's
cosine = 0.95 # of each output with the source's, at least
# sqnr_db = 20.0 # of each output, at least
# size_bytes = 1000000 # of the artifact, at most
# latency_ms = 10.0 # median, at most
# peak_rss_bytes = 50000000 # over the baseline, at most
# fallback_ops = 0 # operators that left the runtime's accelerator, at most
# fallback_share = 0.05 # of the time, spent in those
# as_shipped = 0.01 # how far an output may move after it shipped, as relative RMS (`edgecompress verify`)
# strict = true # refuse what the items, or the sessions, are too few to decide, too (--strict)
# on_device = 0.05 # how far its answers on a device elsewhere may be from those on this machine, as relative RMS

# [search] # what `edgecompress search` tries and is after; all but accuracy is a share of the first reference's
# objectives = ["latency", "accuracy"] # as little as possible of each: size, memory, energy, instructions, too
# limits = {{ size = 0.3 }} # at most, by objective; of accuracy the loss
# runtimes = ["onnx"] # left out: those of the variants below
# techniques = ["int8", "prune_channels"] # and precisions; left out: all that the source reaches
# train = true # techniques that train are tried, too
# minutes = 15 # no trial begins after that
# trials = 200 # at most
# patience = 40 # trials without a gain, at most
# sampler = "tpe" # or nsga2, random
# [search.knobs.prune_channels] # option = the values that are tried: low and high, with step or log, or choices
# macs = {{ low = 0.5, high = 0.95, step = 0.05 }}

# Ways to reach the target. Each is built, verified and raced: the fastest that keeps the limits ships; between those
# that measure the same this order decides. `use` is a precision or a technique; further keys are its options.
"""

VARIANT = """
[[variant]]
name = {name}
runtime = {runtime}
compress = [{{ use = {use} }}]
"""

REFERENCE = """
[[variant]]
name = {name}
runtime = {runtime}
reference = true # the baseline: it is measured in every round
"""

SOURCE = """\
# A source: a model as its author has it, and its data. `edgecompress deploy FILE` takes it from here.
model = {model} # a factory pkg.mod:fn, or a .pt2 or .onnx file (relative to this file)
data = {data} # pkg.mod:fn, an .npz, a folder of .npy or of images, or "random"
metric = {metric} # top1, top5, perplexity, mse, mae, map, oks, miou, auc, wer, psnr, ssim, none, or your own pkg.mod:fn
# description = {description} # packages for apps say it
# name = {name} # what reports and packages call it; left out: the model's own name
# samples = 512 # at most this many items per split
# labels = ["cat", "dog"] # names of the classes
# detect = {{ boxes = "loc", scores = "conf", format = "xyxy" }} # a detector's outputs; or yxyx, xywh, cxcywh
# decode = {{ head = "fcos", boxes = ["p3", "p4"] }} # its raw head, of which boxes are made: docs/detectors.md
# augment = ["flip", "crop"] # what training may do to a picture: mirror it, shift it
# licence = "MIT" # packages for apps say it
# task = "embedding" # of a Hugging Face folder, where it is not that of its architecture
# length = 128 # tokens of a text, for a Hugging Face folder; [32, 128]: short texts run on a shorter shape
# constants = {{ rate = 16000 }} # inputs that are always the same: they go into the model
# state = {{ h = "hn" }} # inputs that are an output of the call before, and zero at first
# sequence = 32 # items from one first call to the next; left out: each split is one sequence

# [dynamic.x] # a dimension of input x that may change: axis = "name:smallest..largest"
# 0 = "batch:1..64"

# [pad.ids] # an input whose items are of unlike lengths
# length = 128 # each is cut, or filled up, at the end of its first axis
# value = 0 # by this
# mask = "mask" # an input that is made: 1 where an item has numbers of its own, 0 where it is filled up

# [preprocess] # from raw images (HWC, RGB, 0..255) to the model's input, in this order
# input = "x" # the input it applies to; left out: the only one
# resize = 256 # the shorter side, in pixels
# fit = "shorter" # what is so long; or "stretch": both sides, "letterbox": the whole picture, between bars
# bars = 114 # the grey of the bars
# crop = 224 # the centre, in pixels
# colour = "RGB" # RGB, BGR, GRAY
# scale = 0.00392156862745098 # x * scale: here 1 / 255
# mean = [0.485, 0.456, 0.406] # then (x - mean) / std, per channel
# std = [0.229, 0.224, 0.225]
# layout = "NCHW" # or NHWC
# # of audio (int16, or real numbers in -1..1), instead of resize, crop and colour, with one mean and one std:
# spectrogram = {{ rate = 8000, length = 8000, frame = 256, hop = 128, fft = 256, bins = 40, floor = 1e-3 }}
"""

DEVICE = """\
# A device: where an artifact is measured. `edgecompress doctor --device FILE` says what it can do.
description = {description}
transport = "host" # how to reach it
# platform = "android-arm64" # what targets ask for in their `platforms`; left out: asked of the device
sensors = ["rapl", "power_model"] # tried in this order; `edgecompress sensors` lists them
# cores = 4 # left out: asked of the device
# vector_bits = 512 # of its SIMD unit
# memory_mib = 8192
# source = "..." # where these figures are from
# unreachable = "..." # why nothing can be run there from here, and what to do instead

# [power] # for the sensor power_model, when no other sensor can be read
# idle_w = 0.74 # watts of a core that waits
# active_w = 3.5 # watts of a core that computes
# error = 0.5 # half the width of the band, as a fraction
# source = "where these numbers are from"
# scope = "package" # what those watts are of: wall, battery, package, board, rail

# [roof] # for `edgecompress analyze`, to find the layers that are memory-bound
# gflops = 150.0 # of float32, all of the device
# gb_per_s = 17.0 # between memory and processor
# source = "where these numbers are from"

# [blocks] # of channels that its kernels compute at once: `edgecompress device blocks FILE` finds and writes them
# "litert-int8" = 16 # RUNTIME-PRECISION

# [export.qnn] # options of a runtime's export for it: the chip that a compiler compiles for
# soc = "SM8650"

# [options] # of the transport and of the sensors
"""

PROFILE = """\
# A profile: how an artifact is measured. Fewer than 6 sessions give no interval, and no change is called.
description = {description}
sessions = 6 # fresh processes of each variant that may win, and of the fastest reference
more_sessions = 3 # at most, while it is not decided which of the leaders is the fastest
warmup_s = 0.5 # at least, and until the last two blocks differ by less than warmup_tolerance
warmup_runs = 10 # at least
# warmup_tolerance = 0.02
# warmup_cap_s = 30.0 # then it goes on, and is flagged
window_s = 1.0 # timed, per session, at least
window_runs = 30 # timed, per session, at least
# windows = 10 # that this time is cut into: the variants take turns, window by window
energy_windows = 5 # of the two finalists
energy_window_s = 10.0
# idle_s = 5.0 # before and after an energy window
# ops_runs = 50 # inferences of the pass that times operators
# max_age_s = 604800.0 # older measurements are made again
# count_runs = 5 # inferences counted in each process, where instructions are counted instead of seconds

# [profilers.sustained] # more ways to look at the last two variants; `edgecompress profilers` lists them
# seconds = 600
"""


def text(kind: str, fields: Mapping[str, Any]) -> str:
    """The file for a case: `fields` has name, and runtime (a target's), or model and data (a source's)."""
    given = {"metric": "top1", **fields}
    shown = {k: given[k] for k in ("name", "model", "data", "metric") if k in given}
    words: dict[str, str] = {k: json.dumps(value, ensure_ascii=False) for k, value in shown.items()}
    words["description"] = json.dumps(f"{fields['name']}: {UNTOLD}", ensure_ascii=False)
    if kind == "target":
        return _target(fields["runtime"] or ["onnx"], words["description"])
    return {"source": SOURCE, "device": DEVICE, "profile": PROFILE}[kind].format(**words)


def _target(runtimes: Sequence[str], description: str) -> str:
    parts = [TARGET.format(description=description, runtime=json.dumps(runtimes[0]))]
    for runtime in runtimes:
        for use in precisions(runtime):
            parts.append(_variant(VARIANT, f"{runtime}-{use}", runtime, use))
        parts.append(_variant(REFERENCE, f"{runtime}-fp32", runtime, ""))
    return "".join(parts)


def _variant(template: str, name: str, runtime: str, use: str) -> str:
    return template.format(name=json.dumps(name), runtime=json.dumps(runtime), use=json.dumps(use))


def precisions(runtime: str) -> list[str]:
    """What a torch source can be compressed to on its way to a runtime. Raises NotFound for an unknown runtime."""
    goal = registry.load("runtimes", runtime).FORMAT
    reached = [m for _, m in registry.every("techniques") if conversion.shortest_path("module", m.READS) is not None]
    return sorted(
        {m.PROVIDES for m in reached if m.PROVIDES and conversion.shortest_path(m.WRITES, [goal]) is not None}
    )


def write(file: Path, content: str) -> Path:
    """Writes a new file; raises InputError where there is one already."""
    check(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror}; give another --output") from error
    return file


def place(kind: str, name: str) -> Path:
    """Where a new file of a kind lies. Raises InputError for a name that is a path."""
    if Path(name).name != name:
        raise InputError(f"{name}: is not a name but a path; give a name, and the file with --output")
    return (Path() if kind == "source" else Path(f"{kind}s")) / f"{name}.toml"


def check(file: Path) -> None:
    """Raises InputError where no new file can be written, or one that nobody finds by its name."""
    if file.exists():
        raise InputError(f"{file}: already exists; give another name or --output")
    catalog.check_new(file)
    output_place.check_file(file, "--output")


def next_step(kind: str, file: Path) -> str:
    """The command that uses the file."""
    flag = {
        "source": f"{file}",
        "target": f"--target {file}",
        "device": f"--device {file}",
        "profile": f"--profile {file}",
    }
    return f"edgecompress plan {flag[kind]}"
