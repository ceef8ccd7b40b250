"""What a source declares of a model's inputs and outputs, state and constants, held against what the model has."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Dim, Shape, TensorSpec
from edgecompress.data import tensors

if TYPE_CHECKING:
    import numpy as np

Specs = tuple[TensorSpec, ...]
ONE = "export the model with a batch of 1"


def of(
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    state: Mapping[str, str],
    where: str,
    data: Sequence[TensorSpec] = (),
) -> tuple[Specs, Specs]:
    """The specs of a model with `state`, {input: the output that feeds it}, and where the items of each lie.

    `data`: the inputs of its samples, where they are known; `where` begins errors. Raises InputError for a name that
    is not there, for a state unlike what feeds it, and for an input or output that nothing could handle.
    """
    tensors.check_specs((*inputs, *outputs), where)
    _check_names(inputs, outputs, state, where)
    given = [spec for spec in inputs if spec.name not in state]
    if state and not given:
        raise InputError(f"{where}: state: every input is fed by an output; leave out those that the data gives")
    items = _items(given, data)
    batch = _batch(given, items)
    feeding, fed = {spec.name: spec for spec in outputs}, {feeder: name for name, feeder in state.items()}
    known = {s.name: _state(s, feeding[state[s.name]], batch, where) for s in inputs if s.name in state}
    for spec in given:
        known[spec.name] = _placed(spec, batch, items.get(spec.name))
        if known[spec.name].batch_axis is None and batch != 1:
            raise InputError(
                f"{where}: input '{spec.name}' is a single number, and the model takes several items at once: declare "
                f"its value in the source, constants = {{ {spec.name} = ... }} "
                f"(--set source.constants.{spec.name}=...), or {ONE}"
            )
    made = [
        replace(known[fed[s.name]], name=s.name, feeds=fed[s.name]) if s.name in fed else _placed(s, batch, None)
        for s in outputs
    ]
    for spec in made:
        if spec.batch_axis is None and batch != 1:
            raise InputError(f"{where}: output '{spec.name}' is a single number: axis 0 must be the batch; give it one")
    return tuple(known[spec.name] for spec in inputs), tuple(made)


def _items(inputs: Sequence[TensorSpec], data: Sequence[TensorSpec]) -> dict[str, Shape]:
    """The shape of an item of each input, as far as the data has it."""
    with contextlib.suppress(InputError):  # whoever compares them tells
        shapes = {spec.name: spec.shape[1:] for spec in data}
        return {name: shapes[stored] for name, stored in tensors.paired(inputs, data).items()} if data else {}
    return {}


def _batch(inputs: Sequence[TensorSpec], items: Mapping[str, Shape]) -> int | Dim:
    """How many items the first input with an axis takes at once."""
    named = (size for spec in inputs for size in spec.shape if isinstance(size, Dim) and size.name == "batch")
    if (batch := next(named, None)) is not None:
        return batch
    for spec in inputs:
        item = items.get(spec.name)
        fitting = [axis for axis in range(len(spec.shape)) if item is not None and _without(spec.shape, axis, item)]
        if fitting or (spec.shape and not (item is not None and tensors.fits(spec.shape, item))):
            return spec.shape[fitting[0] if fitting else 0]
    return 1


def _without(shape: Shape, axis: int, item: Shape) -> bool:
    """Whether a shape is that of an item but for one axis."""
    return tensors.fits((*shape[:axis], *shape[axis + 1 :]), item)


def _placed(spec: TensorSpec, batch: int | Dim, item: Shape | None) -> TensorSpec:
    """The spec with a layout that says where its items lie, if that is not axis 0.

    Of a model for one item an input or output may have no axis of them.
    """
    axes = [axis for axis, size in enumerate(spec.shape) if _same(size, batch) or (not axis and isinstance(size, Dim))]
    fitting = [axis for axis in axes if item is not None and _without(spec.shape, axis, item)]
    if 0 in (fitting or axes) or spec.layout or (not axes and batch != 1):
        return spec
    return replace(spec, layout=_layout(spec, (fitting or axes)[:1]))


def _same(size: int | Dim, batch: int | Dim) -> bool:
    return size.name == batch.name if isinstance(size, Dim) and isinstance(batch, Dim) else size == batch


def _layout(spec: TensorSpec, axes: Sequence[int]) -> str:
    return "".join("N" if axis in axes else "S" for axis in range(len(spec.shape)))


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
    if not alike(spec, feeder):
        raise InputError(
            f"{what} is {spec.dtype} [{tensors.words(spec)}], but output '{feeder.name}' {feeder.dtype} "
            f"[{tensors.words(feeder)}]; name the output that has its shape and type"
        )
    free = [axis for axis, size in enumerate(spec.shape) if isinstance(size, Dim)]
    axes = free if isinstance(batch, Dim) else [axis for axis, size in enumerate(spec.shape) if size == batch][:1]
    if len(free) > len(axes) or len(axes) > 1:
        raise InputError(f"{what} is [{tensors.words(spec)}]: a state keeps its size; export it with a fixed one")
    if not axes and batch != 1:
        raise InputError(
            f"{what} is [{tensors.words(spec)}]: it has no axis of the batch, whose items share it; {ONE}; "
            "where axis 0 is time, make it that of the items (batch_first=True of an LSTM or GRU)"
        )
    shape = tuple(batch if axis in axes else size for axis, size in enumerate(spec.shape))
    return replace(spec, shape=shape, layout="" if axes == [0] else _layout(spec, axes))


def alike(spec: TensorSpec, output: TensorSpec) -> bool:
    """Whether an output may become an input: of its type, and its shape as far as both are known."""
    sizes = [each for each in zip(spec.shape, output.shape, strict=False) if all(isinstance(d, int) for d in each)]
    return spec.dtype == output.dtype and len(spec.shape) == len(output.shape) and all(a == b for a, b in sizes)


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
