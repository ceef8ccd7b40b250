"""The operators of a model that nothing is built of yet, in words that formats share, and what engines make of them.

A word is what an operator computes, as far as it decides which kernel takes it: "conv", "conv_depthwise", "softmax".
The reader of a format has the words of its operators, an engine has what becomes of each; what neither knows is told
as unknown, never as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

REAL = ("float16", "bfloat16", "float32", "float64")
# What multiplies by weights or by activations: what the precision of a variant is about
MULTIPLYING = (
    *("conv", "conv_grouped", "conv_depthwise", "conv3d", "convtranspose", "convtranspose3d"),
    *("linear", "matmul", "einsum", "attention", "lstm", "gru", "rnn"),
)


def words(text: str) -> frozenset[str]:
    """A set of names, as tables write them."""
    return frozenset(text.split())


def convolution(groups: int, weights: Sequence[int]) -> str:
    """The word of a convolution by the sizes of its weights."""
    if len(weights) == 5:
        return "conv3d"
    return "conv" if groups == 1 else "conv_depthwise" if tuple(weights[1:2]) == (1,) else "conv_grouped"


@dataclass(frozen=True)
class Operation:
    """One operator: the format's own type, its word ("": unknown), the dtype of its first output ("": unknown).

    `behind`: the word of what makes its first input, "" for an input of the model.
    """

    type: str
    word: str
    dtype: str = "float32"
    behind: str = ""

    @property
    def real(self) -> bool:
        """Whether it makes real numbers, as far as is known."""
        return not self.dtype or self.dtype in REAL


@dataclass(frozen=True)
class Kernels:
    """What an engine makes of an operator, by the engine's own names of operators.

    `outside`: what its accelerated kernels do not take; `floats`: what stays in float where the variant's precision is
    of whole numbers; `unable`: why it cannot be converted at all; `known`: False where no one knows.
    """

    outside: Sequence[str] = ()
    floats: Sequence[str] = ()
    unable: str = ""
    known: bool = True


@dataclass(frozen=True)
class Foreseen:
    """What a conversion will do: the operators that it replaces by simpler ones, "grid_sampler of warp.sample", and why
    it refuses the program, or ""."""

    rewritten: Sequence[str] = ()
    refused: str = ""
