"""What a source declares of a model's inputs and outputs, state and constants, held against what the model has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Dim, TensorSpec
from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np

Specs = tuple[TensorSpec, ...]
ONE = "export the model with a batch of 1"


def of(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], state: Mapping[str, str], where: str
) -> tuple[Specs, Specs]:
    """The specs of a model with `state`, {input: the output that feeds it}; `where` begins errors.

    Raises InputError for a name that is not there, for a state unlike what feeds it, and for an input or output that
    nothing could handle.
    """
    tensors.check_specs((*inputs, *outputs), where)
    data = [spec for spec in inputs if spec.name not in state]
    _check_names(inputs, outputs, state, where)
    for spec in data:
        if not spec.shape:
            raise InputError(
                f"{where}: input '{spec.name}' is a single number, which no item has one of: declare its value in the "
                f"source, constants = {{ {spec.name} = ... }} (--set source.constants.{spec.name}=...)"
            )
    for spec in outputs:
        if not spec.shape and spec.name not in state.values():
            raise InputError(f"{where}: output '{spec.name}' is a single number: axis 0 must be the batch; give it one")
    if not state:
        return tuple(inputs), tuple(outputs)
    if not data:
        raise InputError(f"{where}: state: every input is fed by an output; leave out those that the data gives")
    feeding = {spec.name: spec for spec in outputs}
    batch = data[0].shape[0]
    known = {s.name: _state(s, feeding[state[s.name]], batch, where) for s in inputs if s.name in state}
    fed = {feeder: name for name, feeder in state.items()}
    return (
        tuple(known.get(spec.name, spec) for spec in inputs),
        tuple(replace(known[fed[s.name]], name=s.name, feeds=fed[s.name]) if s.name in fed else s for s in outputs),
    )


def _check_names(
    inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], state: Mapping[str, str], where: str
) -> None:
    feeders = list(state.values())
    for side, specs, named in (("output", outputs, feeders), ("input", inputs, [*state])):
        have = [spec.name for spec in specs]
        for name in named:
            if name not in have:
                raise InputError(f"{where}: state: the model has no {side} '{name}'{did_you_mean(name, have)}")
    if twice := next((name for name in feeders if feeders.count(name) > 1), ""):
        raise InputError(f"{where}: state: output '{twice}' feeds two inputs; name one for each")


def _state(spec: TensorSpec, feeder: TensorSpec, batch: int | Dim, where: str) -> TensorSpec:
    """The state's input, its batch where it is."""
    what = f"{where}: state: input '{spec.name}'"
    sizes = [each for each in zip(spec.shape, feeder.shape, strict=False) if all(isinstance(d, int) for d in each)]
    if len(spec.shape) != len(feeder.shape) or any(a != b for a, b in sizes) or spec.dtype != feeder.dtype:
        raise InputError(
            f"{what} is {spec.dtype} [{tensors.words(spec)}], but output '{feeder.name}' {feeder.dtype} "
            f"[{tensors.words(feeder)}]; name the output that has its shape and type"
        )
    free = [axis for axis, size in enumerate(spec.shape) if isinstance(size, Dim)]
    axes = free if isinstance(batch, Dim) else [axis for axis, size in enumerate(spec.shape) if size == batch][:1]
    if len(free) > len(axes) or len(axes) > 1:
        raise InputError(f"{what} is [{tensors.words(spec)}]: a state keeps its size; export it with a fixed one")
    if not axes and batch != 1:
        raise InputError(f"{what} is [{tensors.words(spec)}]: it has no axis of the batch, whose items share it; {ONE}")
    shape = tuple(batch if axis in axes else size for axis, size in enumerate(spec.shape))
    letters = "".join("N" if axis in axes else "S" for axis in range(len(shape)))
    return replace(spec, shape=shape, layout="" if axes == [0] else letters)


def constant(name: str, value: Any, dtype: str, shape: Sequence[int], where: str) -> np.ndarray:
    """The value of an input that is a constant, as the model takes it; a single number fills the whole input.

    Raises InputError for a value that is none of its type or shape.
    """
    import numpy as np

    array, takes = np.asarray(value), f"the model takes {dtype} [{' x '.join(map(str, shape))}]"
    if array.dtype.kind not in "biuf":
        raise InputError(f"{where}: constants.{name}: {str(value)[:60]!r} is no number, nor a list of them; {takes}")
    typed = array.astype(dtype)
    if array.dtype.kind == "f" and np.dtype(dtype).kind != "f" and (typed != array).any():
        raise InputError(f"{where}: constants.{name}: {str(value)[:60]} does not fit; {takes}")
    try:
        return np.array(np.broadcast_to(typed, shape))
    except ValueError as error:
        raise InputError(f"{where}: constants.{name} is [{' x '.join(map(str, array.shape))}]; {takes}") from error


def check_constants(constants: Mapping[str, object], inputs: Sequence[str], where: str) -> None:
    """Raises InputError for a constant that is no input of the model."""
    for name in constants:
        if name not in inputs:
            raise InputError(f"{where}: constants: the model has no input '{name}'{did_you_mean(name, inputs)}")
