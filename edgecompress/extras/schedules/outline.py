"""What a schedule will do, before any training: its policies in words, and its course epoch by epoch."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core import config
from edgecompress.extras.schedules import arguments, documents, quantizer_arguments, rate_arguments
from edgecompress.extras.schedules.rates import Moment, agp
from edgecompress.extras.schedules.reader import Policy, Schedule

if TYPE_CHECKING:
    from torch import nn

TABLES = ("thresholds", "levels", "sensitivities", "reg_regims", "weights")  # what of an instance names parameters
PROGRAM = re.compile(r"(?m)^#.*(?:compress_classifier\.py|--compress).*$")  # Distiller's own command line, in a comment
FLAGS = {
    "epochs": re.compile(r"\s--epochs[ =](\d+)\b"),
    "lr": re.compile(r"\s(?:--lr|--learning-rate)[ =]([\d.]+(?:e-?\d+)?)"),
    "batch_size": re.compile(r"\s(?:-b|--batch-size)[ =](\d+)\b"),
    "momentum": re.compile(r"\s--momentum[ =]([\d.]+)"),
    "weight_decay": re.compile(r"\s(?:--wd|--weight-decay)[ =]([\d.]+(?:e-?\d+)?)"),
}
WHOLE = ("epochs", "batch_size")


class PolicyRow(TypedDict):
    """A policy in words; it acts at epochs `first` to `last`, `every` so many, or at those `listed`.

    `on`: the names in the file.
    """

    where: str
    kind: str
    name: str
    cls: str
    does: str
    on: list[str]
    first: int
    last: int
    every: int
    listed: list[int]


class EpochRow(TypedDict):
    """An epoch: the learning rate, what acts beside it, the share of zeros that each instance has reached by then.

    Only shares that are planned: not those that depend on the weights. `sparsity`: of all weights of two or four axes
    of the net, where there is one.
    """

    epoch: int
    lr: float
    acts: list[str]
    shares: dict[str, float]
    sparsity: float | None


def flags(file: str | Path) -> dict[str, float]:
    """What the command line of Distiller in the file's comments says that the file itself does not: epochs, lr, ..."""
    line = PROGRAM.search(config.read_text(Path(file), documents.LARGEST))
    found = {name: flag.search(line[0]) for name, flag in FLAGS.items()} if line else {}
    return {name: (int if name in WHOLE else float)(m[1]) for name, m in found.items() if m}


def end(schedule: Schedule) -> int:
    """The number of epochs after which no policy acts."""
    return max((policy.ending for policy in schedule.policies), default=0)


def names(policy: Policy) -> list[str]:
    """The parameters that a policy names, as the file does."""
    given = policy.instance.arguments
    return [*next((getattr(given, table) for table in TABLES if hasattr(given, table)), ())]


def policies(schedule: Schedule) -> list[PolicyRow]:
    """Each policy, in the file's order."""
    return [
        {
            "where": policy.where,
            "kind": policy.kind,
            "name": policy.instance.name,
            "cls": policy.instance.cls,
            "does": _words(policy),
            "on": names(policy),
            "first": policy.epochs[0],
            "last": policy.epochs[-1],
            "every": policy.frequency,
            "listed": _listed(policy),
        }
        for policy in schedule.policies
    ]


def _listed(policy: Policy) -> list[int]:
    """The epochs of a list that leaves some out."""
    whole = range(policy.starting, policy.ending, policy.frequency)
    return [] if list(policy.epochs) == list(whole) else list(policy.epochs)


def course(schedule: Schedule, epochs: int, lr: float, net: nn.Module | None = None) -> list[EpochRow]:
    """Epoch by epoch; a plateau's rate is not known beforehand and stays."""
    reached: dict[str, float] = {}  # by instance
    rows: list[EpochRow] = []
    named = net.named_parameters() if net is not None else ()
    sizes = {name: weight.numel() for name, weight in named if weight.ndim in (2, 4)}
    for epoch, rate in enumerate(_rates(schedule, epochs, lr)):
        acting = [policy for policy in schedule.policies if epoch in policy.epochs]
        for policy in acting:
            share = _share(policy, epoch)
            reached |= {} if share is None else {policy.instance.name: share}
        acts = [policy.instance.name for policy in acting if policy.kind != "lr_scheduler"]
        sparsity = _of_net(schedule, reached, sizes) if sizes else None
        rows.append({"epoch": epoch, "lr": rate, "acts": acts, "shares": dict(reached), "sparsity": sparsity})
    return rows


