"""Runs what a deploy shipped, in this process, on the runtime that it shipped for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.commands import object_data
from edgecompress.commands.shipped_folder import runtime_of, shipped
from edgecompress.core import environments, registry
from edgecompress.core.errors import EdgeError, InputError, StageFailed, edge_errors, first_line
from edgecompress.core.model import Artifact, TensorSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike

AT_ONCE = 64  # items, where the artifact takes any number


@edge_errors
def run(folder: Path, inputs: ArrayLike | Mapping[str, ArrayLike], threads: int = 1) -> dict[str, np.ndarray]:
    """The outputs by name, as real numbers, of inputs as the net takes them: preprocessed, items on axis 0.

    An array, or arrays by the names of the inputs. Raises EdgeError.
    """
    import numpy as np

    from edgecompress.data import states, tensors

    artifact, _, origin = shipped(folder)
    name = runtime_of(artifact, origin.runtime)
    runtime = registry.load("runtimes", name)
    if environments.environment(runtime):
        raise InputError(f"runtime {name} has a Python of its own; `edgecompress verify` and `profile` run it there")
    arrays = _arrays(artifact, inputs)
    try:
        session = runtime.open(artifact, threads)
        try:
            parts = [session.run(batch) for batch in _batches(artifact, arrays)]
        finally:
            session.close()
    except EdgeError:
        raise
    except Exception as error:  # whatever an engine raises
        raise StageFailed(f"runtime {name}: {first_line(error)}") from error
    count = len(next(iter(arrays.values())))
    real = {
        s.name: [states.parted(tensors.real(np.asarray(part[s.name]), s), s) for part in parts]
        for s in artifact.outputs
    }
    return {output: np.concatenate(each)[:count] for output, each in real.items()}


def _arrays(artifact: Artifact, inputs: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    """The inputs by name, as the artifact takes them. Raises InputError for others."""
    names = [spec.name for spec in artifact.inputs]
    given = inputs if isinstance(inputs, Mapping) else dict.fromkeys(names[:1], inputs)
    if {*given} != {*names}:
        raise InputError(f"run: the model takes {', '.join(names)}; give a dictionary of arrays with these names")
    arrays = {spec.name: _fitted(object_data.array(given[spec.name], spec.name), spec) for spec in artifact.inputs}
    if len({len(array) for array in arrays.values()}) > 1 or not all(map(len, arrays.values())):
        raise InputError("run: give as many items, at least one, of each input")
    return arrays


def _fitted(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    from edgecompress.data import states, tensors

    wanted = states.item_shape(spec)
    if array.shape[1:] != wanted and all(isinstance(size, int) for size in wanted):
        raise InputError(
            f"run: input '{spec.name}' takes {tensors.words(spec)}, the array is {list(array.shape)}; "
            "give the items as the net takes them, preprocessed"
        )
    array = tensors.fitted(array, spec) if spec.quantization or array.dtype.kind == "i" else array
    if str(array.dtype) != spec.dtype:
        raise InputError(f"run: input '{spec.name}' takes {spec.dtype}, the array has {array.dtype}; convert it")
    return array


def _batches(artifact: Artifact, arrays: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Batches of the size that the artifact takes; the last item fills up the last one."""
    import numpy as np

    from edgecompress.data import states

    size, specs = artifact.batch, {spec.name: spec for spec in artifact.inputs}
    count = len(next(iter(arrays.values())))
    step = size if isinstance(size, int) else min(AT_ONCE, count)
    for begin in range(0, count, step):
        index = np.minimum(np.arange(begin, begin + step), count - 1)
        items = {name: states.joined(array[index], specs[name]) for name, array in arrays.items()}
        yield {name: np.ascontiguousarray(array) for name, array in items.items()}
