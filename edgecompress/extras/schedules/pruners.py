"""The mask rules of Distiller's pruners: which elements of a parameter stay at an epoch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import arguments, groups, parameters
from edgecompress.extras.schedules.arguments import EVERY
from edgecompress.extras.schedules.feature_maps import FeatureMap
from edgecompress.extras.schedules.rates import Moment, agp, baidu
from edgecompress.extras.schedules.reader import Instance, Policy
from edgecompress.extras.schedules.statistics import Activations

if TYPE_CHECKING:
    from torch import Tensor, nn

ROUND: dict[str, Callable[[float], int]] = {"floor": math.floor, "round": round, "ceil": math.ceil}
State = dict[str, list[float]]  # what a rule remembers from epoch to epoch


class Rule(Protocol):
    """What of a parameter stays."""

    state: State

    def mask(self, name: str, weight: Tensor, before: Tensor | None, now: Moment) -> Tensor | None:
        """What to multiply the weight by, of its shape; None: as before. Raises ValueError where nothing would stay."""


@dataclasses.dataclass(frozen=True)
class Pruner:
    """A rule, the parameters that it prunes, by the model's names, and the activations that it ranks them by."""

    rule: Rule
    parameters: Mapping[str, nn.Parameter]
    activations: tuple[Activations | FeatureMap, ...] = ()


def build(policy: Policy, model: nn.Module) -> Pruner:
    """The pruner of a policy; raises InputError for what the model lacks and what does not fit."""
    instance = policy.instance
    given = instance.arguments
    levels = getattr(policy.arguments, "levels", None)
    if isinstance(given, arguments.Level) and levels is not None:
        given = dataclasses.replace(given, levels=levels)
    own = dict(model.named_parameters(remove_duplicate=False))
    called = _targets(given, model, instance.where)
    chosen = {name: own[name] for name in called}
    try:
        if isinstance(given, arguments.Ranked):
            ranked = Ranked(instance, model, chosen)
            return Pruner(ranked, chosen, (*ranked.activations.values(), *ranked.maps.values()))
        if isinstance(given, arguments.Threshold):
            return Pruner(Structures(given, called, chosen), chosen)
        if isinstance(given, arguments.Splicing):
            return Pruner(Splicing(given, called), chosen)
    except ValueError as error:
        raise InputError(f"{instance.where}: {instance.name}: {error}") from error
    return Pruner(Elements(given, called), chosen)


def _targets(given: object, model: nn.Module, where: str) -> dict[str, str]:
    """The parameters of a pruner, by the model's names: what the schedule calls each, "*" where it names none."""
    tables = ("thresholds", "levels", "sensitivities", "reg_regims", "weights")
    named: Iterable[str] = next(getattr(given, table) for table in tables if hasattr(given, table))
    result = {own: name for name, own in parameters.found(model, named, where).items()}
    if EVERY in named:
        result |= {own: EVERY for own, _ in model.named_parameters() if own not in result}
    return result


def _ranking(cls: str) -> str:
    """What structures are ranked by: a key of `RANKINGS`, l1 or l2."""
    name = cls.removesuffix(arguments.GRADUALLY)
    return arguments.RANKINGS.get(name) or ("l2" if name.startswith("L2") else "l1")


# --------------------------------------------------------------------------- single elements


class Elements:
    """Those above a threshold stay: a given one, so many standard deviations, what a share lies below, a ramp."""

    def __init__(self, given: object, called: Mapping[str, str]) -> None:
        self.given = given
        self.called = called
        self.state: State = {}  # by parameter: the standard deviation, as it was at first

    def mask(self, name: str, weight: Tensor, before: Tensor | None, now: Moment) -> Tensor | None:
        """See `Rule`."""
        threshold = self._threshold(name, weight, now)
        return None if threshold is None else (weight.detach().abs() > threshold).to(weight.dtype)

    def _threshold(self, name: str, weight: Tensor, now: Moment) -> float | None:
        given, called = self.given, self.called[name]
        if isinstance(given, arguments.Magnitude):
            return given.thresholds[called]
        if isinstance(given, arguments.Level):
            return level(weight, given.levels[called])
        if isinstance(given, arguments.Sensitivity):
            if name not in self.state:
                self.state[name] = [float(weight.detach().std())]
            return given.sensitivities[called] * self.state[name][0]
        if isinstance(given, arguments.GradualLevel):
            return level(weight, agp(given.initial_sparsity, given.final_sparsity, now))
        assert isinstance(given, arguments.Baidu)
        return baidu(given.q, given.ramp_epoch_offset, given.ramp_slope_mult, now)


