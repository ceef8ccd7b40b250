"""Activations on a grid: what a module gives, or takes, is rounded by a hook, so a net's names stay as they are."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.utils.hooks import RemovableHandle

Rounding = Callable[["nn.Module", "Tensor"], "Tensor"]  # of a module and what it gives or takes


def levels(x: Tensor, step: Tensor | float, low: Tensor | float, high: Tensor | float) -> Tensor:
    """`x` at the nearest multiple of `step` from `low` to `high` times it; halves go to the even multiple."""
    import torch

    return torch.clamp(torch.round(x / step), low, high) * step


@dataclass(frozen=True)
class Levels:
    """The multiples of `step` from `low` to `high` times it."""

    step: float
    low: int
    high: int

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        """A tensor of any shape, rounded."""
        return levels(x, self.step, self.low, self.high)


def attach(module: nn.Module, rounding: Rounding, place: int | None = None) -> RemovableHandle:
    """From now on `rounding` is applied to the output of `module`, or to one of its inputs, counted from 0."""
    if place is None:
        return module.register_forward_hook(functools.partial(_round_output, rounding))
    names = list(inspect.signature(module.forward).parameters)
    name = names[place] if place < len(names) else ""
    return module.register_forward_pre_hook(functools.partial(_round_input, rounding, place, name), with_kwargs=True)


def _round_output(rounding: Rounding, module: nn.Module, _: object, output: Tensor) -> Tensor:
    return rounding(module, output)


def _round_input(
    rounding: Rounding, place: int, name: str, module: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if place < len(inputs):
        return (*inputs[:place], rounding(module, inputs[place]), *inputs[place + 1 :]), named
    return inputs, {**named, name: rounding(module, named[name])}
