"""A Linear whose matrix is a tensor train of two cores."""

from __future__ import annotations

import torch
from torch import nn


class TensorTrainLinear(nn.Sequential):  # type: ignore[misc]
    """Rows [..., a i] -> [..., b o]: W[(b, o), (a, i)] = sum over k < rank of first[b, k, a] second[o, k, i].

    The TT-format of a matrix (Novikov et al. 2015, arXiv:1509.06569, equation 3) with two cores, as a convolution of
    one place and a Linear: neither moves axes.
    """

    def __init__(self, inputs: tuple[int, int], outputs: tuple[int, int], rank: int, bias: bool = True) -> None:
        super().__init__(
            nn.Conv1d(inputs[0], outputs[0] * rank, 1, bias=False),
            nn.Linear(rank * inputs[1], outputs[1], bias=False),
        )
        self.inputs, self.outputs, self.rank = inputs, outputs, rank
        self.bias = nn.Parameter(torch.zeros(outputs[0] * outputs[1])) if bias else None

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """float [..., a i] -> [..., b o]."""
        first, second = self
        made = first(rows.reshape(-1, *self.inputs)).reshape(-1, self.outputs[0], self.rank * self.inputs[1])
        whole = second(made).reshape(*rows.shape[:-1], self.outputs[0] * self.outputs[1])
        return whole if self.bias is None else whole + self.bias
