"""The tensors in a model's files, as their bytes lie there: what a packed file makes codebooks of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from edgecompress.core import environments, registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.formats import packed_file

if TYPE_CHECKING:
    import numpy as np

Reader = Callable[[Artifact], Iterator[tuple[str, "np.ndarray | None"]]]


def reader(kind: str) -> Reader | None:
    """What reads the constants of this kind of model, by name and as they are stored; None where nothing does."""
    told = (runtime.stored or runtime.weights for runtime in registry.of_format(kind))
    return next(filter(None, told), None)


def of(model: Artifact) -> Iterator[packed_file.Tensor]:
    """The tensors in the files of a model; none where nothing reads them. Raises MissingDependency."""
    if read := reader(model.kind):
        runtime = registry.of_format(model.kind)[0].name
        environments.require(registry.load("runtimes", runtime), f"reading the weights of {model.kind}")
        yield from (tensor(array) for _, array in read(model) if array is not None)
    for file in model.files():
        if file.suffix == ".safetensors":
            yield from _safetensors(file.read_bytes(), file.name)


def tensor(array: np.ndarray) -> packed_file.Tensor:
    """An array as a packed file takes it."""
    import numpy as np

    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return packed_file.width(array.itemsize), little.tobytes()


def _safetensors(data: bytes, name: str) -> Iterator[packed_file.Tensor]:
    """A header of JSON, its length before it, says where each tensor begins and ends behind it."""
    begin = 8 + int.from_bytes(data[:8], "little")
    try:
        for key, told in json.loads(data[8:begin]).items():
            if key != "__metadata__":
                start, end = (begin + offset for offset in told["data_offsets"])
                yield {"16": 2, "32": 4, "64": 4}.get(told["dtype"].lstrip("BFIU"), 1), data[start:end]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{name}: is no sound .safetensors file; copy it again") from error
