"""Recurrent layers over a sequence, the first axis. The state stays in fp32 inside an op."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.signature import Float, Result

Activation = Literal["tanh", "sigmoid", "relu", "linear"]
Direction = Literal["forward", "reverse"]
State: TypeAlias = "tuple[torch.Tensor, ...]"
Function: TypeAlias = "Callable[[torch.Tensor], torch.Tensor]"


@dataclass(frozen=True)
class _Cell:
    """The weights of one direction; `inner` acts on the gates, `cell` on the candidate, `outer` on the state."""

    weight_ih: torch.Tensor
    weight_hh: torch.Tensor
    bias: torch.Tensor | None
    peephole: torch.Tensor | None
    inner: Function
    cell: Function
    outer: Function

    def lstm(self, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One step; the gates are in the order input, forget, output, cell. A peephole looks at the cell's state."""
        i, f, o, z = _affine(x @ self.weight_ih.T + h @ self.weight_hh.T, self.bias).chunk(4, dim=-1)
        pi, pf, po = (0, 0, 0) if self.peephole is None else self.peephole.chunk(3)
        c_next = self.inner(f + pf * c) * c + self.inner(i + pi * c) * self.cell(z)
        return self.inner(o + po * c_next) * self.outer(c_next), c_next


def lstm(
    x: Float,
    initial_h: Float,
    initial_c: Float,
    weight_ih: Float,
    weight_hh: Float,
    bias: Float | None = None,
    peephole: Float | None = None,
    weight_ih_back: Float | None = None,
    weight_hh_back: Float | None = None,
    bias_back: Float | None = None,
    peephole_back: Float | None = None,
    direction: Literal["forward", "reverse", "bidirectional"] = "forward",
    output_sequence: bool = False,
    recurrent_activation: Activation = "sigmoid",
    cell_activation: Activation = "tanh",
    activation: Activation = "tanh",
) -> Result:
    acts = [_activation(name) for name in (recurrent_activation, cell_activation, activation)]
    cells = [_Cell(weight_ih, weight_hh, bias, peephole, *acts)]
    if direction == "bidirectional":
        cells.append(_Cell(weight_ih_back, weight_hh_back, bias_back, peephole_back, *acts))
    states = zip(cells, initial_h.chunk(len(cells), -1), initial_c.chunk(len(cells), -1), strict=True)
    runs = [
        _unrolled(cell.lstm, x, (h, c), direction == "reverse" or index == 1)
        for index, (cell, h, c) in enumerate(states)
    ]
    sequence, h, c = (torch.cat(parts, -1) for parts in zip(*runs, strict=True))
    return sequence if output_sequence else h.unsqueeze(0), h, c


def gru(
    x: Float,
    initial_h: Float,
    weight_ih: Float,
    weight_hh: Float,
    bias: Float | None = None,
    direction: Direction = "forward",
    output_sequence: bool = False,
    recurrent_activation: Activation = "sigmoid",
    activation: Activation = "tanh",
) -> Result:
    """Gates in the order reset, output, update; the reset acts on the state, before the product: not as in torch."""
    inner, outer = _activation(recurrent_activation), _activation(activation)

    def step(item: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor]:
        r, o, z = _affine(item @ weight_ih.T, bias).chunk(3, dim=-1)
        weight_r, weight_o, weight_z = weight_hh.chunk(3)
        reset, update = inner(r + h @ weight_r.T), inner(z + h @ weight_z.T)
        return ((1 - update) * outer(o + (reset * h) @ weight_o.T) + update * h,)

    sequence, h = _unrolled(step, x, (initial_h,), direction == "reverse")
    return sequence if output_sequence else h.unsqueeze(0), h


def rnn(
    x: Float,
    initial_h: Float,
    weight_ih: Float,
    weight_hh: Float,
    bias: Float | None = None,
    direction: Direction = "forward",
    output_sequence: bool = False,
    activation: Activation = "tanh",
) -> Result:
    outer = _activation(activation)

    def step(item: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor]:
        return (outer(_affine(item @ weight_ih.T + h @ weight_hh.T, bias)),)

    sequence, h = _unrolled(step, x, (initial_h,), direction == "reverse")
    return sequence if output_sequence else h.unsqueeze(0), h


def _unrolled(step: Callable[..., State], x: torch.Tensor, state: State, reverse: bool) -> State:
    """The hidden state after each item, in the items' order, and the last state."""
    seen = []
    for item in reversed(x.unbind(0)) if reverse else x.unbind(0):
        state = step(item, *state)
        seen.append(state[0])
    return torch.stack(seen[::-1] if reverse else seen), *state


def _activation(name: str) -> Function:
    known: dict[str, Function] = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}
    return known.get(name, lambda value: value)


def _affine(product: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return product if bias is None else product + bias
