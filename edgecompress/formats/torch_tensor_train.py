"""A Linear whose matrix is a tensor train of two cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Halves = tuple[int, int]


def linear(inputs: Halves, outputs: Halves, rank: int, bias: bool) -> torch.nn.Sequential:
    """Rows [..., a i] -> [..., b o]: W[(b, o), (a, i)] = sum over k < rank of first[b, k, a] second[o, k, i].

    The TT-format of a matrix (Novikov et al. 2015, arXiv:1509.06569, equation 3) with two cores, as a convolution of
    one place and a Linear: neither moves axes. `inputs` are (a, i), `outputs` (b, o).
    """
    import torch
    from torch import nn

    class TensorTrainLinear(nn.Sequential):  # type: ignore[misc]
        def __init__(self) -> None:
            first = nn.Conv1d(inputs[0], outputs[0] * rank, 1, bias=False)
            super().__init__(first, nn.Linear(rank * inputs[1], outputs[1], bias=False))
            self.bias = nn.Parameter(torch.zeros(outputs[0] * outputs[1])) if bias else None

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            first, second = self
            made = first(rows.reshape(-1, *inputs)).reshape(-1, outputs[0], rank * inputs[1])
            whole = second(made).reshape(*rows.shape[:-1], outputs[0] * outputs[1])
            return whole if self.bias is None else whole + self.bias

    return TensorTrainLinear()
