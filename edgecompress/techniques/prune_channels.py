"""Removes whole channels by Torch-Pruning's dependency graph, to reach a ratio, MACs or a measured latency."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from edgecompress.core.errors import InputError, StageFailed, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Goal, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques._pruning import criteria, dependency_groups, drafts
from edgecompress.techniques._pruning import macs as counts
from edgecompress.techniques._pruning import widths as candidates
from edgecompress.techniques._pruning.channels import CoupledChannels, mean_kept, narrowed
from edgecompress.techniques._pruning.criteria import Criterion, Scores
from edgecompress.techniques._pruning.sensitivity import CalibrationBench

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "torch-pruning>=1.6.1", "safetensors")
EXTRA = "prune"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense")
KNOBS = {"macs": Knob(low=0.5, high=0.95, step=0.05, measured="latency_ratio")}

STRENGTHS = ("ratio", "macs", "latency_ratio", "latency_ms", "speedup", "widths")
GOALS = STRENGTHS[2:5]
RATIO = 0.5  # where no strength is set
EXAMPLES = 4  # items that groups are tried with
TRIED = 6  # widths of a group whose harm is measured, 0 and the full one apart
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
PrunedGroup = TypedDict(
    "PrunedGroup",
    {"name": str, "layers": list[str], "channels": int, "kept": int, "class": str, "whole_block": bool},
)


class PruningFacts(TypedDict):
    """The facts of this technique, as `apply` describes them."""

    groups: list[PrunedGroup]
    refused: dict[str, str]
    macs: dict[str, int]
    parameters: dict[str, int]
    align: int
    criterion: str
    scope: str
    settled: bool


class WidthEvidence(TypedDict, total=False):
    """What a choice of widths came from, for the facts."""

    sensitivity: dict[str, list[list[float]]]
    predicted: float


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
    work = _Work(request)
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
    work = _Work(request)
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


# --------------------------------------------------------------------------- the work


class _Work:
    """The net of a request, its groups that can be pruned, and how far they are to shrink."""

    def __init__(self, request: Request) -> None:
        import torch

        torch.manual_seed(request.context.seed)
        self.request, self.options = request, request.options
        self.net = torch_module.rebuild(request.model)
        self.dense = torch_module.rebuild(request.inputs["dense"])
        # a count is of one item, a trial of some, or both of as many as the net takes
        own = request.model.batch
        counts = (own, own) if isinstance(own, int) else (1, EXAMPLES)
        self.one, some = (torch_module.example(request.model, request.inputs["samples"], n) for n in counts)
        tree = dependency_groups.find(
            self.net, lambda net: list(torch_module.flatten(torch_module.call(net, some)).values())
        )
        request.progress(0.1, "scoring channels")
        self.refused = dict(tree.refused)
        self._counts: dict[tuple[tuple[str, int], ...], int] = {}
        self.groups = [group for group in tree.groups if not self._left_out(group)]
        self.choices = {
            group.name: candidates.choices(
                group.channels, math.lcm(request.align, group.per_unit), group.leads and self.options.whole_blocks
            )
            for group in self.groups
        }
        if not any(len(widths) > 1 for widths in self.choices.values()):
            raise InputError(f"nothing can be pruned: {_why(self.refused, self.choices)}")

    def _left_out(self, group: CoupledChannels) -> bool:
        why = criteria.scored(self.net, group, self.options.criterion)
        if any(fnmatch(layer, pattern) for pattern in self.options.skip for layer in group.layers):
            why = "it is to be skipped"
        if why:
            self.refused[group.name] = why
        return bool(why)

    def group(self, name: str) -> CoupledChannels:
        """The group of that name."""
        return next(group for group in self.groups if group.name == name)

    def classes(self) -> dict[str, list[CoupledChannels]]:
        """Groups that take equally long and lie in equal places, by a name for all of them."""
        equal: dict[tuple[Hashable, tuple[int, ...]], list[CoupledChannels]] = {}
        for group in self.groups:
            equal.setdefault((group.kind, self.choices[group.name]), []).append(group)
        return {_label([group.name for group in groups]): groups for groups in equal.values()}

    def facts(self, narrow: torch.nn.Module, widths: Mapping[str, int]) -> PruningFacts:
        """What became of the net."""
        labels = {group.name: label for label, groups in self.classes().items() for group in groups}
        rows: list[PrunedGroup] = [
            {
                "name": group.name,
                "layers": list(group.layers),
                "channels": group.channels,
                "kept": widths[group.name],
                "class": labels[group.name],
                "whole_block": group.leads and self.options.whole_blocks,
            }
            for group in self.groups
        ]
        nets = {"before": self.net, "after": narrow, "source": self.dense}
        return {
            "groups": rows,
            "refused": self.refused,
            "macs": {name: self.macs(net) for name, net in nets.items()},
            "parameters": {name: sum(p.numel() for p in net.parameters()) for name, net in nets.items()},
            "align": self.request.align,
            "criterion": self.options.criterion,
            "scope": self.options.scope,
            "settled": self.options.settle,
        }

    # ------------------------------------------------------------------ what channels are worth

    @cached_property
    def bench(self) -> CalibrationBench:
        """The calibration items."""
        return CalibrationBench(self.request, self.options.samples)

    @cached_property
    def scores(self) -> Scores:
        """Of each unit of each group."""
        criterion, bench = self.options.criterion, self.bench
        if criterion == "random":
            return criteria.at_random(self.groups, self.request.context.seed)
        if criterion == "taylor":
            return criteria.by_gradient(self.net, self.groups, bench.batches, bench.loss)
        if criterion == "fisher":
            return criteria.by_gradient(self.net, self.groups, bench.singles, bench.loss, criterion)
        if criterion == "shapley":
            seed = self.request.context.seed
            return criteria.by_taking_away(self.net, self.groups, bench.batches, bench.loss, seed)
        if criterion == "activation":
            return criteria.by_activation(self.net, self.groups, bench.batches, bench.run)
        return criteria.by_weights(self.net, self.groups, criterion)

    def narrow(self, widths: Mapping[str, int]) -> torch.nn.Module:
        """The net with the best channels of those widths."""
        kept = {name: best(self.scores[name], width // self.group(name).per_unit) for name, width in widths.items()}
        net = mean_kept(self.net, self.groups, kept, self.means) if self.options.settle else self.net
        return narrowed(net, self.groups, kept)

    @cached_property
    def means(self) -> dict[str, torch.Tensor]:
        """Of each channel that goes into a layer that reads a group."""
        return criteria.means(self.net, self.groups, self.bench.batches, self.bench.run)

    def gone(self, widths: Mapping[str, int]) -> list[str]:
        """The residual blocks that go whole."""
        return [group.block for group in self.groups if group.leads and not widths[group.name]]

    def harms(self, choices: Mapping[str, Sequence[int]]) -> dict[str, dict[int, float]]:
        """Of each group alone, at some of its widths: the distance of the outputs from the dense net's."""
        self.bench.learn(self.dense)
        whole = self.bench.harm(self.narrow({}))
        harms = {name: {widths[0]: whole} for name, widths in choices.items()}
        tried = [(n, w) for n, widths in choices.items() for w in candidates.samples(widths, TRIED)[1:]]
        for done, (name, width) in enumerate(tried):
            self.request.progress(0.1 + 0.8 * done / len(tried), f"{name} at {width} channels")
            harms[name][width] = self.bench.harm(self.narrow({name: width}))
            if not math.isfinite(harms[name][width]):
                raise StageFailed(
                    f"prune_channels: with {width} channels of {name} the net returns NaN or infinite values"
                )
        return harms

    # ------------------------------------------------------------------ how wide

    def widths(self) -> tuple[dict[str, int], WidthEvidence]:
        """The width of each group, those of blocks that go 0, and what the choice came from."""
        if self.options.keep is not None:
            widths, facts = self._by_latency(self.options.keep)
        elif self.options.widths:
            widths, facts = self._by_name(), {}
        elif self.options.macs is not None:
            source = self.macs(self.dense)
            widths, facts = self._within(self.choices, lambda w: self._macs(w) / source, self.options.macs)
        elif self.options.strengths in ((), ("ratio",)):
            ratio = self.options.ratio or RATIO
            widths, facts = self._within(self.choices, self._channels, 1 - ratio)
        else:
            raise InputError(f"{self.options.strengths[0]} needs measurements, which only a deploy makes")
        return self._settled(widths), facts

    def _settled(self, widths: Mapping[str, int]) -> dict[str, int]:
        """All groups, and no channels in a block that goes."""
        gone = {group.block for group in self.groups if group.leads and widths.get(group.name) == 0}
        return {g.name: 0 if g.block in gone else widths.get(g.name, g.channels) for g in self.groups}

    def _by_name(self) -> dict[str, int]:
        widths: dict[str, int] = {}
        known = [layer for group in self.groups for layer in group.layers]
        for pattern, width in self.options.widths.items():
            groups = [g for g in self.groups if any(fnmatch(layer, pattern) for layer in g.layers)]
            if not groups:
                unknown = f"{pattern}: no such layer{did_you_mean(pattern, known)}"
                refused = (f"{name}: {why}" for name, why in self.refused.items() if fnmatch(name, pattern))
                raise InputError(f"widths: {next(refused, unknown)}")
            widths |= {group.name: _fitting(group, width) for group in groups}
        return widths

    def _channels(self, widths: Mapping[str, int]) -> float:
        return sum(self._settled(widths).values()) / sum(group.channels for group in self.groups)

    def macs(self, net: torch.nn.Module) -> int:
        """The multiply-accumulates of one item."""
        try:
            return counts.count(net, lambda net: torch_module.call(net, self.one))
        except Exception as error:  # of the user's own forward
            raise StageFailed(
                f"prune_channels: so narrow, the net raises {drafts.one_line(error)}; leave the layers "
                "that it counts on as they are (skip)"
            ) from error

    def _macs(self, widths: Mapping[str, int]) -> int:
        """The same of the net with some channels of those widths: it does not matter which."""
        key = tuple(self._settled(widths).items())
        if key not in self._counts:
            kept = {name: range(width // self.group(name).per_unit) for name, width in key}
            self._counts[key] = self.macs(narrowed(self.net, self.groups, kept))
        return self._counts[key]

    def _by_latency(self, keep: float) -> tuple[dict[str, int], WidthEvidence]:
        """Widths that leave `keep` of the latency, by what the cells saved."""
        saved = self._saved()
        choices = {n: [w for w in self.choices[n] if w >= min(saved[n])] for n in self.choices}

        def left(widths: Mapping[str, int]) -> float:
            return 1 - sum(candidates.between(saved[name], width) for name, width in widths.items())

        widths, facts = self._within(choices, left, keep)
        return widths, {**facts, "predicted": left(widths)}

    def _saved(self) -> dict[str, dict[int, float]]:
        """What each group saves of the latency at some widths: its part of what its class saved."""
        saved = {group.name: {group.channels: 0.0} for group in self.groups}
        classes = self.classes()
        for cell, share in self.options.saved.items():
            label, _, width = cell.rpartition("@")
            if label not in classes:
                raise InputError(f"saved: no groups '{label}'{did_you_mean(label, classes)}")
            for group in classes[label]:
                saved[group.name][int(width)] = share / len(classes[label])
        return saved

    def _within(
        self, choices: Mapping[str, Sequence[int]], cost: candidates.Cost, budget: float
    ) -> tuple[dict[str, int], WidthEvidence]:
        """The widths whose cost is within the budget, by the scope."""
        try:
            if self.options.scope == "sensitivity":
                return self._least_harm(choices, cost, budget)
            steps = [step for name in choices for step in self._steps(name, choices[name])]
            return candidates.allocate(choices, steps, cost, budget), {}
        except candidates.OutOfReach as error:
            what = "keep" if self.options.keep is not None else next(iter(self.options.strengths), "ratio")
            why = f"{what} is out of reach: the narrowest widths leave {error.least:.3g}, not {budget:.3g}"
            raise (StageFailed if what == "keep" else InputError)(f"prune_channels: {why}") from error

    def _steps(self, name: str, widths: Sequence[int]) -> list[candidates.Narrowing]:
        if self.options.scope == "local":
            return candidates.by_share(name, widths)
        scores = self.scores if self.options.scope == "global" else self.ranks
        return candidates.by_score(name, widths, scores[name])

    def _least_harm(
        self, choices: Mapping[str, Sequence[int]], cost: candidates.Cost, budget: float
    ) -> tuple[dict[str, int], WidthEvidence]:
        """Those of least harm; "sensitivity" is what each width of a group alone does."""
        full = {name: widths[0] for name, widths in choices.items()}
        given = {n: {w: h for w, h in self.options.harms.get(n, ()) if w in widths} for n, widths in choices.items()}
        known = all(widths[-1] in given[name] for name, widths in choices.items())
        whole, harms = cost(full), given if known else self.harms(choices)
        points = {n: {w: (whole - cost({**full, n: w}), h) for w, h in harm.items()} for n, harm in harms.items()}
        steps = [step for name in choices for step in candidates.by_harm(name, choices[name], points[name])]
        facts: WidthEvidence = {
            "sensitivity": {name: [[w, h] for w, h in harm.items()] for name, harm in harms.items()}
        }
        return candidates.allocate(choices, steps, cost, budget), facts

    @cached_property
    def ranks(self) -> Scores:
        """Scores as ranks among isomorphic groups: Fang et al. 2024, "Isomorphic Pruning", arXiv:2407.04616."""
        shapes = {group.shape for group in self.groups}
        pools = [{g.name: self.scores[g.name] for g in self.groups if g.shape == shape} for shape in shapes]
        return {name: ranks for pool in pools for name, ranks in candidates.ranks(pool).items()}


def best(scores: Sequence[float], count: int) -> list[int]:
    """The units with the highest scores, in their own order; of equals the first."""
    return sorted(sorted(range(len(scores)), key=lambda unit: -scores[unit])[:count])


def _fitting(group: CoupledChannels, width: int) -> int:
    """A width of the option `widths`; raises InputError where the group cannot be so wide."""
    where = f"widths: {group.name}"
    if width == 0 and not group.leads:
        raise InputError(f"{where} cannot be 0: only a residual block that then is the identity can be removed")
    if width > group.channels or width % group.per_unit:
        raise InputError(
            f"{where} has {group.channels} channels, in units of {group.per_unit}; {width} is not a possible width"
        )
    return width


def _why(refused: Mapping[str, str], choices: Mapping[str, Sequence[int]]) -> str:
    """Why nothing is left to prune."""
    if choices:
        return f"the channels of no layer ({max(map(max, choices.values()))} at most) exceed align"
    first = [f"{name}: {why}" for name, why in refused.items()][:3]
    return "; ".join(first) or "the net has no layer with output channels that can be removed"


def _label(names: Sequence[str]) -> str:
    """A name for several layers: `layer2.{1,2}.conv1`."""
    parts = [list(dict.fromkeys(part)) for part in zip(*(name.split(".") for name in names), strict=True)]
    if sum(len(part) > 1 for part in parts) > 1:
        return "+".join(names)
    return ".".join(part[0] if len(part) == 1 else "{" + ",".join(part) + "}" for part in parts)
