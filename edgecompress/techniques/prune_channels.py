"""Removes whole channels by Torch-Pruning's dependency graph, to reach a ratio, MACs or a measured latency."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Goal, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques._pruning import widths as candidates
from edgecompress.techniques._pruning.criteria import Criterion
from edgecompress.techniques._pruning.work import RATIO, PruningWork

REQUIRES = ("torch", "torch-pruning>=1.6.1", "safetensors")
EXTRA = "prune"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense")
KNOBS = {"macs": Knob(low=0.5, high=0.95, step=0.05, measured="latency_ratio")}

STRENGTHS = ("ratio", "macs", "latency_ratio", "latency_ms", "speedup", "widths")
GOALS = STRENGTHS[2:5]
CELLS = 3  # widths of a class of groups whose saving is measured, at most
ALL_CELLS = 27  # of a net: each is a net to be built, and trials measure the whole


@dataclass(frozen=True)
class Options:
    """How much goes, and what goes first. At most one of the strengths; without any, half of the channels."""

    ratio: float | None = None  # share of the channels that goes, of those that can
    macs: float | None = None  # share of the source's multiply-accumulates that may stay
    latency_ratio: float | None = None  # share of the dense net's measured latency that may stay
    latency_ms: float | None = None  # at most, measured
    speedup: float | None = None  # over the dense net, measured
    widths: Mapping[str, int] = field(default_factory=dict)  # channels kept by layer or pattern; 0: its block goes
    criterion: Criterion = "l2"  # which channels of a layer go first
    scope: Literal["sensitivity", "global", "isomorphic", "local"] = "sensitivity"  # which layers lose most
    align: int | None = None  # channels kept are multiples of it; None: the device's channel block
    whole_blocks: bool = True  # a residual block may go whole
    samples: int = 256  # calibration items at most: for sensitivity, batch norms, criteria that need data
    settle: bool = True  # biases take up the means of what goes, batch norms count anew, on the calibration items
    skip: tuple[str, ...] = ()  # layers that stay as they are, as patterns ("layer1.*")
    steps: int = 1  # prune in so many steps, trained between them
    between: Mapping[str, Any] = field(default_factory=dict)  # options of `finetune` between the steps
    saved: Mapping[str, float] = field(default_factory=dict)  # the search's: what each cell saves of the latency
    keep: float | None = None  # the search's: share of the latency that may stay, by `saved`
    harms: Mapping[str, tuple[tuple[int, float], ...]] = field(default_factory=dict)  # the search's: of each width

    def __post_init__(self) -> None:
        if len(self.strengths) > 1:
            raise ValueError(f"give one strength, not {' and '.join(self.strengths)}")
        for name in ("ratio", "macs", "latency_ratio", "keep"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1 and (name, value) != ("keep", 1):
                raise ValueError(f"{name} must be between 0 and 1")
        for name, least in (("latency_ms", 0), ("speedup", 1)):
            value = getattr(self, name)
            if value is not None and not least < value < math.inf:
                raise ValueError(f"{name} must be above {least}")
        if min(1 if self.align is None else self.align, self.samples, self.steps) < 1:
            raise ValueError("align, samples and steps must be at least 1")
        if any(width < 0 for width in self.widths.values()):
            raise ValueError("widths must be at least 0")
        if self.steps > 1 and not {*self.strengths} <= {"ratio", "macs"}:
            raise ValueError("several steps need a ratio or macs")
        if self.between and self.steps == 1:
            raise ValueError("between needs steps of at least 2")

    @property
    def strengths(self) -> tuple[str, ...]:
        """The strengths that are set."""
        return tuple(name for name in STRENGTHS if getattr(self, name) not in (None, {}))


# What the facts say of a group of channels
def goal(options: Options) -> Goal | None:
    """What is to be measured, where the strength is a latency; it is of the dense net unless in milliseconds."""
    if options.latency_ms is not None:
        return Goal("latency_ms", options.latency_ms)
    ratio = 1 / options.speedup if options.speedup else options.latency_ratio
    return None if ratio is None else Goal("ratio", ratio)


def pinned(options: Mapping[str, Json], facts: Mapping[str, Any]) -> dict[str, Json]:
    """The options with the widths of what was made, in the place of a strength."""
    widths: dict[str, Json] = {group["name"]: group["kept"] for group in facts["groups"]}
    return {**{k: v for k, v in options.items() if k not in STRENGTHS}, "align": facts["align"], "widths": widths}


def expand(options: Options) -> list[tuple[str, dict[str, Json]]] | None:
    """Several steps as prune, finetune, prune, ...: each leaves the same share of what the one before left."""
    if options.steps == 1:
        return None
    name = next(iter(options.strengths), "ratio")
    other = (name, "steps", "between")
    plain = {f.name: getattr(options, f.name) for f in dataclasses.fields(options) if f.name not in other}
    rest = {key: value for key, value in plain.items() if value != getattr(Options(), key)}
    steps: list[tuple[str, dict[str, Json]]] = []
    for step in range(1, options.steps + 1):
        # MACs are counted in the source, channels in the net that the step before left
        if options.macs is not None:
            strength = math.pow(options.macs, step / options.steps)
        else:
            strength = 1 - math.pow(1 - (options.ratio or RATIO), 1 / options.steps)
        steps += [("prune_channels", {**rest, name: strength}), ("finetune", dict(options.between))]
    return steps[:-1]


def apply(request: Request) -> Artifact:
    """The module with fewer channels; inputs: "model", "samples" (the calibrate split), "dense".

    facts: {"groups": [{"name", "layers", "channels", "kept", "class", "whole_block"}], "refused": {layer: why},
    "macs" and "parameters": {"before", "after", "source"}, "align", "criterion", "scope", "settled"; "sensitivity":
    {group: [[width, harm]]} where it was measured; "predicted": share of the latency, by a search}.
    Raises InputError where nothing can be pruned or the strength is out of reach, StageFailed for scores that are no
    numbers, a `keep` out of reach, and a narrow net that does not run.
    """
    work = PruningWork(request)
    widths, facts = work.widths()
    narrow = work.narrow(widths)
    told = work.facts(narrow, widths)
    if request.options.settle:
        work.bench.settle(narrow)
    edits = torch_edits.resized(work.net, narrow)
    edits += [{"edit": "replace", "module": m, "by": [["Identity", {}]]} for m in work.gone(widths)]
    return torch_module.save(narrow, request, edits, {**told, **facts})


def cells(request: Request) -> Artifact:
    """What is to be measured one by one: each class of equal groups at a few widths, all other layers dense.

    facts: {"cells": {label: {"widths": {group: width}}}, "refused", "known": options for trials: "harms", what each
    width of a group alone does to the outputs, where the scope asks for it}.
    """
    work = PruningWork(request)
    classes = {label: groups for label, groups in work.classes().items() if len(work.choices[groups[0].name]) > 1}
    most = max(1, min(CELLS, ALL_CELLS // max(1, len(classes))))
    measured = {
        f"{label}@{width}": {"widths": dict.fromkeys((group.name for group in groups), width)}
        for label, groups in classes.items()
        for width in candidates.samples(work.choices[groups[0].name], most)[1:]
    }
    known: dict[str, Json] = {}
    if request.options.scope == "sensitivity":
        known["harms"] = {name: [[w, h] for w, h in harm.items()] for name, harm in work.harms(work.choices).items()}
    facts: dict[str, Json] = {"cells": measured, "refused": dict(work.refused), "known": known}
    return Artifact(request.out, "cells", facts=facts).write()
