"""Learning rates by the absolute epoch: torch's schedulers by name, and Distiller's own two."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, first_line
from edgecompress.core.json import Json
from edgecompress.extras.schedules import rate_arguments
from edgecompress.extras.schedules.reader import Instance

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

KEPT = ("last_epoch", "base_lrs", "best", "num_bad_epochs", "cooldown_counter", "T_cur", "T_i")  # what changes


class LearningRate:
    """One scheduler of the file, on an optimizer."""

    def __init__(self, instance: Instance, optimizer: Optimizer) -> None:
        """Raises InputError for arguments that torch refuses."""
        self.instance = instance
        try:
            self.scheduler: LRScheduler = _built(instance, optimizer)
        except (ValueError, TypeError) as error:
            raise InputError(f"{instance.where}: {instance.name} ({instance.cls}): {first_line(error)}") from error

    def step(self, epoch: int, metrics: Mapping[str, float]) -> None:
        """Sets the rates of an epoch; a plateau is of the metric "min" or "max". Raises InputError without it."""
        given: tuple[Any, ...] = ()
        if isinstance(self.instance.arguments, rate_arguments.Plateau):
            mode = self.instance.arguments.mode
            if mode not in metrics:
                raise InputError(f"{self.instance.where}: {self.instance.name}: on_epoch_end needs the metric '{mode}'")
            given = (metrics[mode],)
        with warnings.catch_warnings():  # that an epoch is given is what Distiller's files are made for
            warnings.simplefilter("ignore")
            self.scheduler.step(*given, epoch=epoch)

    def state(self) -> dict[str, Json]:
        """What changes, as JSON has it."""
        whole = self.scheduler.state_dict()
        return {key: whole[key] for key in KEPT if key in whole}

    def restore(self, state: Mapping[str, Json]) -> None:
        """The inverse."""
        self.scheduler.load_state_dict({key: state[key] for key in KEPT if key in state})


def _built(instance: Instance, optimizer: Optimizer) -> LRScheduler:
    from torch.optim import lr_scheduler

    given = instance.arguments
    factor = _factor(given)
    if factor is not None:
        return lr_scheduler.LambdaLR(optimizer, factor)
    made = {field.name: getattr(given, field.name) for field in dataclasses.fields(given)}  # type: ignore[arg-type]
    made.pop("verbose", None)
    known = {key: list(value) if isinstance(value, tuple) else value for key, value in made.items()}
    scheduler: LRScheduler = getattr(lr_scheduler, instance.cls)(optimizer, **known)
    return scheduler


def _factor(given: object) -> Callable[[int], float] | None:
    """What Distiller's own schedulers multiply the rate by at an epoch; None: it is one of torch's."""
    if isinstance(given, rate_arguments.Polynomial):
        return lambda epoch: float(max(0.0, 1 - epoch / given.T_max) ** given.power)
    if isinstance(given, rate_arguments.MultiGamma):
        pairs = list(zip(given.milestones, given.gammas, strict=True))
        return lambda epoch: math.prod(gamma for milestone, gamma in pairs if epoch >= milestone)
    return None
