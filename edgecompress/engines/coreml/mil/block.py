"""A block of executable ops, and its steps."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core.errors import StageFailed
from edgecompress.engines.coreml.mil import signature
from edgecompress.engines.coreml.mil.dtypes import kind_of, settle
from edgecompress.engines.coreml.mil.lazy import torch
from edgecompress.engines.coreml.mil.values import Declared, Value

BROKEN = (ArithmeticError, AssertionError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)  # of torch


@dataclass(frozen=True)
class BlockStep:
    """One op: its function, the arguments known beforehand, the names of those that are not, the blocks inside it."""

    kind: str
    outputs: tuple[Declared, ...]
    function: signature.Op
    fixed: Mapping[str, signature.Argument]
    moving: Mapping[str, Sequence[str]]
    blocks: tuple[Block, ...] = ()

    @property
    def where(self) -> str:
        """Its name in errors."""
        return name_of(self.kind, self.outputs)

    @property
    def reads(self) -> set[str]:
        """The names of the values that it needs, those of its blocks included."""
        inner = (name for block in self.blocks for step in block.steps for name in step.reads)
        outputs = (output.name for block in self.blocks for output in block.outputs)
        return {name for names in self.moving.values() for name in names}.union(inner, outputs)

    def run(self, values: Mapping[str, Value]) -> tuple[torch.Tensor, ...]:
        """The outputs: computed in fp32, each rounded once to the type that the program declares."""
        schema = signature.parameters(self.function)
        arguments = {name: schema[name].take([values[n] for n in names]) for name, names in self.moving.items()}
        if self.blocks:
            arguments["blocks"] = [functools.partial(block.run, values) for block in self.blocks]
        try:
            with torch.inference_mode():
                result = self.function(**self.fixed, **arguments)
        except BROKEN as error:
            raise StageFailed(
                f"{self.where} cannot be computed: {(str(error) or repr(error)).splitlines()[0]}"
            ) from error
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(self.outputs):
            raise StageFailed(
                f"{self.where} has {len(self.outputs)} outputs in the program, but {len(results)} were computed"
            )
        return tuple(self._settled(out, value) for out, value in zip(self.outputs, results, strict=True))

    def _settled(self, out: Declared, value: torch.Tensor) -> torch.Tensor:
        if kind_of(value) != out.dtype.kind or not out.fits(tuple(value.shape)):
            raise StageFailed(
                f"{self.where}: {out.name!r} is {out.dtype.name} of {list(out.shape)} in the program, but the "
                f"computed value is {kind_of(value)} of {list(value.shape)}"
            )
        return settle(value, out.dtype)


@dataclass(frozen=True)
class Block:
    """Steps in order, between inputs and outputs, and the constants that they use."""

    inputs: tuple[Declared, ...]
    steps: tuple[BlockStep, ...]
    outputs: tuple[Declared, ...]
    constants: Mapping[str, Value]

    @functools.cached_property
    def done(self) -> dict[int, list[str]]:
        """After which step which values of this block are not needed any more."""
        last = {name: index for index, step in enumerate(self.steps) for name in (out.name for out in step.outputs)}
        last |= {name: index for index, step in enumerate(self.steps) for name in step.reads if name in last}
        ended: dict[int, list[str]] = {}
        for name in last.keys() - {out.name for out in self.outputs}:
            ended.setdefault(last[name], []).append(name)
        return ended

    def run(self, outer: Mapping[str, Value], *inputs: torch.Tensor) -> tuple[Value, ...]:
        """The outputs, from the values around the block and those for its inputs."""
        values = self.start(outer, inputs)
        for _ in self.walk(values):
            pass
        return tuple(values[out.name] for out in self.outputs)

    def start(self, outer: Mapping[str, Value], inputs: Sequence[torch.Tensor]) -> dict[str, Value]:
        """The values before the first step."""
        names = (declared.name for declared in self.inputs)
        return {**outer, **self.constants, **dict(zip(names, inputs, strict=True))}

    def walk(self, values: dict[str, Value]) -> Iterator[tuple[BlockStep, Declared, torch.Tensor]]:
        """Each output as it is computed; `values` is filled with what is still needed."""
        for index, step in enumerate(self.steps):
            for out, value in zip(step.outputs, step.run(values), strict=True):
                values[out.name] = value
                yield step, out, value
            for name in self.done.get(index, ()):
                del values[name]


def name_of(kind: str, outputs: Sequence[Declared]) -> str:
    """The name of an op in errors."""
    return f"Core ML: op {kind!r} ({(outputs[0].name if outputs else '')!r})"
