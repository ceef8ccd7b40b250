"""Where training stands, in one file: tensors and JSON, no pickle; whole or not there, whatever kills the process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, Protocol, TypedDict

from edgecompress.core.json import Json

if TYPE_CHECKING:
    import torch

FILE = "checkpoint.safetensors"
CARD = "training"  # in the file's metadata: all that is no tensor, as JSON
# Before a tensor's name; the optimizer's are NUMBER/KEY, the others' NUMBER/KEY/KEY...
NET, OPTIMIZER, OTHERS = "net/", "optimizer/", "others/"

Shapes = dict[str, list[int]]
Slots = dict[str, Json]  # of one parameter in an optimizer, its tensors left out


class Stateful(Protocol):
    """What has a state of plain numbers, and of tensors in tables: a scheduler, a scaler."""

    def state_dict(self) -> Mapping[str, Any]:
        """The numbers and tensors."""

    def load_state_dict(self, state_dict: Any, /) -> object:
        """The inverse."""


class OptimizerNumbers(TypedDict):
    """The plain part of an optimizer's state."""

    state: dict[str, Slots]
    param_groups: list[dict[str, Json]]


class Numbers(TypedDict):
    """All of a state that is no tensor."""

    optimizer: OptimizerNumbers
    others: list[dict[str, Json]]


class EpochRecord(TypedDict):
    """What came of one epoch: its number from 1, the learning rate, the mean loss, the score on the split "select".

    With a schedule, the share of zeros in the weights, too.
    """

    epoch: int
    lr: float
    loss: float | None
    select: float | None
    sparsity: NotRequired[float]


class Card(TypedDict, total=False):
    """What lies beside the tensors: which training it is of, its epochs so far, and what `save` adds."""

    of: str
    history: list[EpochRecord]
    numbers: Numbers
    shapes: Shapes


class Damaged(Exception):
    """A checkpoint that cannot be gone on from; the message says why."""


@dataclass(frozen=True)
class State:
    """What trains: all of it changes from step to step."""

    net: torch.nn.Module
    optimizer: torch.optim.Optimizer
    others: Sequence[Stateful] = ()

    def tensors(self) -> dict[str, torch.Tensor]:
        """Copies of all tensors, contiguous, on the CPU."""
        tensors = {NET + name: tensor for name, tensor in self.net.state_dict().items()}
        for number, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {f"{OPTIMIZER}{number}/{key}": v for key, v in slots.items() if _is_tensor(v)}
        for number, other in enumerate(self.others):
            tensors |= _tensors(other.state_dict(), f"{OTHERS}{number}")
        return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}

    def numbers(self) -> Numbers:
        """The rest, as JSON has it."""
        state = self.optimizer.state_dict()
        plain = {str(n): {k: v for k, v in s.items() if not _is_tensor(v)} for n, s in state["state"].items()}
        others = [_plain(other.state_dict()) for other in self.others]
        return {"optimizer": {"state": plain, "param_groups": state["param_groups"]}, "others": others}

    def restore(self, tensors: Mapping[str, torch.Tensor], numbers: Numbers) -> None:
        """The inverse; raises ValueError, KeyError or RuntimeError where they are another training's."""
        state: dict[int, dict[str, Json | torch.Tensor]] = {
            int(number): dict(slots) for number, slots in numbers["optimizer"]["state"].items()
        }
        for name, tensor in tensors.items():
            if name.startswith(OPTIMIZER):
                number, _, key = name.removeprefix(OPTIMIZER).partition("/")
                state.setdefault(int(number), {})[key] = tensor
        for place, (other, kept) in enumerate(zip(self.others, numbers["others"], strict=True)):
            other.load_state_dict(_joined(kept, tensors, f"{OTHERS}{place}"))  # which may narrow the net
        self.optimizer.load_state_dict({"state": state, "param_groups": numbers["optimizer"]["param_groups"]})
        self._lay_out()
        weights = {n.removeprefix(NET): t for n, t in tensors.items() if n.startswith(NET)}
        self.net.load_state_dict(weights)

    def _lay_out(self) -> None:
        """In memory as the parameters are: another order of elements may round otherwise."""
        import torch

        for parameter, slots in self.optimizer.state.items():
            for key, value in slots.items():
                if _is_tensor(value) and value.shape == parameter.shape:
                    slots[key] = torch.empty_like(parameter).copy_(value)


def _tensors(state: Mapping[str, Any], place: str) -> dict[str, torch.Tensor]:
    """The tensors of nested tables, by their places."""
    found = {f"{place}/{key}": value for key, value in state.items() if _is_tensor(value)}
    tables = [_tensors(value, f"{place}/{key}") for key, value in state.items() if isinstance(value, Mapping)]
    return {**found, **{name: tensor for table in tables for name, tensor in table.items()}}


def _plain(state: Mapping[str, Any]) -> dict[str, Json]:
    """Nested tables without their tensors."""
    rest = {key: value for key, value in state.items() if not _is_tensor(value)}
    return {key: _plain(value) if isinstance(value, Mapping) else value for key, value in rest.items()}


def _joined(plain: Mapping[str, Any], tensors: Mapping[str, torch.Tensor], place: str) -> dict[str, Any]:
    """The tables with the tensors in their places again."""
    tables = {
        key: _joined(value, tensors, f"{place}/{key}") if isinstance(value, Mapping) else value
        for key, value in plain.items()
    }
    own = {name.removeprefix(f"{place}/"): tensor for name, tensor in tensors.items() if name.startswith(f"{place}/")}
    return {**tables, **{key: tensor for key, tensor in own.items() if "/" not in key}}


def save(folder: Path, state: State, card: Card) -> None:
    """Writes the checkpoint of `folder`, which it makes, anew, with one rename; `card` is given back by `load`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors = state.tensors()
    whole: Card = {**card, "numbers": state.numbers(), "shapes": _shapes(tensors)}
    part = folder / f"{FILE}.{os.getpid()}.part"
    save_file(tensors, part, {CARD: json.dumps(whole)})
    part.replace(folder / FILE)


def load(folder: Path, state: State, of: str) -> Card:
    """Sets `state` to the checkpoint of `folder` and returns its card; {} where there is none.

    Raises Damaged for one that cannot be read, whose tensors are not those that were saved, or that is not `of` this
    training (its card says of which).
    """
    from safetensors import SafetensorError, safe_open

    if not (folder / FILE).exists():
        return {}
    try:
        with safe_open(folder / FILE, "pt") as file:
            card: Card = json.loads((file.metadata() or {})[CARD])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        if card["of"] != of:
            raise Damaged("it is from another training run (other inputs, options or device)")
        stored = _shapes(tensors)
        for name in sorted({*stored, *card["shapes"]}):
            if stored.get(name) != card["shapes"].get(name):
                raise Damaged(f"its tensor '{name}' is {stored.get(name)}, not {card['shapes'].get(name)}")
        state.restore(tensors, card["numbers"])
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise Damaged(f"{type(error).__name__}: {error}") from error
    return card


def _shapes(tensors: Mapping[str, torch.Tensor]) -> Shapes:
    return {name: list(tensor.shape) for name, tensor in tensors.items()}


def _is_tensor(value: Json | torch.Tensor) -> bool:
    import torch

    return isinstance(value, torch.Tensor)
