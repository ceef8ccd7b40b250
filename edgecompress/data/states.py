"""Where the items of inputs and outputs lie, and state. Runs on Python 3.10: devices get it.

Samples have items on axis 0; a model may have them on another axis, or take one item as a whole. State are inputs that
the outputs of one call become at the next: samples hold it as the source had it before each item.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.model import Artifact, Shape, TensorSpec

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"

SEQUENCE = "sequence"  # in the facts of samples: items that follow each other, before the first of which state is zero


def names(model: Artifact) -> set[str]:
    """The inputs that outputs feed."""
    return {spec.feeds for spec in model.outputs if spec.feeds}


def zeros(model: Artifact, batch: int, given: Iterable[str] = ()) -> dict[str, np.ndarray]:
    """The state that a sequence begins with, but for the inputs that are `given`."""
    fed = names(model).difference(given)
    return {spec.name: zero(spec, batch) for spec in model.inputs if spec.name in fed}


def zero(spec: TensorSpec, batch: int = 1) -> np.ndarray:
    """An input that is zero, as the model takes it."""
    import numpy as np

    return np.full(spec.concrete(batch), _zero(spec), spec.dtype)


def _zero(spec: TensorSpec) -> int:
    return spec.quantization.zero_point[0] if spec.quantization else 0


def steps(
    run: Callable[[Arrays], Arrays], calls: Iterable[Arrays], model: Artifact, length: int
) -> Iterator[tuple[dict[str, np.ndarray], Arrays]]:
    """What goes into each call of a net and comes out; its own state is fed back, and zero every `length` calls.

    `calls` hold all inputs; the state in them only says how many items there are.
    """
    import numpy as np

    specs = {spec.name: spec for spec in model.inputs if spec.name in names(model)}
    state: dict[str, np.ndarray] = {}
    for number, call in enumerate(calls):
        if not number % length:
            state = {name: np.full_like(call[name], _zero(spec)) for name, spec in specs.items()}
        given = {**call, **state}
        outputs = run(given)
        state = {spec.feeds: outputs[spec.name] for spec in model.outputs if spec.feeds}
        yield given, outputs


def joined(items: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """Items on axis 0 as the input takes them."""
    import numpy as np

    axis = spec.batch_axis
    if axis is None or items.ndim > len(spec.shape):  # one item as a whole
        return np.asarray(items[0])
    return np.moveaxis(items, 0, axis).copy() if axis else items  # torch reads the strides of axes of size 1 too


def item_shape(spec: TensorSpec) -> Shape:
    """The shape of an item of an input or output."""
    return tuple(size for axis, size in enumerate(spec.shape) if axis != spec.batch_axis)


def parted(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    """What the input takes, with its items on axis 0."""
    import numpy as np

    axis = spec.batch_axis
    return array[None] if axis is None else np.moveaxis(array, axis, 0)