# --------------------------------------------------------------------------- words


def _words(policy: Policy) -> str:
    """What it does, without its names and epochs."""
    given = policy.instance.arguments
    structure = f" of {given.group_type}" if isinstance(given, arguments.Ranked) else ""
    if isinstance(given, arguments.Gradual):
        return f"{given.initial_sparsity:.0%} to {given.final_sparsity:.0%}{structure} zero"
    if isinstance(given, arguments.Steady):
        return f"{given.desired_sparsity:.0%}{structure} zero"
    if isinstance(given, quantizer_arguments.Quantizer):
        bits = {"weights": given.bits_weights, "activations": given.bits_activations}
        return ", ".join(f"{what} {number or 32} bits" for what, number in bits.items())
    if isinstance(given, arguments.Thinning):
        return given.thinning_func_str.replace("_", " ")
    plain = dataclasses.asdict(given) if dataclasses.is_dataclass(given) and not isinstance(given, type) else {}
    defaults = {f.name: f.default for f in dataclasses.fields(given)} if plain else {}  # type: ignore[arg-type]
    told = {k: v for k, v in plain.items() if k != "weights" and v is not None and v != defaults[k]}
    return ", ".join(f"{key} {_value(value)}" for key, value in told.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):  # by parameter: how far apart they are
        shown = sorted({_value(each) for each in value.values()})
        return shown[0] if len(shown) == 1 else f"{shown[0]} .. {shown[-1]}"
    return " ".join(map(_value, value)) if isinstance(value, (list, tuple)) else str(value)


# --------------------------------------------------------------------------- numbers


def _share(policy: Policy, epoch: int) -> float | None:
    """What is to be zero after an epoch at which it acts; None: it is no pruner, or the weights decide."""
    given = policy.instance.arguments
    if isinstance(given, arguments.Gradual):
        now = Moment(epoch, policy.starting, policy.ending, policy.frequency)
        return agp(given.initial_sparsity, given.final_sparsity, now)
    if isinstance(given, arguments.Steady):
        return given.desired_sparsity
    if isinstance(given, arguments.Level):
        levels = getattr(policy.arguments, "levels", None) or given.levels
        return sum(levels.values()) / len(levels) if levels else None
    return sum(given.sparsity_range) / 2 if isinstance(given, arguments.RandomLevel) else None


def _rates(schedule: Schedule, epochs: int, lr: float) -> Iterator[float]:
    """The learning rate of each epoch, by torch's own schedulers."""
    import torch

    from edgecompress.extras.schedules.learning_rates import LearningRate

    optimizer = torch.optim.SGD([torch.zeros(1)], lr=lr)
    known = [
        policy
        for policy in schedule.policies
        if policy.kind == "lr_scheduler" and not isinstance(policy.instance.arguments, rate_arguments.Plateau)
    ]
    made = {policy.instance.name: LearningRate(policy.instance, optimizer) for policy in known}
    for epoch in range(epochs):
        yield float(optimizer.param_groups[0]["lr"])
        optimizer.step()
        for policy in known:
            if epoch in policy.epochs:
                made[policy.instance.name].step(epoch + 1, {})


def _of_net(schedule: Schedule, reached: Mapping[str, float], sizes: Mapping[str, int]) -> float:
    """The share of zeros in all weights, each by the last of its pruners."""
    from edgecompress.extras.schedules.parameters import normalized

    zeros: dict[str, float] = {}
    for policy in schedule.policies:
        if policy.kind == "pruner" and policy.instance.name in reached:
            named = {normalized(name) for name in names(policy)}
            every = arguments.EVERY in named
            zeros |= {n: reached[policy.instance.name] for n in sizes if every or normalized(n) in named}
    return sum(share * sizes[name] for name, share in zeros.items()) / (sum(sizes.values()) or 1)
