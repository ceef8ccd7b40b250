"""The parameters that a schedule names, in a model whose names may differ by DataParallel's `module.`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.extras.schedules.arguments import EVERY

if TYPE_CHECKING:
    from torch import nn

WRAPPER = "module"  # what DataParallel calls the net that it wraps
COMPILED = "_orig_mod"  # what torch.compile does


def normalized(name: str) -> str:
    """A name without its first path element `module`: `features.module.0.weight` is `features.0.weight`."""
    parts = name.split(".")
    if WRAPPER in parts:
        parts.remove(WRAPPER)
    return ".".join(parts)


def unwrapped(model: nn.Module) -> nn.Module:
    """The net inside DataParallel, DistributedDataParallel and torch.compile, whose names begin with no wrapper's."""
    from torch.nn.parallel import DataParallel, DistributedDataParallel

    while True:
        if isinstance(model, DataParallel | DistributedDataParallel):
            model = model.module
        elif COMPILED in model._modules:
            model = model._modules[COMPILED]
        else:
            return model


def found(model: nn.Module, names: Iterable[str], where: str) -> dict[str, str]:
    """What the model calls each of the names; "*" is left out. Raises InputError for one that it has not."""
    own = {normalized(name): name for name, _ in model.named_parameters(remove_duplicate=False)}
    own |= {name: name for name in own.values()}
    result = {}
    for name in names:
        if name == EVERY:
            continue
        known = own.get(name) or own.get(normalized(name))
        if known is None:
            near = did_you_mean(normalized(name), {normalized(each) for each in own})
            hint = near if near.startswith(",") else ""
            raise InputError(f"{where}: the model has no parameter '{name}'{hint}")
        result[name] = known
    return result
