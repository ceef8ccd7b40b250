"""The channel block of a runtime on a device: nets of growing width, built here and timed interleaved there."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import channel_blocks, config, registry
from edgecompress.core.errors import StageFailed
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.core.settings import Profile
from edgecompress.data import tensors
from edgecompress.stages import interleaved

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch",)
EXTRA = "torch"

BASE = 64  # channels at input and output of each pair of convolutions: the widest there is between them
WIDTHS = range(4, BASE + 1, 4)
SIDE = 8  # pixels: small, so that the weights decide and everything stays in the nearest cache
PAIRS = 3  # of 3x3 convolutions, BASE -> width -> BASE
ITEMS = 8  # to calibrate with, and to run on
BUILT = 0.7  # of the time goes into building them
SPLITS = ("calibrate", "select", "test")
KIND = "block"
ROUNDS, WINDOW_S = 7, 0.1
PROFILE = Profile("of each net", 1, 0.1, 3, WINDOW_S, 3, 0, 0.0, count_runs=3)


def run(request: Request) -> Artifact:
    """Times nets of every width in WIDTHS; options: "runtime", "precision", and
    "calls" [(call, options)] from a torch program to the runtime's format.

    facts: {"block", "left": {block size: part of the slope left within}, "times_ms": {width: one of each round} or
    "instructions": {width: per inference}, "status", "runtime", "precision", "environment"}. Raises NoPath, or
    StageFailed where a net is not run.
    """
    options = dict(request.options)
    calls = options.pop("calls")
    with tempfile.TemporaryDirectory() as scratch:
        nets, samples = _built(request, calls, Path(scratch))
        how = {"rounds": ROUNDS, "window_s": WINDOW_S, "profile": dataclasses.asdict(PROFILE)}
        timing = {"runtime": options["runtime"], **how}
        inputs = {**nets, "samples": samples}
        progress = functools.partial(_later, request.progress)
        costs = interleaved.facts(dataclasses.replace(request, inputs=inputs, options=timing, progress=progress))
    if crashed := costs["crashed"]:
        raise StageFailed("; ".join(f"a net of {width} channels crashed: {why}" for width, why in crashed.items()))
    staircase = channel_blocks.staircase(_facts(costs))
    left = {str(size): share for size, share in channel_blocks.slopes_left(staircase).items()}
    facts = {"block": channel_blocks.block(staircase), "left": left, **options, **_facts(costs)}
    return Artifact(request.out, KIND, facts=facts).write()


def _facts(costs: interleaved.InterleavedFacts) -> dict[str, object]:
    """The costs as this stage names them."""
    names = {"medians_ms": "times_ms"}
    return {names.get(key, key): value for key, value in costs.items() if key != "crashed"}


def _later(progress: Callable[[float, str], None], fraction: float, what: str) -> None:
    """The progress of what follows the building."""
    progress(BUILT + (1 - BUILT) * fraction, what)


def _built(
    request: Request, calls: Sequence[tuple[str, Mapping[str, Json]]], folder: Path
) -> tuple[dict[str, Artifact], Artifact]:
    """The nets by width, in the runtime's format, and the samples that they take."""
    samples, nets = _samples(folder / "samples"), {}
    for i, width in enumerate(WIDTHS):
        request.progress(BUILT * i / len(WIDTHS), f"building a net of {width} channels")
        model = _program(width, folder / str(width) / "program")
        for number, (call, options) in enumerate(calls):
            (module, function), own = registry.call(call), registry.step(call).options
            step_options = config.build(own, options, call) if own else options
            out = folder / str(width) / str(number)
            out.mkdir()
            model = getattr(module, function)(Request({"model": model, "samples": samples}, out, step_options))
        nets[str(width)] = model
    return nets, samples


def _samples(folder: Path) -> Artifact:
    import numpy as np

    for seed, split in enumerate(SPLITS):
        drawn = np.random.default_rng(seed).standard_normal((ITEMS, BASE, SIDE, SIDE), dtype=np.float32)
        tensors.write_split(folder / split, {"x": drawn})
    return Artifact(folder, "samples", (_spec("x", ITEMS),), (), {"splits": dict.fromkeys(SPLITS, ITEMS)}).write()


def _spec(name: str, items: int) -> TensorSpec:
    return TensorSpec(name, (items, BASE, SIDE, SIDE))


def _program(width: int, folder: Path) -> Artifact:
    """A chain of PAIRS x (3x3 convolution BASE -> width, ReLU, 3x3 convolution width -> BASE, ReLU), random weights."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [
            layer for _ in range(PAIRS) for channels in ((BASE, width), (width, BASE)) for layer in _layer(*channels)
        ]
        net = torch.nn.Sequential(*layers).eval()
        program = torch.export.export(net, (torch.zeros(1, BASE, SIDE, SIDE),))
    folder.mkdir(parents=True)
    torch.export.save(program, folder / "program.pt2")
    return Artifact(folder, "program", (_spec("x", 1),), (_spec("y", 1),)).write()


def _layer(inputs: int, outputs: int) -> Sequence[torch.nn.Module]:
    from torch import nn

    layer = nn.Conv2d(inputs, outputs, 3, padding=1)
    nn.init.kaiming_normal_(layer.weight)  # what comes out is as large as what goes in
    return layer, nn.ReLU()
