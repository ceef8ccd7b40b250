"""The net of a pruning, its groups that can be pruned, and how far they are to shrink."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from fnmatch import fnmatch
from functools import cached_property
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError, StageFailed, did_you_mean
from edgecompress.core.model import Request
from edgecompress.formats import torch_module, torch_outputs
from edgecompress.techniques._pruning import criteria, dependency_groups, drafts
from edgecompress.techniques._pruning import macs as counts
from edgecompress.techniques._pruning import widths as candidates
from edgecompress.techniques._pruning.channels import CoupledChannels, mean_kept, narrowed
from edgecompress.techniques._pruning.criteria import Scores
from edgecompress.techniques._pruning.sensitivity import CalibrationBench

if TYPE_CHECKING:
    import torch

RATIO = 0.5  # where no strength is set
EXAMPLES = 4  # items that groups are tried with
TRIED = 6  # widths of a group whose harm is measured, 0 and the full one apart


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


class PruningWork:
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
            self.net, lambda net: list(torch_outputs.flatten(torch_module.call(net, some)).values())
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
            total = sum(group.channels for group in self.groups)
            widths, facts = self._within(self.choices, lambda w: sum(self._settled(w).values()) / total, 1 - ratio)
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
