"""The size of a model's weights in bytes: dense, without their zeros, and compressed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import packed_file, stored_tensors, torch_module, weight_encodings
from edgecompress.stages.analyze import weights

if TYPE_CHECKING:
    import numpy as np

REQUIRES, EXTRA = weight_encodings.REQUIRES, weight_encodings.EXTRA

Stored = tuple[str, "np.ndarray | None"]


def run(request: Request) -> Artifact:
    """The stage: {"model"} -> "storage": {"rows", "total": see formats.weight_encodings; "packed": the names of weights
    that are of fewer than 8 bits or sparse already, and in no row; "files": {"bytes", "zstd" and "packed": each file
    compressed, and packed}}.
    """
    model = request.model
    if not weights.readable(model.kind):
        raise InputError(f"weights are read from {weights.refused(model)}")
    stored = list(of(model))
    rows = [weight_encodings.row(name, array) for name, array in stored if array is not None]
    tensors = [stored_tensors.tensor(array) for _, array in stored if array is not None]
    files = [file.read_bytes() for file in model.files()]
    facts = {
        "kind": model.kind,
        "rows": rows,
        "total": weight_encodings.total(rows),
        "packed": [name for name, array in stored if array is None],
        "files": {
            "bytes": model.size_bytes,
            "zstd": sum(len(weight_encodings.squeezed(data)) for data in files),
            "packed": sum(len(packed_file.pack(data, tensors)) for data in files),
        },
    }
    return Artifact(request.out, "storage", facts=facts).write()


def of(model: Artifact) -> Iterator[Stored]:
    """Each constant of two or more axes once, in the order and dtype of the file; whole numbers less their zero point.

    None for one that is packed already.
    """
    yield from (stored_tensors.reader(model.kind) or _torch)(model)


def _torch(model: Artifact) -> Iterator[Stored]:
    import torch

    seen: set[int] = set()
    for name, tensor in torch_module.rebuild(model).state_dict().items():
        if weights.is_weight(name, tensor) and tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            yield name, (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