def level(weight: Tensor, share: float) -> float | None:
    """The k-th smallest magnitude, k = int(share x elements); None where k is 0.

    Raises ValueError where none is larger though the share is less than 1: all would go.
    """
    sizes = weight.detach().abs().flatten()
    count = int(share * sizes.numel())
    if count == 0:
        return None
    threshold = float(sizes.kthvalue(count).values)
    if share < 1 and float(sizes.max()) <= threshold:
        raise ValueError(f"all elements would go: none is larger than {threshold:g}, the {count}th smallest")
    return threshold


class Splicing:
    """Those below a go, those from b on come back, between them all stays as it is.

    a, b: (mean + s x standard deviation of the magnitudes, as they were at first) x a multiplier (Guo et al. 2016,
    arXiv:1608.04493, eq. 3).
    """

    def __init__(self, given: arguments.Splicing, called: Mapping[str, str]) -> None:
        self.given = given
        self.called = called
        self.state: State = {}  # by parameter: the mean and the standard deviation

    def mask(self, name: str, weight: Tensor, before: Tensor | None, now: Moment) -> Tensor | None:
        """See `Rule`."""
        import torch

        sizes = weight.detach().abs()
        if name not in self.state:
            self.state[name] = [float(sizes.mean()), float(sizes.std())]
        mean, deviation = self.state[name]
        sensitivity = self.given.sensitivities[self.called[name]]
        if self.given.sensitivity_multiplier > 0:
            sensitivity *= (now.epoch - now.starting) * self.given.sensitivity_multiplier + 1
        edge = mean + sensitivity * deviation
        low, high = edge * self.given.low_thresh_mult, edge * self.given.hi_thresh_mult
        between = torch.ones_like(sizes) if before is None else before
        return torch.where(sizes < low, 0.0, torch.where(sizes >= high, 1.0, between)).to(weight.dtype)


# --------------------------------------------------------------------------- structures


class Structures:
    """Those whose largest or mean magnitude is above a threshold stay."""

    def __init__(
        self, given: arguments.Threshold, called: Mapping[str, str], chosen: Mapping[str, nn.Parameter]
    ) -> None:
        self.given = given
        self.called = called
        self.state: State = {}
        for name, weight in chosen.items():
            groups.of(given.reg_regims[called[name]][1], weight.shape)

    def mask(self, name: str, weight: Tensor, before: Tensor | None, now: Moment) -> Tensor | None:
        """See `Rule`."""
        threshold, structure = self.given.reg_regims[self.called[name]]
        return groups.above(weight, structure, threshold, self.given.threshold_criteria)


