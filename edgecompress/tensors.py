"""Named arrays on disk: the splits of a samples artifact, read and written in chunks. numpy only inside functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.errors import InputError
from edgecompress.model import Artifact, TensorSpec

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

LABELS = "labels"  # labels.npy beside the inputs of a split, where there are labels


def load(artifact: Artifact, split: str, name: str) -> Array:
    """One array of a split, memory-mapped read-only; never unpickles. Raises InputError when it is not there."""
    import numpy as np

    file = artifact.path / split / f"{name}.npy"
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as an array: {error}") from error


def count(artifact: Artifact, split: str) -> int:
    """Items in a split."""
    return len(load(artifact, split, artifact.inputs[0].name)) if artifact.inputs else 0


def batches(artifact: Artifact, split: str, batch: int = 1, limit: int | None = None) -> Iterator[dict[str, Array]]:
    """Model inputs by name, `batch` items at a time (the last one padded by repeating its last item), copied out of the map.

    The padded items are for the caller to drop: item i of batch k is item k * batch + i of the split.
    """
    import numpy as np

    arrays = {spec.name: load(artifact, split, spec.name) for spec in artifact.inputs}
    total = min(count(artifact, split), limit or 2**62)
    for begin in range(0, total, batch):
        index = np.minimum(np.arange(begin, begin + batch), total - 1)
        yield {name: np.ascontiguousarray(array[index]) for name, array in arrays.items()}


def check_inputs(model: Artifact, samples: Artifact) -> None:
    """Raises InputError when the samples do not fit the model's inputs: names, dtypes, every axis but the batch's."""
    for spec in model.inputs:
        given = next((s for s in samples.inputs if s.name == spec.name), None)
        if given is None:
            names = ", ".join(s.name for s in samples.inputs)
            raise InputError(
                f"the model needs an input '{spec.name}', the data has: {names}; name the data's arrays so"
            )
        _check_one(spec, given)


def _check_one(spec: TensorSpec, given: TensorSpec) -> None:
    fits = len(spec.shape) == len(given.shape) and all(
        a == b if isinstance(a, int) else a.min <= (b if isinstance(b, int) else b.min) <= a.max
        for a, b in zip(spec.shape[1:], given.shape[1:], strict=False)
    )
    if not fits:
        raise InputError(
            f"input '{spec.name}': the model takes {words(spec)}, the data gives {words(given)}; "
            "check the preprocessing (resize, crop, layout)"
        )
    if spec.dtype != given.dtype:
        raise InputError(
            f"input '{spec.name}': the model takes {spec.dtype}, the data gives {given.dtype}; convert the data"
        )


def words(spec: TensorSpec) -> str:
    """A shape as people write it: `batch x 3 x 32 x 32`."""
    return " x ".join(str(d) if isinstance(d, int) else d.name for d in spec.shape)


def write_split(folder: Path, arrays: Mapping[str, Array]) -> None:
    """Each array as NAME.npy in `folder`, which is made."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
