"""The weights of a model, by name, as torch lays them out: [filters, channels, *kernel] or [rows, columns]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core import registry
from edgecompress.core.model import Artifact
from edgecompress.core.source import TORCH
from edgecompress.formats import torch_module

if TYPE_CHECKING:
    import numpy as np
    import torch

Named = tuple[str, "np.ndarray"]
MATRIX = 2
SHOWN = 64  # bins of a histogram


class WeightHistogram(TypedDict):
    """The numbers of a weight that are finite and not zero, in bins of equal width from `min` to `max`; zeros: 0..1."""

    name: str
    elements: int
    zeros: float
    min: float
    max: float
    histogram: list[int]


def histogram(name: str, weight: np.ndarray) -> WeightHistogram:
    """Of one weight; one that has no such number, or one alone, has empty bins."""
    import numpy as np

    some = weight[np.isfinite(weight) & (weight != 0)].astype(np.float64)
    low, high = (float(some.min()), float(some.max())) if some.size else (0.0, 0.0)
    counts = np.histogram(some, SHOWN, (low, high))[0] if low < high else np.zeros(SHOWN, int)
    return {
        "name": name,
        "elements": int(weight.size),
        "zeros": float((weight == 0).mean()) if weight.size else 0.0,
        "min": low,
        "max": high,
        "histogram": counts.tolist(),
    }


def of(model: Artifact) -> Iterator[Named]:
    """Each weight of two or more axes of a torch net, or of a file whose runtime tells."""
    read = next((each.weights for each in registry.of_format(model.kind) if each.weights), _torch)
    yield from ((name, array) for name, array in read(model) if array is not None)


def readable(kind: str) -> bool:
    """Whether the weights of this kind of model can be read."""
    return kind in TORCH or any(runtime.weights for runtime in registry.of_format(kind))


def sources() -> str:
    """What weights can be read of, in words."""
    suffixes = sorted(runtime.suffix for runtime in registry.runtimes() if runtime.weights and runtime.suffix)
    return f"torch nets, {' and '.join(suffixes)} files"


def refused(model: Artifact) -> str:
    """What to do with a model whose weights are not read."""
    return (
        f"{sources()}, not kind '{model.kind}'; export it first, as `edgecompress deploy MODEL --only fp32` does "
        "(artifact/model.onnx in what it ships for x86)"
    )


def _torch(model: Artifact) -> Iterator[Named]:
    """What the state calls weight or bias, as Distiller has it; a tied one under each of its names."""
    for name, tensor in torch_module.rebuild(model).state_dict().items():
        if is_weight(name, tensor):
            yield name, tensor.float().numpy()


def is_weight(name: str, tensor: torch.Tensor) -> bool:
    """Whether a tensor of a torch net's state is one."""
    return tensor.ndim >= MATRIX and ("weight" in name or "bias" in name) and bool(tensor.is_floating_point())