class Ranked:
    """The share of a weight's structures that ranks last goes, for each weight or as the first of them, the leader."""

    def __init__(self, instance: Instance, model: nn.Module, chosen: Mapping[str, nn.Parameter]) -> None:
        """Raises ValueError for weights that do not fit, InputError for activations that the model lacks."""
        given = instance.arguments
        assert isinstance(given, arguments.Ranked)
        self.given = given
        self.ranking = _ranking(instance.cls)
        self.leader = next(iter(chosen))
        self.chosen = chosen
        self.state: State = {}  # of the leader: the share, and what stays; of activations: what was seen
        ranked = [self.leader] if given.group_dependency else list(chosen)
        if self.ranking not in ("apoz", "mean"):
            ranked = []
        self.activations = {name: Activations(model, name, instance.where, self.state) for name in ranked}
        fitted = chosen if isinstance(given, arguments.FeatureMaps) else ()
        self.maps = {name: FeatureMap(model, name, instance.where) for name in fitted}
        counts = {name: self._groups(weight).count for name, weight in chosen.items()}
        for name, count in counts.items():
            if given.group_dependency and count != counts[self.leader]:
                raise ValueError(f"'{name}' has {count} structures, its leader '{self.leader}' {counts[self.leader]}")

    def mask(self, name: str, weight: Tensor, before: Tensor | None, now: Moment) -> Tensor | None:
        """See `Rule`; weights that are fitted change."""
        share = self._share(now)
        stays = self._led(share, now) if self.given.group_dependency else self._stays(name, weight, share, now)
        if stays is not None and self.maps:
            self.chosen[name].data.copy_(self.maps[name].fit(stays))
        return None if stays is None else self._groups(weight).spread(stays.to(weight.device, weight.dtype))

    def _led(self, share: float, now: Moment) -> Tensor | None:
        """What stays of the leader, chosen anew where the share is another one."""
        import torch

        if self.state.get("share") != [share]:
            stays = self._stays(self.leader, self.chosen[self.leader], share, now)
            self.state |= {"share": [share], "stays": [] if stays is None else stays.tolist()}
        return torch.tensor(self.state["stays"]) if self.state["stays"] else None

    def _groups(self, weight: Tensor) -> groups.Groups:
        if self.given.group_type == "Blocks":
            assert self.given.kwargs is not None and self.given.kwargs.block_shape is not None
            return groups.blocks(self.given.kwargs.block_shape, weight.shape)
        if self.given.group_type == "Rows" and weight.dim() == 2:
            return groups.of("Cols", weight.shape)  # rows of the transposed matrix: what a Linear multiplies by
        return groups.of(self.given.group_type, weight.shape)

    def _share(self, now: Moment) -> float:
        import torch

        if isinstance(self.given, arguments.Gradual):
            return agp(self.given.initial_sparsity, self.given.final_sparsity, now)
        if isinstance(self.given, arguments.RandomLevel):
            low, high = self.given.sparsity_range
            return low + (high - low) * float(torch.rand(()))
        assert isinstance(self.given, arguments.Steady)
        return self.given.desired_sparsity

    def _stays(self, name: str, weight: Tensor, share: float, now: Moment) -> Tensor | None:
        """1 for each structure that stays, else 0 [structures]; None: as it was."""
        import torch

        rows = self._groups(weight).rows(weight.detach())
        if self.ranking == "bernoulli":  # what stays makes up for what goes
            stays = (torch.rand(len(rows)) >= share).float()
            return stays / stays.mean() if stays.any() else None
        gone = self._gone(share, len(rows))
        scores = self._scores(name, weight, rows, now) if gone else None
        if scores is None:
            return None
        if self.ranking not in ("l1", "l2"):
            stays = torch.ones(len(rows))
            stays[scores.argsort(stable=True)[:gone].cpu()] = 0
            return stays
        stays = (scores > scores.kthvalue(gone).values).float()  # of equals all go
        if share < 1 and not stays.any():
            raise ValueError(f"all structures would go: those of the {gone} smallest are as large as all others")
        return stays

    def _gone(self, share: float, count: int) -> int:
        """How many structures go: never all of them, but for a share of 1."""
        size, rounded = 1, ROUND["floor"]
        if isinstance(self.given, arguments.SteadyRanked):
            size, rounded = self.given.group_size, ROUND[self.given.rounding_fn]
        gone = rounded(share * count) // size * size
        return gone if gone < count or share == 1 else gone - size

    def _scores(self, name: str, weight: Tensor, rows: Tensor, now: Moment) -> Tensor | None:
        """What the structures are ranked by, the first to go lowest [structures]; None: there is nothing to rank by."""
        import torch

        if self.ranking in ("l1", "l2"):
            return torch.linalg.vector_norm(rows, int(self.ranking[1]), dim=1) / rows.shape[1]
        if self.ranking == "apoz":
            return -torch.tensor(self.activations[name].zeros())
        if self.ranking == "mean":
            return torch.tensor(self.activations[name].means())
        if self.ranking == "random":
            return torch.randperm(len(rows)).double()
        assert self.ranking == "gradient"
        gradient = self.chosen[name].grad
        if gradient is not None:
            return self._groups(weight).rows(weight.detach() * gradient).sum(1)
        if now.epoch == now.starting:
            return None
        raise ValueError("no gradient as the epoch begins; call zero_grad() before backward(), not after step()")
