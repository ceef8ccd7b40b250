"""A Core ML program that can be run and traced."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from edgecompress.core.errors import InputError
from edgecompress.engines.coreml.mil.block import Block
from edgecompress.engines.coreml.mil.dtypes import to_numpy
from edgecompress.engines.coreml.mil.lazy import numpy
from edgecompress.engines.coreml.mil.values import Declared
from edgecompress.engines.coreml.mil.weights import held

if TYPE_CHECKING:
    import numpy as np
    import torch


class Port(NamedTuple):
    """An input or output: its shape (None: any size) and numpy's name of its type."""

    shape: tuple[int | None, ...]
    dtype: str


class Program:
    """A function of a package: `inputs` and `outputs` by name, as a caller sees them."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self.inputs = _ports(block.inputs)
        self.outputs = _ports(block.outputs)

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One inference. Raises InputError where the inputs are not the program's."""
        values = self._block.run({}, *self._ordered(inputs))
        return {out.name: to_numpy(value, out.dtype) for out, value in zip(self._block.outputs, values, strict=True)}

    def trace(self, inputs: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str, np.ndarray]]:
        """Each op's outputs in the program's order: the output's name, the op's type, the array.

        Constants are left out, and what a loop or a branch computes inside; what it gives back is there.
        """
        for step, out, value in self._block.walk(self._block.start({}, self._ordered(inputs))):
            yield out.name, step.kind, to_numpy(value, out.dtype)

    def _ordered(self, inputs: Mapping[str, np.ndarray]) -> list[torch.Tensor]:
        if set(inputs) != set(self.inputs):
            raise InputError(f"Core ML: the model's inputs are {sorted(self.inputs)}, but {sorted(inputs)} were given")
        return [_held(want, inputs[want.name]) for want in self._block.inputs]


def _held(want: Declared, array: np.ndarray) -> torch.Tensor:
    if array.dtype != numpy.dtype(want.dtype.numpy) or not want.fits(array.shape):
        raise InputError(
            f"Core ML: input {want.name!r} is {want.dtype.numpy} of {list(want.shape)}, "
            f"given: {array.dtype} of {list(array.shape)}"
        )
    return held(array, want.dtype)


def _ports(values: Iterable[Declared]) -> dict[str, Port]:
    return {value.name: Port(value.shape, value.dtype.numpy) for value in values}
