"""Weight-only quantization, for any runtime: its options, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from edgecompress.core.json import Json
from edgecompress.core.model import Goal, Promise
from edgecompress.techniques._calibration import check_samples

# gptq: the error of a number goes to those behind it, Frantar et al. 2022, arXiv:2210.17323;
# awq: rows of large activations are scaled up before, Lin et al. 2023, arXiv:2306.00978
Method = Literal["nearest", "gptq", "awq"]
LEAST_COLUMNS = 16  # a product with fewer stays in float: it costs accuracy and saves no time
NOTHING = "changed nothing in this model: it has no matrix product with a weight that is large enough"


@dataclass(frozen=True)
class Options:
    """How weights are rounded, and which."""

    group: Literal[32, 64, 128] = 32  # numbers of a column that share a scale
    symmetric: bool = False  # no zero points: a little smaller, a little less exact
    embeddings: bool = False  # lookup tables too
    skip: tuple[str, ...] = ()  # operators kept in float, as patterns of their names


@dataclass(frozen=True)
class FourBits(Options):
    """What 4 bits need besides."""

    method: Method = "nearest"  # gptq and awq fit the weights to calibration items
    samples: int | None = 64  # calibration items at most, for gptq and awq; None is all
    int8: tuple[str, ...] = ()  # operators with 8 bits, as patterns of their names
    bits: float | None = None  # of a weight on average, 4 to 8: which have 8, or stay in float, is then chosen

    def __post_init__(self) -> None:
        check_samples(self.samples)
        check_bits(self.bits)


def check_bits(bits: float | None) -> None:
    """Raises ValueError for a budget that says nothing."""
    if bits is not None and not 4 <= bits < 8:
        raise ValueError("bits must be at least 4 and below 8; for 8 use int8-weights")


class Budgeted(Protocol):
    """Options with a budget."""

    @property
    def bits(self) -> float | None:
        """Bits of a weight on average."""


def goal(options: Budgeted) -> Goal | None:
    """The bits on average, where they are asked for."""
    return None if options.bits is None else Goal("bits", options.bits)


def promise(bits: int) -> Promise:
    """A part of the weights: of small nets most are in lookup tables."""
    return Promise(f"int{bits}", "", 0.0, 0.0)


def rungs(options: Mapping[str, Json], methods: Sequence[str]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: a smaller group, and other ways to round, the quickest first."""
    found: list[tuple[str, dict[str, Json]]] = []
    if options.get("group", 32) != 32:
        found.append(("groups of 32", {"group": 32}))
    return found + [(m, {"method": m}) for m in methods if m != options.get("method", "nearest")]
